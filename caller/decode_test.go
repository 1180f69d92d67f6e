package caller

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oddResults are answers in forms that nobody writes, and some that are none.
var oddResults = []string{
	`{}`,
	" \r\n\t{ \"content\" : [ ] } \n",
	`{"content":[{"type":"text","text":"sunny"}],"structuredContent":{"celsius":21.5},"isError":true,"resultType":"complete"}`,
	`{"content":[{"type":"text","text":"one"}],"content":[{"type":"text","text":"two"}]}`,
	`{"Content":[{"type":"text","text":"another case"}],"CONTENT":null}`,
	`{"content":null,"structuredContent":null,"_meta":null,"isError":null}`,
	`{"content":[{"type":"text","text":"\u003c\ud83d\ude00\ud800\u0000\/"}],"acme":{"unknown":[1,{"a":[]}]}}`,
	"{\"content\":[{\"type\":\"text\",\"text\":\"\xff\xfe\"}]}",
	"{\"content\":[{\"type\":\"text\",\"text\":\"\x00\"}]}",
	`{"structuredContent":` + strings.Repeat("[", 2_000) + strings.Repeat("]", 2_000) + `}`,
	`{"structuredContent":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`,
	`{"content":"sunny"}`,
	`{"content":[null]}`,
	`{"content":[{"type":"smell"}]}`,
	`{"content":[{"type":"image","data":"not base64"}]}`,
	`{"content":[]}{"content":[]}`,
	`{"content":[]},`,
	`{"content":[]`,
	`{"content":[],}`,
	`{"structuredContent":{"n":9007199254740993}}x`,
	`{"structuredContent":01}`,
	"{\"content\":[]}\f",
	"\u00a0{\"content\":[]}",
	`{"structuredContent":NaN}`,
	`{'content':[]}`,
	`{"messages":[{"role":"user","content":{"type":"text","text":"Hello"}}]}`,
	`{"contents":[{"uri":"file:///readme","text":"Hello"}]}`,
	`{"tools":[{"name":"t","inputSchema":{"type":"object"}}],"Tools":[],"ttlMs":5}`,
}

// Results that decode themselves do so without encoding/json, which must not be
// seen.
func FuzzAResultIsWhatEncodingJSONMakesOfIt(f *testing.F) {
	for _, answer := range oddResults {
		f.Add(answer)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		sameAsEncodingJSON[*mcp.CallToolResult](t, answer)
		sameAsEncodingJSON[*mcp.GetPromptResult](t, answer)
		sameAsEncodingJSON[*mcp.ReadResourceResult](t, answer)
		sameAsEncodingJSON[*mcp.ListToolsResult](t, answer)
	})
}

func sameAsEncodingJSON[Result any](t *testing.T, answer string) {
	t.Helper()
	raw := json.RawMessage(answer)
	if trimmed := strings.TrimSpace(answer); trimmed == "" || trimmed[0] != '{' {
		return // refused before
	}
	var want Result
	wantErr := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = assert.AnError
			}
		}()
		return json.Unmarshal(raw, &want)
	}()
	got, err := decode[Result](raw)
	if wantErr != nil {
		require.Error(t, err)
		if wantErr != assert.AnError && !hasInexactNumber(raw) {
			require.Equal(t, wantErr.Error(), err.Error())
		}
		return
	}
	require.NoError(t, err)
	if !hasInexactNumber(raw) {
		require.Equal(t, want, got)
	}
	require.Equal(t, answer, string(raw), "the answer is read more than once")
}
