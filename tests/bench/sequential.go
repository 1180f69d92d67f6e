package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"go.temporal.io/sdk/workflow"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// taskBytes is about how much result one workflow run takes. Its history, which
// the worker may have to read again, stays small beside the server's 50 MiB.
const taskBytes = 8 * megabyte

// compareSequential times calls that are made one after the other.
func (b *bed) compareSequential(ctx context.Context, s sized, out io.Writer) (lanes, error) {
	ls, err := b.newLanes(ctx,
		b.raw(),
		b.handWritten(handWritten),
		b.handWritten(handWrittenAgain),
		b.library(libraryInline, libraryService, mcpnexus.ExecutionInline),
		b.library(libraryAuto, libraryService, ""),
		b.durable(),
		b.activity(),
	)
	if err != nil {
		return nil, err
	}
	params := textParams(s.bytes)
	call := func(ctx workflow.Context, c calls) error {
		result, err := c.one(ctx, params)
		return checkText(result, err, s.bytes)
	}
	if err := b.warmUp(ctx, ls, call); err != nil {
		return nil, err
	}
	perRun := min(50, max(1, taskBytes/(s.bytes*len(ls))))
	if err := b.inTurns(ctx, ls, s.rounds, perRun, 1, call); err != nil {
		return nil, err
	}
	ls.write(out, fmt.Sprintf("Sequential calls, results of %d KB (%d rounds)", s.bytes/kilobyte, s.rounds), "MEDIAN MS", handWritten, activityWay)
	if aa, err := ratio(ls.named(handWrittenAgain), ls.named(handWritten)); err == nil {
		fmt.Fprintf(out, "A/A %.3f\n", *aa)
	}
	return ls, nil
}

// inTurns lets every lane make block calls in each round, perRun rounds in one
// workflow run, and notes how long each call took.
func (b *bed) inTurns(ctx context.Context, ls lanes, rounds, perRun, block int, call func(workflow.Context, calls) error) error {
	for done := 0; done < rounds; done += perRun {
		_, err := b.run(ctx, func(ctx workflow.Context) error {
			opened := make(map[*lane]calls, len(ls))
			for _, l := range ls {
				opened[l] = l.open(l.endpoint)
			}
			for round := range min(perRun, rounds-done) {
				ls.turns(done+round, func(l *lane) error {
					for range block {
						if err := l.time(ctx, opened[l], call); err != nil {
							return err
						}
					}
					return nil
				})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// time makes a call and notes how long it took by the worker's clock, which a
// real workflow must not look at. A call that a worker only replays is none.
func (l *lane) time(ctx workflow.Context, c calls, call func(workflow.Context, calls) error) error {
	replayed := workflow.IsReplaying(ctx)
	if !replayed {
		l.pace(1)
	}
	began := time.Now()
	if err := call(ctx, c); err != nil {
		return err
	}
	if took := time.Since(began); !replayed {
		l.samples.addTime(took)
	}
	return nil
}
