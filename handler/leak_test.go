package handler_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// resources are what a process may leak.
type resources struct{ goroutines, files, children, heap int }

func used(t *testing.T) resources {
	t.Helper()
	var r resources
	r.goroutines = runtime.NumGoroutine()
	if runtime.GOOS == "linux" {
		files, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		r.files = len(files)
		tasks, err := filepath.Glob("/proc/self/task/*/children")
		require.NoError(t, err)
		for _, task := range tasks {
			children, _ := os.ReadFile(task) // the thread may have ended
			r.children += len(strings.Fields(string(children)))
		}
	}
	runtime.GC()
	runtime.GC() // what finalizers freed
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.heap = int(memory.HeapAlloc)
	return r
}

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
			before := used(t)
			calls(c.calls)
			var after resources
			// Connections and processes of the last calls take a moment to end.
			assert.Eventually(t, func() bool {
				after = used(t)
				return after.goroutines <= before.goroutines+8+16*c.ahead && after.files <= before.files+8+4*c.ahead && after.children <= before.children+1+c.ahead && after.heap <= before.heap+2<<20
			}, 20*time.Second, 100*time.Millisecond)
			t.Logf("before %+v, after %+v", before, after)
		})
	}
}
