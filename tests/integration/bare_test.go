package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// execute is all that a caller needs who has only Temporal.
func execute(ctx workflow.Context, p *path, service, operation string, input any) (json.RawMessage, error) {
	var result json.RawMessage
	err := workflow.NewNexusClient(p.endpoint, service).ExecuteOperation(ctx, operation, input, workflow.NexusOperationOptions{}).Get(ctx, &result)
	return result, err
}

func TestACallerThatHasOnlyTemporalUsesEveryOperation(t *testing.T) {
	t.Parallel()
	p := publish(t, handler.Server{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("for everybody")}})
	meta := map[string]any{
		"acme/trace": "t-1",
		"nexusmcp/options": map[string]any{
			"startToCloseTimeout": "5s", "scheduleToCloseTimeout": "60.500s", "execution": "inline",
			"retryPolicy": map[string]any{"initialInterval": "1s", "backoffCoefficient": 1.5, "maximumInterval": "10s", "maximumAttempts": 3, "nonRetryableErrorTypes": []string{"MCPTransportError"}},
		},
	}
	for operation, c := range map[string]struct {
		input map[string]any // without _meta
		check func(t assert.TestingT, result map[string]any)
	}{
		"list-tools":              {nil, has("tools", 4)},
		"list-prompts":            {nil, has("prompts", 3)},
		"list-resources":          {nil, has("resources", 3)},
		"list-resource-templates": {nil, has("resourceTemplates", 3)},
		"call-tool":               {map[string]any{"name": "forecast", "arguments": map[string]any{"city": "Oslo"}}, has("content", 5)},
		"get-prompt":              {map[string]any{"name": "sowing", "arguments": map[string]any{"month": "may"}}, has("messages", 2)},
		"read-resource":           {map[string]any{"uri": "almanac://may"}, has("contents", 2)},
		"complete": {
			map[string]any{"ref": map[string]any{"type": "ref/prompt", "name": "sowing"}, "argument": map[string]any{"name": "month", "value": "ma"}},
			func(t assert.TestingT, result map[string]any) {
				assert.Equal(t, map[string]any{"values": []any{"march", "may"}, "total": 2.0}, result["completion"])
			},
		},
		"discover": {nil, func(t assert.TestingT, result map[string]any) {
			assert.Equal(t, "for everybody", result["instructions"])
			assert.Equal(t, modern, result["protocolVersion"])
		}},
	} {
		t.Run(operation, func(t *testing.T) {
			t.Parallel()
			withOptions := map[string]any{"_meta": meta}
			for key, value := range c.input {
				withOptions[key] = value
			}
			inputs := map[string]any{"with options": withOptions}
			if c.input == nil {
				inputs["nothing"], inputs["an empty object"] = nil, map[string]any{}
			} else {
				inputs["without options"] = c.input
			}
			for name, input := range inputs {
				p.run(t, func(ctx workflow.Context) error {
					complaints := &complaints{}
					raw, err := execute(ctx, p, "almanac", operation, input)
					if assert.NoError(complaints, err, name) {
						var result map[string]any
						assert.NoError(complaints, json.Unmarshal(raw, &result))
						c.check(complaints, result)
						assert.NotContains(complaints, result, "nextCursor")
					}
					return complaints.err()
				})
			}
		})
	}
}

func has(field string, n int) func(assert.TestingT, map[string]any) {
	return func(t assert.TestingT, result map[string]any) {
		items, _ := result[field].([]any)
		assert.Len(t, items, n, "%v", result)
	}
}

func TestTheServerSeesTheCallersMetaWithoutItsOptions(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	call := func(input string) (params struct {
		Name      string
		Arguments json.RawMessage
		Meta      map[string]any `json:"_meta"`
	}) {
		p.run(t, func(ctx workflow.Context) error {
			_, err := execute(ctx, p, "rude", "call-tool", json.RawMessage(input))
			return err
		})
		require.NoError(t, json.Unmarshal(server.Stats().Params, &params))
		return params
	}
	first := call(`{"name":"echo","arguments":{"id":9007199254740993},"_meta":{"acme/trace":{"span":7},"nexusmcp/options":{"startToCloseTimeout":"5s"}}}`)
	assert.Equal(t, "echo", first.Name)
	assert.Equal(t, `{"id":9007199254740993}`, string(first.Arguments))
	assert.Equal(t, map[string]any{"span": 7.0}, first.Meta["acme/trace"])
	assert.NotContains(t, first.Meta, mcpnexus.MetaKeyOptions)
	assert.NotEmpty(t, first.Meta[mcpnexus.MetaKeyIdempotencyKey])

	second := call(`{"name":"echo"}`)
	assert.NotEmpty(t, second.Meta[mcpnexus.MetaKeyIdempotencyKey])
	assert.NotEqual(t, first.Meta[mcpnexus.MetaKeyIdempotencyKey], second.Meta[mcpnexus.MetaKeyIdempotencyKey])
}

// weatherServer has the tool of the contract's example.
func weatherServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "get_weather", InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}`)},
		func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{
				Content:           []mcp.Content{&mcp.TextContent{Text: "sunny"}},
				StructuredContent: json.RawMessage(fmt.Sprintf(`{"asked":%s,"station":9007199254740993}`, req.Params.Arguments)),
			}, nil
		})
	return server
}

// newHandler returns a handler that is closed after the test, and after the
// workers that the test starts later.
func newHandler(t *testing.T, servers ...handler.Server) *handler.Handler {
	t.Helper()
	h, err := handler.New(handler.Options{Servers: servers})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		assert.NoError(t, h.Close(ctx))
	})
	return h
}

func TestJSONAsItIsTypedIsAnInput(t *testing.T) {
	t.Parallel()
	h := newHandler(t, handler.Server{Name: "weather", Transport: handler.InProcess{Server: weatherServer()}})
	p := publishOn(t, worker.Options{}, func(w worker.Worker) { h.Register(w) })
	for name, c := range map[string]struct {
		operation, input string
		metadata         map[string]string
		want             string
	}{
		"the example of the contract": {
			"call-tool", `{"name":"get_weather","arguments":{"city":"Oslo"}}`, nil,
			`"structuredContent":{"asked":{"city":"Oslo"},"station":9007199254740993}`,
		},
		"space and newlines": {
			"call-tool", " {\n\t\"name\": \"get_weather\",\r\n \"arguments\": { \"city\" : \"Oslo\" } }\n", nil,
			`"asked":{"city":"Oslo"}`,
		},
		"metadata of another SDK": {
			"call-tool", `{"name":"get_weather","arguments":{"city":"Oslo"}}`, map[string]string{"messageType": "CallToolParams", "acme": "x"},
			`"asked":{"city":"Oslo"}`,
		},
		"an empty object":  {"list-tools", `{}`, nil, `"name":"get_weather"`},
		"null":             {"list-tools", `null`, nil, `"name":"get_weather"`},
		"null to discover": {"discover", `null`, nil, `"serverInfo":{"name":"weather","version":"1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			payload := &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(c.input)}
			for key, value := range c.metadata {
				payload.Metadata[key] = []byte(value)
			}
			p.run(t, func(ctx workflow.Context) error {
				var result converter.RawValue
				operation := workflow.NewNexusClient(p.endpoint, "weather").ExecuteOperation(ctx, c.operation, converter.NewRawValue(payload), workflow.NexusOperationOptions{})
				if err := operation.Get(ctx, &result); err != nil {
					return err
				}
				complaints := &complaints{}
				assert.Equal(complaints, "json/plain", string(result.Payload().GetMetadata()["encoding"]))
				assert.Contains(complaints, string(result.Payload().GetData()), c.want)
				return complaints.err()
			})
		})
	}
}

func TestAHandlerWithoutAPluginServesCallers(t *testing.T) {
	t.Parallel()
	h := newHandler(t,
		handler.Server{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("without a plugin")}},
		handler.Server{Name: "weather", Transport: handler.InProcess{Server: weatherServer()}})
	p := publishOn(t, worker.Options{}, func(w worker.Worker) { h.Register(w) })
	p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		limit := caller.NewLimit(caller.DefaultLimit)
		checkAlmanac(ctx, c, p.client("almanac", caller.Options{Limit: limit, DisableToolCache: true}), modern, "without a plugin")
		_, err := p.client("weather", caller.Options{Limit: limit}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": "Oslo"}})
		assert.NoError(c, err)
		return c.err()
	})
}

// Needs no server: it is how a workflow's own tests can use a real MCP server.
func TestEveryOperationAnswersInTheTestEnvironment(t *testing.T) {
	t.Parallel()
	h := newHandler(t, handler.Server{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("under test")}})
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(newLogger())
	env := suite.NewTestWorkflowEnvironment()
	h.Register(env)
	env.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
		c := &complaints{}
		client := caller.NewClient("any endpoint", "almanac", caller.Options{DisableToolCache: true})
		checkAlmanac(ctx, c, client, modern, "under test")

		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "no such tool"})
		if e, ok := mcpnexus.ErrorFrom(err); assert.True(c, ok, "%v", err) {
			assert.Equal(c, mcpnexus.ErrorTypeProtocol, e.Type)
			assert.Equal(c, int64(-32602), e.Code)
			assert.False(c, mcpnexus.Retryable(err))
		}
		err = workflow.NewNexusClient("any endpoint", "almanac").ExecuteOperation(ctx, "call-tool", map[string]any{}, workflow.NexusOperationOptions{}).Get(ctx, nil)
		assertBadRequest(c, err, `the input has no "name"`)
		return c.err()
	}, workflow.RegisterOptions{Name: "test"})
	env.ExecuteWorkflow("test")
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
}
