package integration

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// newPaymaster makes an MCP server whose tool declares that it is destructive.
func newPaymaster(calls *atomic.Int32) *mcp.Server {
	destructive := true
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "pay", InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{DestructiveHint: &destructive}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		calls.Add(1)
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	})
	return server
}

func isBeat(request any) bool {
	_, ok := request.(*workflowservice.RecordActivityTaskHeartbeatRequest)
	return ok
}

// isMark reports whether a heartbeat says that a request is sent that may be sent once.
func isMark(request any) bool {
	return isBeat(request) && bytes.Contains(request.(*workflowservice.RecordActivityTaskHeartbeatRequest).GetDetails().GetPayloads()[0].GetData(), []byte(`"sent":true`))
}

// The worker stops while the Temporal server, which is slow to answer its heartbeats, is
// to know that a request is about to be sent that may be sent only once.
func TestARequestWhoseWorkerStopsBeforeItWasSentIsSentByAnother(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		declared bool // by the tool, or else asked for by the caller
		slow     bool // is the first heartbeat already, for which the mark waits
		arrives  bool // does the heartbeat, and only its answer is slow
	}{
		"asked for, while it is marked":      {},
		"asked for, when it is marked":       {arrives: true},
		"asked for, before it is marked":     {slow: true},
		"declared, while it is marked":       {declared: true},
		"declared, when it is marked":        {declared: true, arrives: true},
		"declared, before it can be marked":  {declared: true, slow: true},
		"declared, before, and it gets told": {declared: true, slow: true, arrives: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			server := newPaymaster(&calls)
			waits := make(chan struct{})
			waiting := sync.OnceFunc(func() { close(waits) })
			slow := func(ctx context.Context, method string, in, out any, connection *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
				if !(c.slow && isBeat(in)) && !isMark(in) {
					return next(ctx, method, in, out, connection, o...)
				}
				if c.arrives {
					if err := next(ctx, method, in, out, connection, o...); err != nil {
						return err
					}
				}
				waiting()
				<-ctx.Done()
				return ctx.Err()
			}
			newWorker := func(transport handler.Transport) worker.Options {
				plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "s", Transport: transport}}, DrainTimeout: 500 * time.Millisecond})
				require.NoError(t, err)
				return worker.Options{Plugins: []worker.Plugin{plugin}}
			}
			p := publishFor(t, dialFor(t, platformNamespace, withInterceptor(slow)), newWorker(handler.Factory(func(ctx context.Context) (mcp.Transport, error) {
				if c.slow { // the heartbeat comes first
					<-waits
				}
				near, far := mcp.NewInMemoryTransports()
				_, err := server.Connect(context.WithoutCancel(ctx), far, nil)
				return near, err
			})), func(worker.Worker) {})
			options := mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable, StartToCloseTimeout: time.Minute}
			if !c.declared {
				options.RetryPolicy = &temporal.RetryPolicy{MaximumAttempts: 1}
			}
			run := p.start(t, func(ctx workflow.Context) error {
				_, err := p.client("s", caller.Options{Request: options}).CallTool(ctx, &mcp.CallToolParams{Name: "pay"})
				return err
			})
			select {
			case <-waits:
			case <-time.After(time.Minute):
				require.Fail(t, "no heartbeat came to be held up")
			}
			p.publisher.Stop()
			assert.Zero(t, calls.Load())
			other := worker.New(platformClient, p.queue, newWorker(handler.InProcess{Server: server}))
			require.NoError(t, other.Start())
			t.Cleanup(other.Stop)
			require.NoError(t, outcome(t, run))
			assert.EqualValues(t, 1, calls.Load())
		})
	}
}

// The attempt has no time left when it hears that the mark has failed, which has arrived
// all the same.
func TestAMarkThatCameTooLateIsTakenBack(t *testing.T) {
	t.Parallel()
	var marks, calls atomic.Int32
	late := func(ctx context.Context, method string, in, out any, connection *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
		err := next(ctx, method, in, out, connection, o...)
		if isMark(in) && marks.Add(1) == 1 {
			time.Sleep(6 * time.Second) // which is what a busy machine may make of it
			return context.DeadlineExceeded
		}
		return err
	}
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "s", Transport: handler.InProcess{Server: newPaymaster(&calls)}}}})
	require.NoError(t, err)
	p := publishFor(t, dialFor(t, platformNamespace, withInterceptor(late)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
	p.run(t, func(ctx workflow.Context) error {
		_, err := p.client("s", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: 5 * time.Second}}).
			CallTool(ctx, &mcp.CallToolParams{Name: "pay"})
		return err
	})
	assert.Greater(t, marks.Load(), int32(1))
	assert.EqualValues(t, 1, calls.Load())
}

// A Temporal server that is slow, or far, leaves no time for the request itself.
func TestAnAttemptWhoseTimeIsOverWhileItIsMarkedHasTimedOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy *temporal.RetryPolicy
		calls  int32
	}{
		"made at most once, as its policy says":      {&temporal.RetryPolicy{MaximumAttempts: 1}, 0},
		"sent at most once, as its tool declares it": {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls, marks atomic.Int32
			slow := func(ctx context.Context, method string, in, out any, connection *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
				if isMark(in) && marks.Add(1) == 1 {
					<-ctx.Done()
					return ctx.Err()
				}
				return next(ctx, method, in, out, connection, o...)
			}
			plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "s", Transport: handler.InProcess{Server: newPaymaster(&calls)}}}})
			require.NoError(t, err)
			p := publishFor(t, dialFor(t, platformNamespace, withInterceptor(slow)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
			var failure *mcpnexus.Error
			run := p.run(t, func(ctx workflow.Context) error {
				_, err := p.client("s", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: 3 * time.Second, RetryPolicy: c.policy}}).
					CallTool(ctx, &mcp.CallToolParams{Name: "pay"})
				if failure, _ = mcpnexus.ErrorFrom(err); failure != nil {
					return nil
				}
				return err
			})
			assert.Equal(t, c.calls, calls.Load())
			if c.calls == 0 && assert.NotNil(t, failure) {
				assert.Equal(t, mcpnexus.ErrorTypeTimeout, failure.Type)
				assert.Contains(t, failure.Message, "not sent within 3s, the Temporal server did not answer")
				assert.EqualValues(t, 1, marks.Load())
			}
			assert.Len(t, scheduledActivities(t, run), 1, "none is given back, which would not count")
		})
	}
}

func TestARequestThatMayBeSentAgainDoesNotWaitForAHeartbeat(t *testing.T) {
	t.Parallel()
	beats, heard := make(chan struct{}), make(chan struct{})
	beat, release := sync.OnceFunc(func() { close(beats) }), sync.OnceFunc(func() { close(heard) })
	server, transport := rudeListingAfter(t, beats)
	t.Cleanup(release)
	t.Cleanup(beat)
	var sent atomic.Int32
	slow := func(ctx context.Context, method string, in, out any, connection *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if isBeat(in) {
			sent.Add(1)
			beat()
			<-heard
		}
		return next(ctx, method, in, out, connection, o...)
	}
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}})
	require.NoError(t, err)
	p := publishFor(t, dialFor(t, platformNamespace, withInterceptor(slow)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
	run := p.start(t, func(ctx workflow.Context) error {
		_, err := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable}}).CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		return err
	})
	within(t, func() bool { return server.Stats().Calls["echo"] == 1 })
	assert.EqualValues(t, 1, sent.Load(), "by the first attempt, while its heartbeat was on its way")
	release()
	require.NoError(t, outcome(t, run))
}

func TestACancellationThatTheMarkHearsOfEndsTheAttemptAndNothingElse(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{Legacy: true})
	marked, cancelled := make(chan struct{}), make(chan struct{})
	mark, cancel := sync.OnceFunc(func() { close(marked) }), sync.OnceFunc(func() { close(cancelled) })
	t.Cleanup(cancel)
	held := func(ctx context.Context, method string, in, out any, connection *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if isMark(in) {
			mark()
			<-cancelled
			ctx = context.WithoutCancel(ctx) // however long that took
		}
		return next(ctx, method, in, out, connection, o...)
	}
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport, Stateless: true}}})
	require.NoError(t, err)
	p := publishFor(t, dialFor(t, platformNamespace, withInterceptor(held)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
	run := p.start(t, func(ctx workflow.Context) error {
		return p.callUntilSignal(ctx, mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}, "silent")
	})
	select {
	case <-marked:
	case <-time.After(time.Minute):
		require.Fail(t, "the request was not marked")
	}
	require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "cancel", nil))
	id, started := durableRun(history(t, run))
	require.True(t, started)
	within(t, func() bool {
		found, err := platformClient.DescribeWorkflowExecution(t.Context(), id, "")
		require.NoError(t, err)
		return slices.ContainsFunc(found.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool {
			return a.GetState() == enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
		})
	})
	cancel()
	var canceled *temporal.CanceledError
	require.ErrorAs(t, outcome(t, run), &canceled)
	assert.True(t, slices.ContainsFunc(durableHistory(t, run).GetEvents(), func(e *historypb.HistoryEvent) bool {
		return e.GetEventType() == enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED
	}))
	assert.Empty(t, server.Stats().Calls)
	p.run(t, func(ctx workflow.Context) error {
		_, err := p.client("rude", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		return err
	})
	assert.Equal(t, 1, server.Stats().Handshakes, "the connection is still there")
}

// Over sessionless HTTP the tools are listed before one is called, for what of their params
// goes into headers.
func TestARequestWhoseWorkerStopsWhileItWaitsForTheToolListIsSentByAnother(t *testing.T) {
	t.Parallel()
	list := make(chan struct{})
	come := sync.OnceFunc(func() { close(list) })
	server, transport := rudeListingAfter(t, list)
	t.Cleanup(come)
	newWorker := func() worker.Options {
		plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, DrainTimeout: 100 * time.Millisecond})
		require.NoError(t, err)
		return worker.Options{Plugins: []worker.Plugin{plugin}}
	}
	p := publishFor(t, platformClient, newWorker(), func(worker.Worker) {})
	run := p.start(t, func(ctx workflow.Context) error {
		_, err := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}}).
			CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		return err
	})
	within(t, func() bool { return server.Stats().Handshakes == 1 }) // after which it can only wait
	p.publisher.Stop()
	assert.Empty(t, server.Stats().Calls)
	come()
	other := worker.New(platformClient, p.queue, newWorker())
	require.NoError(t, other.Start())
	t.Cleanup(other.Stop)
	require.NoError(t, outcome(t, run))
	assert.Equal(t, 1, server.Stats().Calls["echo"])
}

func TestATemporalServerThatIsSlowToTakeHeartbeatsHasNothingRunTwice(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	slow := func(ctx context.Context, method string, in, out any, connection *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
		if isBeat(in) {
			select {
			case <-time.After(3500 * time.Millisecond): // what the server takes
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return next(ctx, method, in, out, connection, o...)
	}
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: time.Second})
	require.NoError(t, err)
	p := publishFor(t, dialFor(t, platformNamespace, withInterceptor(slow)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			run := p.run(t, func(ctx workflow.Context) error {
				_, err := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}}).
					CallTool(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 13_000}})
				return err
			})
			assert.Len(t, scheduledActivities(t, run), 1)
		})
	}
	t.Cleanup(func() { assert.Equal(t, 2, server.Stats().Calls["slow"], "once each") })
}
