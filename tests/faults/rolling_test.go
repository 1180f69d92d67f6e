//go:build unix

package faults

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// A rollingLoad is what each of several workflows calls, one after the other:
// the milliseconds that the tool takes.
var rollingLoad = []int{20, 300, 0, 2500, 20, 4000, 100, 1200, 0, 14_000, 20, 600, 3000, 20}

func TestARollingRestartOfTwoWorkersUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	const workflows = 24 / slowdown
	s := newSite(t, siteOptions{Long: true, Services: []string{overStdio, overHTTP, overHTTPLegacy}})
	pair := []*process{s.startWorker(t), s.startWorker(t)}
	executions := []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable}
	var runs []client.WorkflowRun
	var plans [][]workers.Call
	long := make(map[string]bool) // calls that a stopping worker does not wait for
	for i := range workflows {
		var plan []workers.Call
		for j := range rollingLoad {
			// Each workflow begins elsewhere, so that all lengths run at any time.
			c := workers.Call{
				Arguments: effects.Arguments{MS: rollingLoad[(i+j)%len(rollingLoad)]},
				Options:   mcpnexus.RequestOptions{Execution: executions[(i+j)%len(executions)]},
			}
			// What runs at most once fits into the time that a stopping worker gives
			// it; the longest does not, and is given to another worker.
			if (i+j)%4 == 0 && c.Arguments.MS <= 4000 {
				c.Options.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
			}
			c = s.complete(s.services[i%len(s.services)].Service, c)
			long[c.Arguments.Call] = c.Arguments.MS > 10_000
			plan = append(plan, c)
		}
		plans = append(plans, plan)
		runs = append(runs, s.execute(t, workers.Calls, client.StartWorkflowOptions{}, plan...))
	}

	open := func() bool {
		for _, run := range runs {
			found, err := s.temporal.app.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
			require.NoError(t, err)
			if found.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING {
				return true
			}
		}
		return false
	}
	const rounds = 2 // with more, the longest calls would never have the time that they take
	restarts := 0
	for ; restarts < rounds*len(pair) && open(); restarts++ {
		i := restarts % len(pair)
		within(t, patience, "a long call has just begun on the worker", func() bool {
			return !open() || slices.ContainsFunc(s.entries(t, "", effects.Began), func(e effects.Entry) bool {
				return e.Client == pair[i].pid() && long[e.Call] && time.Since(e.Time) < 2*time.Second
			})
		})
		pair[i].stop(t)
		pair[i] = s.startWorker(t)
	}
	assert.GreaterOrEqual(t, restarts, len(pair), "the load ended before each worker was restarted")

	calls, again := 0, 0
	for i, run := range runs {
		for j, o := range outcomesOf(t, run) {
			c := plans[i][j]
			calls++
			assert.Equal(t, workers.Outcome{Text: c.Arguments.Text()}, o, "%+v", c)
			began := len(s.entries(t, c.Arguments.Call, effects.Began))
			again += began - 1
			if c.Options.RetryPolicy != nil {
				assert.Equal(t, 1, began, "%+v", c)
			} else {
				assert.GreaterOrEqual(t, began, 1, "%+v", c)
			}
			assert.Len(t, s.entries(t, c.Arguments.Call, effects.Effected), 1, "%+v", c)
		}
	}
	t.Logf("%d calls, %d restarts, %d runs more than calls", calls, restarts, again)
	assert.Equal(t, workflows*len(rollingLoad), calls)
	assert.Positive(t, again, "no call was given from one worker to another")
	assert.Zero(t, s.openRequests(t))
}
