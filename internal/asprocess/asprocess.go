// Package asprocess lets a test binary start itself as something else: an MCP
// server, a worker, a Temporal server. What it is to be is in an environment
// variable, in JSON.
package asprocess

import (
	"encoding/json"
	"fmt"
	"os"
)

// MainIfAsked runs what the process was started for, and exits, if the variable is
// set: run gets the configuration that is its value. It exits with 2 when run fails,
// after a line on stderr. A test binary calls it first thing in TestMain.
func MainIfAsked[Config any](variable string, run func(Config) error) {
	given, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	var config Config
	err := json.Unmarshal([]byte(given), &config)
	if err == nil {
		err = run(config)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		os.Exit(2)
	}
	os.Exit(0)
}

// Environ returns what the environment of such a process has beside what it has
// anyway. It panics over a configuration that has no JSON form.
func Environ(variable string, config any) map[string]string {
	value, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	return map[string]string{
		variable: string(value),
		// A binary with the race detector sleeps for a second before it exits.
		"GORACE": "atexit_sleep_ms=0",
	}
}
