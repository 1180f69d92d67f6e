//go:build unix

package faults

import (
	"net/url"
	"slices"
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
		calls = append(calls, s.startEach(t, workers.Call{Arguments: arguments, Options: options})...)
		arguments.Call += "once "
		onces = append(onces, s.startEach(t, workers.Call{Arguments: arguments, Options: once})...)
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
		s := newSite(t, siteOptions{Temporal: server.temporalServer, Worker: workers.Handlers{InlineWindow: time.Second}})
		s.startWorker(t)
		calls, onces := s.startBeforeRestart(t, execution, 15*time.Second, 4*time.Second)
		server.process.kill(t)
		for _, r := range append(slices.Clone(calls), onces...) {
			if r.call.Arguments.MS == 4000 {
				r.await(t, effects.Finished, 1)
			}
		}
		server.start(t)
		requireSurvived(t, execution, calls, onces)
	})
}

func TestACallSurvivesATemporalServerThatIsAwayForLongerThanAHeartbeatMayBe(t *testing.T) {
	forEachExecution(t, func(t *testing.T, execution mcpnexus.Execution) {
		server := launchTemporal(t)
		s := newSite(t, siteOptions{Temporal: server.temporalServer, Worker: workers.Handlers{InlineWindow: time.Second}})
		s.startWorker(t)
		calls, onces := s.startBeforeRestart(t, execution, 35*time.Second, 8*time.Second)
		server.process.kill(t)
		pass(t, 15*time.Second)
		server.start(t)
		requireSurvived(t, execution, calls, onces)
	})
}

// requireSurvived waits for the ends of calls that ran while the server was away. After
// ten seconds without a heartbeat it takes an attempt for lost. One of a call that was
// handed off is joined by the next; a durable one is made again, unless it may be made
// only once.
func requireSurvived(t *testing.T, execution mcpnexus.Execution, calls, onces []*running) {
	each(t, calls, func(t *testing.T, r *running) {
		assert.Equal(t, workers.Outcome{Text: r.call.Arguments.Text()}, r.outcome(t))
		if execution == mcpnexus.ExecutionAuto || !r.missed(t) {
			r.requireRuns(t, 1)
		} else {
			assert.LessOrEqual(t, len(r.entries(t, effects.Began)), 2)
			assert.Len(t, r.entries(t, effects.Effected), 1)
		}
	})
	each(t, onces, func(t *testing.T, r *running) {
		if o := r.outcome(t); o.Failure != nil && r.missed(t) {
			assert.Equal(t, mcpnexus.ErrorTypeOutcomeUnknown, o.Failure.Type)
		} else {
			assert.Equal(t, workers.Outcome{Text: r.call.Arguments.Text()}, o)
		}
		r.requireRuns(t, 1)
	})
}

// missed reports whether the server has taken an attempt of the call for lost.
func (r *running) missed(t *testing.T) bool {
	t.Helper()
	began := r.entries(t, effects.Began)
	require.NotEmpty(t, began)
	// The key is the operation's request ID, which is in the workflow's.
	id := "nexusmcp/" + url.PathEscape(r.service.Service) + "/" + mcpnexus.OperationCallTool + "/" + began[0].Key
	iterator := r.site.temporal.platform.GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(t, err)
		if event.GetActivityTaskTimedOutEventAttributes() != nil || event.GetActivityTaskStartedEventAttributes().GetAttempt() > 1 {
			return true
		}
	}
	return false
}
