package nexus_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestAnErrorInABatchIsWhatItIsAsTheEndOfAnOperation(t *testing.T) {
	for _, row := range everyRow {
		t.Run(row.name, func(t *testing.T) {
			want := mcpnexus.NewError(row.err)
			for name, value := range map[string]any{"by reference": want, "by value": *want} {
				data, err := json.Marshal(value)
				require.NoError(t, err)
				var back mcpnexus.Error
				require.NoError(t, json.Unmarshal(data, &back), name)
				assert.Equal(t, want, &back, name)

				var form struct{ Details []json.RawMessage }
				require.NoError(t, json.Unmarshal(data, &form))
				failure := temporal.GetDefaultFailureConverter().ErrorToFailure(want.ApplicationError())
				var details []string
				for _, payload := range failure.GetApplicationFailureInfo().GetDetails().GetPayloads() {
					details = append(details, string(payload.GetData()))
				}
				require.Len(t, form.Details, len(details), name)
				for i, detail := range details {
					assert.JSONEq(t, detail, string(form.Details[i]), name)
				}
			}
		})
	}
}

func TestTheResultOfABatchHasTheJSONFormOfTheContract(t *testing.T) {
	data, err := json.Marshal(mcpnexus.CallToolsResult{Results: []mcpnexus.CallToolsOutcome{
		{Result: &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "sunny"}}}},
		{Error: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "away", HTTPStatus: 503, NextRetryDelay: 5 * time.Second})},
		{Error: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Message: "no such city", Code: -32602, Data: json.RawMessage(`{"id":9007199254740993}`)})},
		{Error: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: "m"})},
	}})
	require.NoError(t, err)
	assert.Equal(t, `{"results":[`+
		`{"result":{"content":[{"type":"text","text":"sunny"}]}},`+
		`{"error":{"type":"MCPTransportError","message":"away","details":[503],"nextRetryDelay":"5s"}},`+
		`{"error":{"type":"MCPProtocolError","message":"no such city","details":[-32602,{"id":9007199254740993}],"nonRetryable":true}},`+
		`{"error":{"type":"MCPOutcomeUnknown","message":"m","nonRetryable":true}}]}`, string(data))
	var back mcpnexus.CallToolsResult
	require.NoError(t, json.Unmarshal(data, &back))
	again, err := json.Marshal(back)
	require.NoError(t, err)
	assert.Equal(t, string(data), string(again))
}

func TestTheParamsOfABatchHaveTheJSONFormOfTheContract(t *testing.T) {
	data, err := json.Marshal(mcpnexus.CallToolsParams{
		Meta:  mcp.Meta{mcpnexus.MetaKeyOptions: mcpnexus.RequestOptions{StartToCloseTimeout: 5 * time.Second}},
		Calls: []*mcp.CallToolParams{{Name: "get_weather", Arguments: map[string]any{"city": "Oslo"}}, {Name: "get_tides", Meta: mcp.Meta{"acme/trace": "t"}}},
	})
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"_meta": {"nexusmcp/options": {"startToCloseTimeout": "5s"}},
		"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}, {"name": "get_tides", "_meta": {"acme/trace": "t"}}]
	}`, string(data))
}

// An error of whatever form, from another implementation of the contract, is
// refused or read, and what was read is passed on as it is.
func FuzzAnErrorInABatch(f *testing.F) {
	for _, row := range everyRow {
		data, err := json.Marshal(mcpnexus.NewError(row.err))
		require.NoError(f, err)
		f.Add(string(data))
	}
	for _, data := range []string{
		`null`, `{}`, `7`, `{"type":7}`, `{"details":{}}`, `{"type":"MCPProtocolError","details":[0,{"a":[ 1 ]}]}`, `{"type":"MCPTimeoutError","details":["soon"],"nextRetryDelay":"-5s"}`,
		`{"type":"MCPResultTooLarge","details":[1e99,null]}`, `{"type":"MCPOfALaterVersion","details":[1]}`, `{"type":"MCPProtocolError","details":[-32602,null]}`,
		`{"nextRetryDelay":"315576000000s"}`, `{"type":"MCPDenied","message":"\ud800","details":["<\u2028>"]}`,
	} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data string) {
		var read mcpnexus.Error
		if json.Unmarshal([]byte(data), &read) != nil {
			return
		}
		assert.GreaterOrEqual(t, read.NextRetryDelay, time.Duration(0))
		// What is not of the contract's form is gone after the first time.
		for range 2 {
			written, err := json.Marshal(read)
			require.NoError(t, err)
			var again mcpnexus.Error
			require.NoError(t, json.Unmarshal(written, &again), string(written))
			rewritten, err := json.Marshal(again)
			require.NoError(t, err)
			require.Equal(t, string(written), string(rewritten))
			read = again
		}
		if e, ok := mcpnexus.ErrorFrom(overTheWire(t, read.ApplicationError())); ok {
			assert.Equal(t, read.Type, e.Type)
			assert.Equal(t, read.Message, e.Message)
			assert.Equal(t, read.Code, e.Code)
			assert.Equal(t, read.Timeout, e.Timeout)
			assert.Equal(t, read.NonRetryable, e.NonRetryable)
			assert.Equal(t, read.NextRetryDelay, e.NextRetryDelay)
			assert.Equal(t, mcpnexus.Retryable(read.ApplicationError()), !e.NonRetryable)
		}
	})
}
