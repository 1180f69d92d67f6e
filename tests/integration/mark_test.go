package integration

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
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
				beat, ok := in.(*workflowservice.RecordActivityTaskHeartbeatRequest)
				if !ok || !c.slow && !bytes.Contains(beat.GetDetails().GetPayloads()[0].GetData(), []byte(`"sent":true`)) {
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
		if beat, ok := in.(*workflowservice.RecordActivityTaskHeartbeatRequest); ok && bytes.Contains(beat.GetDetails().GetPayloads()[0].GetData(), []byte(`"sent":true`)) && marks.Add(1) == 1 {
			time.Sleep(4 * time.Second) // which is what a busy machine may make of it
			return context.DeadlineExceeded
		}
		return err
	}
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "s", Transport: handler.InProcess{Server: newPaymaster(&calls)}}}})
	require.NoError(t, err)
	p := publishFor(t, dialFor(t, platformNamespace, withInterceptor(late)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
	p.run(t, func(ctx workflow.Context) error {
		_, err := p.client("s", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: 3 * time.Second}}).
			CallTool(ctx, &mcp.CallToolParams{Name: "pay"})
		return err
	})
	assert.Greater(t, marks.Load(), int32(1))
	assert.EqualValues(t, 1, calls.Load())
}
