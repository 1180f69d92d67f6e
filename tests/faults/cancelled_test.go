//go:build unix

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// An ending is a way in which a caller's workflow stops to be interested in its
// call.
type ending struct {
	name    string
	options client.StartWorkflowOptions
	end     func(t *testing.T, r *running)
	status  enumspb.WorkflowExecutionStatus
}

var endings = []ending{
	{
		name: "cancelled",
		end: func(t *testing.T, r *running) {
			require.NoError(t, r.site.temporal.app.CancelWorkflow(t.Context(), r.run.GetID(), r.run.GetRunID()))
		},
		status: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, // it returns what came of the call
	},
	{
		name: "terminated",
		end: func(t *testing.T, r *running) {
			require.NoError(t, r.site.temporal.app.TerminateWorkflow(t.Context(), r.run.GetID(), r.run.GetRunID(), "as the test wants"))
		},
		status: enumspb.WORKFLOW_EXECUTION_STATUS_TERMINATED,
	},
	{
		name:    "timed out",
		options: client.StartWorkflowOptions{WorkflowExecutionTimeout: 12 * time.Second},
		end:     func(*testing.T, *running) {},
		status:  enumspb.WORKFLOW_EXECUTION_STATUS_TIMED_OUT,
	},
}

func TestACallOfAWorkflowThatHasEndedIsCancelledOnTheWire(t *testing.T) {
	t.Parallel()
	for _, e := range endings {
		t.Run(e.name, func(t *testing.T) {
			for _, p := range phases {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					s := newSite(t, siteOptions{})
					worker := s.startWorker(t)
					options := mcpnexus.RequestOptions{Execution: p.execution, StartToCloseTimeout: 2 * time.Minute}
					var calls []*running
					for _, service := range s.services {
						calls = append(calls, s.start(t, service, workers.Call{Arguments: effects.Arguments{Hang: 1}, Options: options}, e.options))
						if p.execution == mcpnexus.ExecutionDurable {
							once := options
							once.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
							calls = append(calls, s.start(t, service, workers.Call{Arguments: effects.Arguments{Call: "once, ", Hang: 1}, Options: once}, e.options))
						}
					}
					s.reach(t, p, calls)
					for _, r := range calls {
						e.end(t, r)
					}
					for _, r := range calls {
						within(t, patience, r.name()+": the workflow's end", func() bool { return r.status(t) == e.status })
						if e.status == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
							o := r.outcome(t)
							assert.True(t, o.Canceled, "%+v", o)
						}
						r.await(t, effects.Cancelled, 1)
						if r.service.Service == overStdioLegacy {
							// The process was this call's alone.
							within(t, patience, "the end of the process", func() bool { return !alive(r.entries(t, effects.Began)[0].Server) })
						}
					}
					within(t, patience, "the end of the durable workflows", func() bool { return s.openRequests(t) == 0 })
					worker.stop(t)
					for _, r := range calls {
						r.requireRuns(t, 1)
						assert.Len(t, r.entries(t, effects.Cancelled), 1)
					}
				})
			}
		})
	}
}

func TestAWorkflowThatCancelsItsCallGetsWhatTheCancellationTypeSays(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		s := newSite(t, siteOptions{})
		s.startWorker(t)
		start := func(name string, cancellation workflow.NexusOperationCancellationType) []*running {
			return s.startEach(t, workers.Call{
				Arguments:    effects.Arguments{Call: name, MS: 20_000},
				Options:      mcpnexus.RequestOptions{Execution: execution},
				Cancellation: cancellation,
				Stay:         5 * time.Second,
			})
		}
		abandoned := start("abandon ", workflow.NexusOperationCancellationTypeAbandon)
		tried := start("try ", workflow.NexusOperationCancellationTypeTryCancel)
		awaited := start("wait ", workflow.NexusOperationCancellationTypeWaitCompleted)
		all := append(append(abandoned[:len(abandoned):len(abandoned)], tried...), awaited...)
		for _, r := range all {
			r.await(t, effects.Began, 1)
			r.awaitStarted(t)
		}
		for _, r := range all {
			require.NoError(t, s.temporal.app.CancelWorkflow(t.Context(), r.run.GetID(), r.run.GetRunID()))
		}
		each(t, all, func(t *testing.T, r *running) {
			o := r.outcome(t)
			assert.True(t, o.Canceled, "%+v", o)
		})
		each(t, abandoned, func(t *testing.T, r *running) {
			r.await(t, effects.Finished, 1)
			r.requireRuns(t, 1)
			assert.Empty(t, r.entries(t, effects.Cancelled))
		})
		each(t, append(tried, awaited...), func(t *testing.T, r *running) {
			r.await(t, effects.Cancelled, 1)
			r.requireRuns(t, 1)
			assert.Empty(t, r.entries(t, effects.Finished))
		})
	})
}

// status is that of the caller's workflow.
func (r *running) status(t *testing.T) enumspb.WorkflowExecutionStatus {
	t.Helper()
	found, err := r.site.temporal.app.DescribeWorkflowExecution(t.Context(), r.run.GetID(), r.run.GetRunID())
	require.NoError(t, err)
	return found.GetWorkflowExecutionInfo().GetStatus()
}
