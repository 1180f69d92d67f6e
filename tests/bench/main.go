// Command bench measures what a call through this library costs, against the ways
// that it competes with. From the repository's root, with the go command at hand, which
// builds the MCP server:
//
//	go run ./tests/bench           a table, in about three minutes
//	go run ./tests/bench -json     one JSON object
//	go run ./tests/bench -quick    fewer rounds, in half a minute
//
// # What is compared
//
// One process holds the Temporal server of examples/devserver, at its default
// limits, a worker that publishes in one namespace and one that runs workflows in
// another. The MCP server, on loopback or over stdio, is a program of its own,
// toolserver. The ways to call the same tool are
//
//	MCP session       mcp.ClientSession.CallTool, without Temporal
//	hand-written      a nexus.NewSyncOperation around that session
//	library, inline   this library with execution inline
//	library, auto     with the default, which the caller did not have to ask for
//	library, durable  with execution durable
//	library, batched  with CallTools, many calls in one operation (fan-outs only)
//	activity          an activity in the workflow's namespace, not eager
//
// # How to read it
//
// Every number is the median of many, and the ways of one table take turns: A, B,
// C, then B, C, A, so that what slows the machine for a while slows all of them.
// The hand-written operation takes part twice, as two series that differ in
// nothing: their ratio, "A/A", is what noise alone can do. A difference smaller
// than A/A's distance from 1 means nothing. P10 and P90 show how far single calls
// scatter.
//
// A call's time is the workflow's: from before its params are encoded until after
// its result is decoded, workflow tasks included.
//
// The Temporal server starts no more than 100 Nexus operations a second for each
// caller namespace and endpoint, after a burst of 100
// (history.outboundQueue.hostScheduler.maxTaskRPS). Every series has an endpoint
// of its own and sequential ones wait, off the clock, while theirs is exhausted;
// PACED says how many calls did. A fan-out begins with a full burst and has to
// live with the limit.
//
// Ratios are of times, the library's to the other's: lower is better. The
// exception is fanout_vs_activity, of rates, for which higher is better.
//
// # JSON
//
//	sync_vs_handwritten     time of an inline call of 1 KB / of the hand-written operation
//	sync_vs_activity        the same / of the activity
//	fanout_vs_activity      calls per second of a batched fan-out of 200 / the activities'
//	events_per_call         history events of an inline call
//	legacy_stdio_vs_shared  time of a call to a stdio server of protocol version 2025-11-25
//	                        with a process for each call / with one process shared
//	handler_overhead_us     CPU of a call in the handler beyond the MCP session's, 1 KB
//	caller_overhead_us      CPU of a call in the workflow beyond workflow.NexusClient's, 1 KB
//	handoff_added_ms        a call of a tool that takes 15 s (4 s in a quick run),
//	                        execution auto, less what the tool takes
//
// What could not be measured is null; stderr says why, and the exit code is 1.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the program and returns its exit code. What went wrong is one
// line.
func execute(ctx context.Context, arguments []string, out, errOut io.Writer) int {
	err := run(ctx, arguments, out)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	fmt.Fprintln(errOut, "bench:", err)
	return 1
}

func run(ctx context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a mistake is one line, which execute writes
	asJSON := flags.Bool("json", false, "print one JSON object instead of the table")
	quick := flags.Bool("quick", false, "fewer rounds, and a slow call of 4 seconds instead of 15")
	err := flags.Parse(arguments)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(out)
		flags.Usage()
		return err
	case err != nil:
		return fmt.Errorf("%w (--help shows the flags)", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: there are flags only (--help shows them)", flags.Arg(0))
	}
	plan := full
	if *quick {
		plan = short
	}
	table := out
	if *asJSON {
		table = io.Discard
	}
	measured, err := measure(ctx, plan, table)
	if *asJSON && measured != nil && ctx.Err() == nil {
		if err := json.NewEncoder(out).Encode(measured); err != nil {
			return err
		}
	}
	return err
}
