package handler_test

import (
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/held"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestManyCallsLeaveEverythingWhereItWas(t *testing.T) {
	const callers = 8
	for name, c := range map[string]struct {
		options rude.Options
		http    bool
		calls   int
		ahead   int // processes that may be there for the next calls
	}{
		"over HTTP":                           {rude.Options{}, true, 10_000, 0},
		"over HTTP with event streams":        {rude.Options{EventStream: true}, true, 2000, 0},
		"over stdio":                          {rude.Options{}, false, 10_000, 0},
		"over stdio, a process for each call": {rude.Options{Legacy: true}, false, 400, handler.MaxOpenAhead},
	} {
		t.Run(name, func(t *testing.T) {
			var transport handler.Transport = rudeStdio(t, c.options)
			cut := func() {}
			if c.http {
				listener := httptest.NewServer(rude.New(c.options))
				t.Cleanup(listener.Close)
				transport, cut = handler.HTTP{Endpoint: listener.URL}, listener.CloseClientConnections
			}
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
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
				cut() // idle TCP connections, of which there are sometimes more and sometimes less
			}
			if withRace {
				c.calls /= 10
			}
			calls(c.calls / 10)
			before := settled(t)
			calls(c.calls)
			var after held.Resources
			// Processes of the last calls take a moment to end.
			assert.Eventually(t, func() bool {
				after = held.Now()
				return after.Goroutines <= before.Goroutines+7*c.ahead && after.Files <= before.Files+4*c.ahead && after.Children <= before.Children+c.ahead && after.Heap <= before.Heap+1<<20
			}, 20*time.Second, 100*time.Millisecond)
			if runtime.GOOS == "linux" {
				assert.NotZero(t, before.Files)
				assert.Equal(t, !c.http, before.Children > 0 || after.Children > 0, "%+v, %+v", before, after)
			}
			t.Logf("before %+v, after %+v", before, after)
		})
	}
}

// settled returns what the process holds once that does not change any more.
func settled(t *testing.T) (last held.Resources) {
	t.Helper()
	same := 0
	require.Eventually(t, func() bool {
		now := held.Now()
		if same++; now.Goroutines != last.Goroutines || now.Files != last.Files || now.Children != last.Children {
			same = 0
		}
		last = now
		return same == 10
	}, 20*time.Second, 20*time.Millisecond)
	return last
}
