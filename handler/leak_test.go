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
	_, overHTTP := rudeHTTP(t, rude.Options{})
	_, overEvents := rudeHTTP(t, rude.Options{EventStream: true})
	for name, c := range map[string]struct {
		transport handler.Transport
		calls     int
		ahead     int // connections that may be there for the next calls
	}{
		"over HTTP":                           {overHTTP, 10_000, 0},
		"over HTTP with event streams":        {overEvents, 2000, 0},
		"over stdio":                          {rudeStdio(t, rude.Options{}), 10_000, 0},
		"over stdio, a process for each call": {rudeStdio(t, rude.Options{Legacy: true}), 400, handler.MaxOpenAhead},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, handler.Server{Name: "rude", Transport: c.transport})
			calls := func(n int) {
				var wg sync.WaitGroup
				for range 8 {
					wg.Go(func() {
						for range n / 8 {
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
			// Connections and processes of the last calls take a moment to end.
			assert.Eventually(t, func() bool {
				after = held.Now()
				return after.Goroutines <= before.Goroutines+8+16*c.ahead && after.Files <= before.Files+8+4*c.ahead && after.Children <= before.Children+1+c.ahead && after.Heap <= before.Heap+2<<20
			}, 20*time.Second, 100*time.Millisecond)
			if runtime.GOOS == "linux" {
				assert.NotZero(t, before.Files)
			}
			t.Logf("before %+v, after %+v", before, after)
		})
	}
}
