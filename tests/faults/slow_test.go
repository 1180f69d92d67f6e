//go:build unix && !race

package faults

// slowdown is 1 without the race detector.
const slowdown = 1
