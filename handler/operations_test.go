package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestEveryOperationReturnsWhatTheServerSentByteForByte(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		for _, c := range []struct{ operation, input, want string }{
			{mcpnexus.OperationGetPrompt, `{"name":"a"}`, `{"resultType":"complete","messages":[{"role":"user","content":{"type":"text","text":"hello"}}]}`},
			{mcpnexus.OperationReadResource, `{"uri":"rude://a"}`, `{"resultType":"complete","contents":[{"uri":"rude://a","text":"a"}],"ttlMs":60000,"cacheScope":"private"}`},
			{mcpnexus.OperationComplete, `{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"x","value":""}}`, `{"resultType":"complete","completion":{"values":["a","b"],"total":2}}`},
		} {
			got, err := p.do(t.Context(), "rude", c.operation, c.input)
			require.NoError(t, err, c.operation)
			assert.Equal(t, c.want, got, c.operation)
		}
	})
}

func TestAResultKeepsWhatGoTypesWouldLose(t *testing.T) {
	for name, result := range map[string]string{
		"an integer above 2^53":             `{"content":[],"structuredContent":{"id":9007199254740993,"big":18446744073709551615}}`,
		"the order of members":              `{"structuredContent":{"z":1,"a":2},"content":[]}`,
		"a field of a later protocol":       `{"content":[],"laterField":{"a":[1,2,3]}}`,
		"annotations, icons and _meta":      `{"content":[{"type":"text","text":"a","annotations":{"audience":["user"],"priority":0.5,"later":true},"_meta":{"x/y":[null]}}],"_meta":{"n":1e300}}`,
		"markup without escaping":           `{"content":[{"type":"text","text":"<b>&amp;</b>"}]}`,
		"every content type":                `{"content":[{"type":"text","text":"t"},{"type":"image","data":"AA==","mimeType":"image/png"},{"type":"audio","data":"AA==","mimeType":"audio/wav"},{"type":"resource_link","uri":"a:b","name":"n"},{"type":"resource","resource":{"uri":"a:b","blob":"AA=="}}]}`,
		"a question back (input required)":  `{"resultType":"input_required","inputRequests":{"q1":{"method":"elicitation/create","params":{"mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"opaque"}`,
		"a tool's own error":                `{"isError":true,"content":[{"type":"text","text":"no such city"}]}`,
		"a structured result that is false": `{"content":[],"structuredContent":false}`,
	} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
				p := publish(t, handler.Server{Name: "rude", Transport: transport})
				got, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"raw-result","arguments":{"result":%s}}`, result))
				require.NoError(t, err)
				assert.Equal(t, result, got)
			})
		})
	}
}

func TestTheServerReceivesTheParamsAsTheCallerWroteThem(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		_, err := p.doWith(t.Context(), "rude", mcpnexus.OperationCallTool,
			`{"name":"echo","arguments":{"id":9007199254740993},"laterField":[1],"_meta":{"acme/trace":"t","nexusmcp/options":{"execution":"inline"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/protocolVersion":"1999-01-01"}}`,
			nexus.StartOperationOptions{RequestID: "request-7", Header: nexus.Header{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "a=b"}})
		require.NoError(t, err)

		out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"stats"}`)
		require.NoError(t, err)
		var stats struct{ StructuredContent rude.Stats }
		require.NoError(t, json.Unmarshal([]byte(out), &stats))
		assert.JSONEq(t, `{
			"name": "echo",
			"arguments": {"id": 9007199254740993},
			"laterField": [1],
			"_meta": {
				"acme/trace": "t",
				"nexusmcp/idempotencyKey": "request-7",
				"progressToken":           "request-7",
				"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
				"tracestate": "a=b",
				"io.modelcontextprotocol/protocolVersion": "2026-07-28",
				"io.modelcontextprotocol/clientInfo": {"name": "nexusmcp", "title": "nexusmcp", "version": "`+handler.Version+`"},
				"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}
			}
		}`, string(stats.StructuredContent.Params))
		assert.Contains(t, string(stats.StructuredContent.Params), "9007199254740993")
	})
}

func TestDiscoverSaysWhatTheServerIs(t *testing.T) {
	t.Run("of a sessionless protocol version", func(t *testing.T) {
		eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			for _, input := range []string{"", "null", "{}", `{"_meta":{"nexusmcp/options":{"startToCloseTimeout":"5s"}}}`} {
				got, err := p.do(t.Context(), "rude", mcpnexus.OperationDiscover, input)
				require.NoError(t, err)
				assert.Equal(t, `{"capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{},"experimental":{"rude":{"since":9007199254740993}}},"instructions":"Expect anything.","protocolVersion":"2026-07-28","serverInfo":{"name":"rude","version":"1"}}`, got)
			}
		})
	})
	t.Run("of an older one", func(t *testing.T) {
		eachTransport(t, rude.Options{Legacy: true}, func(t *testing.T, transport handler.Transport) {
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			got, err := p.do(t.Context(), "rude", mcpnexus.OperationDiscover, "")
			require.NoError(t, err)
			assert.Equal(t, `{"capabilities":{"tools":{},"prompts":{},"resources":{},"completions":{}},"instructions":"Expect anything.","protocolVersion":"2025-11-25","serverInfo":{"name":"rude","version":"1"}}`, got)
		})
	})
}

func TestAListHasEveryPageAndMergesWhatIsSaidOfThem(t *testing.T) {
	for operation, field := range map[string]string{
		mcpnexus.OperationListTools:             "tools",
		mcpnexus.OperationListPrompts:           "prompts",
		mcpnexus.OperationListResources:         "resources",
		mcpnexus.OperationListResourceTemplates: "resourceTemplates",
	} {
		t.Run(operation, func(t *testing.T) {
			eachTransport(t, rude.Options{Pages: []int{2, 0, 3}}, func(t *testing.T, transport handler.Transport) {
				p := publish(t, handler.Server{Name: "rude", Transport: transport})
				out, err := p.do(t.Context(), "rude", operation, "")
				require.NoError(t, err)
				var got map[string]json.RawMessage
				require.NoError(t, json.Unmarshal([]byte(out), &got))
				var items []struct{ Name string }
				require.NoError(t, json.Unmarshal(got[field], &items))
				names := make([]string, len(items))
				for i, item := range items {
					names[i] = item.Name
				}
				assert.Equal(t, []string{"item-0-0", "item-0-1", "item-2-0", "item-2-1", "item-2-2"}, names)
				assert.NotContains(t, got, "nextCursor")
				assert.Equal(t, "8000", string(got["ttlMs"]), "the shortest")
				assert.Equal(t, `"private"`, string(got["cacheScope"]), "as soon as one page is")
				assert.JSONEq(t, `{"rude/page":2,"rude/page-0":true,"rude/page-1":true,"rude/page-2":true}`, string(got["_meta"]), "later pages win")
			})
		})
	}
}

func TestAListWithoutItemsIsAnEmptyList(t *testing.T) {
	eachTransport(t, rude.Options{Pages: []int{0}}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		out, err := p.do(t.Context(), "rude", mcpnexus.OperationListPrompts, "")
		require.NoError(t, err)
		assert.Contains(t, out, `"prompts":[]`)
	})
}

func TestAListThatDoesNotEndIsRefused(t *testing.T) {
	eachTransport(t, rude.Options{Pages: []int{1, 1, 1}, RepeatCursor: true}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
		e := contractError(t, err)
		assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
		assert.True(t, e.NonRetryable)
		assert.Contains(t, e.Problem, `cursor "page-1" came twice`)
		assert.Contains(t, e.Message, "rude: list-tools: ")
	})
}

func TestAnswersThatBreakTheProtocolFailOneCallWithTheReason(t *testing.T) {
	for name, c := range map[string]struct{ tool, arguments, problem string }{
		"an unknown content type":       {"raw-result", `{"result":{"content":[{"type":"hologram"}]}}`, "hologram"},
		"content of another type":       {"raw-result", `{"result":{"content":"text"}}`, "content"},
		"a result that is no object":    {"raw-result", `{"result":7}`, ""},
		"an input request that is null": {"raw-result", `{"result":{"resultType":"input_required","inputRequests":{"a":null}}}`, ""},
		"a null result":                 {"raw-result", `{"result":null}`, ""},
		"neither result nor error":      {"raw-message", `{"message":"{\"jsonrpc\":\"2.0\",\"id\":$ID}"}`, ""},
		"JSON that is cut off":          {"raw-message", `{"message":"{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"content\""}`, "not a JSON-RPC message"},
		"an error code in quotes":       {"raw-message", `{"message":"{\"jsonrpc\":\"2.0\",\"id\":$ID,\"error\":{\"code\":\"E1\",\"message\":\"m\"}}"}`, "not a JSON-RPC message"},
		"an error that is no object":    {"raw-message", `{"message":"{\"jsonrpc\":\"2.0\",\"id\":$ID,\"error\":\"bad\"}"}`, "not a JSON-RPC message"},
		"a JSON-RPC error with code 0":  {"error", `{"code":0}`, "code 0"},
	} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
				p := publish(t, handler.Server{Name: "rude", Transport: transport})
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":%q,"arguments":%s}`, c.tool, c.arguments))
				e := contractError(t, err)
				assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type, e.Message)
				assert.True(t, e.NonRetryable)
				assert.Zero(t, e.Code)
				assert.NotEmpty(t, e.Problem)
				assert.Contains(t, e.Problem, c.problem)

				_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
				require.NoError(t, err, "the connection is none the worse for it")
				out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"stats"}`)
				require.NoError(t, err)
				assert.Contains(t, out, `"handshakes":1,`)
			})
		})
	}
}

func TestAnAnswerWithAnotherIDIsNotTheAnswer(t *testing.T) {
	const input = `{"name":"raw-message","arguments":{"message":"{\"jsonrpc\":\"2.0\",\"id\":987654,\"result\":{\"content\":[]}}"},"_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.5s"}}}`
	for name, c := range map[string]struct {
		transport func(t *testing.T) handler.Transport
		want      mcpnexus.ErrorType
	}{
		// The body of a response can be nothing but its answer.
		"over HTTP":                    {func(t *testing.T) handler.Transport { _, h := rudeHTTP(t, rude.Options{}); return h }, mcpnexus.ErrorTypeProtocol},
		"over HTTP with event streams": {func(t *testing.T) handler.Transport { _, h := rudeHTTP(t, rude.Options{EventStream: true}); return h }, mcpnexus.ErrorTypeTransport},
		"over stdio":                   {func(t *testing.T) handler.Transport { return rudeStdio(t, rude.Options{}) }, mcpnexus.ErrorTypeTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, handler.Server{Name: "rude", Transport: c.transport(t)})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, input)
			e := contractError(t, err)
			assert.Equal(t, c.want, e.Type, e.Message)
			assert.Equal(t, c.want == mcpnexus.ErrorTypeProtocol, e.NonRetryable)
		})
	}
}

func TestOneBadAnswerFailsOneCall(t *testing.T) {
	body := func(status int, contentType, text string) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "$ID", id))
		}
	}
	const asJSON = "application/json"
	for name, c := range map[string]struct {
		answer    func(http.ResponseWriter, string)
		want      mcpnexus.ErrorType
		status    int
		code      int64
		retryable bool
		delay     time.Duration
	}{
		"an API gateway's refusal":                              {body(401, asJSON, `{"error":{"code":401,"message":"bad key"}}`), mcpnexus.ErrorTypeTransport, 401, 0, false, 0},
		"a JSON-RPC refusal without an ID":                      {body(401, asJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no"}}`), mcpnexus.ErrorTypeTransport, 401, 0, false, 0},
		"a limit on requests, in JSON-RPC":                      {body(429, asJSON, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32000,"message":"slow down"}}`), mcpnexus.ErrorTypeTransport, 429, 0, true, 7 * time.Second},
		"a JSON-RPC error with HTTP 400":                        {body(400, asJSON, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32602,"message":"no"}}`), mcpnexus.ErrorTypeProtocol, 0, -32602, false, 0},
		"a JSON-RPC error with 404, and no ID":                  {body(404, asJSON, `{"jsonrpc":"2.0","error":{"code":-32601,"message":"no"}}`), mcpnexus.ErrorTypeProtocol, 0, -32601, false, 0},
		"JSON that is no message":                               {body(200, asJSON, `{"status":"maintenance"}`), mcpnexus.ErrorTypeProtocol, 0, 0, false, 0},
		"a message without its version":                         {body(200, asJSON, `{"id":$ID,"result":{}}`), mcpnexus.ErrorTypeProtocol, 0, 0, false, 0},
		"an error without an ID":                                {body(200, asJSON, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}`), mcpnexus.ErrorTypeProtocol, 0, 0, false, 0},
		"an empty body":                                         {body(200, asJSON, ``), mcpnexus.ErrorTypeProtocol, 0, 0, false, 0},
		"a batch":                                               {body(200, asJSON, `[{"jsonrpc":"2.0","id":$ID,"result":{}}]`), mcpnexus.ErrorTypeProtocol, 0, 0, false, 0},
		"a notification as the body":                            {body(200, asJSON, `{"jsonrpc":"2.0","method":"a"}`), mcpnexus.ErrorTypeProtocol, 0, 0, false, 0},
		"an event that is no message":                           {body(200, "text/event-stream", "data: {\"status\":1}\n\n"), mcpnexus.ErrorTypeProtocol, 0, 0, false, 0},
		"a stream that ends":                                    {body(200, "text/event-stream", ": hello\n\n"), mcpnexus.ErrorTypeTransport, 0, 0, true, 0},
		"a stream with other lines":                             {body(200, "text/event-stream", "junk\n: comment\nevent: ping\ndata: {}\n\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":$ID,\"error\":{\"code\":-32603,\"message\":\"m\"}}\n\n"), mcpnexus.ErrorTypeProtocol, 0, -32603, true, 0},
		"a stream that breaks off and cannot be taken up again": {body(200, "text/event-stream", "id: 1\ndata:\n\n"), mcpnexus.ErrorTypeTransport, 0, 0, true, 0},
		"a stream whose ID no header can carry":                 {body(200, "text/event-stream", "id: a\x01b\ndata:\n\n"), mcpnexus.ErrorTypeTransport, 0, 0, true, 0},
		"a status with a Location that nobody follows": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "/mcp")
			w.WriteHeader(http.StatusMultipleChoices)
		}, mcpnexus.ErrorTypeTransport, 300, 0, true, 0},
		"a Location that cannot be read": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "/mcp%zz?key=hunter2")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, mcpnexus.ErrorTypeTransport, 307, 0, true, 0},
		"a refusal that is cut off": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Length", "5000")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "short")
		}, mcpnexus.ErrorTypeTransport, 401, 0, false, 0},
		"a redirect to a page": {func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "/login")
			w.WriteHeader(http.StatusFound)
		}, mcpnexus.ErrorTypeTransport, 302, 0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server, transport := rudeBut(t, "bad", func(w http.ResponseWriter, r *http.Request) { c.answer(w, requestID(r)) })
			transport.Endpoint += "/mcp?key=hunter2"
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			neighbour := make(chan error, 1)
			go func() {
				_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":200}}`)
				neighbour <- err
			}()
			require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 10*time.Second, time.Millisecond)
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"bad"}`)
			e := contractError(t, err)
			assert.Equal(t, c.want, e.Type, e.Message)
			assert.Equal(t, c.status, e.HTTPStatus)
			assert.Equal(t, c.code, e.Code)
			assert.Equal(t, c.retryable, !e.NonRetryable, e.Message)
			assert.Equal(t, c.delay, e.NextRetryDelay)
			assert.NotContains(t, e.Message, "hunter2")
			assert.NoError(t, <-neighbour)
		})
	}
}

func TestAnEventStreamIsReadInEveryFormThatTheStandardAllows(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete","content":[{"type":"text","text":"ok"}]}}`
	split := strings.Replace(answer, `,"id"`, ",\ndata:\"id\"", 1)
	for form, c := range map[string]struct {
		stream string
		open   bool // the stream stays open after it
	}{
		"lines that end with LF":                       {"event: message\ndata: " + answer + "\n\n", true},
		"lines that end with CR":                       {"event: message\rdata: " + answer + "\r\r", true},
		"lines that end with CR and LF":                {"event: message\r\ndata: " + answer + "\r\n\r\n", true},
		"lines that end each in another way":           {"event: message\rdata: " + answer + "\r\n\n", true},
		"a byte order mark":                            {"\ufeffdata: " + answer + "\n\n", true},
		"data without a space":                         {"data:" + answer + "\n\n", true},
		"data in two lines":                            {"data: " + split + "\n\n", true},
		"data in two lines that end with CR":           {strings.ReplaceAll("data: "+split+"\n\n", "\n", "\r"), true},
		"comments, empty events, fields of its own":    {": hello\n\n\n\nx: y\ndata: " + answer + "\n\n", true},
		"an event that the end cuts off after its end": {"data: " + answer + "\n", false},
		"a line that the end cuts off after its end":   {"data: " + answer, false},
	} {
		t.Run(form, func(t *testing.T) {
			_, transport := rudeBut(t, "stream", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, strings.ReplaceAll(c.stream, "$ID", requestID(r)))
				_ = http.NewResponseController(w).Flush()
				if c.open {
					<-r.Context().Done()
				}
			})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"stream"}`)
			require.NoError(t, err)
			assert.Contains(t, string(out), `"ok"`)
		})
	}
}

func TestAStreamThatIsTakenUpAndLeadsNowhereFailsOneCall(t *testing.T) {
	for name, stream := range map[string]string{
		"the same event each time": "id: 1\nretry: 1\ndata:\n\n",
		"no event":                 "",
	} {
		t.Run(name, func(t *testing.T) {
			server := rude.New(rude.Options{})
			listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				first := r.Header.Get("Mcp-Name") == "bad"
				if !first && r.Method != http.MethodGet {
					server.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				if first {
					_, _ = io.WriteString(w, "id: 1\nretry: 1\ndata:\n\n")
					return
				}
				_, _ = io.WriteString(w, stream)
			}))
			t.Cleanup(listener.Close)
			for transport, c := range map[string]handler.Transport{
				"of the package": handler.HTTP{Endpoint: listener.URL},
				"of a factory": handler.Factory(func(context.Context) (mcp.Transport, error) {
					return &mcp.StreamableClientTransport{Endpoint: listener.URL, DisableStandaloneSSE: true}, nil
				}),
			} {
				p := publish(t, handler.Server{Name: "rude", Transport: c})
				neighbour := make(chan error, 1)
				before := server.Stats()
				go func() {
					_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":500}}`)
					neighbour <- err
				}()
				require.Eventually(t, func() bool { return server.Stats().Calls["slow"] > before.Calls["slow"] }, 10*time.Second, time.Millisecond)
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"bad"}`)
				e := contractError(t, err)
				assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type, e.Message)
				assert.False(t, e.NonRetryable)
				assert.NoError(t, <-neighbour, transport)
			}
		})
	}
}

func TestAReplyThatTheServerNeverTakesEndsWithTheConnection(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		t.Run(fmt.Sprint("legacy ", legacy), func(t *testing.T) {
			server := rude.New(rude.Options{Legacy: legacy})
			var replies, held atomic.Int32
			listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				var message struct {
					ID     json.RawMessage `json:"id"`
					Method string          `json:"method"`
				}
				_ = json.Unmarshal(body, &message)
				switch {
				case message.Method == "tools/call":
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"asked-%s\",\"method\":\"ping\"}\n\n", message.ID)
					_ = http.NewResponseController(w).Flush()
					_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", message.ID)
				case message.Method == "" && message.ID != nil:
					replies.Add(1)
					held.Add(1)
					<-r.Context().Done()
					held.Add(-1)
				default:
					server.ServeHTTP(w, r)
				}
			}))
			t.Cleanup(listener.Close)
			p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
			for range 10 {
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"asks"}`)
				require.NoError(t, err)
			}
			// In a session of its own a reply may come too late to be sent.
			require.Eventually(t, func() bool { return replies.Load() == 10 || legacy && replies.Load() > 0 }, 10*time.Second, time.Millisecond)
			require.NoError(t, p.handler.Close(t.Context()))
			assert.Eventually(t, func() bool { return held.Load() == 0 }, 5*time.Second, time.Millisecond)
		})
	}
}

func TestAProcessThatDiesInTheHandshakeIsATransportError(t *testing.T) {
	const refused = `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found"}}`
	for range 50 {
		p := publish(t, handler.Server{Name: "dying", Transport: handler.Command{Path: "sh", Args: []string{"-c", "read -r line; echo '" + refused + "'; kill -9 $$"}}})
		_, err := p.do(t.Context(), "dying", mcpnexus.OperationListTools, "")
		e := contractError(t, err)
		require.Equal(t, mcpnexus.ErrorTypeTransport, e.Type, e.Message)
		require.False(t, e.NonRetryable)
	}
}

func TestWhatIsNotUTF8IsNotPassedOn(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"raw-result","arguments":{"result":{"content":[{"type":"text","text":"a`+"\xff"+`b"}]}}}`)
	var refused *nexus.HandlerError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
	assert.ErrorContains(t, err, "the input is not UTF-8")

	for name, answer := range map[string]string{
		"a result": `"result":{"content":[{"type":"text","text":"a` + "\xff" + `b"}]}`,
		"an error": `"error":{"code":-32603,"message":"a` + "\xff" + `b","data":"c` + "\xff" + `d"}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, transport := rudeBut(t, "bad", func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, requestID(r), answer)
			})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"bad"}`)
			e := contractError(t, err)
			assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
			assert.True(t, utf8.ValidString(e.Message))
			if name == "an error" {
				assert.Equal(t, "\"c\uFFFDd\"", string(e.Data))
				return
			}
			assert.Equal(t, "the result is not UTF-8", e.Problem)
			assert.True(t, e.NonRetryable)
		})
	}
}

func TestAnErrorTellsCallersNeitherWhereNorWhatTheServerIs(t *testing.T) {
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(tls.Close)
	// Its endpoint for messages is no URL.
	events := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: endpoint\ndata: /messages/%zz?sessionId=hunter2\n\n")
	}))
	t.Cleanup(events.Close)
	socket := filepath.Join(t.TempDir(), "internal.sock")
	closing, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { _ = closing.Close() })
	go func() {
		for {
			conn, err := closing.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	// What wraps a cause as text only.
	flatten := func(cause string) *http.Client {
		return &http.Client{Transport: failing("dialling: " + cause)}
	}
	for name, c := range map[string]struct {
		transport    handler.Transport
		told, logged string
		secret       []string
	}{
		"an HTTP server that is down":       {handler.HTTP{Endpoint: "http://user:hunter2@127.0.0.1:1/mcp?key=hunter2"}, "connection refused", "127.0.0.1:1", []string{"127.0.0.1", "hunter2"}},
		"a path that is a key":              {handler.HTTP{Endpoint: "http://127.0.0.1:1/hunter2"}, "connection refused", "127.0.0.1:1", []string{"127.0.0.1", "hunter2"}},
		"an SSE server that is down":        {handler.SSE{Endpoint: "http://user:hunter2@127.0.0.1:1/mcp?key=hunter2"}, "connection refused", "127.0.0.1:1", []string{"127.0.0.1", "hunter2"}},
		"a host without an address":         {handler.HTTP{Endpoint: "http://internal-db.invalid/hunter2"}, "lookup", "internal-db.invalid", []string{"internal-db", "hunter2"}},
		"a certificate of another":          {handler.HTTP{Endpoint: tls.URL + "/hunter2"}, "certificate", "certificate", []string{"127.0.0.1", "hunter2"}},
		"a program that is not there":       {handler.Command{Path: "no-such-program"}, "executable file not found", "no-such-program", []string{"no-such-program"}},
		"a path that is not there":          {handler.Command{Path: "/no/such/program"}, "no such file", "/no/such/program", []string{"/no/such"}},
		"a message endpoint that is no URL": {handler.SSE{Endpoint: events.URL}, "missing endpoint", "missing endpoint", []string{"/messages", "hunter2"}},
		"a socket in the file system": {handler.Factory(func(context.Context) (mcp.Transport, error) {
			conn, err := net.Dial("unix", socket)
			if err != nil {
				return nil, err
			}
			// Until the other side has closed it.
			_, _ = conn.Read(make([]byte, 1))
			return &mcp.IOTransport{Reader: conn, Writer: conn}, nil
		}), "", "", []string{"internal.sock", filepath.Dir(socket)}},
		"a socket, in words":                     {handler.HTTP{Endpoint: "http://x", Client: flatten("dial unix /run/internal/mcp.sock: connect: no such file")}, "dialling", "mcp.sock", []string{"/run/internal", "mcp.sock"}},
		"a certificate, in words":                {handler.HTTP{Endpoint: "http://x", Client: flatten("x509: certificate is valid for example.com, not db.internal")}, "another name", "db.internal", []string{"example.com", "internal"}},
		"an address, in words":                   {handler.HTTP{Endpoint: "http://x", Client: flatten("dial tcp [fd00::1]:8443: connect: refused")}, "refused", "fd00::1", []string{"fd00"}},
		"a host, in words":                       {handler.HTTP{Endpoint: "http://x", Client: flatten("no route to db.internal:5432 today")}, "no route", "db.internal", []string{"internal", "5432"}},
		"a certificate without a name, in words": {handler.HTTP{Endpoint: "http://x", Client: flatten("x509: cannot validate certificate for 10.9.8.7 because it has none")}, "another name", "10.9.8.7", []string{"10.9.8.7"}},
		"two errors in words": {handler.Factory(func(context.Context) (mcp.Transport, error) {
			return nil, errors.Join(errors.New("x509: certificate is valid for a.internal, not b"), errors.New("tell the platform team"))
		}), "tell the platform team", "a.internal", []string{"a.internal"}},
		"a factory's own words": {handler.Factory(func(context.Context) (mcp.Transport, error) {
			return nil, errors.New(`cannot parse "blue" as a region: "acme" and "globex" have no Location header`)
		}), `cannot parse "blue" as a region: "acme" and "globex" have no Location header`, "blue", nil},
		"words that only look so": {handler.Factory(func(context.Context) (mcp.Transport, error) {
			return nil, errors.New("tenant acme:42 is closed until 12:30, see line 3:14")
		}), "tenant acme:42 is closed until 12:30, see line 3:14", "12:30", nil},
		"a directory that is not": {handler.Command{Path: "sh", Dir: "/no/such/directory"}, "the working directory", "/no/such/directory", []string{"/no/such"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, handler.Server{Name: "secret", Transport: c.transport})
			_, err := p.do(t.Context(), "secret", mcpnexus.OperationListTools, "")
			e := contractError(t, err)
			assert.Contains(t, e.Message, c.told)
			for _, secret := range c.secret {
				assert.NotContains(t, e.Message, secret)
			}
			line := p.log.wait(t, func(line string) bool { return strings.Contains(line, "Opening a connection to an MCP server failed") })
			assert.Contains(t, line, c.logged, "the publisher must be able to find the mistake")
			assert.NotContains(t, line, "hunter2")
		})
	}
}

// failing is an HTTP transport that fails in the same words each time.
type failing string

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New(string(f)) }

// breakingTransport is a connection whose read fails when a call is under way.
type breakingTransport struct {
	mcp.Transport
	err error
}

func (t breakingTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	return &breakingConn{Connection: conn, err: t.err, called: make(chan struct{})}, err
}

type breakingConn struct {
	mcp.Connection
	err    error
	called chan struct{}
	reads  int
}

func (c *breakingConn) Write(ctx context.Context, message jsonrpc.Message) error {
	if req, ok := message.(*jsonrpc.Request); ok && req.Method == "tools/call" {
		close(c.called)
		return nil
	}
	return c.Connection.Write(ctx, message)
}

func (c *breakingConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	if c.reads++; c.reads > 1 {
		<-c.called
		return nil, c.err
	}
	return c.Connection.Read(ctx)
}

func TestATransportsOwnErrorIsAConnectionThatEnded(t *testing.T) {
	for _, c := range []struct {
		err  error
		want mcpnexus.ErrorType
	}{
		{io.EOF, mcpnexus.ErrorTypeTransport},
		{errors.New("websocket: close 1006 (abnormal closure): unexpected EOF"), mcpnexus.ErrorTypeTransport},
		{errors.New("ssh: disconnect, reason 2"), mcpnexus.ErrorTypeTransport},
		{errors.New("stream error: stream ID 3; INTERNAL_ERROR"), mcpnexus.ErrorTypeTransport},
		{fmt.Errorf("reading: %w", &json.SyntaxError{}), mcpnexus.ErrorTypeProtocol},
		{errors.New(`invalid message version tag ""; expected "2.0"`), mcpnexus.ErrorTypeProtocol},
		{&jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "invalid request"}, mcpnexus.ErrorTypeProtocol},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			p := publish(t, handler.Server{Name: "breaking", Transport: handler.Factory(func(context.Context) (mcp.Transport, error) {
				inside, outside := mcp.NewInMemoryTransports()
				_, err := newPatient(t.Context(), func() {}, func() {}).Connect(t.Context(), inside, nil)
				return breakingTransport{outside, c.err}, err
			})})
			_, err := p.do(t.Context(), "breaking", mcpnexus.OperationCallTool, `{"name":"wait"}`)
			e := contractError(t, err)
			assert.Equal(t, c.want, e.Type, e.Message)
			assert.Equal(t, c.want == mcpnexus.ErrorTypeProtocol, e.NonRetryable)
		})
	}
}

func TestARefusalForHeadersIsNotLostWhenTheToolsCannotBeListed(t *testing.T) {
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Mcp-Method") == "tools/list":
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		case r.Header.Get("Mcp-Name") == "strict":
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"Mcp-Param-Region is missing"}}`, requestID(r))
		default:
			server.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
	for range 2 {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"strict","_meta":{"nexusmcp/options":{"startToCloseTimeout":"1s"}}}`)
		e := contractError(t, err)
		assert.EqualValues(t, -32020, e.Code, e.Message)
		assert.True(t, e.NonRetryable)
	}
	assert.Equal(t, 1, server.Stats().Handshakes)

	// The list is still under way.
	stopped := time.Now()
	require.NoError(t, p.handler.Close(t.Context()))
	assert.Less(t, time.Since(stopped), 2*time.Second, "nobody waits for it any more")
}

func TestAnAnswerThatComesAsTimeRunsOutIsAnAnswerOrATimeout(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	for range 200 {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":20},"_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.020s"}}}`)
		if err != nil {
			e := contractError(t, err)
			assert.Contains(t, []mcpnexus.ErrorType{mcpnexus.ErrorTypeTimeout}, e.Type, e.Message)
			assert.False(t, e.NonRetryable)
		}
	}
}

func TestAHandshakeThatFailsAtItsEndIsReportedByItsStatus(t *testing.T) {
	server := rude.New(rude.Options{Legacy: true})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "notifications/initialized") {
			w.Header().Set("Retry-After", "5")
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
	e := contractError(t, err)
	assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type, e.Message)
	assert.Equal(t, 503, e.HTTPStatus)
	assert.False(t, e.NonRetryable)
	assert.Equal(t, 5*time.Second, e.NextRetryDelay)
}

func TestAnUnboundedProblemIsCut(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"raw-result","arguments":{"result":{"content":[{"type":%q}]}}}`, strings.Repeat("x", 1<<20)))
	e := contractError(t, err)
	assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
	assert.Less(t, len(e.Problem), 5000)
}

func TestATooLargeNotificationFailsNobody(t *testing.T) {
	p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{})})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	neighbour := make(chan error, 1)
	go func() {
		_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":1500}}`)
		neighbour <- err
	}()
	require.Eventually(t, func() bool { return stats(t, p).Calls["slow"] == 1 }, 10*time.Second, time.Millisecond)
	_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"huge-notification","arguments":{"bytes":20000000}}`)
	require.NoError(t, err)
	assert.NoError(t, <-neighbour)
}

func TestATooLargeAnswerIsRecognisedAlsoWhenItsIDStandsLast(t *testing.T) {
	p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{})})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"huge-id-last","arguments":{"bytes":20000000}}`)
	e := contractError(t, err)
	assert.Equal(t, mcpnexus.ErrorTypeResultTooLarge, e.Type, e.Message)
}

func TestAJSONRPCErrorArrivesWithItsCodeDataAndRetryability(t *testing.T) {
	for code, retryable := range map[int64]bool{
		-32700: false, -32600: false, -32601: false, -32602: false, -32020: false, -32021: false,
		-32022: false, -32042: false, -32002: false, -32603: true, -32000: true, -1: true, 42: true,
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
				p := publish(t, handler.Server{Name: "rude", Transport: transport})
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"error","arguments":{"code":%d,"message":"no","data":{"id":9007199254740993}}}`, code))
				e := contractError(t, err)
				assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type)
				assert.Equal(t, code, e.Code)
				assert.Equal(t, `{"id":9007199254740993}`, string(e.Data))
				assert.Equal(t, retryable, !e.NonRetryable)
				assert.Equal(t, fmt.Sprintf(`rude: call-tool "error": no (JSON-RPC error %d)`, code), e.Message)
			})
		})
	}
}

func TestErrorDataThatWouldNotFitIsLeftOutAndSaidSo(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"error","arguments":{"code":-32602,"message":%q,"data":%q}}`, strings.Repeat("m", 900<<10), strings.Repeat("d", 900<<10)))
		e := contractError(t, err)
		assert.Equal(t, int64(-32602), e.Code)
		assert.Nil(t, e.Data)
		assert.Less(t, len(e.Message), 5000)
	})
}

func TestAConnectionThatClosesMidAnswerIsARetryableTransportError(t *testing.T) {
	for _, tool := range []string{"close", "exit"} {
		eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":%q}`, tool))
			e := contractError(t, err)
			assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type, e.Message)
			assert.False(t, e.NonRetryable)

			_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err, "the next call gets a new connection")
		})
	}
}

func TestAnHTTPStatusArrivesWithItsRetryability(t *testing.T) {
	for _, c := range []struct {
		status     int
		retryAfter string
		retryable  bool
		delay      time.Duration
	}{
		{500, "", true, 0}, {502, "", true, 0}, {504, "", true, 0},
		{503, "7", true, 7 * time.Second}, {429, "120", true, 2 * time.Minute},
		{503, "soon", true, 0}, {429, "-5", true, 0}, {503, "99999999999", true, 24 * time.Hour},
		{503, "99999999999999999999999", true, 24 * time.Hour}, {429, "-9223372037", true, 0}, {429, "-99999999999999999999999", true, 0},
		{408, "", true, 0}, {425, "", true, 0},
		{400, "", false, 0}, {401, "", false, 0}, {403, "", false, 0}, {404, "", false, 0}, {410, "", false, 0},
	} {
		t.Run(fmt.Sprint(c.status, " ", c.retryAfter), func(t *testing.T) {
			_, transport := rudeHTTP(t, rude.Options{})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"status","arguments":{"status":%d,"retryAfter":%q}}`, c.status, c.retryAfter))
			e := contractError(t, err)
			assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type, e.Message)
			assert.Equal(t, c.status, e.HTTPStatus)
			assert.Equal(t, c.retryable, !e.NonRetryable)
			assert.Equal(t, c.delay, e.NextRetryDelay)

			_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err)
		})
	}
}

func TestARefusedCallDoesNotDisturbItsNeighbours(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 410, 500, 503} {
		server, transport := rudeHTTP(t, rude.Options{})
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		neighbour := make(chan error, 1)
		go func() {
			_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":300}}`)
			neighbour <- err
		}()
		require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 10*time.Second, time.Millisecond)
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"status","arguments":{"status":%d}}`, status))
		assert.Equal(t, status, contractError(t, err).HTTPStatus)
		assert.NoError(t, <-neighbour)
	}
}

func TestALostSessionIsRetryable(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{Legacy: true})
	p := publish(t, handler.Server{Name: "rude", Transport: transport, Stateless: true})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"status","arguments":{"status":404}}`)
	e := contractError(t, err)
	assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type)
	assert.Equal(t, http.StatusNotFound, e.HTTPStatus)
	assert.False(t, e.NonRetryable, "a new connection opens a new session")

	_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
}

func TestAnAnswerThatNamesTheRequestIsNoLostSession(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want mcpnexus.Error
		sent int64
	}{
		"the request's own ID":         {`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no such record"}}`, mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32002, NonRetryable: true}, 1},
		"no ID":                        {`{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"}}`, mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: 404}, 2},
		"an ID that says who it is of": {`{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`, mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: 404}, 2},
		"no message":                   {`session not found`, mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: 404}, 2},
	} {
		for _, stateless := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stateless %v", name, stateless), func(t *testing.T) {
				var sent atomic.Int64
				server := rude.New(rude.Options{Legacy: true})
				listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					r.Body = io.NopCloser(bytes.NewReader(body))
					if !bytes.Contains(body, []byte(`"echo"`)) {
						server.ServeHTTP(w, r)
						return
					}
					sent.Add(1)
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, strings.Replace(c.body, "%s", requestID(r), 1))
				}))
				t.Cleanup(listener.Close)
				p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}, Stateless: stateless})
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
				e := contractError(t, err)
				assert.Equal(t, c.want, mcpnexus.Error{Type: e.Type, Code: e.Code, HTTPStatus: e.HTTPStatus, NonRetryable: e.NonRetryable}, e.Message)
				assert.Equal(t, c.sent, sent.Load())
				// The session may be lost all the same: the next call has another.
				before := server.Stats().Handshakes
				_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":1}}`)
				assert.NoError(t, err)
				if stateless {
					assert.Equal(t, before+1, server.Stats().Handshakes)
				}
			})
		}
	}
}

func TestAResultOverTheLimitFailsOnce(t *testing.T) {
	for name, bytes := range map[string]int{"by a little": 100_001, "by far more than is worth reading": 40 << 20} {
		t.Run(name, func(t *testing.T) {
			eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
				p := publishWith(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, MaxResultBytes: 100_000})
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"huge","arguments":{"bytes":%d}}`, bytes))
				e := contractError(t, err)
				assert.Equal(t, mcpnexus.ErrorTypeResultTooLarge, e.Type, e.Message)
				assert.True(t, e.NonRetryable)
				assert.Equal(t, int64(100_000), e.Limit)
				assert.Greater(t, e.Size, int64(100_000))

				out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"stats"}`)
				require.NoError(t, err)
				assert.Contains(t, out, `"handshakes":1,"calls":{"huge":1`, "neither the call was repeated nor the connection lost")
			})
		})
	}
}

func TestAListOverTheLimitIsNotReadToItsEnd(t *testing.T) {
	eachTransport(t, rude.Options{Pages: []int{50_000, 50_000, 50_000, 1, 1, 1}}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationListResources, "")
		e := contractError(t, err)
		assert.Equal(t, mcpnexus.ErrorTypeResultTooLarge, e.Type, e.Message)
	})
}

func TestAToolThatTakesTooLongIsCancelledOnTheWire(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport, Stateless: true, IdleTimeout: handler.KeepOpen})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"silent","_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.3s"}}}`)
		e := contractError(t, err)
		assert.Equal(t, mcpnexus.ErrorTypeTimeout, e.Type, e.Message)
		assert.Equal(t, 300*time.Millisecond, e.Timeout)
		assert.False(t, e.NonRetryable)
		assert.Equal(t, `rude: call-tool "silent": no answer within 300ms`, e.Message)
	})
	t.Run("and the server hears of it", func(t *testing.T) {
		for _, options := range []rude.Options{{}, {EventStream: true}, {Legacy: true}} {
			server, transport := rudeHTTP(t, options)
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"silent","_meta":{"nexusmcp/options":{"scheduleToCloseTimeout":"0.3s"}}}`)
			require.Error(t, err)
			assert.Eventually(t, func() bool { return server.Stats().Cancelled == 1 }, 10*time.Second, time.Millisecond)
		}
	})
}

// A timeout also closes the connection, and so does a worker that stops. That must
// not overtake the word of the cancellation.
func TestNoToolKeepsRunningAfterItsCallWasCancelled(t *testing.T) {
	const calls = 40
	var began, cancelled atomic.Int32
	self, err := os.Executable()
	require.NoError(t, err)
	patient := func(t *testing.T, serve func(func(*http.Request) *mcp.Server) http.Handler) string {
		listener := httptest.NewServer(serve(func(*http.Request) *mcp.Server {
			return newPatient(t.Context(), func() { began.Add(1) }, func() { cancelled.Add(1) })
		}))
		t.Cleanup(listener.Close)
		return listener.URL
	}
	for name, transport := range map[string]func(t *testing.T) handler.Transport{
		"over HTTP with sessions": func(t *testing.T) handler.Transport {
			return handler.HTTP{Endpoint: patient(t, func(get func(*http.Request) *mcp.Server) http.Handler {
				return mcp.NewStreamableHTTPHandler(get, nil)
			})}
		},
		"over SSE": func(t *testing.T) handler.Transport {
			return handler.SSE{Endpoint: patient(t, func(get func(*http.Request) *mcp.Server) http.Handler { return mcp.NewSSEHandler(get, nil) })}
		},
		"in process": func(t *testing.T) handler.Transport {
			return handler.InProcess{Server: newPatient(t.Context(), func() { began.Add(1) }, func() { cancelled.Add(1) })}
		},
		"over stdio": func(t *testing.T) handler.Transport {
			return handler.Command{Path: self, Env: map[string]string{patientMain: "1"}}
		},
	} {
		runs := func(p *published) (int32, int32) {
			if name == "over stdio" {
				return p.log.count("the tool began"), p.log.count("the tool was cancelled")
			}
			return began.Load(), cancelled.Load()
		}
		allCancelled := func(t *testing.T, p *published) {
			assert.EventuallyWithT(t, func(c *assert.CollectT) {
				began, cancelled := runs(p)
				assert.Equal(c, began, cancelled)
				assert.NotZero(c, began)
			}, 10*time.Second, time.Millisecond)
		}
		t.Run(name+", by a timeout", func(t *testing.T) {
			began.Store(0)
			cancelled.Store(0)
			p := publish(t, handler.Server{Name: "patient", Transport: transport(t)})
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					_, err := p.do(t.Context(), "patient", mcpnexus.OperationCallTool, `{"name":"wait","_meta":{"nexusmcp/options":{"startToCloseTimeout":"1s"}}}`)
					assert.Equal(t, mcpnexus.ErrorTypeTimeout, contractError(t, err).Type)
				})
			}
			wg.Wait()
			allCancelled(t, p)
		})
		t.Run(name+", by the worker's end", func(t *testing.T) {
			began.Store(0)
			cancelled.Store(0)
			p := publishWith(t, handler.Options{DrainTimeout: 50 * time.Millisecond, Servers: []handler.Server{{Name: "patient", Transport: transport(t)}}})
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					_, err := p.do(context.Background(), "patient", mcpnexus.OperationCallTool, `{"name":"wait"}`)
					assert.Equal(t, mcpnexus.ErrorTypeTransport, contractError(t, err).Type)
				})
			}
			require.Eventually(t, func() bool { n, _ := runs(p); return n == calls }, 20*time.Second, time.Millisecond)
			require.NoError(t, p.handler.Close(t.Context()))
			wg.Wait()
			allCancelled(t, p)
		})
	}
}

// The handler lists the tools before the first call, for the headers' sake. That
// is its own affair.
func TestAToolListThatCannotBeHadDoesNotKeepToolsFromRunning(t *testing.T) {
	fail := func(status int, text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strings.ReplaceAll(text, "$ID", requestID(r)))
		}
	}
	for name, list := range map[string]func(http.ResponseWriter, *http.Request){
		"an error that a retry may mend":  fail(200, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32603,"message":"busy"}}`),
		"an error that no retry can mend": fail(200, `{"jsonrpc":"2.0","id":$ID,"error":{"code":-32601,"message":"no"}}`),
		"an HTTP status":                  fail(503, ``),
		"a connection that breaks":        func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		"no answer": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // the server notices that the client left only then
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lists atomic.Int32
			server, transport := rudeBut(t, "tools/list", func(w http.ResponseWriter, r *http.Request) {
				lists.Add(1)
				list(w, r)
			})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			for range 2 {
				var wg sync.WaitGroup
				for range 30 {
					wg.Go(func() {
						_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"startToCloseTimeout":"2s"}}}`)
						assert.NoError(t, err)
					})
				}
				wg.Wait()
			}
			assert.EqualValues(t, 1, lists.Load(), "all calls wait for the same list")
			assert.Equal(t, 1, server.Stats().Handshakes)
		})
	}
}

func TestTheHandlersDeadlineIsKept(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := p.do(ctx, "rude", mcpnexus.OperationCallTool, `{"name":"silent"}`)
		require.NoError(t, ctx.Err(), "it answered while there was time")
		e := contractError(t, err)
		assert.Equal(t, mcpnexus.ErrorTypeTimeout, e.Type)
		assert.Less(t, e.Timeout, 2*time.Second)
		assert.Contains(t, e.Message, "the time that the Nexus request had left")
	})
}

func TestACancelledRequestMakesNoOtherAttemptAndKeepsNobodyFromStopping(t *testing.T) {
	var attempts atomic.Int32
	_, transport := rudeBut(t, "tools/call", func(w http.ResponseWriter, _ *http.Request) {
		attempts.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	p := publishWith(t, handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}, DrainTimeout: 20 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error)
	go func() {
		_, err := p.do(ctx, "rude", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"retryPolicy":{"initialInterval":"15s"}}}}`)
		ended <- err
	}()
	require.Eventually(t, func() bool { return attempts.Load() == 1 }, 20*time.Second, time.Millisecond)
	cancel()
	assert.Contains(t, contractError(t, <-ended).Message, "cancelled")
	began := time.Now()
	require.NoError(t, p.handler.Close(t.Context()))
	assert.Less(t, time.Since(began), 10*time.Second)
	assert.EqualValues(t, 1, attempts.Load())
}

func TestWhoeverGivesUpOnACallLeavesTheConnectionInPlace(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{Legacy: true})
	p := publish(t, handler.Server{Name: "rude", Transport: transport, Stateless: true})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := p.do(ctx, "rude", mcpnexus.OperationCallTool, `{"name":"silent"}`)
		ended <- err
	}()
	require.Eventually(t, func() bool { return server.Stats().Calls["silent"] == 1 }, 20*time.Second, time.Millisecond)
	cancel()
	require.Error(t, <-ended)
	require.Eventually(t, func() bool { return server.Stats().Cancelled == 1 }, 20*time.Second, time.Millisecond)
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	assert.Equal(t, 1, server.Stats().Handshakes)
}

func TestNoiseBeforeAnAnswerDoesNotDisturbIt(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"noise","arguments":{"n":500}}`)
		require.NoError(t, err)
		assert.Contains(t, out, "sorry for the noise")
	})
}

func TestAMalformedRequestIsRefusedAtOnceByName(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	for _, c := range []struct{ name, operation, input, want string }{
		{"not an object", mcpnexus.OperationCallTool, `[1]`, "rude: call-tool: the input is not a JSON object"},
		{"no tool", mcpnexus.OperationCallTool, `{"arguments":{}}`, `rude: call-tool: the input has no "name"`},
		{"no input at all", mcpnexus.OperationCallTool, ``, `rude: call-tool: the input has no "name"`},
		{"a tool that is no string", mcpnexus.OperationCallTool, `{"name":7}`, `rude: call-tool: name: 7 is not a string`},
		{"a tool without a name", mcpnexus.OperationCallTool, `{"name":""}`, `rude: call-tool: name is empty`},
		{"arguments that are a text", mcpnexus.OperationCallTool, `{"name":"echo","arguments":"{\"secret\":1}"}`, `rude: call-tool "echo": arguments is not a JSON object`},
		{"arguments that are a list", mcpnexus.OperationCallTool, `{"name":"echo","arguments":[1]}`, `rude: call-tool "echo": arguments is not a JSON object`},
		{"a prompt's arguments that are a number", mcpnexus.OperationGetPrompt, `{"name":"p","arguments":1}`, `rude: get-prompt "p": arguments is not a JSON object`},
		{"a prompt's argument that is a number", mcpnexus.OperationGetPrompt, `{"name":"p","arguments":{"a":"b","n":7}}`, `rude: get-prompt "p": arguments: "n" is not a string`},
		{"a tool that is null", mcpnexus.OperationCallTool, `{"name":null}`, `rude: call-tool: the input has no "name"`},
		{"an empty URI", mcpnexus.OperationReadResource, `{"uri":""}`, `rude: read-resource: uri is empty`},
		{"no reference", mcpnexus.OperationComplete, `{"argument":{"name":"a","value":"b"}}`, `rude: complete: the input has no "ref"`},
		{"a reference that is null", mcpnexus.OperationComplete, `{"ref":null,"argument":{"name":"a","value":"b"}}`, `rude: complete: the input has no "ref"`},
		{"a reference that is a text", mcpnexus.OperationComplete, `{"ref":"p","argument":{"name":"a","value":"b"}}`, `rude: complete: ref is not a JSON object`},
		{"nothing to complete", mcpnexus.OperationComplete, `{"ref":{"type":"ref/prompt","name":"p"}}`, `rude: complete: the input has no "argument"`},
		{"no prompt", mcpnexus.OperationGetPrompt, `{}`, `rude: get-prompt: the input has no "name"`},
		{"no URI", mcpnexus.OperationReadResource, `{"url":"a:b"}`, `rude: read-resource: the input has no "uri"`},
		{"_meta that is no object", mcpnexus.OperationListTools, `{"_meta":"m"}`, "rude: list-tools: _meta is not a JSON object"},
		{"an unknown option", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"timeout":"1s"}}}`, `rude: call-tool "echo": _meta["nexusmcp/options"]: timeout: unknown field`},
		{"an argument for a factory that is not there", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"factoryArgument":"acme"}}}`, "factoryArgument: the server takes none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := p.do(t.Context(), "rude", c.operation, c.input)
			var refused *nexus.HandlerError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
			assert.False(t, refused.Retryable())
			assert.Contains(t, refused.Message, c.want)
			assert.NotContains(t, refused.Message, "secret")
		})
	}
	assert.Empty(t, server.Stats().Calls)
}

func TestDurableExecutionIsRefusedWhereThereIsNone(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"execution":"durable"}}}`)
	var refused *nexus.HandlerError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, nexus.HandlerErrorTypeNotImplemented, refused.Type)
	assert.False(t, refused.Retryable())
}

func TestAnErrorTypeThatTheCallerDoesNotWantRetriedIsNotRetryable(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"status","arguments":{"status":503},"_meta":{"nexusmcp/options":{"retryPolicy":{"nonRetryableErrorTypes":["MCPTransportError"]}}}}`)
	assert.True(t, contractError(t, err).NonRetryable)
}

func TestWhatAServerSendsUnaskedDoesNotEndTheWorker(t *testing.T) {
	for _, method := range []string{"notifications/elicitation/complete", "notifications/tools/list_changed", "notifications/progress", "notifications/cancelled", "notifications/resources/updated", "sampling/createMessage", "elicitation/create", "roots/list", "ping", "no/such/method"} {
		for _, rest := range []string{"", `,"params":null`, `,"params":{}`, `,"params":[]`, `,"id":77`, `,"id":77,"params":{}`} {
			message := fmt.Sprintf(`{"jsonrpc":"2.0","method":%q%s}`, method, rest)
			const answer = `{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}`
			_, events := rudeHTTP(t, rude.Options{EventStream: true})
			for separator, transport := range map[string]handler.Transport{"\n": rudeStdio(t, rude.Options{}), "\n\ndata: ": events} {
				p := publish(t, handler.Server{Name: "rude", Transport: transport})
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"raw-message","arguments":{"message":%q}}`, message+separator+answer))
				require.NoError(t, err, message)
			}
		}
	}
}

func TestALogLineOnStdoutDisturbsNobody(t *testing.T) {
	for _, line := range []string{
		`{"level":"info","id":null,"msg":"x"}`, `user {"id":null}`, `{"level":"info","id":true}`, `{"level":"info","id":1e400}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}`, `{"jsonrpc":"2.0","id":null,"result":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/x"} trailing`, `{"id":3,"level":"info","msg":"request started"}`, `handling {"id":3}`,
	} {
		p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{})})
		neighbours := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":200}}`)
				neighbours <- err
			}()
		}
		require.Eventually(t, func() bool { return stats(t, p).Calls["slow"] == 2 }, 10*time.Second, time.Millisecond)
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"raw-message","arguments":{"message":%q}}`, line+"\n"+`{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}`))
		assert.NoError(t, err, line)
		assert.NoError(t, <-neighbours, line)
		assert.NoError(t, <-neighbours, line)
	}
}

func TestAServerThatAsksAndDoesNotListenIsEndedAllTheSame(t *testing.T) {
	dir := t.TempDir()
	script := `read -r line; id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
printf '{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}}}}\n' "$id"
read -r line; id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
printf '{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}\n{"jsonrpc":"2.0","method":"notifications/elicitation/complete"}\n'
printf '{"jsonrpc":"2.0","id":%s,"result":{"prompts":[]}}\n' "$id"
pad=$(head -c 2000 /dev/zero | tr '\0' x)
i=0; while [ $i -lt 500 ]; do printf '{"jsonrpc":"2.0","id":"%s%s","method":"ping"}\n' "$pad" $i; i=$((i+1)); done
sleep 600`
	p := publish(t, handler.Server{Name: "rude", Transport: withPidFiles(t, handler.Command{Path: "sh", Args: []string{"-c", script}}, dir)})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListPrompts, "")
	require.NoError(t, err)
	require.NoError(t, p.handler.Close(t.Context()))
	assertAllEnd(t, dir)
}

func TestEveryMessageIsTextThatTemporalCanCarry(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport},
		handler.Server{Name: "factory", Transport: handler.ArgumentFactory(func(_ context.Context, argument json.RawMessage) (mcp.Transport, error) {
			return nil, fmt.Errorf("no tenant %s", argument)
		})},
		handler.Server{Name: "command", Transport: handler.Command{Path: "no\xff"}})
	for _, c := range []struct{ service, input string }{
		{"rude", "{\"name\":[\"\xff\xfe\"]}"},
		{"rude", "{\"name\":\"a\",\"_meta\":{\"nexusmcp/options\":{\"startToCloseTimeout\":\"\xff\"}}}"},
		{"rude", "{\"name\":\"a\",\"_meta\":{\"nexusmcp/options\":{\"retryPolicy\":{\"maximumAttempts\":\"\xff\"}}}}"},
		{"rude", "{\"name\":\"a\",\"_meta\":{\"nexusmcp/options\":{\"" + strings.Repeat("x", 1<<20) + "\":1}}}"},
		{"factory", "{\"name\":\"a\",\"_meta\":{\"nexusmcp/options\":{\"factoryArgument\":\"\xff\"}}}"},
		{"command", `{"name":"a"}`},
	} {
		_, err := p.do(t.Context(), c.service, mcpnexus.OperationCallTool, c.input)
		var text string
		if refused, ok := errors.AsType[*nexus.HandlerError](err); ok {
			text = refused.Message
		} else {
			text = contractError(t, err).Message
		}
		assert.True(t, utf8.ValidString(text), "%q", text)
		assert.Less(t, len(text), 5000)
	}
}

func TestANameThatNoHeaderCanCarryIsRefusedAtOnce(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	for _, operation := range []string{mcpnexus.OperationCallTool, mcpnexus.OperationGetPrompt, mcpnexus.OperationReadResource} {
		for _, name := range []string{`a\nb`, `a\r\nX-Evil: 1`, `\u0000`} {
			_, err := p.do(t.Context(), "rude", operation, `{"name":"`+name+`","uri":"`+name+`"}`)
			var refused *nexus.HandlerError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
			assert.Contains(t, refused.Message, "contains a control character")
		}
	}
	assert.Zero(t, server.Stats().Handshakes)
}

func TestAnEndlessListIsGivenUp(t *testing.T) {
	pages := make([]int, 5002)
	_, transport := rudeHTTP(t, rude.Options{Pages: pages})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListPrompts, "")
	e := contractError(t, err)
	assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type, e.Message)
	assert.Contains(t, e.Problem, "more than 5000 pages")
}

func TestABatchIsItsMessages(t *testing.T) {
	for _, text := range []string{
		`[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}},{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}]`,
		`[{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}]`,
	} {
		p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{})})
		for range 2 {
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"raw-message","arguments":{"message":%q}}`, text))
			require.NoError(t, err)
		}
		assert.Equal(t, 1, stats(t, p).Handshakes)
	}
}

func TestARefusedCancellationDisturbsNobody(t *testing.T) {
	server := rude.New(rude.Options{Legacy: true})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if strings.Contains(string(body), "notifications/cancelled") {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}, Stateless: true})
	neighbour := make(chan error, 1)
	go func() {
		_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":1000}}`)
		neighbour <- err
	}()
	require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 10*time.Second, time.Millisecond)
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"silent","_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.1s"}}}`)
	assert.Equal(t, mcpnexus.ErrorTypeTimeout, contractError(t, err).Type)
	assert.NoError(t, <-neighbour)
}
