//go:build unix

package caller_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The two benchmarks differ by what a call costs in the client. A replay runs
// everything that a worker does for a workflow, and nothing else.

func BenchmarkAReplayedCallOfANexusClient(b *testing.B) {
	replayedCalls(b, func() func(workflow.Context, *mcp.CallToolParams) (*mcp.CallToolResult, error) {
		client := workflow.NewNexusClient(endpoint, weather)
		return func(ctx workflow.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
			var result *mcp.CallToolResult
			err := client.ExecuteOperation(ctx, mcpnexus.CallTool, params, workflow.NexusOperationOptions{}).Get(ctx, &result)
			return result, err
		}
	})
}

func BenchmarkAReplayedCallOfAClient(b *testing.B) {
	replayedCalls(b, func() func(workflow.Context, *mcp.CallToolParams) (*mcp.CallToolResult, error) {
		return caller.NewClient(endpoint, weather, caller.Options{}).CallTool
	})
}

// replayedCalls replays workflows that make calls, as many as the benchmark asks
// for, with results of several sizes.
func replayedCalls(b *testing.B, newClient func() func(workflow.Context, *mcp.CallToolParams) (*mcp.CallToolResult, error)) {
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			params := &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": "Oslo"}}
			var calls int // of the next run
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true})
			require.NoError(b, err)
			replayer.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
				call := newClient()
				for range calls {
					result, err := call(ctx, params)
					if err != nil {
						return err
					}
					if got := len(result.Content[0].(*mcp.TextContent).Text); got != size {
						return fmt.Errorf("%d bytes arrived", got)
					}
				}
				return nil
			}, workflow.RegisterOptions{Name: "calls"})
			perRun := max(1, min(500, 16<<20/size))
			whole, rest := callHistory(b, perRun, size), callHistory(b, b.N%perRun, size)
			b.ReportAllocs()
			began := cpuTime(b)
			b.ResetTimer()
			calls = perRun
			for range b.N / perRun {
				require.NoError(b, replayer.ReplayWorkflowHistory(quiet{}, whole))
			}
			calls = b.N % perRun
			require.NoError(b, replayer.ReplayWorkflowHistory(quiet{}, rest))
			b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// callHistory is the history of a workflow that makes n calls one after the other.
func callHistory(b *testing.B, n, size int) *historypb.History {
	b.Helper()
	result, err := converter.GetDefaultDataConverter().ToPayload(json.RawMessage(
		fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"resultType":"complete"}`, strings.Repeat("x", size))))
	require.NoError(b, err)
	h := &history{}
	queue := &taskqueuepb.TaskQueue{Name: "calls"}
	h.add(&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
		WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
			WorkflowType: &commonpb.WorkflowType{Name: "calls"}, TaskQueue: queue, OriginalExecutionRunId: "run", Attempt: 1,
		},
	}})
	task := h.workflowTask(queue)
	for range n {
		scheduled := h.add(&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED, Attributes: &historypb.HistoryEvent_NexusOperationScheduledEventAttributes{
			NexusOperationScheduledEventAttributes: &historypb.NexusOperationScheduledEventAttributes{
				Endpoint: endpoint, Service: weather, Operation: mcpnexus.OperationCallTool, WorkflowTaskCompletedEventId: task,
			},
		}})
		h.add(&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_NEXUS_OPERATION_COMPLETED, Attributes: &historypb.HistoryEvent_NexusOperationCompletedEventAttributes{
			NexusOperationCompletedEventAttributes: &historypb.NexusOperationCompletedEventAttributes{ScheduledEventId: scheduled, Result: result},
		}})
		task = h.workflowTask(queue)
	}
	h.add(&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
		WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{WorkflowTaskCompletedEventId: task},
	}})
	return &h.History
}

// history is one that is being written as a server would.
type history struct{ historypb.History }

// add appends an event and returns its ID.
func (h *history) add(event *historypb.HistoryEvent) int64 {
	event.EventId = int64(len(h.Events) + 1)
	event.EventTime = timestamppb.New(time.Unix(event.EventId, 0))
	h.Events = append(h.Events, event)
	return event.EventId
}

// workflowTask appends a workflow task and returns the ID of its last event.
func (h *history) workflowTask(queue *taskqueuepb.TaskQueue) int64 {
	scheduled := h.add(&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, Attributes: &historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes{
		WorkflowTaskScheduledEventAttributes: &historypb.WorkflowTaskScheduledEventAttributes{TaskQueue: queue, Attempt: 1},
	}})
	started := h.add(&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED, Attributes: &historypb.HistoryEvent_WorkflowTaskStartedEventAttributes{
		WorkflowTaskStartedEventAttributes: &historypb.WorkflowTaskStartedEventAttributes{ScheduledEventId: scheduled},
	}})
	return h.add(&historypb.HistoryEvent{EventType: enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, Attributes: &historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes{
		WorkflowTaskCompletedEventAttributes: &historypb.WorkflowTaskCompletedEventAttributes{ScheduledEventId: scheduled, StartedEventId: started},
	}})
}

// cpuTime returns the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
