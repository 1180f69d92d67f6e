package integration

import (
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

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A counter is an MCP server that counts how often each of its calls came.
type counter struct {
	mu sync.Mutex
	// ran is by the call's argument n.
	ran map[int]int
	// keys are the idempotency keys that came.
	keys map[string]bool
	// failOnce are the calls that fail when they come for the first time.
	failOnce map[int]bool
}

func (c *counter) server() *mcp.Server {
	c.ran, c.keys = make(map[int]int), make(map[string]bool)
	server := mcp.NewServer(&mcp.Implementation{Name: "counter", Version: "1"}, nil)
	for _, tool := range []*mcp.Tool{
		{Name: "count", InputSchema: map[string]any{"type": "object"}},
		{Name: "destroy", InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true)}},
	} {
		server.AddTool(tool, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var arguments struct{ N int }
			if err := json.Unmarshal(req.Params.Arguments, &arguments); err != nil {
				return nil, err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ran[arguments.N]++
			c.keys[fmt.Sprint(req.Params.Meta[mcpnexus.MetaKeyIdempotencyKey])] = true
			if c.ran[arguments.N] == 1 && c.failOnce[arguments.N] {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "not now"}
			}
			return &mcp.CallToolResult{StructuredContent: map[string]any{"n": arguments.N}}, nil
		})
	}
	return server
}

func (c *counter) times() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.ran)
}

func numbered(tool string, n int) []*mcp.CallToolParams {
	calls := make([]*mcp.CallToolParams, n)
	for i := range calls {
		calls[i] = &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"n": i}}
	}
	return calls
}

// assertNumbered says that each call was answered with its own number.
func assertNumbered(t assert.TestingT, outcomes []caller.ToolOutcome) {
	for i, o := range outcomes {
		if assert.NoError(t, o.Err, i) {
			assert.Equal(t, map[string]any{"n": float64(i)}, o.Result.StructuredContent)
		}
	}
}

// each is how often n calls ran that ran once.
func each(n int) map[int]int {
	times := make(map[int]int)
	for i := range n {
		times[i] = 1
	}
	return times
}

// operations counts the operations that a workflow scheduled.
func operations(events []*historypb.HistoryEvent) (n int) {
	for _, event := range events {
		if event.GetEventType() == enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED {
			n++
		}
	}
	return n
}

func TestAFanOutOfTwoHundredShortCallsTakesTenOperations(t *testing.T) {
	t.Parallel()
	const calls = 200
	server := &counter{}
	p := publish(t, handler.Server{Name: "counter", Transport: handler.InProcess{Server: server.server()}})
	run := p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		outcomes := p.client("counter", caller.Options{}).CallTools(ctx, numbered("count", calls))
		assert.Len(c, outcomes, calls)
		assertNumbered(c, outcomes)
		return c.err()
	})
	assert.Equal(t, calls/caller.BatchSize, operations(history(t, run)))
	assert.Equal(t, each(calls), server.times())
	assert.Len(t, server.keys, calls, "each has an idempotency key of its own")
	replay(t, run)
}

func TestABatchWithCallsThatOutliveTheNexusRequestSucceedsAndRunsOnce(t *testing.T) {
	t.Parallel()
	for name, transport := range bothTransports(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			run := p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				client := p.client("rude", caller.Options{})
				got := client.CallTools(ctx, []*mcp.CallToolParams{
					{Name: "echo", Arguments: map[string]any{"a": "<b>"}},
					{Name: "slow", Arguments: map[string]any{"ms": 12_000}},
					{Name: "error", Arguments: map[string]any{"code": -32602, "data": "<why>"}},
					{Name: "slow", Arguments: map[string]any{"ms": 3_000}},
				})
				if assert.NoError(c, got[0].Err) {
					assert.Equal(c, map[string]any{"a": "<b>"}, got[0].Result.StructuredContent)
				}
				for _, i := range []int{1, 3} {
					if assert.NoError(c, got[i].Err) {
						assert.Equal(c, "at last", got[i].Result.Content[0].(*mcp.TextContent).Text)
					}
				}
				e, ok := mcpnexus.ErrorFrom(got[2].Err)
				if assert.True(c, ok, got[2].Err) {
					assert.EqualValues(c, -32602, e.Code)
					assert.JSONEq(c, `"<why>"`, string(e.Data))
				}
				stats, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "stats"})
				if assert.NoError(c, err) {
					assert.Equal(c, map[string]any{"echo": 1.0, "error": 1.0, "slow": 2.0, "stats": 1.0}, stats.StructuredContent.(map[string]any)["calls"])
				}
				return c.err()
			})
			replay(t, run)
			id, _ := durableRun(history(t, run))
			assert.True(t, strings.HasPrefix(id, "nexusmcp/rude/call-tools/"), id)
			replayDurable(t, durableHistory(t, run))
		})
	}
}

// bothTransports reach rude servers.
func bothTransports(t *testing.T) map[string]handler.Transport {
	t.Helper()
	_, overHTTP := rudeHTTP(t, rude.Options{})
	return map[string]handler.Transport{"over HTTP": overHTTP, "over stdio": rudeStdio(t, rude.Options{})}
}

func TestOneCallOfABatchIsRetriedAndTheOthersAreNotRunAgain(t *testing.T) {
	t.Parallel()
	const calls = 20
	server := &counter{failOnce: map[int]bool{3: true, 17: true}}
	p := publish(t, handler.Server{Name: "counter", Transport: handler.InProcess{Server: server.server()}})
	run := p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		assertNumbered(c, p.client("counter", caller.Options{}).CallTools(ctx, numbered("count", calls)))
		return c.err()
	})
	want := each(calls)
	want[3], want[17] = 2, 2
	assert.Equal(t, want, server.times())
	assert.Len(t, server.keys, calls, "a second attempt has the key of the first")
	assert.Equal(t, 1, operations(history(t, run)))
	replay(t, run)
	replayDurable(t, durableHistory(t, run))
}

func TestCallsOfABatchThatMayRunOnceRunOnce(t *testing.T) {
	t.Parallel()
	server := &counter{failOnce: map[int]bool{1: true, 2: true}}
	p := publish(t, handler.Server{Name: "counter", Transport: handler.InProcess{Server: server.server()}})
	p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		calls := numbered("count", 4)
		calls[1].Name, calls[3].Name = "destroy", "destroy"
		got := p.client("counter", caller.Options{}).CallTools(ctx, calls)
		e, ok := mcpnexus.ErrorFrom(got[1].Err)
		if assert.True(c, ok, got[1].Err) {
			assert.EqualValues(c, jsonrpc.CodeInternalError, e.Code)
		}
		got[1] = got[0]
		for _, i := range []int{0, 2, 3} {
			if assert.NoError(c, got[i].Err, i) {
				assert.Equal(c, map[string]any{"n": float64(i)}, got[i].Result.StructuredContent)
			}
		}
		return c.err()
	})
	assert.Equal(t, map[int]int{0: 1, 1: 1, 2: 2, 3: 1}, server.times())
}

func TestCancellingABatchCancelsItsCallsOnTheWire(t *testing.T) {
	t.Parallel()
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			server, transport := rudeHTTP(t, rude.Options{})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			run := p.start(t, func(ctx workflow.Context) error {
				c := &complaints{}
				client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}})
				for _, o := range client.CallTools(ctx, []*mcp.CallToolParams{{Name: "silent"}, {Name: "echo"}, {Name: "silent"}}) {
					assert.True(c, temporal.IsCanceledError(o.Err), o.Err)
				}
				return c.err()
			})
			within(t, func() bool {
				_, open := durableRun(history(t, run))
				return open && server.Stats().Calls["silent"] == 2
			})
			require.NoError(t, appClient.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
			require.NoError(t, outcome(t, run))
			within(t, func() bool { return server.Stats().Cancelled == 2 })
			assert.Equal(t, 2, server.Stats().Calls["silent"])
		})
	}
}

// twice delivers every start of an operation two times, as a Temporal server does
// when it has not got the answer of the first.
type twice struct {
	interceptor.WorkerInterceptorBase
	interceptor.NexusOperationInboundInterceptorBase
}

func (twice) InterceptNexusOperation(_ context.Context, next interceptor.NexusOperationInboundInterceptor) interceptor.NexusOperationInboundInterceptor {
	return &twice{NexusOperationInboundInterceptorBase: interceptor.NexusOperationInboundInterceptorBase{Next: next}}
}

func (w *twice) StartOperation(ctx context.Context, input interceptor.NexusStartOperationInput) (nexus.HandlerStartOperationResult[any], error) {
	if _, err := w.Next.StartOperation(ctx, input); err != nil {
		return nil, err
	}
	return w.Next.StartOperation(ctx, input)
}

func TestABatchThatIsStartedTwiceRunsOnce(t *testing.T) {
	// Not beside other tests: a process that is asked for many calls but has no time
	// to answer is taken for dead, and the calls are made again.
	for name, c := range map[string]struct {
		tool      string
		arguments map[string]any
		calls     int
	}{
		"answered at once":                       {tool: "echo", calls: 20},
		"handed off":                             {tool: "slow", arguments: map[string]any{"ms": 3000}, calls: 20},
		"handed off before the last were begun":  {tool: "slow", arguments: map[string]any{"ms": 3000}, calls: 60},
		"refused by the server, which is no end": {tool: "error", arguments: map[string]any{"code": -32602}, calls: 5},
	} {
		t.Run(name, func(t *testing.T) {
			server, transport := rudeHTTP(t, rude.Options{})
			plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}})
			require.NoError(t, err)
			p := publishOn(t, worker.Options{Plugins: []worker.Plugin{plugin}, Interceptors: []interceptor.WorkerInterceptor{&twice{}}}, func(worker.Worker) {})
			p.run(t, func(ctx workflow.Context) error {
				params := &mcpnexus.CallToolsParams{}
				for range c.calls {
					params.Calls = append(params.Calls, &mcp.CallToolParams{Name: c.tool, Arguments: c.arguments})
				}
				var result *mcpnexus.CallToolsResult
				if err := workflow.NewNexusClient(p.endpoint, "rude").ExecuteOperation(ctx, mcpnexus.CallTools, params, workflow.NexusOperationOptions{}).Get(ctx, &result); err != nil {
					return err
				}
				found := &complaints{}
				assert.Len(found, result.Results, c.calls)
				for i, o := range result.Results {
					assert.Equal(found, c.tool == "error", o.Error != nil, "%d: %v", i, o.Error)
				}
				return found.err()
			})
			assert.Equal(t, map[string]int{c.tool: c.calls}, server.Stats().Calls)
		})
	}
}

func TestAnOversizedBatchOfResultsFailsForThoseThatDoNotFit(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		p.run(t, func(ctx workflow.Context) error {
			c := &complaints{}
			client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}})
			got := client.CallTools(ctx, []*mcp.CallToolParams{
				{Name: "huge", Arguments: map[string]any{"bytes": 1_900_000}},
				{Name: "huge", Arguments: map[string]any{"bytes": 1_900_000}},
				{Name: "echo"},
			})
			assert.NoError(c, got[0].Err)
			e, ok := mcpnexus.ErrorFrom(got[1].Err)
			if assert.True(c, ok, got[1].Err) {
				assert.Equal(c, mcpnexus.ErrorTypeResultTooLarge, e.Type)
				assert.Contains(c, e.Message, "make smaller batches")
			}
			assert.NoError(c, got[2].Err)
			return c.err()
		})
	}
}

// failing is an MCP server whose tool "fail" takes some time and fails with the
// given error data.
func failing(t *testing.T, code int, data string, takes time.Duration) handler.Transport {
	t.Helper()
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Name") != "fail" {
			server.ServeHTTP(w, r)
			return
		}
		var request struct{ ID json.RawMessage }
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&request))
		select {
		case <-time.After(takes):
		case <-r.Context().Done():
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no","data":%q}}`, request.ID, code, data)
	}))
	t.Cleanup(listener.Close)
	return handler.HTTP{Endpoint: listener.URL}
}

func TestTheErrorsOfABatchAreInTheHistoryOfItsWorkflowOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calls     int
		data      string
		takes     time.Duration
		execution mcpnexus.Execution
	}{
		"markup, which JSON may write with six bytes a character": {10, strings.Repeat("<", 250_000), 0, mcpnexus.ExecutionDurable},
		"two failures of each call, the first handed off":         {10, strings.Repeat("x", 250_000), 4 * time.Second, mcpnexus.ExecutionAuto},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "rude", Transport: failing(t, -32603, c.data, c.takes)})
			run := p.run(t, func(ctx workflow.Context) error {
				params := &mcpnexus.CallToolsParams{Meta: mcp.Meta{mcpnexus.MetaKeyOptions: mcpnexus.RequestOptions{
					Execution: c.execution, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2, InitialInterval: time.Second},
				}}}
				for range c.calls {
					params.Calls = append(params.Calls, &mcp.CallToolParams{Name: "fail"})
				}
				var result *mcpnexus.CallToolsResult
				if err := workflow.NewNexusClient(p.endpoint, "rude").ExecuteOperation(ctx, mcpnexus.CallTools, params, workflow.NexusOperationOptions{}).Get(ctx, &result); err != nil {
					return err
				}
				found := &complaints{}
				for i, outcome := range result.Results {
					if assert.NotNil(found, outcome.Error, i) {
						assert.Equal(found, mcpnexus.ErrorTypeProtocol, outcome.Error.Type, i)
						assert.EqualValues(found, -32603, outcome.Error.Code, i)
					}
				}
				return found.err()
			})
			id, found := durableRun(history(t, run))
			require.True(t, found)
			described, err := platformClient.DescribeWorkflowExecution(t.Context(), id, "")
			require.NoError(t, err)
			// Each has its data there once, as it is, and what fits of it in the result.
			assert.Less(t, described.GetWorkflowExecutionInfo().GetHistorySizeBytes(), int64(c.calls*(len(c.data)+100_000)+handler.DefaultMaxResultBytes))
		})
	}
}

func TestABatchOfTheClientsSizeHasRoomForALargeResultAlsoWhenItIsHandedOff(t *testing.T) {
	t.Parallel()
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Name") == "huge" {
			time.Sleep(time.Second) // for the server the tool takes that long
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publishWith(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}}}, InlineWindow: 100 * time.Millisecond})
	p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		calls := []*mcp.CallToolParams{{Name: "huge", Arguments: map[string]any{"bytes": 1_900_000}}}
		for len(calls) < caller.BatchSize {
			calls = append(calls, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 1000}})
		}
		for i, outcome := range p.client("rude", caller.Options{}).CallTools(ctx, calls) {
			assert.NoError(c, outcome.Err, i)
		}
		return c.err()
	})
}

func TestTheShortTimeOfOneCallIsNotThatOfItsBatch(t *testing.T) {
	t.Parallel()
	server := rude.New(rude.Options{})
	var lists atomic.Int32
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			lists.Add(1)
			time.Sleep(1700 * time.Millisecond) // a server that is slow to list
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publishWith(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}}}, InlineWindow: 5 * time.Second})
	run := p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		calls := []*mcp.CallToolParams{{Name: "echo"}}
		for i := range 5 { // the server runs what it does not list
			calls = append(calls, &mcp.CallToolParams{Name: "error", Arguments: map[string]any{"n": i}})
		}
		short := mcpnexus.RequestOptions{ScheduleToCloseTimeout: 1500 * time.Millisecond, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2}}
		calls = append(calls, &mcp.CallToolParams{Name: "echo", Meta: mcp.Meta{mcpnexus.MetaKeyOptions: short}})
		params := &mcpnexus.CallToolsParams{Calls: calls}
		var result *mcpnexus.CallToolsResult
		err := workflow.NewNexusClient(p.endpoint, "rude").ExecuteOperation(ctx, mcpnexus.CallTools, params, workflow.NexusOperationOptions{}).Get(ctx, &result)
		if assert.NoError(c, err) {
			assert.Nil(c, result.Results[0].Error)
			assert.Nil(c, result.Results[len(calls)-1].Error, "it has not waited for what other tools declare")
		}
		return c.err()
	})
	_, durable := durableRun(history(t, run))
	assert.False(t, durable)
	assert.EqualValues(t, 1, lists.Load())
}
