//go:build unix

package faults

import (
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

func TestACallWaitsForAWorker(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		// An endpoint for each call: after six requests in a row that no worker took,
		// the server leaves an endpoint alone for a minute.
		for _, service := range []string{overStdio, overStdioLegacy, overHTTP, overHTTPLegacy} {
			for _, policy := range []*temporal.RetryPolicy{nil, {MaximumAttempts: 1}} {
				name := service
				if policy != nil {
					name += ", at most once"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					s := newSite(t, siteOptions{Long: true, Services: []string{service}})
					r := s.startEach(t, workers.Call{Options: mcpnexus.RequestOptions{Execution: execution, RetryPolicy: policy}})[0]
					pass(t, 30*time.Second)
					s.startWorker(t)
					r.requireSuccess(t, 1)
				})
			}
		}
	})
}

func TestACallWhoseCallersWorkerIsKilledRunsOnce(t *testing.T) {
	forEachPhase(t, func(t *testing.T, p phase) {
		s := newSite(t, siteOptions{Worker: p.worker()})
		s.startWorker(t)
		config := workers.Callers{HostPort: s.temporal.hostPort, Namespace: appNamespace, Queue: s.endpoint + "-callers"}
		callers := launch(t, workerProgram, "the callers' worker", workers.CallersEnv, config)
		var calls []*running
		for _, service := range s.services {
			calls = append(calls, s.start(t, service, workers.Call{
				Arguments: effects.Arguments{MS: 5000},
				Options:   mcpnexus.RequestOptions{Execution: p.execution},
			}, client.StartWorkflowOptions{TaskQueue: config.Queue}))
		}
		s.reach(t, p, calls)
		callers.kill(t)
		for _, r := range calls {
			r.await(t, effects.Finished, 1) // while nobody is there to see it
		}
		launch(t, workerProgram, "the callers' next worker", workers.CallersEnv, config)
		each(t, calls, func(t *testing.T, r *running) { r.requireSuccess(t, 1) })
	})
}
