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
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// method is one of the nine, without its types.
type method struct {
	name, operation string
	input, nilInput string // what is sent for params, and for nil, "" if that is refused
	summary         string
	call, async     func(*caller.Client, workflow.Context) (any, error)
	callNil         func(*caller.Client, workflow.Context) (any, error)
}

func methodOf[P, R any](
	name, operation, input, nilInput, summary string, params *P,
	call func(*caller.Client, workflow.Context, *P) (R, error),
	async func(*caller.Client, workflow.Context, *P) *caller.Future[R],
) method {
	return method{
		name: name, operation: operation, input: input, nilInput: nilInput, summary: summary,
		call:    func(c *caller.Client, ctx workflow.Context) (any, error) { return call(c, ctx, params) },
		async:   func(c *caller.Client, ctx workflow.Context) (any, error) { return async(c, ctx, params).Get(ctx) },
		callNil: func(c *caller.Client, ctx workflow.Context) (any, error) { return call(c, ctx, nil) },
	}
}

var meta = mcp.Meta{"example.com/trace": "t1"}

var methods = []method{
	methodOf("ListTools", mcpnexus.OperationListTools,
		`{"_meta":{"example.com/trace":"t1"}}`, `{}`, "",
		&mcp.ListToolsParams{Meta: meta},
		(*caller.Client).ListTools, (*caller.Client).ListToolsAsync),
	methodOf("CallTool", mcpnexus.OperationCallTool,
		`{"_meta":{"example.com/trace":"t1"},"name":"get_weather","arguments":{"city":"Oslo"}}`, "", "get_weather",
		&mcp.CallToolParams{Meta: meta, Name: "get_weather", Arguments: map[string]any{"city": "Oslo"}},
		(*caller.Client).CallTool, (*caller.Client).CallToolAsync),
	methodOf("ListPrompts", mcpnexus.OperationListPrompts,
		`{"_meta":{"example.com/trace":"t1"}}`, `{}`, "",
		&mcp.ListPromptsParams{Meta: meta},
		(*caller.Client).ListPrompts, (*caller.Client).ListPromptsAsync),
	methodOf("GetPrompt", mcpnexus.OperationGetPrompt,
		`{"_meta":{"example.com/trace":"t1"},"arguments":{"name":"Ada"},"name":"greeting"}`, "", "greeting",
		&mcp.GetPromptParams{Meta: meta, Name: "greeting", Arguments: map[string]string{"name": "Ada"}},
		(*caller.Client).GetPrompt, (*caller.Client).GetPromptAsync),
	methodOf("ListResources", mcpnexus.OperationListResources,
		`{"_meta":{"example.com/trace":"t1"}}`, `{}`, "",
		&mcp.ListResourcesParams{Meta: meta},
		(*caller.Client).ListResources, (*caller.Client).ListResourcesAsync),
	methodOf("ListResourceTemplates", mcpnexus.OperationListResourceTemplates,
		`{"_meta":{"example.com/trace":"t1"}}`, `{}`, "",
		&mcp.ListResourceTemplatesParams{Meta: meta},
		(*caller.Client).ListResourceTemplates, (*caller.Client).ListResourceTemplatesAsync),
	methodOf("ReadResource", mcpnexus.OperationReadResource,
		`{"_meta":{"example.com/trace":"t1"},"uri":"file:///readme"}`, "", "file:///readme",
		&mcp.ReadResourceParams{Meta: meta, URI: "file:///readme"},
		(*caller.Client).ReadResource, (*caller.Client).ReadResourceAsync),
	methodOf("Complete", mcpnexus.OperationComplete,
		`{"_meta":{"example.com/trace":"t1"},"argument":{"name":"name","value":"secret"},"ref":{"type":"ref/prompt","name":"greeting"}}`,
		"", "greeting name",
		&mcp.CompleteParams{
			Meta:     meta,
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "greeting"},
			Argument: mcp.CompleteParamsArgument{Name: "name", Value: "secret"},
		},
		(*caller.Client).Complete, (*caller.Client).CompleteAsync),
	methodOf("Discover", mcpnexus.OperationDiscover,
		`{"_meta":{"example.com/trace":"t1"}}`, `{}`, "",
		&mcp.DiscoverParams{Meta: meta},
		(*caller.Client).Discover, (*caller.Client).DiscoverAsync),
}

func TestEachMethodAndItsTwinSendTheParamsAndReturnTheAnswer(t *testing.T) {
	for _, m := range methods {
		t.Run(m.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.mustRun(func(ctx workflow.Context) error {
				c := caller.NewClient(endpoint, weather, caller.Options{DisableToolCache: true})
				calls := []func(*caller.Client, workflow.Context) (any, error){m.call, m.async}
				if m.nilInput != "" {
					calls = append(calls, m.callNil)
				}
				for _, call := range calls {
					result, err := call(c, ctx)
					if err != nil {
						return err
					}
					data, err := json.Marshal(result)
					if err != nil {
						return err
					}
					assert.JSONEq(t, strings.Replace(answers[m.operation], `"nextCursor":"",`, "", 1), string(data))
				}
				return nil
			})
			want := []string{m.input, m.input}
			if m.nilInput != "" {
				want = append(want, m.nilInput)
			}
			require.Equal(t, want, h.inputs())
			for _, c := range h.calls {
				assert.Equal(t, m.operation, c.operation)
				assert.Equal(t, weather, c.service)
				assert.Equal(t, m.summary, c.options.Summary)
			}
		})
	}
}

func TestSequencesYieldTheElementsOfTheList(t *testing.T) {
	h := newHarness(t, nil)
	var names []string
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		for e, err := range c.Tools(ctx, nil) {
			names = append(names, e.Name)
			assert.NoError(t, err)
		}
		for e, err := range c.Prompts(ctx, nil) {
			names = append(names, e.Name)
			assert.NoError(t, err)
		}
		for e, err := range c.Resources(ctx, nil) {
			names = append(names, e.Name)
			assert.NoError(t, err)
		}
		for e, err := range c.ResourceTemplates(ctx, nil) {
			names = append(names, e.Name)
			assert.NoError(t, err)
		}
		return nil
	})
	assert.Equal(t, []string{"get_weather", "greeting", "readme", "file"}, names)
}

func TestASequenceEndsWithItsError(t *testing.T) {
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) { return `[]`, nil })
	var errs []error
	h.mustRun(func(ctx workflow.Context) error {
		for tool, err := range caller.NewClient(endpoint, weather, caller.Options{}).Tools(ctx, nil) {
			assert.Nil(t, tool)
			errs = append(errs, err)
		}
		return nil
	})
	require.Len(t, errs, 1)
	require.ErrorContains(t, errs[0], "it is [], want a JSON object")
}

func TestOperationsCanBeMockedByTheirReferences(t *testing.T) {
	h := newMockHarness(t)
	h.OnNexusOperation(weather, mcpnexus.ListTools, mock.Anything, mock.Anything).Return(
		&nexus.HandlerStartOperationResultSync[*mcp.ListToolsResult]{Value: &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "get_weather"}}}}, nil)
	h.OnNexusOperation(weather, mcpnexus.CallTool,
		&mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": "Oslo"}},
		workflow.NexusOperationOptions{Summary: "get_weather", CancellationType: workflow.NexusOperationCancellationTypeWaitCompleted},
	).After(time.Hour).Return(
		&nexus.HandlerStartOperationResultSync[*mcp.CallToolResult]{Value: &mcp.CallToolResult{
			Content: []mcp.Content{&mcp.TextContent{Text: "sunny"}}, StructuredContent: map[string]any{"celsius": 21.5},
		}}, nil)
	h.OnNexusOperation(weather, mcpnexus.Discover, mock.Anything, mock.Anything).Return(
		&nexus.HandlerStartOperationResultSync[*mcpnexus.DiscoverResult]{Value: &mcpnexus.DiscoverResult{Instructions: "ask"}}, nil)
	h.OnNexusOperation(weather, mcpnexus.GetPrompt, mock.Anything, mock.Anything).Return(
		&nexus.HandlerStartOperationResultAsync{OperationToken: "prompt"}, nil)
	require.NoError(t, h.RegisterNexusAsyncOperationCompletion(weather, mcpnexus.OperationGetPrompt, "prompt",
		&mcp.GetPromptResult{Description: "days later"}, nil, 72*time.Hour))

	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		tools, err1 := c.ListTools(ctx, nil)
		result, err2 := c.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": "Oslo"}})
		server, err3 := c.Discover(ctx, nil)
		prompt, err4 := c.GetPrompt(ctx, &mcp.GetPromptParams{Name: "greeting"})
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return err
		}
		assert.Equal(t, "get_weather", tools.Tools[0].Name)
		assert.Equal(t, "sunny", result.Content[0].(*mcp.TextContent).Text)
		assert.Equal(t, map[string]any{"celsius": 21.5}, result.StructuredContent)
		assert.Equal(t, "ask", server.Instructions)
		assert.Equal(t, "days later", prompt.Description)
		return nil
	})
	h.AssertExpectations(t)
}

func TestFuturesWaitTogetherInASelector(t *testing.T) {
	h := newMockHarness(t)
	for name, after := range map[string]time.Duration{"slow": time.Hour, "fast": time.Minute} {
		h.OnNexusOperation(weather, mcpnexus.CallTool, &mcp.CallToolParams{Name: name}, mock.Anything).Return(
			&nexus.HandlerStartOperationResultAsync{OperationToken: name}, nil)
		require.NoError(t, h.RegisterNexusAsyncOperationCompletion(weather, mcpnexus.OperationCallTool, name,
			&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: name}}}, nil, after))
	}
	var order []string
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		selector := workflow.NewSelector(ctx)
		for _, name := range []string{"slow", "fast"} {
			future := c.CallToolAsync(ctx, &mcp.CallToolParams{Name: name})
			assert.False(t, future.IsReady())
			future.AddTo(selector, func(f *caller.Future[*mcp.CallToolResult]) {
				assert.True(t, f.IsReady())
				result, err := f.Get(ctx)
				if assert.NoError(t, err) {
					order = append(order, result.Content[0].(*mcp.TextContent).Text)
				}
			})
		}
		selector.Select(ctx)
		selector.Select(ctx)
		return nil
	})
	assert.Equal(t, []string{"fast", "slow"}, order)
}

func TestEachReadOfAFutureIsACopy(t *testing.T) {
	newHarness(t, nil).mustRun(func(ctx workflow.Context) error {
		future := caller.NewClient(endpoint, weather, caller.Options{}).CallToolAsync(ctx, &mcp.CallToolParams{Name: "get_weather"})
		first, err := future.Get(ctx)
		if err != nil {
			return err
		}
		first.Content[0].(*mcp.TextContent).Text = "rain"
		second, err := future.Get(ctx)
		assert.Equal(t, "sunny", second.Content[0].(*mcp.TextContent).Text)
		return err
	})
}

func TestParamsCanBeChangedOnceACallIsMade(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		arguments := map[string]any{}
		params := &mcp.CallToolParams{Name: "get_weather", Arguments: arguments}
		var futures []*caller.Future[*mcp.CallToolResult]
		for _, city := range []string{"Oslo", "Rome", "Bern"} {
			arguments["city"] = city
			futures = append(futures, c.CallToolAsync(ctx, params))
		}
		for _, f := range futures {
			if _, err := f.Get(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	assert.Equal(t, []string{
		`{"name":"get_weather","arguments":{"city":"Oslo"}}`,
		`{"name":"get_weather","arguments":{"city":"Rome"}}`,
		`{"name":"get_weather","arguments":{"city":"Bern"}}`,
	}, h.inputs())
}

func TestTheErrorOfAnOperationReachesErrorFrom(t *testing.T) {
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) {
		return "", &nexus.OperationError{State: nexus.OperationStateFailed, Cause: mcpnexus.NewError(mcpnexus.Error{
			Type: mcpnexus.ErrorTypeProtocol, Message: "unknown tool", Code: -32602, Data: json.RawMessage(`{"tool":"nope"}`),
		}).ApplicationError()}
	})
	var err error
	h.mustRun(func(ctx workflow.Context) error {
		_, err = caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "nope"})
		return nil
	})
	var operation *temporal.NexusOperationError
	require.ErrorAs(t, err, &operation)
	assert.Equal(t, mcpnexus.OperationCallTool, operation.Operation)
	e, ok := mcpnexus.ErrorFrom(err)
	require.True(t, ok)
	assert.Equal(t, &mcpnexus.Error{
		Type: mcpnexus.ErrorTypeProtocol, Message: "unknown tool", Code: -32602, Data: json.RawMessage(`{"tool":"nope"}`), NonRetryable: true,
	}, e)
}

func TestAToolThatFailsIsAResult(t *testing.T) {
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) {
		return `{"content":[{"type":"text","text":"no such city"}],"isError":true}`, nil
	})
	h.mustRun(func(ctx workflow.Context) error {
		result, err := caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		assert.True(t, result.IsError)
		return err
	})
}

func TestAResultThatRequiresInputArrivesAsOne(t *testing.T) {
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) {
		return `{"content":[],"resultType":"input_required","requestState":"s","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"Which?","requestedSchema":{"type":"object"}}}}}`, nil
	})
	h.mustRun(func(ctx workflow.Context) error {
		result, err := caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		if err != nil {
			return err
		}
		assert.True(t, result.NeedsInput())
		assert.Equal(t, "s", result.RequestState)
		assert.Equal(t, "Which?", result.InputRequests["q"].(*mcp.ElicitParams).Message)
		return nil
	})
}

func TestACancelledContextSchedulesNothing(t *testing.T) {
	h := newHarness(t, nil)
	var err error
	h.mustRun(func(ctx workflow.Context) error {
		scope, cancel := workflow.WithCancel(ctx)
		cancel()
		_, err = caller.NewClient(endpoint, weather, caller.Options{}).CallTool(scope, &mcp.CallToolParams{Name: "get_weather"})
		return nil
	})
	assert.True(t, temporal.IsCanceledError(err))
	assert.Empty(t, h.calls)
}

func TestAClientThatCannotBeRightFailsEveryCallAndSchedulesNothing(t *testing.T) {
	for _, c := range []struct {
		name, endpoint, service string
		options                 caller.Options
		want                    string
	}{
		{"no endpoint", "", weather, caller.Options{}, "the name of the Nexus endpoint is empty"},
		{"no service", endpoint, "", caller.Options{}, "the name of the Nexus service is empty"},
		{"a reserved endpoint", "__temporal_system", weather, caller.Options{}, `the name of the Nexus endpoint, "__temporal_system", begins with the reserved __temporal_`},
		{"a negative limit", endpoint, weather, caller.Options{Limit: caller.NewLimit(-1)}, "a Limit of -1 open operations lets nothing through"},
		{"a request option", endpoint, weather, caller.Options{Request: mcpnexus.RequestOptions{Execution: "later"}}, `request options: execution: "later" is none of auto, inline, durable`},
		{"an operation option", endpoint, weather, caller.Options{Operation: caller.OperationOptions{ScheduleToStartTimeout: -time.Second}}, "operation options: ScheduleToStartTimeout: -1s is negative"},
		{"a cancellation type that hides the end", endpoint, weather, caller.Options{Operation: caller.OperationOptions{CancellationType: workflow.NexusOperationCancellationTypeWaitRequested}}, "CancellationType: WaitRequested does not tell when the operation ends, want WaitCompleted, TryCancel or Abandon"},
		{"a cancellation type that does not exist", endpoint, weather, caller.Options{Operation: caller.OperationOptions{CancellationType: 9}}, "CancellationType: 9 is unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			var errs []error
			h.mustRun(func(ctx workflow.Context) error {
				client := caller.NewClient(c.endpoint, c.service, c.options)
				for _, client := range []*caller.Client{client, client.With(mcpnexus.RequestOptions{})} {
					_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
					errs = append(errs, err)
					future := client.ListToolsAsync(ctx, nil)
					assert.True(t, future.IsReady())
					_, err = future.Get(ctx)
					errs = append(errs, err)
				}
				return nil
			})
			require.Len(t, errs, 4)
			for _, err := range errs {
				require.ErrorContains(t, err, c.want)
				var bad *nexus.HandlerError
				require.ErrorAs(t, err, &bad)
				assert.Equal(t, nexus.HandlerErrorTypeBadRequest, bad.Type)
				assert.False(t, mcpnexus.Retryable(err))
			}
			assert.Empty(t, h.calls)
		})
	}
}

func TestAnErrorBeforeTheCallNamesOperationSubjectAndService(t *testing.T) {
	var err error
	newHarness(t, nil).mustRun(func(ctx workflow.Context) error {
		_, err = caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: make(chan int)})
		return nil
	})
	require.ErrorContains(t, err, `call-tool "get_weather" on service "weather": arguments cannot be encoded as JSON: json: unsupported type: chan int`)
}

// Many servers answer such a request with an error of their own, which is retried.
func TestParamsOfAnotherFormThanTheProtocolHasAreRefusedAlone(t *testing.T) {
	type client = caller.Client
	callTool := func(params *mcp.CallToolParams) func(workflow.Context, *client) error {
		return func(ctx workflow.Context, c *client) error {
			_, err := c.CallTool(ctx, params)
			return err
		}
	}
	arguments := func(arguments any) func(workflow.Context, *client) error {
		return callTool(&mcp.CallToolParams{Name: "get_weather", Arguments: arguments})
	}
	inBatch := func(params *mcp.CallToolParams) func(workflow.Context, *client) error {
		return func(ctx workflow.Context, c *client) error {
			outcomes := c.CallTools(ctx, []*mcp.CallToolParams{{Name: "get_weather"}, params})
			assert.NoError(t, outcomes[0].Err, "beside one that is refused")
			return outcomes[1].Err
		}
	}
	const toArguments = `call-tool "get_weather" on service "weather": arguments: a %s is not a JSON object: want a struct, a map with string keys or a json.RawMessage that is one`
	for _, c := range []struct {
		name string
		call func(workflow.Context, *client) error
		want string
	}{
		{"arguments as a text", arguments(`{"city":"Graz"}`), fmt.Sprintf(toArguments, "string")},
		{"arguments as bytes", arguments([]byte(`{"city":"Graz"}`)), fmt.Sprintf(toArguments, "[]uint8")},
		{"arguments as a list", arguments([]string{"Graz"}), fmt.Sprintf(toArguments, "[]string")},
		{"arguments that encode to a list", arguments(json.RawMessage(" [1]")), fmt.Sprintf(toArguments, "json.RawMessage")},
		{"a number", arguments(7), fmt.Sprintf(toArguments, "int")},
		{"no tool", callTool(nil), `call-tool on service "weather": name is empty, want a tool's`},
		{"a tool without a name", callTool(&mcp.CallToolParams{}), `call-tool on service "weather": name is empty, want a tool's`},
		{"a call without a name in a batch", inBatch(nil), `call-tools on service "weather": name is empty, want a tool's`},
		{"arguments as a text in a batch", inBatch(&mcp.CallToolParams{Name: "get_weather", Arguments: "Graz"}), `call-tools "get_weather" on service "weather": arguments: a string is not a JSON object`},
		{"no prompt", func(ctx workflow.Context, c *client) error {
			_, err := c.GetPrompt(ctx, nil)
			return err
		}, `get-prompt on service "weather": name is empty, want a prompt's`},
		{"no URI", func(ctx workflow.Context, c *client) error {
			_, err := c.ReadResource(ctx, nil)
			return err
		}, `read-resource on service "weather": uri is empty, want a resource's`},
		{"no reference", func(ctx workflow.Context, c *client) error {
			_, err := c.Complete(ctx, &mcp.CompleteParams{Argument: mcp.CompleteParamsArgument{Name: "city"}})
			return err
		}, `complete on service "weather": ref is nil, want a prompt's or a resource template's`},
	} {
		t.Run(c.name, func(t *testing.T) {
			newHarness(t, answerEach(mirrored)).mustRun(func(ctx workflow.Context) error {
				err := c.call(ctx, caller.NewClient(endpoint, weather, caller.Options{}))
				assert.ErrorContains(t, err, c.want)
				var bad *nexus.HandlerError
				if assert.ErrorAs(t, err, &bad) {
					assert.Equal(t, nexus.HandlerErrorTypeBadRequest, bad.Type)
				}
				return nil
			})
		})
	}
}

func TestArgumentsOfAnyFormThatIsAnObjectAreSent(t *testing.T) {
	city := struct {
		City string `json:"city"`
	}{"Graz"}
	for name, c := range map[string]struct {
		arguments any
		want      string
	}{
		"a struct":            {city, `{"name":"get_weather","arguments":{"city":"Graz"}}`},
		"a pointer":           {&city, `{"name":"get_weather","arguments":{"city":"Graz"}}`},
		"a map":               {map[string]string{"city": "Graz"}, `{"name":"get_weather","arguments":{"city":"Graz"}}`},
		"JSON":                {json.RawMessage(` {"city": "Graz"}`), `{"name":"get_weather","arguments":{"city":"Graz"}}`},
		"none":                {nil, `{"name":"get_weather"}`},
		"a map that is nil":   {map[string]any(nil), `{"name":"get_weather","arguments":null}`},
		"markup in arguments": {map[string]any{"text": "<&>"}, `{"name":"get_weather","arguments":{"text":"\u003c\u0026\u003e"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.mustRun(func(ctx workflow.Context) error {
				params := &mcp.CallToolParams{Name: "get_weather", Arguments: c.arguments}
				_, err := caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, params)
				assert.Equal(t, c.arguments, params.Arguments)
				return err
			})
			require.Len(t, h.inputs(), 1)
			assert.JSONEq(t, c.want, h.inputs()[0])
		})
	}
}

func TestArgumentsThatNobodyCouldReadAreRefused(t *testing.T) {
	nested := func(depth int) any {
		var value any = 1
		for range depth {
			value = []any{value}
		}
		return map[string]any{"a": value}
	}
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		client := caller.NewClient(endpoint, weather, caller.Options{})
		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "deep", Arguments: nested(10_500)})
		assert.ErrorContains(t, err, `call-tool "deep" on service "weather": arguments are nested more than 10,000 deep`)
		var bad *nexus.HandlerError
		if assert.ErrorAs(t, err, &bad) {
			assert.Equal(t, nexus.HandlerErrorTypeBadRequest, bad.Type)
		}
		_, err = client.CallTool(ctx, &mcp.CallToolParams{Name: "deep", Arguments: nested(9_900)})
		return err
	})
	assert.Len(t, h.calls, 1)
}

func TestAClientOrLimitOfAnotherRunIsRefused(t *testing.T) {
	limit := caller.NewLimit(2)
	client := caller.NewClient(endpoint, weather, caller.Options{})
	newHarness(t, nil).mustRun(func(ctx workflow.Context) error {
		_, err1 := client.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		_, err2 := caller.NewClient(endpoint, weather, caller.Options{Limit: limit}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		return errors.Join(err1, err2)
	})
	h := newHarness(t, nil)
	var errs []error
	h.mustRun(func(ctx workflow.Context) error {
		_, err1 := client.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		_, err2 := client.With(mcpnexus.RequestOptions{}).ListTools(ctx, nil)
		_, err3 := caller.NewClient(endpoint, weather, caller.Options{Limit: limit}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		errs = []error{err1, err2, err3}
		return nil
	})
	require.ErrorContains(t, errs[0], `the Client belongs to another execution, of run default-test-run-id of workflow "default-test-workflow-id", which started at `)
	require.ErrorContains(t, errs[0], "make one in each workflow function, not in a package variable")
	require.ErrorContains(t, errs[1], "the Client belongs to another execution, of run ")
	require.ErrorContains(t, errs[2], "the Limit belongs to another execution, of run ")
	assert.Empty(t, h.calls)
}

func TestAnInterceptorMayCopyTheWorkflowsInfo(t *testing.T) {
	var client *caller.Client
	call := func(ctx workflow.Context) error {
		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		return err
	}
	h := newHarness(t, nil)
	h.copyInfo = true
	h.mustRun(func(ctx workflow.Context) error {
		client = caller.NewClient(endpoint, weather, caller.Options{})
		return errors.Join(call(ctx), workflow.Sleep(ctx, time.Hour), call(ctx))
	})
	require.Len(t, h.calls, 2)
	h = newHarness(t, nil)
	h.copyInfo = true
	h.mustRun(func(ctx workflow.Context) error {
		for range 3 {
			assert.ErrorContains(t, call(ctx), "the Client belongs to another execution")
		}
		return nil
	})
	assert.Empty(t, h.calls)

	// The same run, executed once more from its beginning.
	h = newHarness(t, nil)
	h.copyInfo = true
	h.mustRun(func(ctx workflow.Context) error {
		client = caller.NewClient(endpoint, weather, caller.Options{})
		h.SetCurrentHistoryLength(20)
		assert.NoError(t, call(ctx))
		h.SetCurrentHistoryLength(3)
		for range 3 {
			assert.ErrorContains(t, call(ctx), "the Client belongs to another execution")
		}
		return nil
	})
	assert.Len(t, h.calls, 1)
}

func TestRunsThatShareAClientDoNotRace(t *testing.T) {
	client := caller.NewClient(endpoint, weather, caller.Options{})
	results := make(chan error, 4)
	for range cap(results) {
		go func() {
			h := newHarness(t, nil)
			h.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
				_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
				return err
			}, workflow.RegisterOptions{Name: "test"})
			h.ExecuteWorkflow("test")
			results <- h.GetWorkflowError()
		}()
	}
	refused := 0
	for range cap(results) {
		if err := <-results; err != nil {
			assert.ErrorContains(t, err, "the Client belongs to another execution")
			refused++
		}
	}
	assert.Equal(t, cap(results)-1, refused)
}

func TestAQueryHandlerIsToldThatItCannotCall(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		return workflow.SetQueryHandler(ctx, "tools", func() (string, error) {
			if c.ListToolsAsync(ctx, nil).IsReady() {
				_, err := c.ListTools(ctx, nil)
				return "", err
			}
			return "", nil
		})
	})
	_, err := h.QueryWorkflow("tools")
	require.ErrorContains(t, err, "a query handler, an update validator or a side effect cannot call an MCP server")
	assert.Empty(t, h.calls)
}
