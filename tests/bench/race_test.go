//go:build race

package main

import "time"

// The race detector slows the Temporal server down to a tenth, and what is measured
// with it means nothing: the test is of the code.
func init() {
	short = plan{
		sequential: []sized{{kilobyte, 4}, {100 * kilobyte, 2}, {megabyte, 1}},
		fanOuts:    1, fanOut: 20, stdio: 1, overhead: 2, slow: 3 * time.Second,
	}
}
