package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/tests/bench/tools"
)

const (
	// slowCalls is how many calls of the slow tool each way makes.
	slowCalls = 5
	// slowApart is how much later each begins, and ends, than the one before: none
	// is measured while another needs the machine.
	slowApart = 500 * time.Millisecond
)

// handOff makes calls of a tool that takes longer than a handler waits for, all
// ways in turns, and returns what the workflow waited for beyond the tool's own
// time where the execution is auto.
func (b *bed) handOff(ctx context.Context, slow time.Duration, out io.Writer) (*float64, error) {
	ls, err := b.newLanes(ctx,
		b.library(libraryAuto, libraryService, ""),
		b.durable(),
		b.activity(),
	)
	if err != nil {
		return nil, err
	}
	params := &mcp.CallToolParams{Name: tools.Wait, Arguments: tools.Arguments{MS: int(slow.Milliseconds())}}
	quick := make(map[*lane]float64)
	for _, l := range ls {
		l.err = b.timeQuick(ctx, l, quick)
	}
	_, err = b.run(ctx, func(ctx workflow.Context) error {
		all := workflow.NewWaitGroup(ctx)
		for i, l := range ls {
			if l.err != nil {
				continue
			}
			c := l.open(l.endpoint)
			for round := range slowCalls {
				all.Add(1)
				workflow.Go(ctx, func(ctx workflow.Context) {
					defer all.Done()
					if err := workflow.Sleep(ctx, time.Duration(round*len(ls)+i)*slowApart); err != nil {
						l.err = err
						return
					}
					began := time.Now()
					result, err := c.one(ctx, params)
					if err == nil && (result.IsError || len(result.Content) != 1) {
						err = fmt.Errorf("the result is not the tool's")
					}
					if err != nil {
						l.err = err
						return
					}
					l.samples.addTime(time.Since(began) - slow)
				})
			}
		}
		all.Wait(ctx)
		return nil
	})
	if err != nil {
		return nil, err
	}
	ls.write(out, fmt.Sprintf("What a call takes beyond its tool's %v (%d calls, %v apart)", slow, slowCalls, slowApart), "MEDIAN MS")
	auto := ls.named(libraryAuto)
	if auto.err != nil {
		return nil, auto.err
	}
	fmt.Fprintf(out, "%s: %.1f ms more than a quick call's %.1f ms\n", auto.name, auto.samples.median()-quick[auto], quick[auto])
	return new(auto.samples.median()), nil
}

// timeQuick notes the median time of a call of the same tool that takes no time.
func (b *bed) timeQuick(ctx context.Context, l *lane, quick map[*lane]float64) error {
	_, err := b.run(ctx, func(ctx workflow.Context) error {
		c := l.open(l.endpoint)
		var took samples
		for range 10 {
			began := time.Now()
			if _, err := c.one(ctx, &mcp.CallToolParams{Name: tools.Wait, Arguments: tools.Arguments{}}); err != nil {
				return err
			}
			took.addTime(time.Since(began))
		}
		quick[l] = took.median()
		return nil
	})
	return err
}
