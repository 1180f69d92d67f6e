//go:build unix

package faults

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

func TestACallWhoseAnswerWasLostIsAnsweredFromMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		call workers.Call
		// fails says that the answer is a failure.
		fails bool
	}{
		{name: "a result", call: workers.Call{}},
		{name: "an error", call: workers.Call{Arguments: effects.Arguments{Fail: 1, Code: -32602}}, fails: true},
		{name: "that it is handed off", call: workers.Call{Arguments: effects.Arguments{MS: 15_000}}},
		{name: "that it is handed off, with a result before it is asked for again", call: workers.Call{Arguments: effects.Arguments{MS: 5_000}}},
		{name: "that it is durable", call: workers.Call{Arguments: effects.Arguments{MS: 1_000}, Options: mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable}}},
		{name: "that it runs at most once", call: workers.Call{
			Arguments: effects.Arguments{MS: 1_000}, Options: mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}},
		}},
		{name: "that it is retried", call: workers.Call{Arguments: effects.Arguments{Fail: 1, Code: -32603}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, siteOptions{})
			s.options.Worker.LoseAnswers = int64(len(s.services))
			worker := s.startWorker(t)
			each(t, s.startEach(t, c.call), func(t *testing.T, r *running) {
				runs := 1
				switch {
				case c.fails:
					r.requireFailure(t, mcpnexus.ErrorTypeProtocol, 1)
					return
				case c.call.Arguments.Fail > 0:
					runs = 2
				}
				r.requireSuccess(t, runs)
			})
			assert.Equal(t, len(s.services), worker.lostAnswers())
		})
	}
}
