//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestACallSurvivesARestartOfTheTemporalServer(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		server := launchTemporal(t)
		// The server is back before an activity is missed that has sent no heartbeat
		// for ten seconds.
		s := newSite(t, siteOptions{Temporal: server.temporalServer, Worker: handlerConfig{InlineWindow: time.Second}})
		s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute}
		once := options
		once.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
		var calls []*running
		for _, arguments := range []effects.Arguments{{Call: "ends afterwards ", MS: 15_000}, {Call: "ends meanwhile ", MS: 4000}} {
			calls = append(calls, s.startEach(t, call{Arguments: arguments, Options: options})...)
			arguments.Call += "once "
			calls = append(calls, s.startEach(t, call{Arguments: arguments, Options: once})...)
		}
		for _, r := range calls {
			r.await(t, effects.Began, 1)
			r.awaitStarted(t)
		}
		within(t, patience, "all calls are known to run", func() bool { return s.allBeat(t) })
		server.process.kill(t)
		for _, r := range calls[len(calls)/2:] {
			r.await(t, effects.Finished, 1)
		}
		server.start(t)
		each(t, calls, func(t *testing.T, r *running) { r.requireSuccess(t, 1) })
	})
}

// After more than ten seconds the server takes every attempt for lost that it has
// not heard of. A call that was handed off is joined by the next attempt.
func TestACallSurvivesATemporalServerThatIsAwayForLongerThanAHeartbeatMayBe(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		server := launchTemporal(t)
		s := newSite(t, siteOptions{Temporal: server.temporalServer, Worker: handlerConfig{InlineWindow: time.Second}})
		s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute}
		once := options
		once.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
		var calls, onces []*running
		for _, arguments := range []effects.Arguments{{Call: "ends afterwards ", MS: 35_000}, {Call: "ends meanwhile ", MS: 8000}} {
			calls = append(calls, s.startEach(t, call{Arguments: arguments, Options: options})...)
			arguments.Call += "once "
			onces = append(onces, s.startEach(t, call{Arguments: arguments, Options: once})...)
		}
		for _, r := range append(calls, onces...) {
			r.await(t, effects.Began, 1)
			r.awaitStarted(t)
		}
		within(t, patience, "all calls are known to run", func() bool { return s.allBeat(t) })
		server.process.kill(t)
		pass(t, 15*time.Second)
		server.start(t)
		each(t, calls, func(t *testing.T, r *running) {
			assert.Equal(t, outcome{Text: r.call.Arguments.Text()}, r.outcome(t))
			if execution == mcpnexus.ExecutionAuto {
				r.requireRuns(t, 1)
			} else {
				assert.LessOrEqual(t, len(r.entries(t, effects.Began)), 2)
				assert.Len(t, r.entries(t, effects.Effected), 1)
			}
		})
		each(t, onces, func(t *testing.T, r *running) {
			if o := r.outcome(t); o.Failure != nil {
				assert.Equal(t, mcpnexus.ErrorTypeOutcomeUnknown, o.Failure.Type)
			} else {
				assert.Equal(t, outcome{Text: r.call.Arguments.Text()}, o)
			}
			r.requireRuns(t, 1)
		})
	})
}
