package handler_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A workshop is an MCP server whose tools do what their arguments say, and that
// counts.
type workshop struct {
	mu sync.Mutex
	// ran is how often each call came, by idempotency key after the slash.
	ran map[string]int
	// again is closed when one comes for the second time.
	again chan struct{}
	came  func() // closes it
	// window is the handler's, zero means a short one.
	window time.Duration
}

type job struct {
	MS    int  `json:"ms,omitempty"`    // it takes
	Fails int  `json:"fails,omitempty"` // retryably, at first
	Code  int  `json:"code,omitempty"`  // of a permanent failure
	Bytes int  `json:"bytes,omitempty"` // of its result
	Waits bool `json:"waits,omitempty"` // for another to come again
}

func (w *workshop) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "workshop", Version: "1"}, nil)
	for _, tool := range []*mcp.Tool{
		{Name: "work", InputSchema: map[string]any{"type": "object"}},
		{Name: "destroy", InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true)}},
	} {
		server.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var j job
			if err := json.Unmarshal(req.Params.Arguments, &j); err != nil {
				return nil, err
			}
			key, _ := req.Params.Meta[mcpnexus.MetaKeyIdempotencyKey].(string)
			_, index, _ := strings.Cut(key, "/")
			w.mu.Lock()
			w.ran[index]++
			times := w.ran[index]
			if times == 2 {
				w.came()
			}
			w.mu.Unlock()
			if j.Waits {
				select {
				case <-w.again:
				case <-ctx.Done():
				}
			}
			if err := after(ctx, time.Duration(j.MS)*time.Millisecond, nil); err != nil {
				return nil, err
			}
			switch {
			case times <= j.Fails:
				return nil, away
			case j.Code != 0:
				e := *away
				e.Code = int64(j.Code)
				return nil, &e
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf("<%s>%s", index, strings.Repeat("x", j.Bytes))}}}, nil
		})
	}
	return server
}

func (w *workshop) times() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ran)
}

// callAll makes a batch from a workflow in a test environment.
func (w *workshop) callAll(t *testing.T, options mcpnexus.RequestOptions, calls ...*mcp.CallToolParams) *mcpnexus.CallToolsResult {
	t.Helper()
	w.ran, w.again = make(map[string]int), make(chan struct{})
	w.came = sync.OnceFunc(func() { close(w.again) })
	env := testEnvironment(t, handler.Server{Name: "workshop", Transport: handler.InProcess{Server: w.server()}}, cmp.Or(w.window, 100*time.Millisecond))
	env.ExecuteWorkflow(func(ctx workflow.Context) (*mcpnexus.CallToolsResult, error) {
		params := &mcpnexus.CallToolsParams{Calls: calls, Meta: mcp.Meta{mcpnexus.MetaKeyOptions: options}}
		var result *mcpnexus.CallToolsResult
		err := workflow.NewNexusClient("any", "workshop").ExecuteOperation(ctx, mcpnexus.CallTools, params, workflow.NexusOperationOptions{}).Get(ctx, &result)
		return result, err
	})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	var result *mcpnexus.CallToolsResult
	require.NoError(t, env.GetWorkflowResult(&result))
	require.Len(t, result.Results, len(calls))
	return result
}

func work(j job) *mcp.CallToolParams { return &mcp.CallToolParams{Name: "work", Arguments: j} }

// with gives a call options of its own.
func with(call *mcp.CallToolParams, options mcpnexus.RequestOptions) *mcp.CallToolParams {
	call.Meta = mcp.Meta{mcpnexus.MetaKeyOptions: options}
	return call
}

func requireText(t *testing.T, o mcpnexus.CallToolsOutcome, want string) {
	t.Helper()
	require.Nil(t, o.Error)
	require.Equal(t, want, o.Result.Content[0].(*mcp.TextContent).Text)
}

func TestEachCallOfABatchGoesItsOwnWayToItsOwnOutcome(t *testing.T) {
	for _, execution := range everyExecution {
		t.Run(string(execution), func(t *testing.T) {
			w := &workshop{}
			got := w.callAll(t, mcpnexus.RequestOptions{Execution: execution},
				work(job{}), work(job{MS: 500}), work(job{Fails: 2}), work(job{Code: -32602}), work(job{MS: 300, Fails: 1}), work(job{Bytes: 10})).Results
			requireText(t, got[0], "<0>")
			requireText(t, got[1], "<1>")
			requireText(t, got[2], "<2>")
			require.NotNil(t, got[3].Error)
			assert.Equal(t, mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32602, NonRetryable: true, Message: `workshop: call-tool "work": not now (JSON-RPC error -32602)`}, *got[3].Error)
			requireText(t, got[4], "<4>")
			requireText(t, got[5], "<5>xxxxxxxxxx")
			assert.Equal(t, map[string]int{"0": 1, "1": 1, "2": 3, "3": 1, "4": 2, "5": 1}, w.times())
		})
	}
}

func TestTheSecondAttemptOfOneDoesNotWaitForTheFirstOfAnother(t *testing.T) {
	w := &workshop{window: time.Minute}
	got := w.callAll(t, mcpnexus.RequestOptions{},
		with(work(job{Fails: 1}), mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond}}),
		with(work(job{Waits: true}), mcpnexus.RequestOptions{StartToCloseTimeout: 4 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2, NonRetryableErrorTypes: []string{"MCPTimeoutError"}}}),
		with(work(job{Fails: 1}), mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{NonRetryableErrorTypes: []string{"MCPProtocolError"}}}),
	).Results
	requireText(t, got[0], "<0>")
	requireText(t, got[1], "<1>")
	require.NotNil(t, got[2].Error, "its own policy does not want it retried")
	assert.True(t, got[2].Error.NonRetryable)
	assert.Equal(t, map[string]int{"0": 2, "1": 1, "2": 1}, w.times())
}

func TestCallsThatMayRunOnceRunOnceAndTheOthersAsTheyWould(t *testing.T) {
	destroy := func(j job) *mcp.CallToolParams { return &mcp.CallToolParams{Name: "destroy", Arguments: j} }
	onlyOnce := func(j job) *mcp.CallToolParams {
		return with(work(j), mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	}
	w := &workshop{}
	got := w.callAll(t, mcpnexus.RequestOptions{}, work(job{Fails: 1}), destroy(job{Fails: 1}), onlyOnce(job{Fails: 1}), destroy(job{}), onlyOnce(job{MS: 300})).Results
	requireText(t, got[0], "<0>")
	for _, i := range []int{1, 2} {
		require.NotNil(t, got[i].Error)
		assert.Equal(t, mcpnexus.ErrorTypeProtocol, got[i].Error.Type)
		assert.EqualValues(t, away.Code, got[i].Error.Code)
	}
	requireText(t, got[3], "<3>")
	requireText(t, got[4], "<4>")
	assert.Equal(t, map[string]int{"0": 2, "1": 1, "2": 1, "3": 1, "4": 1}, w.times())
}

func TestACallThatHasLittleTimeDoesNotKeepAnotherFromBeingFoundDestructive(t *testing.T) {
	server := rude.New(rude.Options{Annotations: map[string]json.RawMessage{"huge": json.RawMessage(`{"destructiveHint":true}`)}})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			time.Sleep(500 * time.Millisecond) // what the list takes
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	env := testEnvironment(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}}, 5*time.Second)
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		calls := json.RawMessage(`{"_meta":{"nexusmcp/options":{"execution":"inline"}},"calls":[
			{"name":"echo","_meta":{"nexusmcp/options":{"execution":"inline","scheduleToCloseTimeout":"0.4s"}}},
			{"name":"huge"}]}`)
		return workflow.NewNexusClient("any", "rude").ExecuteOperation(ctx, mcpnexus.OperationCallTools, calls, workflow.NexusOperationOptions{}).Get(ctx, nil)
	})
	require.True(t, env.IsWorkflowCompleted())
	require.ErrorContains(t, env.GetWorkflowError(), "calls[1]: execution: inline cannot keep a request to one attempt")
	assert.Empty(t, server.Stats().Calls)
}

func TestAServerThatCannotListItsToolsIsAskedOnceForAnInlineBatch(t *testing.T) {
	var lists atomic.Int32
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			lists.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	env := testEnvironment(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}}, time.Second)
	const calls = 100
	env.ExecuteWorkflow(func(ctx workflow.Context) error {
		batch := json.RawMessage(`{"_meta":{"nexusmcp/options":{"execution":"inline","scheduleToCloseTimeout":"600s"}},"calls":[{"name":"echo"}` + strings.Repeat(`,{"name":"echo"}`, calls-1) + `]}`)
		return workflow.NewNexusClient("any", "rude").ExecuteOperation(ctx, mcpnexus.OperationCallTools, batch, workflow.NexusOperationOptions{}).Get(ctx, nil)
	})
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	assert.Equal(t, calls, server.Stats().Calls["echo"])
	assert.Less(t, lists.Load(), int32(5))
}

func TestCallsThatTheWindowWasTooShortForAreBegunInTheWorkflow(t *testing.T) {
	w := &workshop{}
	var calls []*mcp.CallToolParams
	for range 70 {
		calls = append(calls, work(job{MS: 250}))
	}
	got := w.callAll(t, mcpnexus.RequestOptions{}, calls...).Results
	want := make(map[string]int)
	for i := range calls {
		requireText(t, got[i], fmt.Sprintf("<%d>", i))
		want[fmt.Sprint(i)] = 1
	}
	assert.Equal(t, want, w.times())
}

func TestResultsThatDoNotFitFailAloneAlsoInAWorkflow(t *testing.T) {
	const large = 900 << 10
	for name, slow := range map[string]int{"handed off": 300, "ended in time": 0} {
		t.Run(name, func(t *testing.T) {
			w := &workshop{}
			got := w.callAll(t, mcpnexus.RequestOptions{}, work(job{Bytes: large}), work(job{Bytes: large, MS: slow}), work(job{Bytes: large}), work(job{Fails: 1}), work(job{})).Results
			requireText(t, got[0], "<0>"+strings.Repeat("x", large))
			requireText(t, got[1], "<1>"+strings.Repeat("x", large))
			require.NotNil(t, got[2].Error)
			assert.Equal(t, mcpnexus.ErrorTypeResultTooLarge, got[2].Error.Type)
			assert.Contains(t, got[2].Error.Message, `workshop: call-tool "work": the results of the batch do not fit together into 2031616 bytes`)
			requireText(t, got[3], "<3>")
			requireText(t, got[4], "<4>")
			assert.Equal(t, map[string]int{"0": 1, "1": 1, "2": 1, "3": 2, "4": 1}, w.times())
		})
	}
}
