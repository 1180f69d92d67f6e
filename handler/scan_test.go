package handler

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func nested(depth int) string {
	return strings.Repeat(`{"a":[`, depth/2) + strings.Repeat(`]}`, depth/2)
}

// oddAnswers are messages that are not a result, or one of an unusual form.
var oddAnswers = []string{
	``, ` `, `null`, `[]`, `{}`, `{ }`, `"x"`, `{"jsonrpc":"2.0"}`,
	`{"jsonrpc":"2.0","id":1,"result":{}}x`, `{"jsonrpc":"2.0","id":1,"result":{}} {}`, `{"jsonrpc":"2.0","id":1,"result":{}`,
	`{"jsonrpc":"2.0","id":1,"result":{},}`, `{"jsonrpc":"2.0" "id":1,"result":{}}`, `{"jsonrpc":"2.0","id":01,"result":{}}`,
	`{"jsonrpc":"1.0","id":1,"result":{}}`, `{"jsonrpc":"2.0 ","id":1,"result":{}}`, `{"jsonrpc":2.0,"id":1,"result":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":{},"id":2}`, `{"jsonrpc":"2.0","id":1,"result":{},"result":{"a":1}}`, `{"jsonrpc":"2.0","id":1,"jsonrpc":"1.0","result":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":{},"Result":{"a":1}}`, `{"jsonrpc":"2.0","ID":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"Result":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":{},"r\u0065sult":{"a":1}}`, `{"jsonrpc":"2.0","\u0069d":1,"result":{}}`, `{"jsonrpc":"\u0032.0","id":1,"result":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}`, `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`,
	`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{"result":{}}}}`, `{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}`,
	`{"jsonrpc":"2.0","id":1,"method":"m","params":{"result":{}}}`, `{"jsonrpc":"2.0","id":1,"method":"","result":{}}`, `{"jsonrpc":"2.0","id":1,"method":null,"result":{}}`,
	`{"jsonrpc":"2.0","method":"m"}`, `{"jsonrpc":"2.0","id":1,"params":{},"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{},"extra":1}`, `{"jsonrpc":"2.0","id":1,"result":{},"":1}`,
	`{"jsonrpc":"2.0","id":"1","result":{}}`, `{"jsonrpc":"2.0","id":"","result":{}}`, `{"jsonrpc":"2.0","id":null,"result":{}}`, `{"jsonrpc":"2.0","id":{},"result":{}}`,
	`{"jsonrpc":"2.0","id":-1,"result":{}}`, `{"jsonrpc":"2.0","id":1.0,"result":{}}`, `{"jsonrpc":"2.0","id":1e2,"result":{}}`, `{"jsonrpc":"2.0","id":1.5,"result":{}}`, `{"jsonrpc":"2.0","id":-0,"result":{}}`,
	`{"jsonrpc":"2.0","id":1234567890123456,"result":{}}`, `{"jsonrpc":"2.0","id":99999999999999999999,"result":{}}`, `{"jsonrpc":"2.0","id":1e400,"result":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":null}`, `{"jsonrpc":"2.0","id":1,"result":[]}`, `{"jsonrpc":"2.0","id":1,"result":"{"}`, `{"jsonrpc":"2.0","id":1,"result":7}`, `{"jsonrpc":"2.0","id":1}`,
	`{"jsonrpc":"2.0","id":1,"result":` + nested(900) + `}`, `{"jsonrpc":"2.0","id":1,"result":` + nested(1002) + `}`, `{"jsonrpc":"2.0","id":1,"result":` + nested(20000) + `}`,
	"\ufeff" + `{"jsonrpc":"2.0","id":1,"result":{}}`, "\v" + `{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":` + "\"\x01\"}}",
	`{"jsonrpc":"2.0","id":1,"result":{"a":"\x"}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"\u12"}}`,
}

// plainAnswers are those that are read without the SDK.
var plainAnswers = []string{
	`{"jsonrpc":"2.0","id":0,"result":{}}`, `{"jsonrpc":"2.0","id":123456789012345,"result":{}}`,
	`{"jsonrpc":"2.0","id":1,"result":` + nested(400) + `}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"\ud800"}}`,
	`{"jsonrpc":"2.0","id":1,"result":{}}`, ` { "result" : { "a" : [ 1 , 2 ] } , "id" : 17 , "jsonrpc" : "2.0" } `, "\t{\r\n\"id\":\t1\n,\"jsonrpc\"\r:\"2.0\",\"result\":{}\r\n}\n",
	`{"jsonrpc":"2.0","id":1,"result":{"id":2,"jsonrpc":"1.0","result":{},"method":"m","error":{}}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"a":"}","b":"\"}","c":"\\","d":"\\\"],","\\":{"\"":[[],{}]}}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"a":9007199254740993,"b":1e400,"c":-0.0,"a":1,"<&>":"\u2028"}}`,
	`{"jsonrpc":"2.0","id":1,"result":{"a":` + "\"\xff\xc0\"}}", `{"jsonrpc":"2.0","id":1,"result":{"` + "\u2028\xff" + `":true}}`,
}

func TestAnAnswerIsReadAsTheSDKReadsIt(t *testing.T) {
	for _, message := range oddAnswers {
		assert.False(t, readsAsTheSDK(t, []byte(message)), "the SDK is to read %q", message)
	}
	for _, message := range plainAnswers {
		assert.True(t, readsAsTheSDK(t, []byte(message)), "the SDK is not needed for %q", message)
	}
}

func FuzzAnAnswerIsReadAsTheSDKReadsIt(f *testing.F) {
	for _, message := range slices.Concat(oddAnswers, plainAnswers) {
		f.Add([]byte(message))
	}
	f.Fuzz(func(t *testing.T, message []byte) { readsAsTheSDK(t, message) })
}

// readsAsTheSDK reports whether the message is one that [scanResult] reads.
func readsAsTheSDK(t *testing.T, message []byte) bool {
	t.Helper()
	if !json.Valid(message) {
		return false
	}
	got := scanResult(message)
	if got == nil {
		return false
	}
	decoded, err := jsonrpc.DecodeMessage(message)
	require.NoError(t, err, "%q", message)
	response, ok := decoded.(*jsonrpc.Response)
	require.True(t, ok, "%q", message)
	require.Equal(t, newAnswer(response), got, "%q", message)
	return true
}

func TestTheIDOfARequestIsTheSameWhereverItStands(t *testing.T) {
	leading := 0
	for _, test := range []struct {
		body, id string
		call     bool
	}{
		{`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"id":8,"method":"m"}}`, "7", true},
		{`{"jsonrpc":"2.0","id":123456789012345,"method":"m"}`, "123456789012345", true},
		{`{"jsonrpc":"2.0","id":7,"method":"m","id":8}`, "7", true},
		{`{"jsonrpc":"2.0","id":7,"method":""}`, "7", true},
		{`{"jsonrpc":"2.0","id":1234567890123456789,"method":"m"}`, "1234567890123456789", true},
		{`{"jsonrpc":"2.0","id":"a,\"method\":","method":"m"}`, `"a,\"method\":"`, true},
		{`{"jsonrpc":"2.0","id":-7,"method":"m"}`, "-7", true},
		{`{"jsonrpc":"2.0","id":7 ,"method":"m"}`, "7", true},
		{`{"jsonrpc":"2.0","id":7,"params":{},"method":"m"}`, "7", true},
		{`{"method":"m","params":{"a":"` + strings.Repeat("x", 1000) + `"},"id":7,"jsonrpc":"2.0"}`, "7", true},
		{` {"jsonrpc":"2.0","\u0069d":7,"method":"m"}`, "7", true},
		{`{"jsonrpc":"2.0","id":7,"result":{"method":"m"}}`, "", false},
		{`{"jsonrpc":"2.0","method":"m","params":{"id":7}}`, "", false},
		{`[{"jsonrpc":"2.0","id":7,"method":"m"}]`, "", false},
		{`{"jsonrpc":"2.0","id":7`, "", false},
		{``, "", false},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://localhost", strings.NewReader(test.body))
		require.NoError(t, err)
		id, call := requestID(req)
		assert.Equal(t, test.call, call, test.body)
		decoded, _ := decodeID(strings.NewReader(test.body))
		if test.call {
			assert.Equal(t, test.id, id, test.body)
			assert.Equal(t, test.id, decoded, test.body)
		}
		if _, ok := leadingID([]byte(test.body)); ok {
			leading++
		}
	}
	assert.Equal(t, 4, leading)
}

func TestAnObjectIsJoinedAsItIsEncoded(t *testing.T) {
	for _, text := range append(slices.Concat(oddAnswers, plainAnswers),
		`{"a":1}`, `{"b":1,"a":{"c":[1e400,9007199254740993]}}`, `{"<&>":"<&>","\u2028":"\u2028","\"\\\n\u0000\u007f":null}`, `{"ü":1,"\ud800":2}`, "{\"\xff\":\"\xff\"}",
	) {
		var o object
		if json.Unmarshal([]byte(text), &o) != nil || o == nil {
			continue
		}
		var compact bytes.Buffer
		require.NoError(t, json.Compact(&compact, o.join()), "%q", text)
		assert.Equal(t, string(encode(map[string]json.RawMessage(o))), compact.String(), "%q", text)
	}
}

func TestAnObjectIsScannedAsItIsDecoded(t *testing.T) {
	scanned := 0
	for _, text := range append(slices.Concat(oddAnswers, plainAnswers),
		`{"a":1,"b":2,"a":3}`, `{"a.b/c":{"d":[1,{"e":"}"}]},"":null}`, `{ "a" : "\"," , "b":[ ] }`, `{"a":1e400,"b":9007199254740993}`,
		`{"\u0061":1}`, `{"ü":1}`, `{"a\"":1}`, "{\"\xff\":1}",
	) {
		if !json.Valid([]byte(text)) {
			continue
		}
		got := scanObject(json.RawMessage(text))
		if got == nil {
			continue
		}
		scanned++
		var want object
		require.NoError(t, json.Unmarshal([]byte(text), &want), "%q", text)
		assert.Equal(t, want, got, "%q", text)
	}
	assert.Greater(t, scanned, 40)
}

func TestAStringIsEncodedAsTheEncoderDoes(t *testing.T) {
	for _, text := range []string{"", "a b~", `"`, `\`, "<&>'/", "\x00\x1f", "\x7f", "\n\t", "ü", "\u2028", "\xff", "\ufffd"} {
		type other string // which encode has no way of its own for
		assert.Equal(t, string(encode(other(text))), string(encode(text)), "%q", text)
	}
}

func TestOnlyToolsWhoseParamsTravelInHeadersAreShownToTheSDK(t *testing.T) {
	for schema, want := range map[string]bool{
		`{"type":"object"}`: false, `null`: false, `true`: false, `[1,"x-mcp-header"]`: false, `{"a":"x-mcp-header"}`: false,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`:                         true,
		`{"properties":{"a":{"properties":{"b":{"type":"string","x-mcp-\u0068eader":1}}}}}`: true,
		`{"allOf":[{"properties":{"a":{"x-mcp-header":null}}}]}`:                            true,
	} {
		var tool mcp.Tool
		require.NoError(t, json.Unmarshal([]byte(`{"name":"a","inputSchema":`+schema+`}`), &tool))
		assert.Equal(t, want, hasKey(tool.InputSchema, "x-mcp-header"), schema)
	}
}
