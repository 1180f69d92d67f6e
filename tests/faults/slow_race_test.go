//go:build unix && race

package faults

// slowdown is how much longer everything may take, and how much less is done at a
// time, than without the race detector: the Temporal server is in the test binary.
const slowdown = 3
