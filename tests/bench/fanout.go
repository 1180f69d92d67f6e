package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// compareFanOut times fan-outs of 1 KB results and returns the rate of the
// library's batched calls divided by that of the activities'.
func (b *bed) compareFanOut(ctx context.Context, plan plan, out io.Writer) (*float64, error) {
	ways := []way{
		b.raw(),
		b.handWritten(handWritten),
		b.handWritten(handWrittenAgain),
		b.library(libraryInline, libraryService, mcpnexus.ExecutionInline),
		b.batched(),
		b.activity(),
	}
	if plan.durableFanOut {
		ways = append(ways, b.durable())
	}
	ls, err := b.newLanes(ctx, ways...)
	if err != nil {
		return nil, err
	}
	all := make([]*mcp.CallToolParams, plan.fanOut)
	for i := range all {
		all[i] = textParams(kilobyte)
	}
	if err := b.warmUp(ctx, ls, func(ctx workflow.Context, c calls) error {
		_, err := c.many(ctx, all[:1])
		return err
	}); err != nil {
		return nil, err
	}

	held := make(map[*lane]int) // back by the server's limit
	for round := range plan.fanOuts {
		ls.turns(round, func(l *lane) error {
			// A full burst for each, so that the one before does not count.
			time.Sleep(l.bucket.until(time.Now(), bucketSize))
			var replayed bool
			var took time.Duration
			run, err := b.run(ctx, func(ctx workflow.Context) error {
				c := l.open(l.endpoint)
				replayed = workflow.IsReplaying(ctx)
				began := time.Now()
				results, err := c.many(ctx, all)
				took = time.Since(began)
				for _, result := range results {
					err = errors.Join(err, checkText(result, nil, kilobyte))
				}
				return err
			})
			if err != nil {
				return err
			}
			if !replayed {
				l.samples.addTime(took)
			}
			history, err := b.history(ctx, run)
			for _, event := range history {
				if event.GetEventType() == enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED {
					held[l] += l.bucket.take(event.GetEventTime().AsTime(), 1)
				}
			}
			return err
		})
	}
	ls.write(out, fmt.Sprintf("Fan-outs of %d calls of 1 KB, %d operations open at most (%d rounds)", plan.fanOut, caller.DefaultLimit, plan.fanOuts), "MEDIAN MS", handWritten, activityWay)
	if aa, err := ratio(ls.named(handWrittenAgain), ls.named(handWritten)); err == nil {
		fmt.Fprintf(out, "A/A %.3f\n", *aa)
	}
	for _, l := range ls {
		if l.err == nil {
			fmt.Fprintf(out, "%s: %.0f calls/s", l.name, float64(plan.fanOut)/l.samples.median()*1000)
			if l.nexus {
				fmt.Fprintf(out, ", %.0f of a fan-out's held back by the server's limit of %d/s", float64(held[l])/float64(max(1, len(l.samples))), bucketRate)
			}
			fmt.Fprintln(out)
		}
	}
	return ratio(ls.named(activityWay), ls.named(libraryBatch))
}
