// Package asprocess lets tests start processes: an MCP server, a worker, a Temporal
// server. They are programs of the tests, or the test binary itself. What a process is
// to be is in an environment variable, in JSON.
package asprocess

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// MainIfAsked runs what the process was started for, and exits, if the variable is
// set: run gets the configuration that is its value. It exits with 2 when run fails,
// after a line on stderr. It is what the process calls first, in main or in TestMain.
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

// ServeIfAsked is [MainIfAsked] for a process that runs until SIGTERM, with which the
// context is done, and that must not outlive who started it: it exits with 3 when its
// stdin ends.
func ServeIfAsked[Config any](variable string, run func(terminated context.Context, config Config) error) {
	MainIfAsked(variable, func(config Config) error {
		terminated, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(3)
		}()
		return run(terminated, config)
	})
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
