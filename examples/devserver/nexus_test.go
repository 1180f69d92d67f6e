package devserver_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/temporalnexus"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

const service = "greetings"

var (
	echo = nexus.NewSyncOperation("echo", func(_ context.Context, input string, _ nexus.StartOperationOptions) (string, error) {
		return input, nil
	})
	greetLater = temporalnexus.NewWorkflowRunOperation("greet-later", greet, func(_ context.Context, _ string, options nexus.StartOperationOptions) (client.StartWorkflowOptions, error) {
		return client.StartWorkflowOptions{ID: "greet-" + options.RequestID}, nil
	})
)

// serve runs a Nexus service in the tools namespace and returns its task queue.
func serve(t *testing.T) (taskQueue string) {
	t.Helper()
	s := nexus.NewService(service)
	s.MustRegister(echo, greetLater)
	return startWorker(t, dial(t, sharedServer(t), tools), func(r worker.Registry) {
		r.RegisterNexusService(s)
		r.RegisterWorkflow(greet)
	})
}

// createEndpoint registers an endpoint that leads to a task queue of the tools namespace.
func createEndpoint(t *testing.T, name, taskQueue string) {
	t.Helper()
	_, err := dial(t, sharedServer(t), tools).OperatorService().CreateNexusEndpoint(testContext(t), &operatorservice.CreateNexusEndpointRequest{
		Spec: &nexuspb.EndpointSpec{
			Name: name,
			Target: &nexuspb.EndpointTarget{Variant: &nexuspb.EndpointTarget_Worker_{
				Worker: &nexuspb.EndpointTarget_Worker{Namespace: tools, TaskQueue: taskQueue},
			}},
		},
	})
	require.NoError(t, err)
}

// startCaller runs a workflow in the callers namespace.
func startCaller(t *testing.T, c client.Client, wf any, arguments ...any) client.WorkflowRun {
	t.Helper()
	taskQueue := startWorker(t, c, func(r worker.Registry) { r.RegisterWorkflow(wf) })
	run, err := c.ExecuteWorkflow(testContext(t), client.StartWorkflowOptions{TaskQueue: taskQueue}, wf, arguments...)
	require.NoError(t, err)
	return run
}

func callEcho(ctx workflow.Context, endpoint string) (answer string, err error) {
	c := workflow.NewNexusClient(endpoint, service)
	err = c.ExecuteOperation(ctx, echo, "across namespaces", workflow.NexusOperationOptions{}).Get(ctx, &answer)
	return answer, err
}

func TestSynchronousOperationAnswersAcrossNamespaces(t *testing.T) {
	createEndpoint(t, "sync", serve(t))
	c := dial(t, sharedServer(t), callers)
	var answer string
	require.NoError(t, startCaller(t, c, callEcho, "sync").Get(testContext(t), &answer))
	require.Equal(t, "across namespaces", answer)
}

// callGreetLater starts an operation, tells the caller which workflow is behind it, and waits for it.
func callGreetLater(ctx workflow.Context, endpoint string) (answer string, err error) {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	future := workflow.NewNexusClient(endpoint, service).ExecuteOperation(ctx, greetLater, "Hello", workflow.NexusOperationOptions{})
	var execution workflow.NexusOperationExecution
	if err := future.GetNexusOperationExecution().Get(ctx, &execution); err != nil {
		return "", err
	}
	workflow.Go(ctx, func(ctx workflow.Context) {
		workflow.GetSignalChannel(ctx, "cancel").Receive(ctx, nil)
		cancel()
	})
	err = future.Get(ctx, &answer)
	return answer, err
}

func TestOperationBackedByAWorkflowCompletesAcrossNamespaces(t *testing.T) {
	createEndpoint(t, "async", serve(t))
	run := startCaller(t, dial(t, sharedServer(t), callers), callGreetLater, "async")

	handler := dial(t, sharedServer(t), tools)
	require.NoError(t, handler.SignalWorkflow(testContext(t), handlerWorkflow(t, run), "", "name", "Ada"))
	var answer string
	require.NoError(t, run.Get(testContext(t), &answer))
	require.Equal(t, "Hello, Ada", answer)
}

func TestCancellingAnOperationCancelsTheWorkflowBehindIt(t *testing.T) {
	createEndpoint(t, "cancel", serve(t))
	c := dial(t, sharedServer(t), callers)
	run := startCaller(t, c, callGreetLater, "cancel")
	behind := handlerWorkflow(t, run)

	require.NoError(t, c.SignalWorkflow(testContext(t), run.GetID(), "", "cancel", nil))
	err := run.Get(testContext(t), nil)
	require.ErrorAs(t, err, new(*temporal.CanceledError))
	err = dial(t, sharedServer(t), tools).GetWorkflow(testContext(t), behind, "").Get(testContext(t), nil)
	require.ErrorAs(t, err, new(*temporal.CanceledError))
}

// handlerWorkflow waits until a caller's operation has started and returns the ID of the workflow behind it,
// from the link in the caller's history.
func handlerWorkflow(t *testing.T, run client.WorkflowRun) string {
	t.Helper()
	c := dial(t, sharedServer(t), callers)
	history := c.GetWorkflowHistory(testContext(t), run.GetID(), run.GetRunID(), true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		if event.EventType == enums.EVENT_TYPE_NEXUS_OPERATION_STARTED {
			require.NotEmpty(t, event.Links)
			return event.Links[0].GetWorkflowEvent().GetWorkflowId()
		}
	}
	require.Fail(t, "no operation started")
	return ""
}

func TestEndpointIsUsableAsSoonAsItIsCreated(t *testing.T) {
	taskQueue := serve(t)
	c := dial(t, sharedServer(t), callers)
	queue := startWorker(t, c, func(r worker.Registry) { r.RegisterWorkflow(callEcho) })
	for i := range 5 {
		endpoint := fmt.Sprintf("fresh-%d", i)
		createEndpoint(t, endpoint, taskQueue)
		run, err := c.ExecuteWorkflow(testContext(t), client.StartWorkflowOptions{TaskQueue: queue}, callEcho, endpoint)
		require.NoError(t, err)
		require.NoError(t, run.Get(testContext(t), nil))
		require.Empty(t, failedWorkflowTasks(t, c, run), "a server that does not know the endpoint yet fails the workflow task")
	}
}

// callMany starts operations and waits for them all.
func callMany(ctx workflow.Context, endpoint string, count int) error {
	c := workflow.NewNexusClient(endpoint, service)
	futures := make([]workflow.Future, count)
	for i := range futures {
		futures[i] = c.ExecuteOperation(ctx, echo, "again", workflow.NexusOperationOptions{})
	}
	for _, future := range futures {
		if err := future.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

func TestAWorkflowMayHaveThirtyPendingOperationsAsInProduction(t *testing.T) {
	createEndpoint(t, "many", "nobody polls this task queue")
	c := dial(t, sharedServer(t), callers)
	taskQueue := startWorker(t, c, func(r worker.Registry) { r.RegisterWorkflow(callMany) })

	for count, want := range map[int]enums.EventType{
		30: enums.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED,
		31: enums.EVENT_TYPE_WORKFLOW_TASK_FAILED,
	} {
		run, err := c.ExecuteWorkflow(testContext(t), client.StartWorkflowOptions{TaskQueue: taskQueue}, callMany, "many", count)
		require.NoError(t, err)
		history := c.GetWorkflowHistory(testContext(t), run.GetID(), run.GetRunID(), true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		var first *historypb.HistoryEvent // of the two
		for first == nil && history.HasNext() {
			event, err := history.Next()
			require.NoError(t, err)
			switch event.EventType {
			case enums.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED, enums.EVENT_TYPE_WORKFLOW_TASK_FAILED:
				first = event
			}
		}
		require.Equal(t, want, first.GetEventType(), "with %d operations", count)
		if failed := first.GetWorkflowTaskFailedEventAttributes(); failed != nil {
			require.Equal(t, enums.WORKFLOW_TASK_FAILED_CAUSE_PENDING_NEXUS_OPERATIONS_LIMIT_EXCEEDED, failed.Cause)
		}
		require.NoError(t, c.TerminateWorkflow(testContext(t), run.GetID(), "", "seen enough"))
	}
}

func failedWorkflowTasks(t *testing.T, c client.Client, run client.WorkflowRun) (messages []string) {
	t.Helper()
	history := c.GetWorkflowHistory(testContext(t), run.GetID(), run.GetRunID(), false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		require.NoError(t, err)
		if failed := event.GetWorkflowTaskFailedEventAttributes(); failed != nil {
			messages = append(messages, failed.GetFailure().GetMessage())
		}
	}
	return messages
}
