package handler_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A posted is what a server got of a call.
type posted struct {
	header http.Header
	body   struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params"`
	}
}

func TestARequestOverHTTPCarriesItsParamsAndTheHeadersThatRepeatThem(t *testing.T) {
	for version, modern := range map[string]bool{"": true, "2025-11-25": false} {
		for _, c := range []struct{ operation, input, method, name string }{
			{mcpnexus.OperationCallTool, `{"name":"echo","arguments":{"big":9007199254740993,"text":"<&> \u2028 } {","spaced": [ 1 , 2 ]}}`, "tools/call", "echo"},
			{mcpnexus.OperationCallTool, `{"name":"g\u0072\u00fc\u00df","arguments":{}}`, "tools/call", "grüß"},
			{mcpnexus.OperationGetPrompt, `{"name":"hello","arguments":{"a":"b"}}`, "prompts/get", "hello"},
			{mcpnexus.OperationReadResource, `{"uri":"rude://x?a=b&c"}`, "resources/read", "rude://x?a=b&c"},
			{mcpnexus.OperationListPrompts, `{}`, "prompts/list", ""},
			{mcpnexus.OperationComplete, `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}}`, "completion/complete", ""},
		} {
			t.Run(fmt.Sprintf("%s %s %s", version, c.method, c.name), func(t *testing.T) {
				requests := make(chan posted, 20)
				server := rude.New(rude.Options{})
				listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got := posted{header: r.Header.Clone()}
					body, err := io.ReadAll(r.Body)
					if err == nil && json.Unmarshal(body, &got.body) == nil && got.body.Method == c.method {
						requests <- got
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					server.ServeHTTP(w, r)
				}))
				t.Cleanup(listener.Close)
				p := publish(t, handler.Server{Name: "wire", Transport: handler.HTTP{Endpoint: listener.URL}, ProtocolVersion: version})
				_, _ = p.do(t.Context(), "wire", c.operation, c.input) // the server need not have it
				require.NotEmpty(t, requests)
				got := <-requests

				assert.Equal(t, "2.0", got.body.JSONRPC)
				assert.NotEmpty(t, got.body.ID)
				assert.Equal(t, "application/json", got.header.Get("Content-Type"))
				if modern {
					assert.Equal(t, "2026-07-28", got.header.Get("Mcp-Protocol-Version"))
					assert.Equal(t, c.method, got.header.Get("Mcp-Method"))
					assert.Equal(t, c.name, got.header.Get("Mcp-Name"))
				} else {
					assert.Equal(t, version, got.header.Get("Mcp-Protocol-Version"))
					assert.NotContains(t, got.header, "Mcp-Method")
					assert.NotContains(t, got.header, "Mcp-Name")
				}
				var sent, given map[string]json.RawMessage
				require.NoError(t, json.Unmarshal(got.body.Params, &sent))
				require.NoError(t, json.Unmarshal([]byte(c.input), &given))
				var meta map[string]any
				require.NoError(t, json.Unmarshal(sent["_meta"], &meta))
				assert.Equal(t, modern, meta[mcp.MetaKeyProtocolVersion] == "2026-07-28")
				delete(sent, "_meta")
				for name, value := range given {
					assert.Equal(t, string(value), string(sent[name]), "to the letter")
				}
				assert.Len(t, sent, len(given))
			})
		}
	}
}

// answersThenEnds is a rude server whose event streams go on for a while after the
// answer. The connections' states are counted.
func answersThenEnds(t *testing.T, tail func(r *http.Request)) (handler.HTTP, chan http.ConnState) {
	t.Helper()
	server := rude.New(rude.Options{EventStream: true})
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		if r.Header.Get("Mcp-Name") == "echo" {
			_ = http.NewResponseController(w).Flush()
			tail(r)
		}
	}))
	states := make(chan http.ConnState, 1000)
	listener.Config.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
	listener.Start()
	t.Cleanup(listener.Close)
	return handler.HTTP{Endpoint: listener.URL}, states
}

func TestACallLeavesItsTCPConnectionToTheNext(t *testing.T) {
	returned := make(chan struct{})
	transport, states := answersThenEnds(t, func(r *http.Request) {
		select {
		case <-returned:
		case <-r.Context().Done():
		}
	})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	idle := func() {
		for deadline := time.After(20 * time.Second); ; {
			select {
			case state := <-states:
				require.NotEqual(t, http.StateClosed, state)
				if state == http.StateIdle {
					return
				}
			case <-deadline:
				t.Fatal("the connection never became idle")
			}
		}
	}
	call := func() {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","arguments":{}}`)
		require.NoError(t, err)
		select {
		case returned <- struct{}{}:
		case <-time.After(20 * time.Second):
			t.Fatal("the request was cancelled")
		}
	}
	call() // after the handshake and the list of tools
	for seen := strings.Repeat(".", 3); seen != ""; seen = seen[1:] {
		idle()
	}
	for range 10 {
		call()
		idle()
	}
}

func TestAResponseThatDoesNotEndAfterTheAnswerIsGivenUpSoon(t *testing.T) {
	ended := make(chan time.Duration, 1)
	transport, _ := answersThenEnds(t, func(r *http.Request) {
		began := time.Now()
		<-r.Context().Done()
		ended <- time.Since(began)
	})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	began := time.Now()
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","arguments":{}}`)
	require.NoError(t, err)
	assert.Less(t, time.Since(began), 900*time.Millisecond, "nobody waits for the end")
	select {
	case after := <-ended:
		assert.InDelta(t, time.Second, after, float64(900*time.Millisecond))
	case <-time.After(20 * time.Second):
		t.Fatal("the response is still being read")
	}
}
