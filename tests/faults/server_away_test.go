//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

func TestACallSucceedsWhenItsMCPServerComesBack(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		const away, longestBackoff = 20 * time.Second, 3 * time.Second
		s := newSite(t, siteOptions{Absent: true})
		s.startWorker(t)
		calls := s.startEach(t, workers.Call{Options: mcpnexus.RequestOptions{
			Execution:   execution,
			RetryPolicy: &temporal.RetryPolicy{MaximumInterval: longestBackoff},
		}})
		before := make(map[*running]int)
		for _, r := range calls {
			r.awaitStarted(t)
			within(t, patience, "the workflow has seen that the operation is started", func() (done bool) {
				before[r], done = r.events(t)
				return done
			})
		}
		pass(t, away)
		for _, r := range calls {
			events, _ := r.events(t)
			assert.Equal(t, before[r], events, "the caller's history has grown: %s", r.name())
		}
		back := time.Now()
		s.bring(t)
		each(t, calls, func(t *testing.T, r *running) {
			r.requireSuccess(t, 1)
			// Some seconds are for starting everything.
			assert.WithinRange(t, r.entries(t, effects.Began)[0].Time, back, back.Add(longestBackoff+slowdown*5*time.Second))
		})
	})
}

func TestACallThatIsNeverAnsweredIsSentAgainAfterItsTimeout(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{})
		s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 4 * time.Second}
		once := options
		once.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
		calls := s.startEach(t, workers.Call{Arguments: effects.Arguments{Hang: 1}, Options: options})
		atMostOnce := s.startEach(t, workers.Call{Arguments: effects.Arguments{Call: "once, ", Hang: 1}, Options: once})
		each(t, calls, func(t *testing.T, r *running) {
			r.requireSuccess(t, 2)
			began := r.entries(t, effects.Began)
			gap := began[1].Time.Sub(began[0].Time)
			assert.GreaterOrEqual(t, gap, options.StartToCloseTimeout-100*time.Millisecond)
			assert.Less(t, gap, options.StartToCloseTimeout+slowdown*20*time.Second)
			r.await(t, effects.Cancelled, 1)
		})
		each(t, atMostOnce, func(t *testing.T, r *running) {
			failure := r.requireFailure(t, mcpnexus.ErrorTypeTimeout, 1)
			assert.Equal(t, options.StartToCloseTimeout, failure.Timeout)
			r.await(t, effects.Cancelled, 1)
		})
	})
}

func TestACallSucceedsWhenAConnectionWasAcceptedAndNeverAnswered(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{Mute: 1, ConnectTimeout: 2 * time.Second})
		s.startWorker(t)
		calls := s.startEach(t, workers.Call{Options: mcpnexus.RequestOptions{Execution: execution}})
		each(t, calls, func(t *testing.T, r *running) {
			r.requireSuccess(t, 1)
			muted := 0
			for _, e := range s.entries(t, "", effects.Muted) {
				if e.Service == r.service.Service {
					muted++
				}
			}
			assert.Equal(t, 1, muted)
		})
	})
}
