package handler_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestAMistakeInTheConfigurationIsRefusedWithTheServerAndTheField(t *testing.T) {
	good := handler.HTTP{Endpoint: "http://127.0.0.1/mcp"}
	var noPointer *mcp.StreamableClientTransport
	for _, c := range []struct {
		name    string
		servers []handler.Server
		want    string
	}{
		{"no server", nil, "Options.Servers is empty"},
		{"no name", []handler.Server{{Name: "a", Transport: good}, {Transport: good}}, "server number 2: Name is empty"},
		{"a blank name", []handler.Server{{Name: " ", Transport: good}}, `server " ": Name is empty`},
		{"a name twice", []handler.Server{{Name: "a", Transport: good}, {Name: "a", Transport: good}}, `server "a": Name is used twice`},
		{"a name that no request can carry", []handler.Server{{Name: "a/b", Transport: good}}, `server "a/b": Name contains "/"`},
		{"a name with a line break", []handler.Server{{Name: "a\nb", Transport: good}}, `Name contains`},
		{"a name of Temporal's own", []handler.Server{{Name: "__temporal_a", Transport: good}}, `Name begins with "__temporal_"`},
		{"no transport", []handler.Server{{Name: "a"}}, `server "a": Transport is nil, want HTTP, Command, `},
		{"a nil pointer to a transport", []handler.Server{{Name: "a", Transport: (*handler.HTTP)(nil)}}, `server "a": Transport is nil, want HTTP, Command, `},
		{"no URL", []handler.Server{{Name: "a", Transport: handler.HTTP{}}}, `server "a": Endpoint is empty`},
		{"a URL that is none", []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "http://[::1"}}}, `server "a": Endpoint is not a URL`},
		{"another scheme", []handler.Server{{Name: "a", Transport: handler.SSE{Endpoint: "ftp://a/b"}}}, `server "a": Endpoint has the scheme "ftp", want http or https`},
		{"a URL without a host", []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "http:///mcp"}}}, `server "a": Endpoint names no host`},
		{"a header that makes Go send a request twice", []handler.Server{{Name: "a", Transport: handler.SSE{Endpoint: "https://a", Header: http.Header{"idempotency-key": {"1"}}}}}, `server "a": Header has "idempotency-key", with which Go's HTTP client may send a request twice`},
		{"a header of the transport's", []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "https://a", Header: http.Header{"content-type": {"text/plain"}}}}}, `server "a": Header has "content-type", which the transport sets`},
		{"a header that cannot be", []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "https://a", Header: http.Header{"X y": nil}}}}, `server "a": Header has the name "X y", which no header can have`},
		{"a header value that cannot be", []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "https://a", Header: http.Header{"Authorization": {"Bearer a\n"}}}}}, `server "a": Header has a value of "Authorization" with a control character`},
		{"a port that cannot be", []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "https://a:99999"}}}, `server "a": Endpoint has the port 99999, want 1 to 65535`},
		{"TLS and a client", []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "https://a", TLS: &tls.Config{}, Client: &http.Client{}}}}, `server "a": TLS is set together with Client`},
		{"no command", []handler.Server{{Name: "a", Transport: handler.Command{}}}, `server "a": Path is empty`},
		{"a variable no process can have", []handler.Server{{Name: "a", Transport: handler.Command{Path: "p", Env: map[string]string{"A=B": ""}}}}, `server "a": Env has the name "A=B"`},
		{"a NUL byte", []handler.Server{{Name: "a", Transport: handler.Command{Path: "p", Args: []string{"a\x00b"}}}}, "NUL byte"},
		{"no server in the process", []handler.Server{{Name: "a", Transport: handler.InProcess{}}}, `server "a": Server is nil`},
		{"a nil factory", []handler.Server{{Name: "a", Transport: handler.Factory(nil)}}, `server "a": Transport is a nil Factory`},
		{"a nil factory with an argument", []handler.Server{{Name: "a", Transport: handler.ArgumentFactory(nil)}}, `server "a": Transport is a nil ArgumentFactory`},
		{"a factory that returns nothing", []handler.Server{{Name: "a", Transport: handler.Factory(func(context.Context) (mcp.Transport, error) { return nil, nil })}}, `server "a": Transport is a Factory that returned neither`},
		{"a factory that returns a nil pointer", []handler.Server{{Name: "a", Transport: handler.Factory(func(context.Context) (mcp.Transport, error) { return noPointer, nil })}}, `server "a": Transport is a Factory that returned neither`},
		{"an argument factory that returns nothing", []handler.Server{{Name: "a", Transport: handler.ArgumentFactory(func(context.Context, json.RawMessage) (mcp.Transport, error) { return nil, nil })}}, `server "a": Transport is an ArgumentFactory that returned neither`},
		{"an unknown protocol version", []handler.Server{{Name: "a", Transport: good, ProtocolVersion: "2026"}}, `server "a": ProtocolVersion is "2026", want one of 2026-07-28, `},
		{"a negative idle timeout", []handler.Server{{Name: "a", Transport: good, IdleTimeout: -2}}, `server "a": IdleTimeout is -2ns`},
		{"a negative connect timeout", []handler.Server{{Name: "a", Transport: good, ConnectTimeout: -2}}, `server "a": ConnectTimeout is -2ns`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := handler.NewPlugin(handler.Options{Servers: c.servers})
			assert.ErrorContains(t, err, "nexusmcp handler: ")
			assert.ErrorContains(t, err, c.want)
		})
	}
	t.Run("all at once", func(t *testing.T) {
		_, err := handler.New(handler.Options{MaxResultBytes: -1, DrainTimeout: -1, Servers: []handler.Server{
			{Name: "a"},
			{Name: "b", Transport: handler.SSE{Endpoint: "ftp://x", Header: http.Header{"Accept": nil}}, IdleTimeout: -5, ConnectTimeout: -1, ProtocolVersion: "1999-01-01"},
			{Name: "a", Transport: handler.Command{Args: []string{"\x00"}, Dir: "\x00"}},
			{Name: "b", Transport: good},
		}})
		for _, want := range []string{
			"MaxResultBytes is -1", "DrainTimeout is -1ns",
			`server "a": Transport is nil`,
			`server "b": Endpoint has the scheme "ftp"`, `server "b": Header has "Accept"`, `server "b": IdleTimeout`, `server "b": ConnectTimeout`, `server "b": ProtocolVersion`,
			`server "a": Path is empty`, `server "a": Args contains a NUL`, `server "a": Dir contains a NUL`,
			`server "a": Name is used twice`, `server "b": Name is used twice`,
		} {
			assert.ErrorContains(t, err, want)
		}
	})
	t.Run("factories that take their time take it together", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			stuck := make(chan struct{})
			defer close(stuck)
			slow := handler.Factory(func(context.Context) (mcp.Transport, error) { <-stuck; return nil, nil })
			started := time.Now()
			_, err := handler.New(handler.Options{Servers: []handler.Server{{Name: "a", Transport: slow}, {Name: "b", Transport: slow}}})
			require.NoError(t, err)
			assert.Equal(t, 5*time.Second, time.Since(started))
		})
	})
	t.Run("and a password in a URL is not repeated", func(t *testing.T) {
		_, err := handler.New(handler.Options{Servers: []handler.Server{{Name: "a", Transport: handler.HTTP{Endpoint: "http://user:hunter2@[::1"}}}})
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hunter2")
	})
}

func TestCallsToAServerWithSessionsReuseTCPConnections(t *testing.T) {
	var opened atomic.Int32
	listener := httptest.NewUnstartedServer(rude.New(rude.Options{Legacy: true}))
	listener.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	listener.Start()
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
	for range 50 {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
		require.NoError(t, err)
	}
	// Some for the call, for those opened ahead and for those being closed.
	assert.Less(t, opened.Load(), int32(3*handler.MaxOpenAhead))
}

func TestAnAnswerThatIsNoMessageAtAllFailsOneCall(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"a login page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, "<html>Sign in</html>")
		},
		"an acceptance without an answer": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"nothing":                         func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/json") },
	} {
		t.Run(name, func(t *testing.T) {
			server, transport := rudeBut(t, "page", answer)
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			neighbour := make(chan error, 1)
			go func() {
				_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":300}}`)
				neighbour <- err
			}()
			require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 10*time.Second, time.Millisecond)
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"page"}`)
			e := contractError(t, err)
			assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type, e.Message)
			assert.True(t, e.NonRetryable)
			assert.NotEmpty(t, e.Problem)
			assert.NoError(t, <-neighbour)
		})
	}
}

func TestAServerThatDoesNotListItsToolsCanRunThem(t *testing.T) {
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+requestID(r)+`,"error":{"code":-32601,"message":"no list"}}`)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
}

// requestID reads the ID of a JSON-RPC request.
func requestID(r *http.Request) string {
	var m struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.NewDecoder(r.Body).Decode(&m)
	return string(m.ID)
}

func TestHeadersGoToTheServersHostAlone(t *testing.T) {
	elsewhere := make(chan http.Header, 10)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere <- r.Header
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(other.Close)
	here := make(chan http.Header, 100)
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		here <- r.Header
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	header := http.Header{"X-Api-Key": {"secret"}, "Authorization": {"Bearer secret"}}
	p := publish(t, handler.Server{Name: "here", Transport: handler.HTTP{Endpoint: listener.URL, Header: header}},
		handler.Server{Name: "moved", Transport: handler.HTTP{Endpoint: listener.URL + "/moved", Header: header}})
	_, err := p.do(t.Context(), "here", mcpnexus.OperationListTools, "")
	require.NoError(t, err)
	assert.Equal(t, "secret", (<-here).Get("X-Api-Key"))
	_, err = p.do(t.Context(), "moved", mcpnexus.OperationListTools, "")
	require.Error(t, err)
	assert.Empty(t, elsewhere, "neither the headers nor the request went elsewhere")
}

func TestHTTPSUsesTheGivenTLSConfiguration(t *testing.T) {
	listener := httptest.NewTLSServer(rude.New(rude.Options{}))
	t.Cleanup(listener.Close)
	for name, transport := range map[string]handler.HTTP{
		"as TLS":            {Endpoint: listener.URL, TLS: listener.Client().Transport.(*http.Transport).TLSClientConfig},
		"as a whole client": {Endpoint: listener.URL, Client: listener.Client()},
	} {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
		require.NoError(t, err, name)
	}
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
	e := contractError(t, err)
	assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type)
	assert.Contains(t, e.Message, "certificate")
}

func TestACommandGetsItsArgumentsEnvironmentAndDirectoryAndNoMore(t *testing.T) {
	t.Setenv("NEXUSMCP_TEST_SECRET", "hunter2")
	dir := t.TempDir()
	c := rudeStdio(t, rude.Options{})
	c.Env["GREETING"] = "hello world"
	c.Args = []string{"-c", `{ env; pwd; printf '%s\n' "$@"; } > seen; exec "$0"`, c.Path, "first argument", "$HOME"}
	c.Path = "sh"
	c.Dir = dir
	p := publish(t, handler.Server{Name: "rude", Transport: c})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
	require.NoError(t, err)
	seen, err := os.ReadFile(dir + "/seen")
	require.NoError(t, err)
	assert.Contains(t, string(seen), "GREETING=hello world\n")
	assert.Contains(t, string(seen), "PATH=")
	assert.Contains(t, string(seen), "\nfirst argument\n$HOME\n")
	assert.Contains(t, string(seen), dir+"\n")
	assert.NotContains(t, string(seen), "hunter2")
}

func TestWhatACommandPrintsBesidesItsMessagesIsLogged(t *testing.T) {
	for name, banner := range map[string]string{
		"a banner":               "Secure MCP server running on stdio",
		"a log line in JSON":     `{"level":"info","msg":"started"}`,
		"several lines":          "one\n\ntwo\n{}\n[not json\n[]\n[1]",
		"a very long line":       strings.Repeat("x", 100_000),
		"a message to somebody":  `{"jsonrpc":"1.0","id":null,"method":"hello"}`,
		"bytes that are no text": "\xff\xfe\x00",
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{Banner: banner})})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err)
			p.log.wait(t, func(line string) bool { return strings.Contains(line, "something else than a message") })
		})
	}
}

func TestAProgramThatPrintsOnAndOnDoesNotFillTheLog(t *testing.T) {
	p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{Banner: strings.Repeat("files\n", 1000)})})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	assert.EqualValues(t, 20, p.log.count("something else than a message"))
	assert.EqualValues(t, 1, p.log.count("goes on writing"))
}

func TestStderrGoesToTheLogAndDoesNotBlockTheServer(t *testing.T) {
	p := publish(t, handler.Server{Name: "rude", Transport: rudeStdio(t, rude.Options{})})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"flood-stderr","arguments":{"bytes":5000000}}`)
	require.NoError(t, err)
	p.log.wait(t, func(line string) bool {
		return strings.Contains(line, "MCP server stderr") && strings.Contains(line, "eeee")
	})
}

func TestALongLineOnStderrIsCut(t *testing.T) {
	c := rudeStdio(t, rude.Options{})
	c.Args = []string{"-c", `head -c 1000000 /dev/zero | tr '\0' z >&2; echo >&2; echo after >&2; exec "$0"`, c.Path}
	c.Path = "sh"
	p := publish(t, handler.Server{Name: "rude", Transport: c})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
	require.NoError(t, err)
	line := p.log.wait(t, func(line string) bool { return strings.Contains(line, "zzzz") })
	assert.Less(t, len(line), 5000)
	p.log.wait(t, func(line string) bool { return strings.Contains(line, "after") })
}

func TestAProcessThatDoesNotReadItsInputDoesNotHoldTheHandlerUp(t *testing.T) {
	// It answers the handshake and reads no more, so that a large request fills the pipe.
	script := `read -r line; id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
printf '{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}\n' "$id"
sleep 600`
	p := publish(t, handler.Server{Name: "rude", Transport: handler.Command{Path: "sh", Args: []string{"-c", script}}})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := p.do(ctx, "rude", mcpnexus.OperationCallTool, `{"name":"echo","arguments":{"text":"`+strings.Repeat("x", 1<<20)+`"}}`)
	require.NoError(t, ctx.Err())
	assert.Equal(t, mcpnexus.ErrorTypeTimeout, contractError(t, err).Type)
}

func TestAServerInTheSameProcessIsReached(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "inside", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "greet"}, func(ctx context.Context, _ *mcp.CallToolRequest, in struct {
		Name string `json:"name"`
	}) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "hello " + in.Name}}}, nil, nil
	})
	p := publish(t, handler.Server{Name: "inside", Transport: handler.InProcess{Server: server}})
	out, err := p.do(t.Context(), "inside", mcpnexus.OperationCallTool, `{"name":"greet","arguments":{"name":"Ada"}}`)
	require.NoError(t, err)
	assert.Contains(t, out, "hello Ada")
}

func TestALegacyServerOverSSEIsReached(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "events", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "big"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "b"}}, StructuredContent: map[string]any{"id": int64(9007199254740993)}}, nil, nil
	})
	listener := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "events", Transport: handler.SSE{Endpoint: listener.URL}})
	for range 3 {
		out, err := p.do(t.Context(), "events", mcpnexus.OperationCallTool, `{"name":"big"}`)
		require.NoError(t, err)
		assert.Contains(t, out, "9007199254740993")
	}
}

func TestParamsThatTravelInHeadersDo(t *testing.T) {
	// The SDK's server checks Mcp-Param-* against the body (SEP-2243).
	server := mcp.NewServer(&mcp.Implementation{Name: "headers", Version: "1"}, nil)
	add := func(header string) {
		server.AddTool(&mcp.Tool{Name: "route", InputSchema: map[string]any{"type": "object", "properties": map[string]any{
			"region": map[string]any{"type": "string", "x-mcp-header": header}}}},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "routed by " + req.Extra.Header.Get("Mcp-Param-"+header)}}}, nil
			})
	}
	add("Region")
	listener := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "headers", Transport: handler.HTTP{Endpoint: listener.URL}})
	call := func() string {
		out, err := p.do(t.Context(), "headers", mcpnexus.OperationCallTool, `{"name":"route","arguments":{"region":"eu"}}`)
		require.NoError(t, err)
		return out
	}
	assert.Contains(t, call(), "routed by eu", "also in the first call of a connection")
	server.RemoveTools("route")
	add("Area")
	assert.Contains(t, call(), "routed by eu", "also when the tool's definition has changed")
}

func TestAListFromACursorAddsToTheToolsWhoseParamsTravelInHeaders(t *testing.T) {
	const pageSize = 3
	server := mcp.NewServer(&mcp.Implementation{Name: "headers", Version: "1"}, &mcp.ServerOptions{PageSize: pageSize})
	for i := range 2 * pageSize {
		header := fmt.Sprintf("Region-%d", i)
		server.AddTool(&mcp.Tool{Name: fmt.Sprintf("route-%d", i), InputSchema: map[string]any{"type": "object", "properties": map[string]any{
			"region": map[string]any{"type": "string", "x-mcp-header": header}}}},
			func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{}, nil
			})
	}
	requests := make(chan string, 1000)
	streamable := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	cursors := make(chan string, 1)
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		r.Body = io.NopCloser(bytes.NewReader(body))
		requests <- r.Header.Get("Mcp-Method")
		var list struct {
			Params struct{ Cursor string }
		}
		if json.Unmarshal(body, &list) == nil && list.Params.Cursor != "" {
			select {
			case cursors <- list.Params.Cursor:
			default:
			}
		}
		streamable.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "headers", Transport: handler.HTTP{Endpoint: listener.URL}})
	callAll := func() {
		for i := range 2 * pageSize {
			_, err := p.do(t.Context(), "headers", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"route-%d","arguments":{"region":"eu"}}`, i))
			assert.NoError(t, err)
		}
	}
	callAll() // lists the tools
	for len(requests) > 0 {
		<-requests
	}
	_, err := p.do(t.Context(), "headers", mcpnexus.OperationListTools, `{"cursor":"`+<-cursors+`"}`)
	require.NoError(t, err)
	require.Equal(t, "tools/list", <-requests)
	callAll()
	assert.Len(t, requests, 2*pageSize)
	for len(requests) > 0 {
		assert.Equal(t, "tools/call", <-requests, "none was refused for its headers")
	}
}

func TestAToolWithAnInvalidHeaderAnnotationIsNotOffered(t *testing.T) {
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		result := `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`
		if r.Header.Get("Mcp-Method") == "tools/list" {
			result = `{"tools":[{"name":"good","inputSchema":{"type":"object"},"later":1},{"name":"bad","inputSchema":{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"not a token"}}}}]}`
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+requestID(r)+`,"result":`+result+`}`)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "headers", Transport: handler.HTTP{Endpoint: listener.URL}})
	out, err := p.do(t.Context(), "headers", mcpnexus.OperationListTools, "")
	require.NoError(t, err)
	assert.Equal(t, `{"tools":[{"name":"good","inputSchema":{"type":"object"},"later":1}]}`, out)
}

func TestAServerCanBeSpokenToInAnOlderVersionFromTheStart(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport, ProtocolVersion: "2025-11-25"})
	out, err := p.do(t.Context(), "rude", mcpnexus.OperationDiscover, "")
	require.NoError(t, err)
	assert.Contains(t, out, `"protocolVersion":"2025-11-25"`)
}
