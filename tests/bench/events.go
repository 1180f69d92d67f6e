package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// countEvents counts what a call puts into its workflow's history, and returns the
// number of events of an inline call.
func (b *bed) countEvents(ctx context.Context, out io.Writer) (*float64, error) {
	ls, err := b.newLanes(ctx,
		b.handWritten(handWritten),
		b.library(libraryInline, libraryService, mcpnexus.ExecutionInline),
		b.library(libraryAuto, libraryService, ""),
		b.durable(),
		b.activity(),
	)
	if err != nil {
		return nil, err
	}
	const calls = 10
	events, bytes := make(map[*lane]float64), make(map[*lane]float64)
	ls.turns(0, func(l *lane) error {
		// What a workflow without calls has is not the calls'.
		before, beforeBytes, err := b.historySize(ctx, l, 0)
		if err != nil {
			return err
		}
		after, afterBytes, err := b.historySize(ctx, l, calls)
		if err != nil {
			return err
		}
		events[l], bytes[l] = float64(after-before)/calls, float64(afterBytes-beforeBytes)/calls
		return nil
	})
	fmt.Fprintf(out, "\nHistory of a call of 1 KB (%d calls)\n", calls)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tEVENTS\tBYTES")
	for _, l := range ls {
		if l.err != nil {
			fmt.Fprintf(table, "%s\t%s\n", l.name, oneLine(l.err))
			continue
		}
		fmt.Fprintf(table, "%s\t%.4g\t%.0f\n", l.name, events[l], bytes[l])
	}
	_ = table.Flush()
	inline := ls.named(libraryInline)
	if inline.err != nil {
		return nil, inline.err
	}
	return new(events[inline]), nil
}

// historySize returns the events of a workflow that makes n calls, and their size
// as protobuf messages.
func (b *bed) historySize(ctx context.Context, l *lane, n int) (events, bytes int, err error) {
	run, err := b.run(ctx, func(ctx workflow.Context) error {
		c := l.open(l.endpoint)
		for range n {
			result, err := c.one(ctx, textParams(kilobyte))
			if err := checkText(result, err, kilobyte); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	history, err := b.history(ctx, run)
	for _, event := range history {
		bytes += proto.Size(event)
	}
	return len(history), bytes, err
}
