package handler_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/held"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestManyCallsLeaveEverythingWhereItWas(t *testing.T) {
	const callers = 8
	_, overHTTP := rudeHTTP(t, rude.Options{})
	_, overEvents := rudeHTTP(t, rude.Options{EventStream: true})
	for name, c := range map[string]struct {
		transport handler.Transport
		calls     int
		ahead     int // processes that may be there for the next calls
		idle      int // TCP connections, of which a call may leave one that is still being read
	}{
		"over HTTP":                           {overHTTP, 10_000, 0, 2 * callers},
		"over HTTP with event streams":        {overEvents, 2000, 0, 2 * callers},
		"over stdio":                          {rudeStdio(t, rude.Options{}), 10_000, 0, 0},
		"over stdio, a process for each call": {rudeStdio(t, rude.Options{Legacy: true}), 400, handler.MaxOpenAhead, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, handler.Server{Name: "rude", Transport: c.transport})
			calls := func(n int) {
				var wg sync.WaitGroup
				for range callers {
					wg.Go(func() {
						for range n / callers {
							if _, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","arguments":{"some":"thing"}}`); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				handler.Forget(p.handler)
			}
			if withRace {
				c.calls /= 10
			}
			calls(c.calls / 10)
			before := held.Now()
			calls(c.calls)
			var after held.Resources
			// Processes of the last calls take a moment to end, idle TCP connections longer.
			assert.Eventually(t, func() bool {
				after = held.Now()
				return after.Goroutines <= before.Goroutines+8+16*c.ahead+3*c.idle && after.Files <= before.Files+8+4*c.ahead+2*c.idle && after.Children <= before.Children+1+c.ahead && after.Heap <= before.Heap+2<<20
			}, 20*time.Second, 100*time.Millisecond)
			if runtime.GOOS == "linux" {
				assert.NotZero(t, before.Files)
				_, stdio := c.transport.(handler.Command)
				assert.Equal(t, stdio, before.Children > 0 || after.Children > 0, "%+v, %+v", before, after)
			}
			t.Logf("before %+v, after %+v", before, after)
		})
	}
}
