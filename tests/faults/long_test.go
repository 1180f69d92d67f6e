//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

func TestAToolThatTakesLongRunsOnce(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{Long: true})
		s.startWorker(t)
		var calls []*running
		for _, c := range []struct {
			tool  string
			takes time.Duration
		}{
			{effects.Work, 30 * time.Second},
			{effects.Work, 90 * time.Second},
			{effects.Destroy, 30 * time.Second}, // at most once
		} {
			calls = append(calls, s.startEach(t, workers.Call{
				Tool:      c.tool,
				Arguments: effects.Arguments{Call: c.tool + " " + c.takes.String() + " ", MS: int(c.takes.Milliseconds())},
				Options:   mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute},
			})...)
		}
		each(t, calls, func(t *testing.T, r *running) { r.requireSuccess(t, 1) })
	})
}
