//go:build unix

package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// startBeforeRestart starts calls of two durations, of which the second ends while
// the Temporal server is away, each once as it is and once so that it may run only
// once. All are known to the server to run when it returns.
func (s *site) startBeforeRestart(t *testing.T, execution mcpnexus.Execution, afterwards, meanwhile time.Duration) (calls, onces []*running) {
	t.Helper()
	// With a policy the handler need not find out, in the window, what the tool declares,
	// and a call whose execution is auto is handed off.
	options := mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 5}}
	once := options
	once.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
	for _, arguments := range []effects.Arguments{{Call: "ends afterwards ", MS: int(afterwards.Milliseconds())}, {Call: "ends meanwhile ", MS: int(meanwhile.Milliseconds())}} {
		calls = append(calls, s.startEach(t, call{Arguments: arguments, Options: options})...)
		arguments.Call += "once "
		onces = append(onces, s.startEach(t, call{Arguments: arguments, Options: once})...)
	}
	for _, r := range append(calls, onces...) {
		r.await(t, effects.Began, 1)
		r.awaitStarted(t)
	}
	within(t, patience, "all calls are known to run", func() bool { return s.allBeat(t) })
	return calls, onces
}

func TestACallSurvivesARestartOfTheTemporalServer(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		server := launchTemporal(t)
		s := newSite(t, siteOptions{Temporal: server.temporalServer, Worker: handlerConfig{InlineWindow: time.Second}})
		s.startWorker(t)
		calls, onces := s.startBeforeRestart(t, execution, 15*time.Second, 4*time.Second)
		killed := time.Now()
		server.process.kill(t)
		for _, r := range append(slices.Clone(calls), onces...) {
			if r.call.Arguments.MS == 4000 {
				r.await(t, effects.Finished, 1)
			}
		}
		server.start(t)
		if time.Since(killed) > missedAfter {
			t.Logf("the server was away for %v", time.Since(killed))
			requireAfterMissedHeartbeats(t, execution, calls, onces)
			return
		}
		each(t, append(calls, onces...), func(t *testing.T, r *running) { r.requireSuccess(t, 1) })
	})
}

// missedAfter is how long the server may be away at most before it takes an attempt
// for lost: it does after ten seconds without a heartbeat, the last may have come two
// seconds before it went, and the next comes two seconds after it is back.
const missedAfter = 6 * time.Second

func TestACallSurvivesATemporalServerThatIsAwayForLongerThanAHeartbeatMayBe(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		server := launchTemporal(t)
		s := newSite(t, siteOptions{Temporal: server.temporalServer, Worker: handlerConfig{InlineWindow: time.Second}})
		s.startWorker(t)
		calls, onces := s.startBeforeRestart(t, execution, 35*time.Second, 8*time.Second)
		server.process.kill(t)
		pass(t, 15*time.Second)
		server.start(t)
		requireAfterMissedHeartbeats(t, execution, calls, onces)
	})
}

// requireAfterMissedHeartbeats waits for the ends of calls whose attempts were taken
// for lost. One that was handed off is joined by the next attempt.
func requireAfterMissedHeartbeats(t *testing.T, execution mcpnexus.Execution, calls, onces []*running) {
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
}
