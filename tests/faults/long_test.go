//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestAToolThatTakesLongRunsOnce(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{Long: true})
		s.startWorker(t)
		var calls []*running
		for _, takes := range []time.Duration{30 * time.Second, 90 * time.Second} {
			for _, tool := range []string{effects.Work, effects.Destroy} { // the latter runs at most once
				calls = append(calls, s.startEach(t, call{
					Tool:      tool,
					Arguments: effects.Arguments{Call: tool + " " + takes.String() + " ", MS: int(takes.Milliseconds())},
					Options:   mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute},
				})...)
			}
		}
		each(t, calls, func(t *testing.T, r *running) { r.requireSuccess(t, 1) })
	})
}
