//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime returns the processor time that the process has used.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic("bench: getrusage: " + err.Error()) // it has no other reason than a bad argument
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
