//go:build !race

package handler_test

// withRace is true when calls take several times as long.
const withRace = false
