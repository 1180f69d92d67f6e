package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestACallThatOutlivesTheNexusRequestSucceedsAndRunsOnce(t *testing.T) {
	t.Parallel()
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			server, transport := rudeHTTP(t, rude.Options{})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			var took time.Duration
			p.run(t, func(ctx workflow.Context) error {
				began := workflow.Now(ctx)
				result, err := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}}).CallTool(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 15_000}})
				if err != nil {
					return err
				}
				took = workflow.Now(ctx).Sub(began)
				if text := result.Content[0].(*mcp.TextContent).Text; text != "at last" {
					return fmt.Errorf("got %q", text)
				}
				return nil
			})
			t.Log(took)
			assert.Equal(t, 1, server.Stats().Calls["slow"])
		})
	}
}

// cancelling are the cancellation types, and what each promises besides.
var cancelling = map[string]struct {
	kind  workflow.NexusOperationCancellationType
	waits bool // for the end of the operation
	tells bool // the server
}{
	"wait completed": {workflow.NexusOperationCancellationTypeWaitCompleted, true, true},
	"try cancel":     {workflow.NexusOperationCancellationTypeTryCancel, false, true},
	"abandon":        {workflow.NexusOperationCancellationTypeAbandon, false, false},
}

func TestCancellingReachesTheServerAsTheCancellationTypePromises(t *testing.T) {
	t.Parallel()
	for name, c := range cancelling {
		for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
			for over, legacy := range map[string]bool{"HTTP": false, "HTTP with sessions": true} {
				t.Run(fmt.Sprintf("%s, %s, over %s", name, execution, over), func(t *testing.T) {
					t.Parallel()
					server, transport := rudeHTTP(t, rude.Options{Legacy: legacy})
					p := publish(t, handler.Server{Name: "rude", Transport: transport})
					takes := 4 * time.Second
					if c.tells {
						takes = time.Minute
					}
					run := p.start(t, func(ctx workflow.Context) error {
						client := p.client("rude", caller.Options{
							Request:   mcpnexus.RequestOptions{Execution: execution},
							Operation: caller.OperationOptions{CancellationType: c.kind},
						})
						within, cancel := workflow.WithCancel(ctx)
						future := client.CallToolAsync(within, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": takes.Milliseconds()}})
						workflow.GetSignalChannel(ctx, "cancel").Receive(ctx, nil)
						cancel()
						asked := workflow.Now(ctx)
						_, err := future.Get(ctx)
						complaints := &complaints{}
						var canceled *temporal.CanceledError
						assert.ErrorAs(complaints, err, &canceled)
						if !c.waits {
							assert.Less(complaints, workflow.Now(ctx).Sub(asked), time.Second)
						}
						if err := complaints.err(); err != nil {
							return err
						}
						// The workflow stays, so that the operation is not one of a workflow
						// that has ended.
						workflow.GetSignalChannel(ctx, "end").Receive(ctx, nil)
						return nil
					})
					require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 20*time.Second, time.Millisecond)
					require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "cancel", nil))
					if c.tells {
						require.Eventually(t, func() bool { return server.Stats().Cancelled == 1 }, takes-5*time.Second, time.Millisecond, "before it ends by itself")
					} else {
						require.Eventually(t, func() bool { return server.Stats().Answered["slow"] == 1 }, 20*time.Second, 10*time.Millisecond)
						assert.Zero(t, server.Stats().Cancelled)
					}
					require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "end", nil))
					require.NoError(t, outcome(t, run))
					assert.Equal(t, 1, server.Stats().Calls["slow"])
					replay(t, run)
				})
			}
		}
	}
}

// Temporal tells a handler nothing of the end of a workflow that waits for it.
func TestARequestWhoseWorkflowHasEndedIsCancelledAtTheServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end       func(t *testing.T, run client.WorkflowRun)
		cancelled bool
		timeout   time.Duration // of the workflow
	}{
		"it was terminated": {func(t *testing.T, run client.WorkflowRun) {
			require.NoError(t, appClient.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "enough"))
		}, true, 5 * time.Minute},
		"it has timed out": {func(t *testing.T, run client.WorkflowRun) {}, true, 30 * time.Second},
		"it has failed": {func(t *testing.T, run client.WorkflowRun) {
			require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "end", "failure"))
		}, true, 5 * time.Minute},
		"it was cancelled and did not wait": {func(t *testing.T, run client.WorkflowRun) {
			require.NoError(t, appClient.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
		}, true, 5 * time.Minute},
		"it has completed without its result": {func(t *testing.T, run client.WorkflowRun) {
			require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "end", ""))
		}, false, 5 * time.Minute},
	} {
		for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
			t.Run(fmt.Sprintf("%s, %s", name, execution), func(t *testing.T) {
				t.Parallel()
				server, transport := rudeHTTP(t, rude.Options{})
				p := publish(t, handler.Server{Name: "rude", Transport: transport})
				takes := 4 * time.Second
				if c.cancelled {
					takes = time.Minute
				}
				run := p.startWithin(t, c.timeout, func(ctx workflow.Context) error {
					within, _ := workflow.NewDisconnectedContext(ctx)
					p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}}).
						CallToolAsync(within, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": takes.Milliseconds()}})
					var failure string
					workflow.NewSelector(ctx).
						AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).
						AddReceive(workflow.GetSignalChannel(ctx, "end"), func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, &failure) }).
						Select(ctx)
					if failure != "" {
						return errors.New(failure)
					}
					return ctx.Err()
				})
				require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 25*time.Second, time.Millisecond)
				c.end(t, run)
				if c.cancelled {
					require.Eventually(t, func() bool { return server.Stats().Cancelled == 1 }, takes-5*time.Second, 5*time.Millisecond, "before it ends by itself")
				} else {
					require.Eventually(t, func() bool { return server.Stats().Answered["slow"] == 1 }, 40*time.Second, 10*time.Millisecond)
					assert.Zero(t, server.Stats().Cancelled)
				}
				assert.Equal(t, 1, server.Stats().Calls["slow"])
			})
		}
	}
}

func TestTheProgressOfARunningCallIsInItsHeartbeats(t *testing.T) {
	t.Parallel()
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			_, transport := rudeHTTP(t, rude.Options{EventStream: true})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			run := p.start(t, func(ctx workflow.Context) error {
				ctx, cancel := workflow.WithCancel(ctx)
				future := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}}).
					CallToolAsync(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 60_000, "n": 3}})
				workflow.GetSignalChannel(ctx, "end").Receive(ctx, nil)
				cancel()
				_, _ = future.Get(ctx)
				return nil
			})
			beats := func() string {
				for _, event := range history(t, run) {
					scheduled := event.GetNexusOperationScheduledEventAttributes()
					if scheduled == nil {
						continue
					}
					found, err := platformClient.DescribeWorkflowExecution(t.Context(), "nexusmcp/rude/call-tool/"+scheduled.GetRequestId(), "")
					if err != nil {
						return "" // not yet
					}
					for _, activity := range found.GetPendingActivities() {
						for _, details := range activity.GetHeartbeatDetails().GetPayloads() {
							return string(details.GetData())
						}
					}
				}
				return ""
			}
			require.Eventually(t, func() bool { return beats() == `{"progress":{"progress":3,"total":3,"message":"working"}}` }, 40*time.Second, 100*time.Millisecond)
			require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "end", nil))
			require.NoError(t, outcome(t, run))
		})
	}
}

func TestACallThatWasCancelledLeavesTheProcessToTheOthers(t *testing.T) {
	t.Parallel()
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{})})
			p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}})
				within, cancel := workflow.WithCancel(ctx)
				future := client.CallToolAsync(within, &mcp.CallToolParams{Name: "silent"})
				assert.NoError(c, workflow.Sleep(ctx, 3*time.Second)) // it is handed off by then
				cancel()
				_, err := future.Get(ctx)
				var canceled *temporal.CanceledError
				assert.ErrorAs(c, err, &canceled)
				stats, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "stats"})
				if assert.NoError(c, err) {
					seen := stats.StructuredContent.(map[string]any)
					assert.Equal(c, 1.0, seen["cancelled"])
					assert.Equal(c, 1.0, seen["handshakes"])
				}
				return c.err()
			})
		})
	}
}

func TestACallThatRunsWhenItsWorkflowIsCancelledIsCancelledOnce(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	p := publishWith(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: 100 * time.Millisecond})
	run := p.start(t, func(ctx workflow.Context) error {
		return p.callUntilSignal(ctx, handedOff(), "silent")
	})
	within(t, func() bool {
		id, found := durableRun(history(t, run))
		if !found {
			return false
		}
		described, err := platformClient.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		return slices.ContainsFunc(described.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_STARTED
		})
	})
	require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "cancel", nil))
	var canceled *temporal.CanceledError
	require.ErrorAs(t, outcome(t, run), &canceled)
	assert.Equal(t, 1, server.Stats().Cancelled)
	assert.Equal(t, []string{handler.RunningAttemptActivityType + "/rude"}, scheduledActivities(t, run), "which heard of it, so that nobody else had to")
	assert.True(t, durably(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED)(), "the activity has ended as cancelled")
}

// handedOff are the options of a call that is handed off if it takes longer than the
// window. With a policy nobody has to find out first what the tool declares, which on a
// busy machine takes longer than a short window.
func handedOff() mcpnexus.RequestOptions {
	return mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 3}}
}

// scheduledActivities are the types of the activities of the handler's workflow for
// the run's only operation.
func scheduledActivities(t *testing.T, run client.WorkflowRun) (types []string) {
	for _, event := range durableHistory(t, run).Events {
		if a := event.GetActivityTaskScheduledEventAttributes(); a != nil {
			types = append(types, a.GetActivityType().GetName())
		}
	}
	return types
}

func TestACallThatIsCancelledWhileItIsFoundOutWhatItsToolDeclaresIsNotSent(t *testing.T) {
	t.Parallel()
	list := make(chan struct{})
	come := sync.OnceFunc(func() { close(list) })
	server, transport := rudeListingAfter(t, list)
	t.Cleanup(come)
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	run := p.start(t, func(ctx workflow.Context) error {
		return p.callUntilSignal(ctx, mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable}, "echo")
	})
	within(t, func() bool { return server.Stats().Handshakes > 0 })
	require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "cancel", nil))
	var canceled *temporal.CanceledError
	require.ErrorAs(t, outcome(t, run), &canceled)
	come()
	within(t, func() bool { return server.Stats().Lists == 1 }) // and everything waited for it
	assert.Empty(t, server.Stats().Calls)
}

// A reset takes the operations along that the workflow had scheduled by then.
func TestACallGoesOnWhenItsWorkflowIsReset(t *testing.T) {
	t.Parallel()
	for name, reached := range map[string]enumspb.EventType{
		"while it runs inline":    enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED,
		"after it was handed off": enumspb.EVENT_TYPE_NEXUS_OPERATION_STARTED,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, transport := rudeHTTP(t, rude.Options{})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			run := p.start(t, func(ctx workflow.Context) error {
				future := p.client("rude", caller.Options{}).CallToolAsync(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 8000}})
				workflow.GetSignalChannel(ctx, "go").Receive(ctx, nil)
				result, err := future.Get(ctx)
				if err == nil && result.Content[0].(*mcp.TextContent).Text != "at last" {
					return errors.New("not the tool's result")
				}
				return err
			})
			// completed is the last workflow task that was completed after the event.
			completed := func() (task int64) {
				past := false
				for _, event := range history(t, run) {
					past = past || event.GetEventType() == reached
					if past && event.GetEventType() == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED {
						task = event.GetEventId()
					}
				}
				return task
			}
			require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 20*time.Second, time.Millisecond)
			require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "go", nil))
			require.Eventually(t, func() bool { return completed() != 0 }, 20*time.Second, 10*time.Millisecond)
			reset, err := appClient.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
				Namespace: appNamespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
				Reason: "test", WorkflowTaskFinishEventId: completed(), RequestId: rand.Text(),
			})
			require.NoError(t, err)
			require.NoError(t, outcome(t, appClient.GetWorkflow(t.Context(), run.GetID(), reset.GetRunId())))
			assert.Equal(t, 1, server.Stats().Calls["slow"])
			assert.Zero(t, server.Stats().Cancelled)
		})
	}
}

func TestAServerMayHaveAnyName(t *testing.T) {
	t.Parallel()
	names := []string{"größe 天気", "100% & <more>", `"quoted" \ ?a=b#c`, strings.Repeat("n", 900), strings.Repeat("ö", 300)}
	_, transport := rudeHTTP(t, rude.Options{})
	var servers []handler.Server
	for _, name := range names {
		servers = append(servers, handler.Server{Name: name, Transport: transport})
	}
	p := publish(t, servers...)
	for _, name := range names {
		t.Run(fmt.Sprintf("%.9s", name), func(t *testing.T) {
			t.Parallel()
			p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				options := mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Minute}
				durable := options
				durable.Execution = mcpnexus.ExecutionDurable
				client := p.client(name, caller.Options{Request: options})
				slow := &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 3000}} // handed off
				quick := &mcp.CallToolParams{Name: "echo"}
				handedOff := client.CallToolAsync(ctx, slow)
				batch := client.CallToolsAsync(ctx, []*mcp.CallToolParams{quick, slow})
				_, err := client.CallTool(ctx, quick)
				assert.NoError(c, err)
				_, err = client.With(durable).CallTool(ctx, quick)
				assert.NoError(c, err)
				_, err = handedOff.Get(ctx)
				assert.NoError(c, err)
				for _, future := range batch {
					_, err := future.Get(ctx)
					assert.NoError(c, err)
				}
				return c.err()
			})
		})
	}
}

// A workflow that has just taken a call over asks its process for it, which may be
// stopping; and the workflow's first task may have gone to that process too.
func TestAStoppingWorkerGivesBackWhatIsAboutToBeAskedFor(t *testing.T) {
	t.Parallel()
	first := dialFor(t, platformNamespace, withInterceptor(
		func(ctx context.Context, method string, in, out any, connection *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			if strings.HasSuffix(method, "/RespondWorkflowTaskCompleted") {
				return nil // it is lost
			}
			return next(ctx, method, in, out, connection, o...)
		}))

	server, transport := rudeHTTP(t, rude.Options{})
	newWorker := func() worker.Options {
		plugin, err := handler.NewPlugin(handler.Options{
			Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: 100 * time.Millisecond, DrainTimeout: 200 * time.Millisecond,
		})
		require.NoError(t, err)
		return worker.Options{Plugins: []worker.Plugin{plugin}}
	}
	p := publishFor(t, first, newWorker(), func(worker.Worker) {})
	const tool = 3 * time.Second
	run := p.start(t, func(ctx workflow.Context) error {
		_, err := p.client("rude", caller.Options{Request: handedOff()}).CallTool(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": tool.Milliseconds()}})
		return err
	})
	within(t, durably(t, run, enumspb.EVENT_TYPE_WORKFLOW_TASK_STARTED)) // by the first worker
	other := worker.New(platformClient, p.queue, newWorker())
	require.NoError(t, other.Start())
	t.Cleanup(other.Stop)
	p.publisher.Stop()
	require.NoError(t, outcome(t, run))
	assert.Equal(t, 2, server.Stats().Calls["slow"])
	// The Temporal server misses the workflow task after ten seconds, and would take as
	// long again to miss the process, which on a busy machine is not what tells the two
	// apart. The history does: what misses a process is a timeout.
	lost, ends := 0, []string(nil)
	for _, event := range durableHistory(t, run).Events {
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT:
			lost++
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
			ends = append(ends, "missed")
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
			ends = append(ends, event.GetActivityTaskFailedEventAttributes().GetFailure().GetApplicationFailureInfo().GetType())
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
			ends = append(ends, "completed")
		}
	}
	assert.Equal(t, 1, lost, "the first workflow task")
	assert.Equal(t, []string{"MCPGivenBack", "completed"}, ends)
}

// durably reports whether the handler's workflow for an operation has come to an event.
func durably(t *testing.T, run client.WorkflowRun, kind enumspb.EventType) func() bool {
	return func() bool {
		id, found := durableRun(history(t, run))
		if !found {
			return false
		}
		iterator := platformClient.GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for iterator.HasNext() {
			event, err := iterator.Next()
			require.NoError(t, err)
			if event.GetEventType() == kind {
				return true
			}
		}
		return false
	}
}

// heldPolls holds back the polls of the queues on which processes are asked for calls
// that they run.
type heldPolls struct{ release chan struct{} }

func (h heldPolls) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if poll, ok := req.(*workflowservice.PollActivityTaskQueueRequest); ok && strings.HasPrefix(poll.GetTaskQueue().GetName(), "nexusmcp/") {
		select {
		case <-h.release:
		case <-ctx.Done():
		}
	}
	return invoke(ctx, method, req, reply, conn, options...)
}

func TestACallThatIsCancelledBeforeItsProcessWasAskedForItIsCancelledAtTheServer(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	polls := heldPolls{release: make(chan struct{})}
	platform := dialFor(t, platformNamespace, withInterceptor(polls.intercept))
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: 100 * time.Millisecond})
	require.NoError(t, err)
	p := publishFor(t, platform, worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
	run := p.start(t, func(ctx workflow.Context) error {
		err := p.callUntilSignal(ctx, handedOff(), "silent")
		var canceled *temporal.CanceledError
		if !errors.As(err, &canceled) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	within(t, durably(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED))
	require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "cancel", nil))
	within(t, durably(t, run, enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED))
	close(polls.release)
	require.NoError(t, outcome(t, run))
	assert.Equal(t, 1, server.Stats().Cancelled)
	assert.Equal(t, []string{handler.RunningAttemptActivityType + "/rude", handler.CancelAttemptActivityType + "/rude"}, scheduledActivities(t, run))
}
