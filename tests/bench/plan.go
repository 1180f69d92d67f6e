package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"
)

// A plan is how often things are measured.
type plan struct {
	// sequential are the rounds of sequential calls, by the size of their result.
	sequential []sized
	fanOuts    int // rounds
	fanOut     int // calls at the same time
	// durableFanOut lets durable calls take part in a fan-out, which takes long.
	durableFanOut bool
	stdio         int // rounds of stdioBlock calls
	overhead      int // rounds of overheadBlock calls
	// slow is how long the tool of handOff takes.
	slow time.Duration
}

type sized struct{ bytes, rounds int }

const (
	kilobyte = 1 << 10
	megabyte = 1 << 20
)

var (
	full = plan{
		sequential: []sized{{kilobyte, 400}, {100 * kilobyte, 150}, {megabyte, 40}},
		fanOuts:    7, fanOut: 200, durableFanOut: true, stdio: 12, overhead: 100, slow: 15 * time.Second,
	}
	short = plan{
		sequential: []sized{{kilobyte, 40}, {100 * kilobyte, 8}, {megabyte, 3}},
		fanOuts:    1, fanOut: 200, stdio: 3, overhead: 20, slow: 4 * time.Second,
	}
)

// measured is what the JSON says. Nil is what failed.
type measured struct {
	SyncVsHandwritten   *float64 `json:"sync_vs_handwritten"`
	SyncVsActivity      *float64 `json:"sync_vs_activity"`
	FanoutVsActivity    *float64 `json:"fanout_vs_activity"`
	EventsPerCall       *float64 `json:"events_per_call"`
	LegacyStdioVsShared *float64 `json:"legacy_stdio_vs_shared"`
	HandlerOverheadUS   *float64 `json:"handler_overhead_us"`
	CallerOverheadUS    *float64 `json:"caller_overhead_us"`
	HandoffAddedMS      *float64 `json:"handoff_added_ms"`
}

// measure runs the plan and writes the tables, each as soon as it is known. The
// error tells which of the JSON's numbers could not be measured.
func measure(ctx context.Context, plan plan, out io.Writer) (*measured, error) {
	began := time.Now()
	fmt.Fprintf(out, "%s/%s, %d CPUs, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	m := &measured{}
	dir, err := os.MkdirTemp("", "nexusmcp-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program, err := buildToolServer(ctx, dir)
	if err != nil {
		return nil, err
	}
	tool, err := startTool(ctx, program)
	if err != nil {
		return nil, err
	}
	defer tool.close()

	// First what must not have a Temporal server at work beside it.
	if m.HandlerOverheadUS, err = handlerOverhead(ctx, tool, plan.overhead, out); err != nil {
		return nil, fmt.Errorf("handler_overhead_us: %w", err)
	}
	if m.CallerOverheadUS, err = callerOverhead(plan.overhead, out); err != nil {
		return nil, fmt.Errorf("caller_overhead_us: %w", err)
	}

	bed, err := newBed(ctx, tool)
	if err != nil {
		return nil, err
	}
	defer bed.close()
	var failures []error
	for _, s := range plan.sequential {
		lanes, err := bed.compareSequential(ctx, s, out)
		if err != nil {
			return nil, err
		}
		if s.bytes == kilobyte {
			inline := lanes.named(libraryInline)
			m.SyncVsHandwritten, err = ratio(inline, lanes.named(handWritten))
			failures = append(failures, wrap("sync_vs_handwritten", err))
			m.SyncVsActivity, err = ratio(inline, lanes.named(activityWay))
			failures = append(failures, wrap("sync_vs_activity", err))
		}
	}
	if m.FanoutVsActivity, err = bed.compareFanOut(ctx, plan, out); err != nil {
		failures = append(failures, wrap("fanout_vs_activity", err))
	}
	if m.EventsPerCall, err = bed.countEvents(ctx, out); err != nil {
		failures = append(failures, wrap("events_per_call", err))
	}
	if m.LegacyStdioVsShared, err = bed.compareStdio(ctx, plan.stdio, out); err != nil {
		failures = append(failures, wrap("legacy_stdio_vs_shared", err))
	}
	if m.HandoffAddedMS, err = bed.handOff(ctx, plan.slow, out); err != nil {
		failures = append(failures, wrap("handoff_added_ms", err))
	}
	fmt.Fprintf(out, "\n%v in all.\n", time.Since(began).Round(time.Second))
	return m, errors.Join(failures...)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
