package caller_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
)

func TestASummaryIsOneShortLine(t *testing.T) {
	for _, c := range []struct{ name, tool, want string }{
		{"a name", "get_weather", "get_weather"},
		{"a blank name", " ", ""},
		{"several lines", "get\r\n\tweather\u2028now", "get weather now"},
		{"control characters", "\x1b[31mred\x00\x7f", "[31mred"},
		{"text that runs backwards", "safe\u202egnp.exe", "safe gnp.exe"},
		{"bytes that are no text", "a\xff\xfeb", "a b"},
		{"another script", "天気", "天気"},
		{"a long name", strings.Repeat("a", 500), strings.Repeat("a", 195) + "…"},
		{"a long name in another script", strings.Repeat("天", 500), strings.Repeat("天", 65) + "…"},
		{"a long name that JSON makes longer", strings.Repeat("<", 500), strings.Repeat("<", 32) + "…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.mustRun(func(ctx workflow.Context) error {
				_, err := caller.NewClient(endpoint, weather, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: c.tool})
				return err
			})
			got := h.calls[0].options.Summary
			assert.Equal(t, c.want, got)
			assert.True(t, utf8.ValidString(got))
			payload, err := converter.GetDefaultDataConverter().ToPayload(got)
			require.NoError(t, err)
			assert.Less(t, payload.Size(), 300, "the server's limit is 400")

			var sent mcp.CallToolParams
			require.NoError(t, json.Unmarshal([]byte(h.calls[0].input), &sent))
			assert.Equal(t, strings.ToValidUTF8(c.tool, "\ufffd\ufffd"), sent.Name, "the tool's name is sent whole")
		})
	}
}

func TestASummaryOfACompletionNamesTheArgumentAndNotItsValue(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		_, err := caller.NewClient(endpoint, weather, caller.Options{}).Complete(ctx, &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/resource", URI: "file:///{path}"},
			Argument: mcp.CompleteParamsArgument{Name: "path", Value: "secret"},
		})
		return err
	})
	assert.Equal(t, "file:///{path} path", h.calls[0].options.Summary)
}
