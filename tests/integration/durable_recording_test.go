package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// durableWays are calls that each make the handler's workflow take another way.
var durableWays = map[string]struct {
	options   mcpnexus.RequestOptions
	tool      string
	arguments map[string]any
	batch     []*mcp.CallToolParams // instead of a tool
	cancel    time.Duration         // after this time
	fails     bool
}{
	"Durable":   {options: mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable}, tool: "echo"},
	"HandedOff": {tool: "slow", arguments: map[string]any{"ms": 1000}},
	"HandedOffThenRetried": {
		options: mcpnexus.RequestOptions{StartToCloseTimeout: time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, MaximumAttempts: 2}},
		tool:    "silent", fails: true,
	},
	"Retried": {
		options: mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, MaximumAttempts: 3}},
		tool:    "error", arguments: map[string]any{"code": -32603}, fails: true,
	},
	"OnlyAttempt": {options: single, tool: "error", arguments: map[string]any{"code": -32603}, fails: true},
	"TimedOut": {
		options: mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable, StartToCloseTimeout: time.Minute, ScheduleToCloseTimeout: 1500 * time.Millisecond},
		tool:    "silent", fails: true,
	},
	"CancelledWhileItRuns": {tool: "silent", cancel: 1500 * time.Millisecond, fails: true},
	"CancelledBetweenAttempts": {
		options: mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Minute}},
		tool:    "error", arguments: map[string]any{"code": -32603}, cancel: time.Second, fails: true,
	},
	"Batch": {
		options: mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, MaximumAttempts: 2}},
		batch: []*mcp.CallToolParams{
			{Name: "echo"}, {Name: "slow", Arguments: map[string]any{"ms": 1000}}, {Name: "error", Arguments: map[string]any{"code": -32603}},
		},
	},
}

func TestEveryRecordedWayOfADurableRequestReplays(t *testing.T) {
	t.Parallel()
	for name, way := range durableWays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, transport := rudeHTTP(t, rude.Options{})
			options := handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: 300 * time.Millisecond}
			plugin, err := handler.NewPlugin(options)
			require.NoError(t, err)
			p := publishFor(t, dialFor(t, platformNamespace, asRecorder), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
			run := p.start(t, func(ctx workflow.Context) error {
				ctx, cancel := workflow.WithCancel(ctx)
				if way.cancel > 0 {
					workflow.Go(ctx, func(ctx workflow.Context) {
						_ = workflow.Sleep(ctx, way.cancel)
						cancel()
					})
				}
				c := p.client("rude", caller.Options{Request: way.options})
				if way.batch != nil {
					for _, outcome := range c.CallTools(ctx, way.batch)[:2] {
						if outcome.Err != nil {
							return outcome.Err
						}
					}
					return nil
				}
				_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: way.tool, Arguments: way.arguments})
				return err
			})
			assert.Equal(t, way.fails, outcome(t, run) != nil)

			fresh := durableHistory(t, run)
			for _, event := range fresh.Events {
				require.Nil(t, event.GetWorkflowTaskFailedEventAttributes())
			}
			replayDurable(t, fresh)
			if *record {
				anonymize(t, fresh)
				save(t, filepath.Join(durableHistories, name+".json"), fresh)
			}
		})
	}
}

// replays registers workflows alone.
type replays struct{ worker.WorkflowReplayer }

func (replays) RegisterNexusService(*nexus.Service)                       {}
func (replays) RegisterActivityWithOptions(any, activity.RegisterOptions) {}

// replayDurable replays a workflow of the handler.
func replayDurable(t *testing.T, history *historypb.History) {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true}) // see busy
	require.NoError(t, err)
	h, err := handler.New(handler.Options{Servers: []handler.Server{{Name: "unused", Transport: handler.InProcess{Server: newAlmanac("unused")}}}})
	require.NoError(t, err)
	h.Register(replays{replayer})
	require.NoError(t, replayer.ReplayWorkflowHistory(newLogger(), history))
}

// durableRun returns the handler's workflow for the operation that a workflow has
// open, or had open last.
func durableRun(events []*historypb.HistoryEvent) (id string, found bool) {
	for _, event := range events {
		for _, link := range event.GetLinks() {
			if started := link.GetWorkflowEvent(); started != nil && event.GetEventType() == enumspb.EVENT_TYPE_NEXUS_OPERATION_STARTED {
				id, found = started.GetWorkflowId(), true
			}
		}
	}
	return id, found
}

// durableHistory returns the history of that workflow.
func durableHistory(t *testing.T, run client.WorkflowRun) *historypb.History {
	t.Helper()
	id, found := durableRun(history(t, run))
	require.True(t, found, "no operation was started durably")
	var events []*historypb.HistoryEvent
	iterator := platformClient.GetWorkflowHistory(t.Context(), id, "", true, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(t, err)
		events = append(events, event)
	}
	return &historypb.History{Events: events}
}

// anonymize takes out which machine recorded it.
func anonymize(t *testing.T, h *historypb.History) {
	host, err := os.Hostname()
	require.NoError(t, err)
	old, plain := fmt.Appendf(nil, "nexusmcp/%s/%d/", host, os.Getpid()), []byte("nexusmcp/host/1/")
	clean := func(payloads *commonpb.Payloads) {
		for _, p := range payloads.GetPayloads() {
			p.Data = bytes.ReplaceAll(p.Data, old, plain)
		}
	}
	for _, event := range h.Events {
		if queue := event.GetWorkflowTaskScheduledEventAttributes().GetTaskQueue(); queue.GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
			queue.Name = "recorder"
		}
		clean(event.GetWorkflowExecutionStartedEventAttributes().GetInput())
		if scheduled := event.GetActivityTaskScheduledEventAttributes(); scheduled != nil {
			clean(scheduled.GetInput())
			scheduled.TaskQueue.Name = string(bytes.ReplaceAll([]byte(scheduled.GetTaskQueue().GetName()), old, plain))
		}
	}
}
