package integration

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A boundCodec makes payloads unreadable, and twice as large. Those of activities can
// be read for the workflow of which they are and for no other.
type boundCodec struct{ boundTo string }

func (c boundCodec) WithSerializationContext(of converter.SerializationContext) converter.PayloadCodec {
	if a, ok := of.(converter.ActivitySerializationContext); ok {
		return boundCodec{boundTo: a.Namespace + "/" + a.WorkflowID}
	}
	return boundCodec{}
}

func (c boundCodec) Encode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(in))
	for i, p := range in {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		out[i] = &commonpb.Payload{
			Metadata: map[string][]byte{"encoding": []byte("binary/test"), "bound-to": []byte(c.boundTo)},
			Data:     hex.AppendEncode(nil, plain),
		}
	}
	return out, nil
}

func (c boundCodec) Decode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(in))
	for i, p := range in {
		boundTo, ok := p.GetMetadata()["bound-to"]
		if !ok {
			return nil, fmt.Errorf("not encoded: %v", p)
		}
		if !bytes.Equal(boundTo, []byte(c.boundTo)) {
			return nil, fmt.Errorf("bound to %q, read for %q", boundTo, c.boundTo)
		}
		plain, err := hex.DecodeString(string(p.Data))
		if err != nil {
			return nil, err
		}
		out[i] = &commonpb.Payload{}
		if err := proto.Unmarshal(plain, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// dialEncoded returns a client with the codec, which has error messages encoded too.
func dialEncoded(t *testing.T, namespace string, options ...grpc.DialOption) client.Client {
	t.Helper()
	o := temporalServer.ClientOptions(namespace)
	o.Logger = newLogger()
	o.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), boundCodec{})
	o.FailureConverter = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: o.DataConverter, EncodeCommonAttributes: true})
	o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, options...)
	c, err := client.DialContext(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func publishEncoded(t *testing.T, options handler.Options, platform ...grpc.DialOption) *path {
	t.Helper()
	plugin, err := handler.NewPlugin(options)
	require.NoError(t, err)
	return publishBetween(t, dialEncoded(t, platformNamespace, platform...), dialEncoded(t, appNamespace), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
}

func TestACodecThatBothSidesHaveMakesNoDifference(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{})
	p := publishEncoded(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: 300 * time.Millisecond})
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionInline, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				calls := []*mcp.CallToolParams{
					{Name: "echo", Arguments: map[string]any{"a": "<b>"}},
					{Name: "error", Arguments: map[string]any{"code": -32602, "data": map[string]any{"x": "<why>"}, "message": "secret"}},
					{Name: "slow", Arguments: map[string]any{"ms": 1000}},
				}
				check := func(i int, result *mcp.CallToolResult, err error) {
					if i == 1 {
						e, ok := mcpnexus.ErrorFrom(err)
						if assert.True(c, ok, "%v", err) {
							assert.EqualValues(c, -32602, e.Code)
							assert.JSONEq(c, `{"x":"<why>"}`, string(e.Data))
							assert.Contains(c, e.Message, "secret")
							assert.True(c, e.NonRetryable)
						}
						return
					}
					if assert.NoError(c, err, i) {
						assert.Equal(c, []string{`{"a":"\u003cb\u003e"}`, "", "at last"}[i], result.Content[0].(*mcp.TextContent).Text)
					}
				}
				client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}}})
				for i, call := range calls {
					result, err := client.CallTool(ctx, call)
					check(i, result, err)
				}
				for i, o := range client.CallTools(ctx, calls) {
					check(i, o.Result, o.Err)
				}
				return c.err()
			})
		})
	}
}

// A lostAttempt is an activity task of which the server hears nothing more once it is
// lost: for the server its worker has vanished.
type lostAttempt struct {
	lost  atomic.Bool
	token atomic.Pointer[[]byte]
}

func (l *lostAttempt) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if r, ok := req.(interface{ GetTaskToken() []byte }); ok && strings.Contains(method, "Activity") {
		token := r.GetTaskToken()
		l.token.CompareAndSwap(nil, &token)
		if l.lost.Load() && bytes.Equal(token, *l.token.Load()) {
			return serviceerror.NewUnavailable("lost")
		}
	}
	return invoke(ctx, method, req, reply, conn, options...)
}

func TestAnAtMostOnceCallIsSentOnceAlsoIfHeartbeatsCanBeReadForTheirWorkflowOnly(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	var first lostAttempt
	p := publishEncoded(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, DrainTimeout: time.Second}, grpc.WithChainUnaryInterceptor(first.intercept))
	run := p.start(t, func(ctx workflow.Context) error {
		c := &complaints{}
		client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}})
		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "silent"})
		e, ok := mcpnexus.ErrorFrom(err)
		if assert.True(c, ok, "%v", err) {
			assert.Equal(c, mcpnexus.ErrorTypeOutcomeUnknown, e.Type, e.Message)
		}
		return c.err()
	})
	require.Eventually(t, func() bool { return server.Stats().Calls["silent"] == 1 }, time.Minute, 10*time.Millisecond)
	first.lost.Store(true)
	require.NoError(t, outcome(t, run))
	assert.Equal(t, 1, server.Stats().Calls["silent"])
}

func TestAResultThatACodecMakesTooLargeFailsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		execution mcpnexus.Execution
		ms        int
	}{"durable": {mcpnexus.ExecutionDurable, 0}, "handed off": {mcpnexus.ExecutionAuto, 1000}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := mcp.NewServer(&mcp.Implementation{Name: "large", Version: "1"}, nil)
			var calls atomic.Int32
			server.AddTool(&mcp.Tool{Name: "large", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				calls.Add(1)
				time.Sleep(time.Duration(c.ms) * time.Millisecond) // what the tool takes
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", 1_100_000)}}}, nil
			})
			p := publishEncoded(t, handler.Options{Servers: []handler.Server{{Name: "large", Transport: handler.InProcess{Server: server}}}, InlineWindow: 100 * time.Millisecond})
			p.run(t, func(ctx workflow.Context) error {
				found := &complaints{}
				_, err := p.client("large", caller.Options{Request: mcpnexus.RequestOptions{Execution: c.execution}}).CallTool(ctx, &mcp.CallToolParams{Name: "large"})
				e, ok := mcpnexus.ErrorFrom(err)
				if assert.True(found, ok, "%v", err) {
					assert.Equal(found, mcpnexus.ErrorTypeResultTooLarge, e.Type)
					assert.Contains(found, e.Message, `large: call-tool "large": `)
					assert.Contains(found, e.Message, "MaxResultBytes")
				}
				return found.err()
			})
			assert.EqualValues(t, 1, calls.Load())
		})
	}
}

func TestARequestThatACodecMakesTooLargeToBeDurableIsRefused(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{})
	p := publishEncoded(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}})
	p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		arguments := map[string]any{"a": strings.Repeat("x", 2<<20/2-500)}
		_, err := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionDurable}}).CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: arguments})
		refused, ok := errors.AsType[*nexus.HandlerError](err)
		if assert.True(c, ok, "%v", err) {
			assert.Equal(c, nexus.HandlerErrorTypeBadRequest, refused.Type)
			assert.Contains(c, refused.Error(), "larger than the Temporal server takes")
		}
		return c.err()
	})
}
