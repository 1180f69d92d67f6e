package integration

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http/httptest"
	"path/filepath"
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
	"github.com/nexusmcp/nexusmcp/internal/effects"
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
		if len(p.GetMetadata()) == 0 {
			return nil, errors.New("a payload without an encoding") // which many codecs look at
		}
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

// withBoundCodec has error messages encoded too.
func withBoundCodec(o *client.Options) {
	withCodec(boundCodec{})(o)
	o.FailureConverter = temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{DataConverter: o.DataConverter, EncodeCommonAttributes: true})
}

func publishEncoded(t *testing.T, options handler.Options, platform ...func(*client.Options)) *path {
	t.Helper()
	plugin, err := handler.NewPlugin(options)
	require.NoError(t, err)
	return publishBetween(t, dialFor(t, platformNamespace, append(platform, withBoundCodec)...), dialFor(t, appNamespace, withBoundCodec), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
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
	lost    atomic.Bool
	token   atomic.Pointer[[]byte]
	beats   atomic.Int32 // that the server has heard of before
	refused atomic.Int32
}

func (l *lostAttempt) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if r, ok := req.(interface{ GetTaskToken() []byte }); ok && strings.Contains(method, "Activity") {
		token := r.GetTaskToken()
		l.token.CompareAndSwap(nil, &token)
		if l.lost.Load() && bytes.Equal(token, *l.token.Load()) {
			l.refused.Add(1)
			return serviceerror.NewUnavailable("lost")
		}
	}
	err := invoke(ctx, method, req, reply, conn, options...)
	if err == nil && strings.HasSuffix(method, "/RecordActivityTaskHeartbeat") {
		l.beats.Add(1)
	}
	return err
}

func TestAnAtMostOnceCallIsSentOnceAlsoIfHeartbeatsCanBeReadForTheirWorkflowOnly(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	var first lostAttempt
	p := publishEncoded(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, DrainTimeout: time.Second}, withInterceptor(first.intercept))
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

func TestAnAtMostOnceCallThatWasNotSentIsSentByTheNextAttemptAlsoIfHeartbeatsCanBeReadForTheirWorkflowOnly(t *testing.T) {
	t.Parallel()
	ledger := effects.Ledger(filepath.Join(t.TempDir(), "ledger"))
	server := effects.New(effects.Options{Ledger: ledger, Mute: 1})
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	t.Cleanup(server.Close)
	var first lostAttempt
	// The first attempt waits for its connection for eight seconds, and is missed after
	// ten. No call may open a connection before.
	p := publishEncoded(t, handler.Options{Servers: []handler.Server{{Name: "effects", Transport: handler.HTTP{Endpoint: listener.URL}, ConnectTimeout: 8 * time.Second}}},
		withInterceptor(first.intercept))
	run := p.start(t, func(ctx workflow.Context) error {
		_, err := p.client("effects", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}}).
			CallTool(ctx, &mcp.CallToolParams{Name: effects.Work, Arguments: effects.Arguments{Call: "once"}})
		return err
	})
	within(t, func() bool { return first.beats.Load() > 0 })
	first.lost.Store(true)
	require.NoError(t, outcome(t, run))
	began, err := ledger.Entries(func(e effects.Entry) bool { return e.Event == effects.Began })
	require.NoError(t, err)
	assert.Len(t, began, 1)
	assert.Positive(t, first.refused.Load(), "of what the first attempt had to say")
}

func TestAResultThatACodecMakesTooLargeFailsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		execution mcpnexus.Execution
		ms        int
		activity  string
	}{
		"durable":    {mcpnexus.ExecutionDurable, 0, handler.AttemptActivityType},
		"handed off": {mcpnexus.ExecutionAuto, 1000, handler.RunningAttemptActivityType},
	} {
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
			request := handedOff()
			request.Execution = c.execution
			run := p.run(t, func(ctx workflow.Context) error {
				found := &complaints{}
				_, err := p.client("large", caller.Options{Request: request}).CallTool(ctx, &mcp.CallToolParams{Name: "large"})
				e, ok := mcpnexus.ErrorFrom(err)
				if assert.True(found, ok, "%v", err) {
					assert.Equal(found, mcpnexus.ErrorTypeResultTooLarge, e.Type)
					assert.Contains(found, e.Message, `large: call-tool "large": `)
					assert.Contains(found, e.Message, "MaxResultBytes")
				}
				return found.err()
			})
			assert.EqualValues(t, 1, calls.Load())
			assert.Equal(t, []string{c.activity + "/large"}, scheduledActivities(t, run))
		})
	}
}

// An ailingCodec fails every second time that it is to encode a heartbeat: with an error
// or, if it panics, worse.
type ailingCodec struct {
	panics bool
	times  *atomic.Int32
}

func (c ailingCodec) Encode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for _, p := range in {
		if bytes.HasPrefix(p.GetData(), []byte(`{"sent":`)) && c.times.Add(1)%2 == 0 {
			if c.panics {
				panic("the key service is away")
			}
			return nil, errors.New("the key service is away")
		}
	}
	return in, nil
}

func (c ailingCodec) Decode(in []*commonpb.Payload) ([]*commonpb.Payload, error) { return in, nil }

func TestACodecThatFailsForHeartbeatsEndsNoWorker(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		t.Run(fmt.Sprintf("panics: %v", panics), func(t *testing.T) {
			t.Parallel()
			server, transport := rudeHTTP(t, rude.Options{})
			codec := ailingCodec{panics, new(atomic.Int32)}
			platform := dialFor(t, platformNamespace, withCodec(codec))
			plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}})
			require.NoError(t, err)
			p := publishFor(t, platform, worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
			run := p.start(t, func(ctx workflow.Context) error {
				err := p.callUntilSignal(ctx, mcpnexus.RequestOptions{StartToCloseTimeout: time.Minute, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}, "silent")
				var canceled *temporal.CanceledError
				if !errors.As(err, &canceled) {
					return fmt.Errorf("got %w", err)
				}
				// The worker is there.
				_, err = p.client("rude", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
				return err
			})
			within(t, func() bool { return server.Stats().Calls["silent"] == 1 })
			require.NoError(t, appClient.SignalWorkflow(t.Context(), run.GetID(), run.GetRunID(), "cancel", nil))
			require.NoError(t, outcome(t, run))
			assert.Equal(t, 1, server.Stats().Calls["silent"])
			assert.Equal(t, 1, server.Stats().Cancelled)
			assert.Greater(t, codec.times.Load(), int32(1))
		})
	}
}

// A forgetfulCodec cannot read a tool's result when it is first asked to.
type forgetfulCodec struct{ asked *atomic.Int32 }

func (forgetfulCodec) Encode(in []*commonpb.Payload) ([]*commonpb.Payload, error) { return in, nil }

func (c forgetfulCodec) Decode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for _, p := range in {
		if bytes.Contains(p.GetData(), []byte("at last")) && c.asked.Add(1) == 1 {
			return nil, errors.New("the key service is away")
		}
	}
	return in, nil
}

func TestAResultThatACodecCannotReadAtFirstIsReadLaterAndTheToolRunsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		execution mcpnexus.Execution
		attempts  int32
		activity  string
	}{
		"durable, at most once": {mcpnexus.ExecutionDurable, 1, handler.AttemptActivityType},
		"durable":               {mcpnexus.ExecutionDurable, 3, handler.AttemptActivityType},
		"handed off":            {mcpnexus.ExecutionAuto, 3, handler.RunningAttemptActivityType},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, batch %v", name, batch), func(t *testing.T) {
				t.Parallel()
				server, transport := rudeHTTP(t, rude.Options{})
				codec := forgetfulCodec{new(atomic.Int32)}
				plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: 100 * time.Millisecond})
				require.NoError(t, err)
				p := publishFor(t, dialFor(t, platformNamespace, withCodec(codec)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
				client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: c.execution, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: c.attempts}}})
				run := p.run(t, func(ctx workflow.Context) error {
					slow := &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 1500}}
					if !batch {
						_, err := client.CallTool(ctx, slow)
						return err
					}
					outcomes := client.CallTools(ctx, []*mcp.CallToolParams{slow, {Name: "echo"}})
					return errors.Join(outcomes[0].Err, outcomes[1].Err)
				})
				assert.Greater(t, codec.asked.Load(), int32(1))
				assert.Equal(t, 1, server.Stats().Calls["slow"])
				activities := scheduledActivities(t, run)
				assert.Equal(t, c.activity+"/rude", activities[0])
				if !batch {
					assert.Len(t, activities, 1)
				}
			})
		}
	}
}

// A reluctantCodec cannot write the first mark of a request that is about to be sent.
type reluctantCodec struct{ asked *atomic.Int32 }

func (c reluctantCodec) Encode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for _, p := range in {
		if bytes.HasPrefix(p.GetData(), []byte(`{"sent":true`)) && c.asked.Add(1) == 1 {
			return nil, errors.New("the key service is away")
		}
	}
	return in, nil
}

func (reluctantCodec) Decode(in []*commonpb.Payload) ([]*commonpb.Payload, error) { return in, nil }

func TestARequestWhoseMarkACodecCannotWriteAtFirstIsSentLater(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	codec := reluctantCodec{new(atomic.Int32)}
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}})
	require.NoError(t, err)
	p := publishFor(t, dialFor(t, platformNamespace, withCodec(codec)), worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
	p.run(t, func(ctx workflow.Context) error {
		_, err := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}}).
			CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		return err
	})
	assert.Greater(t, codec.asked.Load(), int32(1))
	assert.Equal(t, 1, server.Stats().Calls["echo"])
}

// A paddingCodec adds so many bytes to large payloads. It reads what it has not encoded.
type paddingCodec struct{ bytes int }

func (c paddingCodec) Encode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(in))
	for i, p := range in {
		if out[i] = p; len(p.GetData()) > 100_000 {
			out[i] = proto.Clone(p).(*commonpb.Payload)
			out[i].Metadata["padding"] = make([]byte, c.bytes)
		}
	}
	return out, nil
}

func (c paddingCodec) Decode(in []*commonpb.Payload) ([]*commonpb.Payload, error) { return in, nil }

func TestARequestThatOnlyTheDurableWorkflowMakesTooLargeFailsOnceAndLosesNoAnswer(t *testing.T) {
	t.Parallel()
	for name, padding := range map[string]int{"an input": 2 << 20, "a message": 5 << 20} {
		for _, c := range []struct {
			name, tool string
			execution  mcpnexus.Execution
			check      func(t *testing.T, err error)
			cancelled  int
		}{
			{"durable", "echo", mcpnexus.ExecutionDurable, func(t *testing.T, err error) {
				refused, ok := errors.AsType[*nexus.HandlerError](err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
				assert.ErrorContains(t, refused, "larger than the Temporal server takes")
			}, 0},
			{"to be made again", "error", mcpnexus.ExecutionAuto, func(t *testing.T, err error) {
				e, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
				assert.EqualValues(t, -32603, e.Code)
			}, 0},
			{"to be handed off", "silent", mcpnexus.ExecutionAuto, func(t *testing.T, err error) {
				e, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, mcpnexus.ErrorTypeOutcomeUnknown, e.Type)
				assert.True(t, e.NonRetryable)
				assert.Contains(t, e.Message, `rude: call-tool`)
				assert.Contains(t, e.Message, "larger than the Temporal server takes")
				assert.Contains(t, e.Message, "may have been carried out")
			}, 1},
		} {
			for _, batch := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, batch %v", name, c.name, batch), func(t *testing.T) {
					t.Parallel()
					server, transport := rudeHTTP(t, rude.Options{})
					platform := dialFor(t, platformNamespace, withCodec(paddingCodec{padding}))
					plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, InlineWindow: time.Second})
					require.NoError(t, err)
					p := publishFor(t, platform, worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
					request := handedOff()
					request.Execution = c.execution
					run := p.start(t, func(ctx workflow.Context) error {
						params := &mcp.CallToolParams{Name: c.tool, Arguments: map[string]any{"code": -32603, "large": strings.Repeat("x", 200_000)}}
						client := p.client("rude", caller.Options{Request: request})
						if batch {
							outcomes := client.CallTools(ctx, []*mcp.CallToolParams{{Name: "huge"}, params})
							if (outcomes[0].Err == nil) != (c.execution == mcpnexus.ExecutionAuto) {
								return fmt.Errorf("the other call: %w", outcomes[0].Err)
							}
							return outcomes[1].Err
						}
						_, err := client.CallTool(ctx, params)
						return err
					})
					c.check(t, outcome(t, run))
					assert.LessOrEqual(t, server.Stats().Calls[c.tool], 1)
					within(t, func() bool { return server.Stats().Cancelled == c.cancelled })
				})
			}
		}
	}
}
