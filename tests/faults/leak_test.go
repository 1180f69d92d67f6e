//go:build unix

package faults

import (
	"encoding/json"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/effects"
	"github.com/nexusmcp/nexusmcp/internal/held"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// held asks the site's only worker what it holds.
func (s *site) held(t *testing.T) (r held.Resources) {
	t.Helper()
	outcomes := outcomesOf(t, s.execute(t, workers.Calls, client.StartWorkflowOptions{}, workers.Call{Endpoint: s.endpoint, Service: workers.SelfService, Tool: workers.SelfTool}))
	require.NoError(t, json.Unmarshal([]byte(outcomes[0].Text), &r), "%+v", outcomes[0])
	return r
}

// settled is held once the TCP connections to the MCP servers are cut, of which up to
// a hundred to each stay for a minute and a half, and their ends have been noticed.
func (s *site) settled(t *testing.T) (r held.Resources) {
	t.Helper()
	for _, service := range s.services {
		if service.listener != nil {
			service.listener.CloseClientConnections()
		}
	}
	same := 0
	within(t, patience, "a worker at rest", func() bool {
		now := s.held(t)
		if same++; now.Goroutines != r.Goroutines || now.Files != r.Files || now.Children != r.Children {
			same = 0
		}
		r = now
		return same == 3
	})
	return r
}

// It does not run beside the others, which would not get their share of the machine.
func TestTenThousandCallsLeaveAWorkerAsItWas(t *testing.T) {
	s := newSite(t, siteOptions{Long: true})
	s.startWorker(t)
	const batch = 100
	durable := mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable}
	// load makes about as many calls, most of them in batches, in each of the ways:
	// answered at once, durable, handed off, failing. The services take turns.
	load := func(calls int) (made int) {
		for _, service := range s.services {
			batches := calls / len(s.services) / batch
			if service.Service == overStdioLegacy {
				batches = (batches + 9) / 10 // each call is a process
			}
			var runs []client.WorkflowRun
			var plans [][]workers.Call
			start := func(workflowType string, n int, c workers.Call) {
				plan := make([]workers.Call, n)
				for i := range plan {
					plan[i] = s.complete(service.Service, c)
				}
				plans, runs, made = append(plans, plan), append(runs, s.execute(t, workflowType, client.StartWorkflowOptions{}, plan...)), made+n
			}
			for range batches {
				start(workers.Batch, batch, workers.Call{})
			}
			start(workers.Calls, batches, workers.Call{Options: durable})
			start(workers.Batch, batches, workers.Call{Options: durable})
			start(workers.Batch, batches, workers.Call{Arguments: effects.Arguments{MS: 2500}})
			start(workers.Batch, batches, workers.Call{Arguments: effects.Arguments{Fail: 1, Code: -32602}})
			for i, run := range runs {
				for j, o := range outcomesOf(t, run) {
					if plans[i][j].Arguments.Fail == 0 {
						require.Equal(t, workers.Outcome{Text: plans[i][j].Arguments.Text()}, o)
					} else {
						require.NotNil(t, o.Failure)
					}
				}
			}
		}
		return made
	}
	load(1000)
	before := s.settled(t)
	began := time.Now()
	made := load(13_000)
	took := time.Since(began)
	assert.GreaterOrEqual(t, made, 10_000)
	after := s.settled(t)
	// Spare processes stay, each with its pipes and who reads them. Outcomes are
	// remembered for two minutes, each in about 2 KB: some of them before, too.
	const rememberFor = 2 * time.Minute
	const ahead = handler.MaxOpenAhead
	ok := assert.Eventually(t, func() bool {
		after = s.held(t)
		return after.Goroutines <= before.Goroutines+7*ahead && after.Files <= before.Files+4*ahead && after.Children <= before.Children+ahead && after.Heap <= before.Heap+4<<20
	}, rememberFor+patience, time.Second)
	t.Logf("%d calls in %v: before %+v, after %+v", made, took.Round(time.Second), before, after)
	if ok && runtime.GOOS == "linux" {
		assert.NotZero(t, before.Files)
		assert.NotZero(t, before.Children)
	}
}
