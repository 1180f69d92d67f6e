//go:build !unix

package main

import "time"

var started = time.Now()

// cpuTime stands in for the processor time with the time on the clock, which is
// the same for one goroutine on a machine with nothing else to do.
func cpuTime() time.Duration { return time.Since(started) }
