//go:build unix

package faults

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

func TestACallWhoseMCPServerIsKilledSucceedsOnANewConnection(t *testing.T) {
	forEachPhase(t, func(t *testing.T, p phase) {
		s := newSite(t, siteOptions{Processes: true, Worker: p.worker()})
		s.startWorker(t)
		calls := s.startEach(t, workers.Call{
			Arguments: effects.Arguments{Hang: 1, MS: 500},
			Options:   mcpnexus.RequestOptions{Execution: p.execution, StartToCloseTimeout: 2 * time.Minute},
		})
		s.reach(t, p, calls)
		killed := time.Now()
		s.killServers(t)
		each(t, calls, func(t *testing.T, r *running) {
			r.requireSuccess(t, 2)
			began := r.entries(t, effects.Began)
			assert.NotEqual(t, began[0].Server, began[1].Server)
			// The end of the connection is what is noticed, and no timeout.
			assert.Less(t, began[1].Time.Sub(killed), slowdown*10*time.Second)
		})
		assert.Zero(t, s.openRequests(t))
	})
}

func TestAnAtMostOnceCallWhoseMCPServerIsKilledIsNotSentAgain(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{Processes: true})
		s.startWorker(t)
		calls := s.startEach(t, workers.Call{
			Arguments: effects.Arguments{Hang: 1},
			Options: mcpnexus.RequestOptions{
				Execution: execution, StartToCloseTimeout: 2 * time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
			},
		})
		for _, r := range calls {
			r.await(t, effects.Began, 1)
		}
		s.killServers(t)
		each(t, calls, func(t *testing.T, r *running) { r.requireFailure(t, mcpnexus.ErrorTypeTransport, 1) })
		require.Zero(t, s.openRequests(t))
		for _, r := range calls {
			r.requireRuns(t, 1) // still
		}
	})
}

func TestACallSucceedsAfterTheMCPServerWasKilledBetweenCalls(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{Processes: true})
		s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution}
		before := s.startEach(t, workers.Call{Options: options})
		for _, r := range before {
			r.requireSuccess(t, 1)
		}
		s.killServers(t)
		after := s.startEach(t, workers.Call{Options: options})
		each(t, after, func(t *testing.T, r *running) {
			r.requireSuccess(t, 1)
			// What was opened ahead of need is gone with the rest.
			assert.NotContains(t, pids(s.entries(t, before[0].name(), effects.Began)), r.entries(t, effects.Began)[0].Server)
		})
		for _, r := range before {
			r.requireRuns(t, 1) // still
		}
	})
}

func pids(entries []effects.Entry) []int {
	var all []int
	for _, e := range entries {
		all = append(all, e.Server)
	}
	return all
}

// killServers kills every process of the site's MCP servers. Those over HTTP are
// started again; those over stdio are the worker's to start.
func (s *site) killServers(t *testing.T) {
	t.Helper()
	for _, service := range s.services {
		if service.process != nil {
			service.process.kill(t)
			service.start(t)
		}
	}
	for _, e := range s.entries(t, "", effects.Started) {
		for _, service := range s.services {
			if service.Service == e.Service && !service.http() {
				_ = syscall.Kill(e.Server, syscall.SIGKILL) // it may have ended by itself
			}
		}
	}
}
