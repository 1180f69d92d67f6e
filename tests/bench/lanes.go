package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"go.temporal.io/sdk/workflow"
)

// A lane is a way that takes part in one comparison.
type lane struct {
	way
	endpoint string
	bucket   bucket
	paced    int // calls that waited for the bucket, off the clock
	samples  samples
	err      error // why it takes part no longer
}

type lanes []*lane

// newLanes gives every way that needs one an endpoint of its own.
func (b *bed) newLanes(ctx context.Context, ways ...way) (lanes, error) {
	var out lanes
	for _, w := range ways {
		l := &lane{way: w}
		if w.nexus {
			var err error
			if l.endpoint, err = b.newEndpoint(ctx); err != nil {
				return nil, err
			}
		}
		out = append(out, l)
	}
	return out, nil
}

// named returns the lane of a way.
func (ls lanes) named(name string) *lane {
	for _, l := range ls {
		if l.name == name {
			return l
		}
	}
	panic("bench: no lane " + name)
}

// turns calls each with every lane that takes part, in an order of the round's own,
// so that none always follows the same other one. A lane whose turn fails takes part
// no longer. The rounds have numbers from 0 on.
func (ls lanes) turns(round int, each func(*lane) error) {
	for _, i := range rand.New(rand.NewPCG(1, uint64(round))).Perm(len(ls)) {
		l := ls[i]
		if l.err != nil || round%max(1, l.every) != 0 {
			continue
		}
		l.err = each(l)
	}
}

// pace waits until the server will not delay the next n calls.
func (l *lane) pace(n int) {
	if !l.nexus {
		return
	}
	if wait := l.bucket.until(time.Now(), n); wait > 0 {
		l.paced += n
		time.Sleep(wait)
	}
	l.bucket.take(time.Now(), n)
}

// warmUp makes a call with each lane, so that connections are open and the server
// has read the endpoints.
func (b *bed) warmUp(ctx context.Context, ls lanes, call func(workflow.Context, calls) error) error {
	_, err := b.run(ctx, func(ctx workflow.Context) error {
		ls.turns(0, func(l *lane) error {
			l.pace(1)
			return call(ctx, l.open(l.endpoint))
		})
		return nil
	})
	return err
}

// write writes a lane for each row: its quantiles, and its median divided by those
// of the lanes that are named.
func (ls lanes) write(out io.Writer, title, unit string, against ...string) {
	fmt.Fprintf(out, "\n%s\n", title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "\t%s\tP10\tP90", unit)
	for _, name := range against {
		fmt.Fprintf(table, "\t/ %s", name)
	}
	fmt.Fprintln(table, "\tPACED")
	for _, l := range ls {
		if l.err != nil {
			fmt.Fprintf(table, "%s\t%s\n", l.name, oneLine(l.err))
			continue
		}
		fmt.Fprintf(table, "%s\t%.2f\t%.2f\t%.2f", l.name, l.samples.median(), l.samples.quantile(0.1), l.samples.quantile(0.9))
		for _, name := range against {
			if r, err := ratio(l, ls.named(name)); err == nil {
				fmt.Fprintf(table, "\t%.3f", *r)
			} else {
				fmt.Fprint(table, "\t-")
			}
		}
		if l.nexus {
			fmt.Fprintf(table, "\t%d", l.paced)
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
}

// oneLine is an error's text, as far as it fits into a table.
func oneLine(err error) string { return fmt.Sprintf("failed: %.120q", err.Error()) }
