//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// noticed is how soon another worker must run the call of one that was killed:
// Temporal notices a dead handler after 10 seconds, an activity that sends no
// heartbeats or that nobody fetches after 10 seconds, and before that a workflow
// task that the worker took with it after 10 seconds. A second goes into the
// backoff, the rest is for busy machines. It is much less than the timeout of the
// calls.
const noticed = slowdown * 30 * time.Second

func TestACallWhoseWorkerIsKilledSucceedsOnAnother(t *testing.T) {
	forEachPhase(t, func(t *testing.T, p phase) {
		s := newSite(t, siteOptions{Worker: p.worker()})
		first := s.startWorker(t)
		calls := s.startEach(t, workers.Call{
			Arguments: effects.Arguments{Hang: 1, MS: 500},
			Options:   mcpnexus.RequestOptions{Execution: p.execution, StartToCloseTimeout: 2 * time.Minute},
		})
		s.reach(t, p, calls)
		killed := time.Now()
		first.kill(t)
		second := s.startWorker(t)
		if p.inline {
			for _, r := range calls {
				assert.NotEqual(t, enumspb.PENDING_NEXUS_OPERATION_STATE_STARTED, r.state(t), "the phase is over")
			}
		}
		each(t, calls, func(t *testing.T, r *running) {
			r.requireSuccess(t, 2)
			again := r.entries(t, effects.Began)[1]
			assert.WithinRange(t, again.Time, killed, killed.Add(noticed))
			assert.Equal(t, second.pid(), again.Client)
		})
		assert.Zero(t, s.openRequests(t))
	})
}

func TestAnAtMostOnceCallWhoseWorkerIsKilledIsNotSentAgain(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{})
		first := s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute}
		hang := effects.Arguments{Hang: 1, MS: 500}

		once := options
		once.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
		asked := s.startEach(t, workers.Call{Arguments: hang, Options: once})
		declared := s.startEach(t, workers.Call{Tool: effects.Destroy, Arguments: hang, Options: options})
		idempotent := s.startEach(t, workers.Call{Tool: effects.Replace, Arguments: hang, Options: options})
		overruled := options
		overruled.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 5}
		wanted := s.startEach(t, workers.Call{Tool: effects.Destroy, Arguments: hang, Options: overruled})
		for _, calls := range [][]*running{asked, declared, idempotent, wanted} {
			for _, r := range calls {
				r.await(t, effects.Began, 1)
				r.awaitStarted(t)
			}
		}
		first.kill(t)
		s.startWorker(t)

		unknown := func(t *testing.T, r *running) {
			failure := r.requireFailure(t, mcpnexus.ErrorTypeOutcomeUnknown, 1)
			assert.True(t, failure.NonRetryable)
			assert.Contains(t, failure.Message, r.call.Tool)
		}
		t.Run("asked for by the caller", func(t *testing.T) { each(t, asked, unknown) })
		t.Run("declared by the tool", func(t *testing.T) { each(t, declared, unknown) })
		t.Run("a tool that is idempotent", func(t *testing.T) {
			each(t, idempotent, func(t *testing.T, r *running) { r.requireSuccess(t, 2) })
		})
		t.Run("a policy of the caller's own", func(t *testing.T) {
			each(t, wanted, func(t *testing.T, r *running) { r.requireSuccess(t, 2) })
		})
		require.Zero(t, s.openRequests(t))
		for _, r := range append(asked, declared...) {
			r.requireRuns(t, 1) // still
		}
	})
}

func TestACallWhoseWorkerIsStoppedIsFinishedOrRunsOnAnother(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{Worker: workers.Handlers{DrainTimeout: 5 * time.Second}})
		first := s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute}
		once := options
		once.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
		short := s.startEach(t, workers.Call{Arguments: effects.Arguments{Call: "short ", MS: 3000}, Options: options})
		shortOnce := s.startEach(t, workers.Call{Arguments: effects.Arguments{Call: "short, once ", MS: 3000}, Options: once})
		long := s.startEach(t, workers.Call{Arguments: effects.Arguments{Call: "long ", Hang: 1, MS: 500}, Options: options})
		longOnce := s.startEach(t, workers.Call{Arguments: effects.Arguments{Call: "long, once ", Hang: 1, MS: 500}, Options: once})
		for _, calls := range [][]*running{short, shortOnce, long, longOnce} {
			for _, r := range calls {
				r.await(t, effects.Began, 1)
			}
		}
		second := s.startWorker(t)
		first.stop(t)
		stopped := time.Now()

		for _, calls := range [][]*running{short, shortOnce} {
			each(t, calls, func(t *testing.T, r *running) { r.requireSuccess(t, 1) })
		}
		each(t, long, func(t *testing.T, r *running) {
			r.requireSuccess(t, 2)
			again := r.entries(t, effects.Began)[1]
			assert.Equal(t, second.pid(), again.Client)
			// It is given back, not missed: nobody waits ten seconds for a heartbeat.
			assert.Less(t, again.Time.Sub(stopped), slowdown*8*time.Second)
		})
		each(t, longOnce, func(t *testing.T, r *running) { r.requireFailure(t, mcpnexus.ErrorTypeOutcomeUnknown, 1) })
		assert.Zero(t, s.openRequests(t))
	})
}

// worker returns the configuration of a worker with which calls reach the phase,
// and stay in it while the test does what it has to do.
func (p phase) worker() workers.Handlers {
	if p.inline {
		return workers.Handlers{InlineWindow: 6 * time.Second}
	}
	return workers.Handlers{}
}

// reach waits until the calls run, in the phase.
func (s *site) reach(t *testing.T, p phase, calls []*running) {
	t.Helper()
	for _, r := range calls {
		r.await(t, effects.Began, 1)
		if !p.inline {
			r.awaitStarted(t)
		}
	}
}
