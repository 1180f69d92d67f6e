//lint:file-ignore SA1019 servers of older protocol versions still send what is deprecated

package caller_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// callWith returns what CallTool makes of a server's answer.
func callWith(t *testing.T, answer string) (result *mcp.CallToolResult, err error) {
	t.Helper()
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) { return answer, nil })
	h.mustRun(func(ctx workflow.Context) error {
		result, err = caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		return nil
	})
	return result, err
}

func TestANumberIsAFloatUnlessAFloatWouldChangeIt(t *testing.T) {
	for _, c := range []struct {
		number string
		want   any
	}{
		{"0", 0.0},
		{"-1", -1.0},
		{"0.1", 0.1},
		{"21.50", 21.5},
		{"1e3", 1000.0},
		{"1E+3", 1000.0},
		{"100000000000000000000", 1e20},
		{"9007199254740992", 9007199254740992.0},
		{"9007199254740993", json.Number("9007199254740993")},
		{"-9007199254740993", json.Number("-9007199254740993")},
		{"9007199254740993.0", json.Number("9007199254740993.0")},
		{"18446744073709551615", json.Number("18446744073709551615")},
		{"3.14159265358979323846", json.Number("3.14159265358979323846")},
		{"0.00000000000000000000", 0.0},
		{"-0.0", 0.0},
		{"0e999999999999999999999", 0.0},
		{"1e400", json.Number("1e400")},
		{"1e-400", json.Number("1e-400")},
		{"1e999999999999999999999", json.Number("1e999999999999999999999")},
	} {
		t.Run(c.number, func(t *testing.T) {
			result, err := callWith(t, `{"content":[],"structuredContent":{"n":[`+c.number+`]}}`)
			require.NoError(t, err)
			assert.Equal(t, map[string]any{"n": []any{c.want}}, result.StructuredContent)
		})
	}
}

func TestARequestForInputMayHaveAnyName(t *testing.T) {
	for _, name := range []string{"q", "input", "metadata", "_meta", "experimental", "requestedSchema"} {
		result, err := callWith(t, `{"resultType":"input_required","content":[],"inputRequests":{"`+name+`":{"method":"sampling/createMessage","params":{
			"messages":[],"maxTokens":5,"temperature":0.12345678901234567890,"metadata":{"n":9007199254740993}}}}}`)
		require.NoError(t, err, name)
		params := result.InputRequests[name].(*mcp.CreateMessageWithToolsParams)
		assert.Equal(t, 0.12345678901234568, params.Temperature)
		assert.Equal(t, map[string]any{"n": json.Number("9007199254740993")}, params.Metadata)
	}
}

func TestALargeNumberIsKeptWhereverTheProtocolLeavesAValueOpen(t *testing.T) {
	const n = "9007199254740993"
	want := json.Number(n)
	open := map[string]any{"n": want, "small": 1.0}
	const openJSON = `{"n":` + n + `,"small":1}`

	t.Run("in a tool's result", func(t *testing.T) {
		result, err := callWith(t, `{"_meta":`+openJSON+`,"structuredContent":`+n+`,"content":[
			{"type":"text","text":"t","_meta":`+openJSON+`,"annotations":{"priority":0.30000000000000000001}},
			{"type":"image","mimeType":"image/png","data":"AAEC"},
			{"type":"resource_link","name":"r","uri":"u","size":`+n+`},
			{"type":"resource","resource":{"uri":"u","text":"x","_meta":`+openJSON+`}},
			{"type":"tool_use","id":"1","name":"x","input":`+openJSON+`},
			{"type":"tool_result","toolUseId":"1","structuredContent":[`+n+`],"content":[]}
		]}`)
		require.NoError(t, err)
		assert.Equal(t, mcp.Meta(open), result.Meta)
		assert.Equal(t, want, result.StructuredContent)
		text := result.Content[0].(*mcp.TextContent)
		assert.Equal(t, mcp.Meta(open), text.Meta)
		assert.Equal(t, 0.3, text.Annotations.Priority, "what has a type keeps it")
		assert.Equal(t, []byte{0, 1, 2}, result.Content[1].(*mcp.ImageContent).Data)
		assert.EqualValues(t, 9007199254740993, *result.Content[2].(*mcp.ResourceLink).Size)
		assert.Equal(t, mcp.Meta(open), result.Content[3].(*mcp.EmbeddedResource).Resource.Meta)
		assert.Equal(t, open, result.Content[4].(*mcp.ToolUseContent).Input)
		assert.Equal(t, []any{want}, result.Content[5].(*mcp.ToolResultContent).StructuredContent)
	})

	t.Run("in a request for input", func(t *testing.T) {
		result, err := callWith(t, `{"content":[],"resultType":"input_required","inputRequests":{
			"e":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"maximum":`+n+`}}},
			"s":{"method":"sampling/createMessage","params":{"maxTokens":1,"messages":[],"metadata":`+openJSON+`}}
		}}`)
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"maximum": want}, result.InputRequests["e"].(*mcp.ElicitParams).RequestedSchema)
		assert.Equal(t, open, result.InputRequests["s"].(*mcp.CreateMessageWithToolsParams).Metadata)
	})

	t.Run("in lists and what a server says of itself", func(t *testing.T) {
		h := newHarness(t, func(_, operation string, _ json.RawMessage) (string, error) {
			return map[string]string{
				mcpnexus.OperationListTools:     `{"tools":[{"name":"t","_meta":` + openJSON + `,"inputSchema":{"maximum":` + n + `},"outputSchema":{"const":` + n + `}}]}`,
				mcpnexus.OperationDiscover:      `{"capabilities":{"experimental":{"x":` + openJSON + `},"extensions":{"a/b":` + openJSON + `}},"protocolVersion":"2026-07-28"}`,
				mcpnexus.OperationReadResource:  `{"contents":[{"uri":"u","blob":"AAEC","_meta":` + openJSON + `}]}`,
				mcpnexus.OperationListResources: `{"resources":[{"name":"r","uri":"u","size":` + n + `,"_meta":` + openJSON + `}]}`,
			}[operation], nil
		})
		h.mustRun(func(ctx workflow.Context) error {
			c := caller.NewClient(endpoint, weather, caller.Options{})
			tools, err := c.ListTools(ctx, nil)
			if assert.NoError(t, err) {
				assert.Equal(t, mcp.Meta(open), tools.Tools[0].Meta)
				assert.Equal(t, map[string]any{"maximum": want}, tools.Tools[0].InputSchema)
				assert.Equal(t, map[string]any{"const": want}, tools.Tools[0].OutputSchema)
			}
			server, err := c.Discover(ctx, nil)
			if assert.NoError(t, err) {
				assert.Equal(t, map[string]any{"x": open}, server.Capabilities.Experimental)
				assert.Equal(t, map[string]any{"a/b": open}, server.Capabilities.Extensions)
			}
			read, err := c.ReadResource(ctx, &mcp.ReadResourceParams{URI: "u"})
			if assert.NoError(t, err) {
				assert.Equal(t, []byte{0, 1, 2}, read.Contents[0].Blob)
				assert.Equal(t, mcp.Meta(open), read.Contents[0].Meta)
			}
			resources, err := c.ListResources(ctx, nil)
			if assert.NoError(t, err) {
				assert.EqualValues(t, 9007199254740993, resources.Resources[0].Size)
				assert.Equal(t, mcp.Meta(open), resources.Resources[0].Meta)
			}
			return nil
		})
	})
}

// The strings with which a large number is kept on its way cannot be forged.
func TestAStringThatLooksLikeAMarkStaysAString(t *testing.T) {
	for _, s := range []string{"\x00nexusmcp:", "\x00nexusmcp:n1", "\x00nexusmcp:s", "\x00nexusmcp:sn1"} {
		quoted, err := json.Marshal(s)
		require.NoError(t, err)
		result, err := callWith(t, `{"content":[{"type":"text","text":`+string(quoted)+`}],"structuredContent":{"s":`+string(quoted)+`,"n":9007199254740993,"d":"9007199254740993 \\\" 9007199254740993"}}`)
		require.NoError(t, err)
		assert.Equal(t, map[string]any{"s": s, "n": json.Number("9007199254740993"), "d": `9007199254740993 \" 9007199254740993`}, result.StructuredContent)
		assert.Equal(t, s, result.Content[0].(*mcp.TextContent).Text)
	}
}

func TestAResultThatCannotBeReadIsAProtocolError(t *testing.T) {
	for _, c := range []struct{ name, answer, problem string }{
		{"null", `null`, "it is null, want a JSON object"},
		{"a list", ` [1]`, "it is [1], want a JSON object"},
		{"no JSON", `{"content":`, "unexpected end of JSON input"},
		{"nothing", ``, "unexpected end of JSON input"},
		{"a field of another type", `{"content":"sunny"}`, "json: cannot unmarshal"},
		{"an unknown content type", `{"content":[{"type":"smell"}]}`, `unrecognized content type "smell"`},
		{"a null among the content", `{"content":[null]}`, "nil content"},
		{"a null among the requests for input", `{"content":[],"inputRequests":{"q":null}}`, "nil pointer dereference"},
		{"with a large number", `{"content":"sunny","structuredContent":9007199254740993}`, "json: cannot unmarshal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := callWith(t, c.answer)
			assert.Nil(t, result)
			e, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
			assert.Contains(t, e.Message, `call-tool "get_weather" on service "weather": the result cannot be read: `)
			assert.Contains(t, e.Problem, c.problem)
			assert.True(t, e.NonRetryable)
			assert.Zero(t, e.Code)
		})
	}
}

// typed is a data converter that knows the type of what it converts, and so no
// RawValue, as some did before there was one.
type typed struct{ converter.DataConverter }

func (c typed) FromPayloads(payloads *commonpb.Payloads, into ...any) error {
	for i, payload := range payloads.GetPayloads() {
		if err := c.FromPayload(payload, into[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c typed) FromPayload(payload *commonpb.Payload, into any) error {
	if _, raw := into.(*converter.RawValue); raw {
		return errors.New("cannot convert to a RawValue")
	}
	return c.DataConverter.FromPayload(payload, into)
}

func TestAResultIsReadWithWhateverConverterAndEncoding(t *testing.T) {
	plain := converter.GetDefaultDataConverter()
	for name, dataConverter := range map[string]converter.DataConverter{
		"the default converter":                plain,
		"a codec":                              converter.NewCodecDataConverter(plain, converter.NewZlibCodec(converter.ZlibCodecOptions{AlwaysEncode: true})),
		"a converter that knows no raw values": typed{plain},
	} {
		for _, c := range []struct{ encoding, data, problem string }{
			{converter.MetadataEncodingJSON, `{"content":[{"type":"text","text":"sunny"}]}`, ""},
			{converter.MetadataEncodingBinary, `{"content":[{"type":"text","text":"sunny"}]}`, ""},
			{converter.MetadataEncodingJSON, `{"content":`, "unexpected end of JSON input"},
			{converter.MetadataEncodingBinary, `{"content":`, "unexpected end of JSON input"},
			{converter.MetadataEncodingJSON, ``, "unexpected end of JSON input"},
			{converter.MetadataEncodingJSON, `{}{}`, "invalid character '{' after top-level value"},
			{converter.MetadataEncodingNil, ``, "it is empty, want a JSON object"},
			{"acme/wood", `{}`, "encoding acme/wood"},
		} {
			t.Run(name+" "+c.encoding+" "+c.data, func(t *testing.T) {
				h := newMockHarness(t)
				h.SetDataConverter(dataConverter)
				service := nexus.NewService(weather)
				service.MustRegister(nexus.NewSyncOperation(mcpnexus.OperationCallTool, func(context.Context, json.RawMessage, nexus.StartOperationOptions) (converter.RawValue, error) {
					return converter.NewRawValue(&commonpb.Payload{
						Metadata: map[string][]byte{converter.MetadataEncoding: []byte(c.encoding)},
						Data:     []byte(c.data),
					}), nil
				}))
				h.RegisterNexusService(service)
				h.mustRun(func(ctx workflow.Context) error {
					result, err := caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
					if c.problem == "" {
						require.NoError(t, err)
						assert.Equal(t, "sunny", result.Content[0].(*mcp.TextContent).Text)
						return nil
					}
					e, ok := mcpnexus.ErrorFrom(err)
					require.True(t, ok, "%v", err)
					assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
					assert.Contains(t, e.Problem, c.problem)
					return nil
				})
			})
		}
	}
}

func TestAWorkflowThatReturnsTheErrorFailsWithItsType(t *testing.T) {
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) { return `null`, nil })
	err := h.run(func(ctx workflow.Context) error {
		_, err := caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "get_weather"})
		return err
	})
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	assert.Equal(t, string(mcpnexus.ErrorTypeProtocol), app.Type())
	assert.True(t, app.NonRetryable())
}
