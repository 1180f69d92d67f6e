package main

import (
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"
)

// A loop is something whose cost for each call is measured, without a Temporal
// server in the process.
type loop struct {
	name string
	// run makes n calls.
	run func(n int) error
}

// A cost is that of one call, by round.
type cost struct{ cpu, wall, allocs, bytes samples } // µs, µs, allocations, bytes

// costs measures the loops in turns, n calls in a round. CPU is the process's, as
// the operating system counts it, the garbage collector's included: unlike the
// time on the clock it does not grow with what else runs on the machine.
//
// A worker has a heap of some size. Without one here the collector would run
// every few calls, at a cost that has little to do with what they do.
func costs(rounds, n int, loops ...loop) ([]cost, error) {
	heap := make([]byte, workerHeap)
	defer runtime.KeepAlive(heap)
	out := make([]cost, len(loops))
	for round := range rounds + 1 {
		for i := range loops {
			i = (round + i) % len(loops)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began, cpu := time.Now(), cpuTime()
			if err := loops[i].run(n); err != nil {
				return nil, fmt.Errorf("%s: %w", loops[i].name, err)
			}
			cpu, wall := cpuTime()-cpu, time.Since(began)
			runtime.ReadMemStats(&after)
			if round == 0 {
				continue // connections opened, caches filled
			}
			c := &out[i]
			c.cpu = append(c.cpu, microseconds(cpu)/float64(n))
			c.wall = append(c.wall, microseconds(wall)/float64(n))
			c.allocs = append(c.allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
			c.bytes = append(c.bytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(n))
		}
	}
	return out, nil
}

// workerHeap is what stands in for the rest of a worker.
const workerHeap = 64 * megabyte

func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// writeCosts writes the first loop's cost, and by how much the others' exceeds it,
// round by round.
func writeCosts(out io.Writer, title string, loops []loop, costs []cost) {
	fmt.Fprintf(out, "\n%s\n", title)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\tCPU µs\tP10\tP90\tWALL µs\tALLOCS\tBYTES")
	row := func(name, sign string, c cost) {
		format := fmt.Sprintf("%%s\t%%%[1]s.1f\t%%%[1]s.1f\t%%%[1]s.1f\t%%%[1]s.1f\t%%%[1]s.0f\t%%%[1]s.0f\n", sign)
		fmt.Fprintf(table, format, name, c.cpu.median(), c.cpu.quantile(0.1), c.cpu.quantile(0.9), c.wall.median(), c.allocs.median(), c.bytes.median())
	}
	row(loops[0].name, "", costs[0])
	for i := range costs[1:] {
		row(loops[i+1].name, "+", costs[i+1].minus(costs[0]))
	}
	_ = table.Flush()
}

func (c cost) minus(other cost) cost {
	return cost{cpu: c.cpu.minus(other.cpu), wall: c.wall.minus(other.wall), allocs: c.allocs.minus(other.allocs), bytes: c.bytes.minus(other.bytes)}
}
