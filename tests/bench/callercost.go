package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
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

// replayed is how many calls the replayed workflow makes.
const replayed = 200

// callerOverhead returns the CPU in µs that a call spends in the workflow beyond
// that of workflow.NexusClient. A replay runs all of a worker's code for a
// workflow and nothing else: no server, no network, no waiting.
func callerOverhead(rounds int, out io.Writer) (*float64, error) {
	params := textParams(kilobyte)
	replay := func(call func() func(workflow.Context) (*mcp.CallToolResult, error)) func(int) error {
		return func(n int) error {
			return replayCalls(n, func(ctx workflow.Context) error {
				one := call()
				for range n {
					result, err := one(ctx)
					if err := checkText(result, err, kilobyte); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	nexusClient := replay(func() func(workflow.Context) (*mcp.CallToolResult, error) {
		client := workflow.NewNexusClient(endpointName, libraryService)
		return func(ctx workflow.Context) (*mcp.CallToolResult, error) {
			var result *mcp.CallToolResult
			err := client.ExecuteOperation(ctx, mcpnexus.CallTool, params, workflow.NexusOperationOptions{}).Get(ctx, &result)
			return result, err
		}
	})
	library := func(execution mcpnexus.Execution) func(int) error {
		return replay(func() func(workflow.Context) (*mcp.CallToolResult, error) {
			client := caller.NewClient(endpointName, libraryService, caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}})
			return func(ctx workflow.Context) (*mcp.CallToolResult, error) { return client.CallTool(ctx, params) }
		})
	}
	loops := []loop{
		{"workflow.NexusClient", nexusClient},
		{"workflow.NexusClient, again", nexusClient},
		{"caller.Client, request options set", library(mcpnexus.ExecutionInline)},
		{"caller.Client", library("")},
	}
	measured, err := costs(rounds, replayed, loops...)
	if err != nil {
		return nil, err
	}
	writeCosts(out, fmt.Sprintf("A call of 1 KB in the workflow, replayed: a Nexus client's cost and what is added to it (%d rounds of %d calls)", rounds, replayed), loops, measured)
	return new(measured[len(measured)-1].minus(measured[0]).cpu.median()), nil
}

const endpointName = "mcp"

// replayCalls replays a workflow that makes n calls one after the other.
func replayCalls(n int, body func(workflow.Context) error) error {
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true})
	if err != nil {
		return err
	}
	replayer.RegisterWorkflowWithOptions(body, workflow.RegisterOptions{Name: workflowName})
	history, err := callHistory(n, kilobyte)
	if err != nil {
		return err
	}
	return replayer.ReplayWorkflowHistory(quiet, history)
}

// callHistory is the history of n calls with results of a size.
func callHistory(n, bytes int) (*historypb.History, error) {
	result, err := converter.GetDefaultDataConverter().ToPayload(json.RawMessage(
		fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"resultType":"complete"}`, strings.Repeat("x", bytes))))
	if err != nil {
		return nil, err
	}
	h := &historyWriter{}
	h.add(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionStartedEventAttributes{
		WorkflowExecutionStartedEventAttributes: &historypb.WorkflowExecutionStartedEventAttributes{
			WorkflowType: &commonpb.WorkflowType{Name: workflowName}, TaskQueue: &taskqueuepb.TaskQueue{Name: appQueue}, OriginalExecutionRunId: "run", Attempt: 1,
		},
	}})
	task := h.workflowTask()
	for range n {
		scheduled := h.add(enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_NexusOperationScheduledEventAttributes{
			NexusOperationScheduledEventAttributes: &historypb.NexusOperationScheduledEventAttributes{
				Endpoint: endpointName, Service: libraryService, Operation: mcpnexus.OperationCallTool, WorkflowTaskCompletedEventId: task,
			},
		}})
		h.add(enumspb.EVENT_TYPE_NEXUS_OPERATION_COMPLETED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_NexusOperationCompletedEventAttributes{
			NexusOperationCompletedEventAttributes: &historypb.NexusOperationCompletedEventAttributes{ScheduledEventId: scheduled, Result: result},
		}})
		task = h.workflowTask()
	}
	h.add(enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowExecutionCompletedEventAttributes{
		WorkflowExecutionCompletedEventAttributes: &historypb.WorkflowExecutionCompletedEventAttributes{WorkflowTaskCompletedEventId: task},
	}})
	return &historypb.History{Events: h.events}, nil
}

// A historyWriter writes a history as a server would.
type historyWriter struct{ events []*historypb.HistoryEvent }

// add appends an event and returns its ID.
func (h *historyWriter) add(kind enumspb.EventType, event *historypb.HistoryEvent) int64 {
	event.EventType, event.EventId = kind, int64(len(h.events)+1)
	event.EventTime = timestamppb.New(time.Unix(event.EventId, 0))
	h.events = append(h.events, event)
	return event.EventId
}

// workflowTask appends a workflow task and returns the ID of its last event.
func (h *historyWriter) workflowTask() int64 {
	scheduled := h.add(enumspb.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowTaskScheduledEventAttributes{
		WorkflowTaskScheduledEventAttributes: &historypb.WorkflowTaskScheduledEventAttributes{TaskQueue: &taskqueuepb.TaskQueue{Name: appQueue}, Attempt: 1},
	}})
	started := h.add(enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowTaskStartedEventAttributes{
		WorkflowTaskStartedEventAttributes: &historypb.WorkflowTaskStartedEventAttributes{ScheduledEventId: scheduled},
	}})
	return h.add(enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED, &historypb.HistoryEvent{Attributes: &historypb.HistoryEvent_WorkflowTaskCompletedEventAttributes{
		WorkflowTaskCompletedEventAttributes: &historypb.WorkflowTaskCompletedEventAttributes{ScheduledEventId: scheduled, StartedEventId: started},
	}})
}
