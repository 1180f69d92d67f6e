package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A worktop is an MCP server whose one tool does what a test wants.
type worktop struct {
	calls atomic.Int32
	// away is how many connections cannot be opened at first.
	away atomic.Int32
	// work is told how often it was called, itself included.
	work        func(ctx context.Context, call int32) error
	annotations *mcp.ToolAnnotations
}

func (w *worktop) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "worktop", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "work", InputSchema: map[string]any{"type": "object"}, Annotations: w.annotations}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if err := w.work(ctx, w.calls.Add(1)); err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "<done>"}}}, nil
	})
	return server
}

// away is an error that a retry can fix.
var away = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "not now"}

// call calls the tool from a workflow in a test environment and returns the
// result's text.
func (w *worktop) call(t *testing.T, options mcpnexus.RequestOptions, prepare ...func(*testsuite.TestWorkflowEnvironment)) (string, error) {
	t.Helper()
	env := testEnvironment(t, handler.Server{Name: "worktop", Transport: handler.Factory(func(context.Context) (mcp.Transport, error) {
		if w.away.Add(-1) >= 0 {
			return nil, errors.New("not there yet")
		}
		here, there := mcp.NewInMemoryTransports()
		_, err := w.server().Connect(context.Background(), there, nil)
		return here, err
	})}, 100*time.Millisecond)
	for _, p := range prepare {
		p(env)
	}
	env.ExecuteWorkflow(func(ctx workflow.Context) (string, error) {
		params := map[string]any{"name": "work", "_meta": map[string]any{mcpnexus.MetaKeyOptions: options}}
		var result json.RawMessage
		if err := workflow.NewNexusClient("any", "worktop").ExecuteOperation(ctx, mcpnexus.OperationCallTool, params, workflow.NexusOperationOptions{}).Get(ctx, &result); err != nil {
			return "", err
		}
		var read mcp.CallToolResult
		if err := json.Unmarshal(result, &read); err != nil {
			return "", err
		}
		return read.Content[0].(*mcp.TextContent).Text, nil
	})
	require.True(t, env.IsWorkflowCompleted())
	if err := env.GetWorkflowError(); err != nil {
		return "", err
	}
	var text string
	require.NoError(t, env.GetWorkflowResult(&text))
	return text, nil
}

// after returns err when d has passed.
func after(ctx context.Context, d time.Duration, err error) error {
	select {
	case <-time.After(d):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

var everyExecution = []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionInline, mcpnexus.ExecutionDurable}

func TestACallOfAnyExecutionIsAnsweredAndRunsOnce(t *testing.T) {
	for _, execution := range everyExecution {
		t.Run(string(execution), func(t *testing.T) {
			w := &worktop{work: func(context.Context, int32) error { return nil }}
			text, err := w.call(t, mcpnexus.RequestOptions{Execution: execution})
			require.NoError(t, err)
			assert.Equal(t, "<done>", text)
			assert.Equal(t, int32(1), w.calls.Load())
		})
	}
}

func TestACallThatTakesLongerThanTheWindowIsHandedOffAndRunsOnce(t *testing.T) {
	for _, execution := range everyExecution {
		t.Run(string(execution), func(t *testing.T) {
			w := &worktop{work: func(ctx context.Context, _ int32) error { return after(ctx, 500*time.Millisecond, nil) }}
			text, err := w.call(t, mcpnexus.RequestOptions{Execution: execution})
			require.NoError(t, err)
			assert.Equal(t, "<done>", text)
			assert.Equal(t, int32(1), w.calls.Load())
		})
	}
}

func TestRetryableFailuresAreRetriedByTheCallersPolicyWhicheverWayTheCallTakes(t *testing.T) {
	for _, execution := range everyExecution {
		for name, slow := range map[string]time.Duration{"at once": 0, "after the window": 300 * time.Millisecond} {
			t.Run(string(execution)+", failing "+name, func(t *testing.T) {
				w := &worktop{work: func(ctx context.Context, call int32) error {
					if call > 2 {
						return nil
					}
					return after(ctx, slow, away)
				}}
				text, err := w.call(t, mcpnexus.RequestOptions{Execution: execution, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, MaximumAttempts: 3}})
				require.NoError(t, err)
				assert.Equal(t, "<done>", text)
				assert.Equal(t, int32(3), w.calls.Load())
			})
			t.Run(string(execution)+", failing for ever "+name, func(t *testing.T) {
				w := &worktop{work: func(ctx context.Context, call int32) error { return after(ctx, slow, away) }}
				_, err := w.call(t, mcpnexus.RequestOptions{Execution: execution, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond, MaximumAttempts: 3}})
				e, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
				assert.Equal(t, int64(jsonrpc.CodeInternalError), e.Code)
				assert.False(t, e.NonRetryable, "another call may succeed")
				assert.Equal(t, `worktop: call-tool "work": not now (JSON-RPC error -32603)`, e.Message)
				assert.Equal(t, int32(3), w.calls.Load())
			})
		}
	}
}

func TestWithoutAPolicyACallIsRetriedUntilItSucceeds(t *testing.T) {
	w := &worktop{work: func(_ context.Context, call int32) error {
		if call <= 8 { // the test environment allows an activity ten attempts
			return away
		}
		return nil
	}}
	text, err := w.call(t, mcpnexus.RequestOptions{})
	require.NoError(t, err)
	assert.Equal(t, "<done>", text)
	assert.Equal(t, int32(9), w.calls.Load())
}

func TestAnErrorThatThePolicyNamesIsNotRetried(t *testing.T) {
	for _, execution := range everyExecution {
		t.Run(string(execution), func(t *testing.T) {
			w := &worktop{work: func(context.Context, int32) error { return away }}
			_, err := w.call(t, mcpnexus.RequestOptions{Execution: execution, RetryPolicy: &temporal.RetryPolicy{NonRetryableErrorTypes: []string{"MCPProtocolError"}}})
			e, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.True(t, e.NonRetryable)
			assert.Equal(t, int32(1), w.calls.Load())
		})
	}
}

func TestAnAttemptThatOutlivesItsTimeoutIsCancelledAndRetried(t *testing.T) {
	for _, execution := range everyExecution {
		t.Run(string(execution), func(t *testing.T) {
			cancelled := make(chan struct{}, 1)
			w := &worktop{work: func(ctx context.Context, call int32) error {
				if call > 1 {
					return nil
				}
				<-ctx.Done()
				cancelled <- struct{}{}
				return ctx.Err()
			}}
			text, err := w.call(t, mcpnexus.RequestOptions{Execution: execution, StartToCloseTimeout: 400 * time.Millisecond, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond}})
			require.NoError(t, err)
			assert.Equal(t, "<done>", text)
			assert.Equal(t, int32(2), w.calls.Load())
			<-cancelled
		})
	}
}

func TestARetryThatWouldBeginAfterTheScheduleToCloseTimeoutIsNotMade(t *testing.T) {
	for _, execution := range everyExecution {
		t.Run(string(execution), func(t *testing.T) {
			w := &worktop{work: func(context.Context, int32) error { return away }}
			_, err := w.call(t, mcpnexus.RequestOptions{Execution: execution, ScheduleToCloseTimeout: 5 * time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Second}})
			e, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type, "what failed, and not that time was over")
			assert.Equal(t, int32(1), w.calls.Load())
		})
	}
}

func TestWhatMayRunOnceRunsOnce(t *testing.T) {
	yes := true
	once := &temporal.RetryPolicy{MaximumAttempts: 1}
	for name, c := range map[string]struct {
		annotations *mcp.ToolAnnotations
		policy      *temporal.RetryPolicy
		runs        int32
	}{
		"the caller says so":                              {nil, once, 1},
		"the tool says that it is destructive":            {&mcp.ToolAnnotations{DestructiveHint: &yes}, nil, 1},
		"the tool says so, but the caller has a policy":   {&mcp.ToolAnnotations{DestructiveHint: &yes}, &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 3}, 3},
		"a destructive tool that is idempotent is not it": {&mcp.ToolAnnotations{DestructiveHint: &yes, IdempotentHint: true}, nil, 3},
		"a tool that says nothing is not it":              {nil, nil, 3},
	} {
		for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
			t.Run(fmt.Sprintf("%s, %s", name, execution), func(t *testing.T) {
				w := &worktop{annotations: c.annotations, work: func(_ context.Context, call int32) error {
					if call == 3 {
						return nil
					}
					return away
				}}
				_, err := w.call(t, mcpnexus.RequestOptions{Execution: execution, RetryPolicy: c.policy})
				assert.Equal(t, c.runs, w.calls.Load())
				if c.runs > 1 {
					require.NoError(t, err)
					return
				}
				e, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type, "it has run and failed: that is known")
				assert.False(t, e.NonRetryable)
			})
		}
	}
}

func TestACallThatWasNeverSentIsNotTheOnlyAttempt(t *testing.T) {
	yes := true
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			w := &worktop{annotations: &mcp.ToolAnnotations{DestructiveHint: &yes}, work: func(context.Context, int32) error { return nil }}
			w.away.Store(6) // each attempt asks for the tools first
			text, err := w.call(t, mcpnexus.RequestOptions{Execution: execution})
			require.NoError(t, err)
			assert.Equal(t, "<done>", text)
			assert.Equal(t, int32(1), w.calls.Load())
		})
	}
}

func TestInlineCannotPromiseOneAttempt(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		annotations *mcp.ToolAnnotations
		policy      *temporal.RetryPolicy
		want        string
	}{
		"the caller's policy": {nil, &temporal.RetryPolicy{MaximumAttempts: 1}, "retryPolicy.maximumAttempts"},
		"the tool's hint":     {&mcp.ToolAnnotations{DestructiveHint: &yes}, nil, "destructiveHint"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &worktop{annotations: c.annotations, work: func(context.Context, int32) error { return nil }}
			_, err := w.call(t, mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionInline, RetryPolicy: c.policy})
			require.ErrorContains(t, err, "execution: inline")
			require.ErrorContains(t, err, c.want)
			assert.Zero(t, w.calls.Load())
		})
	}
}

func TestTheTimeOfAllAttemptsBoundsEachOfThemWhicheverWayTheCallTakes(t *testing.T) {
	for _, execution := range everyExecution {
		t.Run(string(execution), func(t *testing.T) {
			w := &worktop{work: func(ctx context.Context, call int32) error {
				if call == 1 {
					return after(ctx, 200*time.Millisecond, away)
				}
				return after(ctx, time.Minute, nil)
			}}
			began := time.Now()
			_, err := w.call(t, mcpnexus.RequestOptions{
				Execution: execution, ScheduleToCloseTimeout: 1500 * time.Millisecond,
				RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond},
			})
			failure, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, mcpnexus.ErrorTypeTimeout, failure.Type)
			assert.Equal(t, 1500*time.Millisecond, failure.Timeout)
			assert.Contains(t, failure.Message, "no attempt has succeeded within 1.5s")
			assert.Less(t, time.Since(began), 8*time.Second, "less than the minute")
			assert.Equal(t, int32(2), w.calls.Load())
		})
	}
}

func TestAnOnlyAttemptThatTakesTooLongIsATimeoutAndNotAnUnknownOutcome(t *testing.T) {
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			w := &worktop{work: func(ctx context.Context, _ int32) error { return after(ctx, time.Minute, nil) }}
			_, err := w.call(t, mcpnexus.RequestOptions{Execution: execution, ScheduleToCloseTimeout: 500 * time.Millisecond, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
			failure, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, mcpnexus.ErrorTypeTimeout, failure.Type)
			assert.Equal(t, 500*time.Millisecond, failure.Timeout)
			assert.Equal(t, int32(1), w.calls.Load())
		})
	}
}

func TestAStoppingWorkerLeavesInlineCallsToAnother(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{})
	for name, input := range map[string]string{
		mcpnexus.OperationCallTool:  `{"name":"silent","_meta":{"nexusmcp/options":{"execution":"inline"}}}`,
		mcpnexus.OperationCallTools: `{"calls":[{"name":"echo"},{"name":"silent"}],"_meta":{"nexusmcp/options":{"execution":"inline"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := publishWith(t, handler.Options{DrainTimeout: 50 * time.Millisecond, Servers: []handler.Server{{Name: "rude", Transport: transport}}})
			ctx, cancel := context.WithTimeout(workerContext(t), 9*time.Second)
			defer cancel()
			before := server.Stats().Calls["silent"]
			answers := make(chan error)
			go func() {
				_, err := p.do(ctx, "rude", name, input)
				answers <- err
			}()
			require.Eventually(t, func() bool { return server.Stats().Calls["silent"] > before }, 20*time.Second, time.Millisecond)
			require.NoError(t, p.handler.Close(t.Context()))
			var refused *nexus.HandlerError
			require.ErrorAs(t, <-answers, &refused)
			assert.Equal(t, nexus.HandlerErrorTypeUnavailable, refused.Type)
			assert.True(t, refused.Retryable())
		})
	}
}

// The request was marked as sent, and turned out not to have been read.
func TestADestructiveCallWhoseSessionWasLostIsSentOnceThereIsAnother(t *testing.T) {
	server := rude.New(rude.Options{Legacy: true, Annotations: map[string]json.RawMessage{"echo": json.RawMessage(`{"destructiveHint":true}`)}})
	var lost, refused atomic.Int32
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch {
		case bytes.Contains(body, []byte(`"method":"tools/call"`)) && lost.CompareAndSwap(0, 1):
			http.Error(w, "unknown session", http.StatusNotFound)
		case bytes.Contains(body, []byte(`"method":"initialize"`)) && lost.Load() == 1 && refused.CompareAndSwap(0, 1):
			http.Error(w, "not now", http.StatusServiceUnavailable)
		default:
			server.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(listener.Close)
	env := testEnvironment(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}, ProtocolVersion: "2025-11-25", IdleTimeout: handler.CloseAtOnce}, time.Second)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		return workflow.NewNexusClient("any", "rude").ExecuteOperation(ctx, mcpnexus.OperationCallTool, map[string]any{"name": "echo"}, workflow.NexusOperationOptions{}).Get(ctx, nil)
	})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	assert.Equal(t, int32(1), lost.Load())
	assert.Equal(t, int32(1), refused.Load())
	assert.Equal(t, 1, server.Stats().Calls["echo"])
}

// As workflow authors test them, without a Temporal server.
func TestALongCallOutlivesTheHeartbeatTimeoutInATestEnvironmentToo(t *testing.T) {
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			w := &worktop{work: func(ctx context.Context, _ int32) error { return after(ctx, 16*time.Second, nil) }}
			text, err := w.call(t, mcpnexus.RequestOptions{Execution: execution})
			require.NoError(t, err)
			assert.Equal(t, "<done>", text)
			assert.Equal(t, int32(1), w.calls.Load())
		})
	}
}

func TestCancellingReachesTheToolInATestEnvironmentToo(t *testing.T) {
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			told := make(chan error, 1)
			w := &worktop{work: func(ctx context.Context, _ int32) error {
				err := after(ctx, time.Minute, nil)
				told <- err
				return err
			}}
			_, err := w.call(t, mcpnexus.RequestOptions{Execution: execution}, func(env *testsuite.TestWorkflowEnvironment) {
				go func() {
					assert.Eventually(t, func() bool { return w.calls.Load() == 1 }, 20*time.Second, time.Millisecond)
					env.CancelWorkflow()
				}()
			})
			var canceled *temporal.CanceledError
			assert.ErrorAs(t, err, &canceled)
			select {
			case err := <-told:
				assert.ErrorIs(t, err, context.Canceled)
			case <-time.After(30 * time.Second):
				assert.Fail(t, "the tool was not told")
			}
		})
	}
}

func TestTheLongestTimeoutsAreKeptToAsAnyOther(t *testing.T) {
	const longest = time.Duration(1<<63 - 1)
	for _, execution := range everyExecution {
		for name, options := range map[string]mcpnexus.RequestOptions{
			"an attempt's":     {StartToCloseTimeout: longest},
			"all attempts'":    {ScheduleToCloseTimeout: longest},
			"the backoff also": {StartToCloseTimeout: longest, ScheduleToCloseTimeout: longest, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumInterval: longest}},
		} {
			t.Run(string(execution)+", "+name, func(t *testing.T) {
				w := &worktop{work: func(ctx context.Context, call int32) error {
					if call == 1 && options.RetryPolicy != nil {
						return away
					}
					return after(ctx, 300*time.Millisecond, nil)
				}}
				options.Execution = execution
				text, err := w.call(t, options)
				require.NoError(t, err)
				assert.Equal(t, "<done>", text)
			})
		}
	}
}
