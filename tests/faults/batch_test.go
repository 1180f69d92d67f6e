//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/client"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// startBatches starts a batch of calls of each of the site's services, in workflows
// of their own. The calls of one batch are returned together.
func (s *site) startBatches(t *testing.T, options mcpnexus.RequestOptions, calls ...workers.Call) [][]*running {
	t.Helper()
	var batches [][]*running
	for _, service := range s.services {
		var plan []workers.Call
		for _, c := range calls {
			c.Options = options
			plan = append(plan, s.complete(service.Service, c))
		}
		run := s.execute(t, workers.Batch, client.StartWorkflowOptions{}, plan...)
		var batch []*running
		for _, c := range plan {
			batch = append(batch, &running{site: s, service: service, call: c, run: run})
		}
		batches = append(batches, batch)
	}
	return batches
}

// Each call of a batch has the guarantees of a call of its own.
func TestABatchWhoseWorkerIsKilledSucceedsOnAnotherCallByCall(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{})
		first := s.startWorker(t)
		options := mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 2 * time.Minute}
		quick := workers.Call{Arguments: effects.Arguments{Call: "quick "}}
		hangs := workers.Call{Arguments: effects.Arguments{Call: "hangs ", Hang: 1, MS: 500}}
		destroys := workers.Call{Tool: effects.Destroy, Arguments: effects.Arguments{Call: "destroys ", Hang: 1, MS: 500}}
		all := s.startBatches(t, options, quick, hangs, quick, hangs, quick)
		some := s.startBatches(t, options, quick, destroys, hangs)
		for _, batch := range append(all, some...) {
			for _, r := range batch {
				r.await(t, effects.Began, 1)
			}
			batch[0].awaitStarted(t)
		}
		within(t, patience, "all calls are known to run", func() bool { return s.allBeat(t) })
		first.kill(t)
		s.startWorker(t)

		for _, batch := range append(all, some...) {
			t.Run(batch[0].name(), func(t *testing.T) {
				outcomes := outcomesOf(t, batch[0].run)
				for i, r := range batch {
					switch {
					case r.call.Tool == effects.Destroy:
						if assert.NotNil(t, outcomes[i].Failure, "%+v", outcomes[i]) {
							assert.Equal(t, mcpnexus.ErrorTypeOutcomeUnknown, outcomes[i].Failure.Type)
						}
						r.requireRuns(t, 1)
					case r.call.Arguments.Hang > 0:
						assert.Equal(t, workers.Outcome{Text: r.call.Arguments.Text()}, outcomes[i])
						r.requireRuns(t, 2)
					default:
						assert.Equal(t, workers.Outcome{Text: r.call.Arguments.Text()}, outcomes[i])
						r.requireRuns(t, 1) // it had its outcome
					}
				}
			})
		}
		assert.Zero(t, s.openRequests(t))
	})
}

func TestABatchWhoseAnswerWasLostIsAnsweredFromMemory(t *testing.T) {
	t.Parallel()
	s := newSite(t, siteOptions{})
	s.options.Worker.LoseAnswers = int64(2 * len(s.services))
	worker := s.startWorker(t)
	var batches [][]*running
	for _, ms := range []int{0, 15_000} { // answered at once, and handed off
		batches = append(batches, s.startBatches(t, mcpnexus.RequestOptions{}, workers.Call{}, workers.Call{Arguments: effects.Arguments{MS: ms}}, workers.Call{Arguments: effects.Arguments{Fail: 1, Code: -32602}})...)
	}
	for _, batch := range batches {
		outcomes := outcomesOf(t, batch[0].run)
		for i, r := range batch {
			if r.call.Arguments.Fail > 0 {
				if assert.NotNil(t, outcomes[i].Failure, "%+v", outcomes[i]) {
					assert.Equal(t, mcpnexus.ErrorTypeProtocol, outcomes[i].Failure.Type)
				}
			} else {
				assert.Equal(t, workers.Outcome{Text: r.call.Arguments.Text()}, outcomes[i])
			}
			r.requireRuns(t, 1)
		}
	}
	assert.Equal(t, 2*len(s.services), worker.lostAnswers())
}
