package caller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// forecasts are calls of a tool, each for a city of its own.
func forecasts(n int) []*mcp.CallToolParams {
	calls := make([]*mcp.CallToolParams, n)
	for i := range calls {
		calls[i] = &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": i}}
	}
	return calls
}

// answerEach answers a batch with what each says to a call.
func answerEach(each func(call json.RawMessage) string) func(string, string, json.RawMessage) (string, error) {
	return func(_, _ string, input json.RawMessage) (string, error) {
		var batch struct{ Calls []json.RawMessage }
		if err := json.Unmarshal(input, &batch); err != nil {
			return "", err
		}
		results := make([]string, len(batch.Calls))
		for i, call := range batch.Calls {
			results[i] = each(call)
		}
		return `{"results":[` + strings.Join(results, ",") + `]}`, nil
	}
}

// mirrored is the outcome of a call that returns its own params.
func mirrored(call json.RawMessage) string {
	return fmt.Sprintf(`{"result":{"content":[],"structuredContent":%s}}`, call)
}

func cityOf(t assert.TestingT, result *mcp.CallToolResult) any {
	if !assert.NotNil(t, result) {
		return nil
	}
	return result.StructuredContent.(map[string]any)["arguments"].(map[string]any)["city"]
}

func TestManyCallsAreMadeInBatchesAndAnsweredInTheirOrder(t *testing.T) {
	h := newHarness(t, answerEach(mirrored))
	h.mustRun(func(ctx workflow.Context) error {
		outcomes := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(2)}).CallTools(ctx, forecasts(103))
		assert.Len(t, outcomes, 103)
		for i, o := range outcomes {
			assert.NoError(t, o.Err)
			assert.EqualValues(t, i, cityOf(t, o.Result))
		}
		return nil
	})
	require.Len(t, h.calls, 6)
	for i, c := range h.calls {
		assert.Equal(t, mcpnexus.OperationCallTools, c.operation)
		var batch mcpnexus.CallToolsParams
		require.NoError(t, json.Unmarshal([]byte(c.input), &batch))
		assert.Nil(t, batch.Meta)
		if want := caller.BatchSize; i < 5 {
			assert.Len(t, batch.Calls, want)
			assert.Equal(t, "get_weather ×20", c.options.Summary)
		} else {
			assert.Len(t, batch.Calls, 3)
			assert.Equal(t, "get_weather ×3", c.options.Summary)
		}
	}
	assert.Equal(t, 2, h.maxOpen, "a batch has one place")
}

func TestABatchSendsTheParamsAndTheOptionsOnce(t *testing.T) {
	h := newHarness(t, answerEach(mirrored))
	h.mustRun(func(ctx workflow.Context) error {
		client := caller.NewClient(endpoint, weather, caller.Options{Request: mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Minute}})
		params := &mcp.CallToolParams{Name: "get_weather", Meta: meta}
		futures := client.CallToolsAsync(ctx, []*mcp.CallToolParams{params, {Name: "list_cities"}, params})
		params.Name = "too_late"
		for _, future := range futures {
			if _, err := future.Get(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(t, []string{`{"_meta":{"nexusmcp/options":{"scheduleToCloseTimeout":"60s"}},"calls":[{"_meta":{"example.com/trace":"t1"},"name":"get_weather"},{"name":"list_cities"},{"_meta":{"example.com/trace":"t1"},"name":"get_weather"}]}`}, h.inputs())
	assert.Equal(t, time.Minute+2500*time.Millisecond, h.calls[0].options.ScheduleToCloseTimeout)
}

func TestTheCallsOfABatchHaveErrorsOfTheirOwn(t *testing.T) {
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) {
		return `{"results":[
			{"error":{"type":"MCPProtocolError","message":"no such city","details":[-32602,{"id":9007199254740993}],"nonRetryable":true}},
			{"error":{"type":"MCPTransportError","message":"away","details":[503],"nextRetryDelay":"7s"}},
			{"result":{"content":[],"structuredContent":{"id":9007199254740993}}},
			{"result":{"content":[],"isError":true}},
			{},
			{"result":{"content":[]},"error":{"type":"MCPDenied","message":"m"}},
			{"result":{"content":"text"}},
			{"result":null},
			{"error":7},
			{"error":{"type":"MCPOfALaterVersion","message":"m","nonRetryable":true}}]}`, nil
	})
	h.mustRun(func(ctx workflow.Context) error {
		got := caller.NewClient(endpoint, weather, caller.Options{}).CallTools(ctx, forecasts(10))
		for i, want := range map[int]mcpnexus.Error{
			0: {Type: mcpnexus.ErrorTypeProtocol, Message: "no such city", Code: -32602, Data: json.RawMessage(`{"id":9007199254740993}`), NonRetryable: true},
			1: {Type: mcpnexus.ErrorTypeTransport, Message: "away", HTTPStatus: 503, NextRetryDelay: 7 * time.Second},
		} {
			e, ok := mcpnexus.ErrorFrom(got[i].Err)
			assert.True(t, ok)
			assert.Equal(t, &want, e)
			assert.Nil(t, got[i].Result)
		}
		if assert.NoError(t, got[2].Err) {
			assert.Equal(t, map[string]any{"id": json.Number("9007199254740993")}, got[2].Result.StructuredContent)
		}
		if assert.NoError(t, got[3].Err) {
			assert.True(t, got[3].Result.IsError)
		}
		for i, problem := range map[int]string{4: "results[4] has not one of result and error", 5: "results[5] has not one of result and error", 6: "content", 7: "it is null, want a JSON object", 8: "results[8].error: "} {
			e, ok := mcpnexus.ErrorFrom(got[i].Err)
			if assert.True(t, ok, "%d: %v", i, got[i].Err) {
				assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
				assert.Contains(t, e.Problem, problem)
				assert.Contains(t, e.Message, `call-tools "get_weather`)
			}
		}
		var app *temporal.ApplicationError
		if assert.ErrorAs(t, got[9].Err, &app) {
			assert.Equal(t, "MCPOfALaterVersion", app.Type())
			assert.True(t, app.NonRetryable())
		}
		return nil
	})
}

func TestAWorkflowMayFailWithTheErrorOfACallOfABatch(t *testing.T) {
	h := newHarness(t, answerEach(func(json.RawMessage) string {
		return `{"error":{"type":"MCPDenied","message":"no","details":["tools.deny[0]"],"nonRetryable":true}}`
	}))
	err := h.run(func(ctx workflow.Context) error {
		return caller.NewClient(endpoint, weather, caller.Options{}).CallTools(ctx, forecasts(1))[0].Err
	})
	e, ok := mcpnexus.ErrorFrom(err)
	require.True(t, ok)
	assert.Equal(t, &mcpnexus.Error{Type: mcpnexus.ErrorTypeDenied, Message: "no", Rule: "tools.deny[0]", NonRetryable: true}, e)
}

func TestAnOperationThatFailsIsTheErrorOfTheCallsOfItsBatchAlone(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		err    error
		check  func(err error) bool
	}{
		"a refusal": {"", nexus.NewHandlerErrorf(nexus.HandlerErrorTypeBadRequest, "no"), func(err error) bool {
			var refused *nexus.HandlerError
			return errors.As(err, &refused) && refused.Type == nexus.HandlerErrorTypeBadRequest
		}},
		"the contract's error": {"", &nexus.OperationError{State: nexus.OperationStateFailed, Cause: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "away"}).ApplicationError()}, func(err error) bool {
			e, ok := mcpnexus.ErrorFrom(err)
			return ok && e.Type == mcpnexus.ErrorTypeTransport
		}},
		"too few results": {`{"results":[]}`, nil, func(err error) bool {
			e, ok := mcpnexus.ErrorFrom(err)
			return ok && e.Problem == "it has 0 results for 20 calls" && strings.HasPrefix(e.Message, `call-tools "get_weather ×20" on service "weather": `)
		}},
		"no object": {`[]`, nil, func(err error) bool {
			e, ok := mcpnexus.ErrorFrom(err)
			return ok && e.Problem == "it is [], want a JSON object"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fine := answerEach(mirrored)
			h := newHarness(t, func(service, operation string, input json.RawMessage) (string, error) {
				if strings.Contains(string(input), `{"city":25}`) {
					return c.answer, c.err
				}
				return fine(service, operation, input)
			})
			h.mustRun(func(ctx workflow.Context) error {
				for i, o := range caller.NewClient(endpoint, weather, caller.Options{}).CallTools(ctx, forecasts(60)) {
					if i/caller.BatchSize == 1 {
						assert.Nil(t, o.Result)
						assert.True(t, c.check(o.Err), "%d: %v", i, o.Err)
						continue
					}
					assert.NoError(t, o.Err)
					assert.EqualValues(t, i, cityOf(t, o.Result))
				}
				return nil
			})
		})
	}
}

func TestLargeCallsAreMadeInSmallerBatchesAndOneThatIsTooLargeFailsAlone(t *testing.T) {
	h := newHarness(t, answerEach(func(json.RawMessage) string { return `{"result":{"content":[]}}` }))
	// What goes around the text.
	around := len(`{"calls":[{"name":"get_weather","arguments":{"text":""}}]}`)
	sizes := []int{900 << 10, 900 << 10, 900 << 10, 10, mcpnexus.MaxRequestBytes - around, mcpnexus.MaxRequestBytes - around + 1, 10, 10}
	var calls []*mcp.CallToolParams
	for _, size := range sizes {
		calls = append(calls, &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"text": strings.Repeat("x", size)}})
	}
	calls = append(calls, &mcp.CallToolParams{Name: "get_weather", Arguments: func() {}})
	calls = append(calls, &mcp.CallToolParams{Name: "get_weather", Meta: mcp.Meta{mcpnexus.MetaKeyOptions: 1}})
	h.mustRun(func(ctx workflow.Context) error {
		for i, o := range caller.NewClient(endpoint, weather, caller.Options{}).CallTools(ctx, calls) {
			want, bad := map[int]string{
				5: `call-tools "get_weather" on service "weather": the request has 2031617 bytes of JSON, the limit is 2031616`,
				8: "arguments cannot be encoded as JSON",
				9: `_meta has the key "nexusmcp/options"`,
			}[i]
			if !bad {
				assert.NoError(t, o.Err, i)
				continue
			}
			var refused *nexus.HandlerError
			if assert.ErrorAs(t, o.Err, &refused) {
				assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
				assert.Contains(t, o.Err.Error(), want)
			}
		}
		return nil
	})
	var sent []int
	for _, input := range h.inputs() {
		assert.LessOrEqual(t, len(input), mcpnexus.MaxRequestBytes)
		var batch mcpnexus.CallToolsParams
		require.NoError(t, json.Unmarshal([]byte(input), &batch))
		sent = append(sent, len(batch.Calls))
	}
	assert.Equal(t, []int{2, 2, 1, 2}, sent)
}

// The handler keeps them with each call.
func TestOptionsThatTakeMuchMakeBatchesSmaller(t *testing.T) {
	h := newHarness(t, answerEach(mirrored))
	options := caller.Options{Request: mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`"` + strings.Repeat("x", 200<<10) + `"`)}}
	h.mustRun(func(ctx workflow.Context) error {
		for i, o := range caller.NewClient(endpoint, weather, options).CallTools(ctx, forecasts(25)) {
			if assert.NoError(t, o.Err) {
				assert.EqualValues(t, i, cityOf(t, o.Result))
			}
		}
		return nil
	})
	calls := 0
	for _, input := range h.inputs() {
		var batch mcpnexus.CallToolsParams
		require.NoError(t, json.Unmarshal([]byte(input), &batch))
		assert.LessOrEqual(t, len(batch.Calls), 10, "2 MiB of options")
		calls += len(batch.Calls)
	}
	assert.Equal(t, 25, calls)
}

// The handler counts what an activity's policy has of them for each call, and takes 3 MiB.
func TestErrorTypesThatTakeMuchMakeBatchesSmaller(t *testing.T) {
	for size, most := range map[int]int{800 << 10: 1, 90 << 10: 17} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			h := newHarness(t, answerEach(mirrored))
			options := caller.Options{Request: mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{NonRetryableErrorTypes: []string{strings.Repeat("x", size)}}}}
			h.mustRun(func(ctx workflow.Context) error {
				for _, o := range caller.NewClient(endpoint, weather, options).CallTools(ctx, forecasts(25)) {
					assert.NoError(t, o.Err)
				}
				return nil
			})
			calls := 0
			for _, input := range h.inputs() {
				var batch mcpnexus.CallToolsParams
				require.NoError(t, json.Unmarshal([]byte(input), &batch))
				assert.LessOrEqual(t, len(batch.Calls), most)
				calls += len(batch.Calls)
			}
			assert.Equal(t, 25, calls)
		})
	}
}

func TestNoCallsAreNoOperation(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		assert.Empty(t, caller.NewClient(endpoint, weather, caller.Options{}).CallTools(ctx, nil))
		return nil
	})
	assert.Empty(t, h.calls)
}

func TestWhatIsWrongWithAClientIsWrongWithEachCallOfABatch(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		for _, o := range caller.NewClient(endpoint, "", caller.Options{}).CallTools(ctx, forecasts(3)) {
			var refused *nexus.HandlerError
			assert.ErrorAs(t, o.Err, &refused)
			assert.ErrorContains(t, o.Err, "the name of the Nexus service is empty")
		}
		scope, cancel := workflow.WithCancel(ctx)
		cancel()
		for _, o := range caller.NewClient(endpoint, weather, caller.Options{}).CallTools(scope, forecasts(3)) {
			assert.True(t, temporal.IsCanceledError(o.Err), o.Err)
		}
		return workflow.SetQueryHandler(ctx, "query", func() (string, error) {
			err := caller.NewClient(endpoint, weather, caller.Options{}).CallToolsAsync(ctx, forecasts(1))[0]
			_, failure := err.Get(ctx)
			return failure.Error(), nil
		})
	})
	assert.Empty(t, h.calls)
	value, err := h.QueryWorkflow("query")
	require.NoError(t, err)
	var got string
	require.NoError(t, value.Get(&got))
	assert.Contains(t, got, "a query handler, an update validator or a side effect cannot call an MCP server")
}

func TestBatchesThatWaitAreCancelledAtOnce(t *testing.T) {
	h := newHarness(t, answerEach(mirrored))
	h.mustRun(func(ctx workflow.Context) error {
		scope, cancel := workflow.WithCancel(ctx)
		futures := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)}).CallToolsAsync(scope, forecasts(45))
		_, err := futures[0].Get(ctx)
		assert.NoError(t, err)
		cancel()
		var cancelled int
		for _, future := range futures[caller.BatchSize:] {
			if _, err := future.Get(ctx); temporal.IsCanceledError(err) {
				cancelled++
			}
		}
		assert.GreaterOrEqual(t, cancelled, 5, "the last batch still waited")
		return nil
	})
	assert.LessOrEqual(t, len(h.calls), 2)
}

func TestTheSummaryOfABatchNamesItsTools(t *testing.T) {
	for _, c := range []struct {
		tools []string
		want  string
	}{
		{[]string{"a"}, "a"},
		{[]string{"a", "a"}, "a ×2"},
		{[]string{"a", "b"}, "a and 1 other"},
		{[]string{"a", "b", "a", "c"}, "a and 3 others"},
		{[]string{" ", " "}, "×2"},
		{[]string{strings.Repeat("a", 500), "b"}, strings.Repeat("a", 195-len(" and 1 other")) + "… and 1 other"},
	} {
		h := newHarness(t, answerEach(mirrored))
		h.mustRun(func(ctx workflow.Context) error {
			var calls []*mcp.CallToolParams
			for _, name := range c.tools {
				calls = append(calls, &mcp.CallToolParams{Name: name})
			}
			for _, o := range caller.NewClient(endpoint, weather, caller.Options{}).CallTools(ctx, calls) {
				assert.NoError(t, o.Err)
			}
			return nil
		})
		got := h.calls[0].options.Summary
		assert.Equal(t, c.want, got)
		payload, err := converter.GetDefaultDataConverter().ToPayload(got)
		require.NoError(t, err)
		assert.Less(t, payload.Size(), 300)
	}
}
