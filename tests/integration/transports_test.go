package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"
	"golang.org/x/oauth2"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The protocol versions that servers built with the MCP SDK agree to.
const (
	modern = "2026-07-28" // without sessions
	legacy = "2025-11-25" // the last with sessions
)

func TestEveryOperationAnswersOverEveryTransport(t *testing.T) {
	const edition = "the first edition"
	self, err := os.Executable()
	require.NoError(t, err)
	stdio := handler.Command{Path: self, Env: map[string]string{
		almanacEnv: edition,
		"GORACE":   "atexit_sleep_ms=0", // a binary with the race detector sleeps before it exits
	}}
	shared := newAlmanac(edition)
	jsonAnswers := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shared },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(jsonAnswers.Close)
	streamable := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return shared },
		&mcp.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(streamable.Close)

	for _, way := range []struct {
		name    string
		server  handler.Server
		request mcpnexus.RequestOptions
		version string
		edition string
	}{
		{name: "streamable HTTP", server: handler.Server{Transport: serveHTTP(t, shared, true)}, version: modern},
		{name: "streamable HTTP that answers with JSON", server: handler.Server{Transport: handler.HTTP{Endpoint: jsonAnswers.URL}}, version: modern},
		{name: "streamable HTTP with sessions", server: handler.Server{Transport: serveHTTP(t, shared, false)}, version: legacy},
		{name: "streamable HTTP with sessions, asked for them", server: handler.Server{Transport: serveHTTP(t, shared, false), ProtocolVersion: legacy}, version: legacy},
		{name: "streamable HTTP with sessions, declared stateless", server: handler.Server{Transport: serveHTTP(t, shared, false), Stateless: true}, version: legacy},
		{name: "stdio", server: handler.Server{Transport: stdio}, version: modern},
		{name: "stdio with sessions", server: handler.Server{Transport: stdio, ProtocolVersion: legacy}, version: legacy},
		{name: "SSE", server: handler.Server{Transport: serveSSE(t, shared)}, version: legacy},
		{name: "in process", server: handler.Server{Transport: handler.InProcess{Server: shared}}, version: modern},
		{name: "in process with sessions", server: handler.Server{Transport: handler.InProcess{Server: shared}, ProtocolVersion: legacy}, version: legacy},
		{
			name: "a factory",
			server: handler.Server{Transport: handler.Factory(func(context.Context) (mcp.Transport, error) {
				return &mcp.StreamableClientTransport{Endpoint: streamable.URL, DisableStandaloneSSE: true}, nil
			})},
			version: modern,
		},
		{
			name: "a factory that takes an argument and gets none",
			server: handler.Server{Transport: handler.ArgumentFactory(func(_ context.Context, argument json.RawMessage) (mcp.Transport, error) {
				return inMemoryAlmanac(fmt.Sprintf("edition of %q", argument))
			})},
			version: modern,
			edition: `edition of ""`,
		},
		{
			name: "a factory that gets an argument",
			server: handler.Server{Transport: handler.ArgumentFactory(func(_ context.Context, argument json.RawMessage) (mcp.Transport, error) {
				return inMemoryAlmanac("edition of " + string(argument))
			})},
			request: mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`{"tenant":"acme","id":9007199254740993}`)},
			version: modern,
			edition: `edition of {"tenant":"acme","id":9007199254740993}`,
		},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			if way.edition == "" {
				way.edition = edition
			}
			way.server.Name = "almanac"
			p := publish(t, way.server)
			p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				// Without the cache the twin of ListTools asks the server, too.
				client := p.client("almanac", caller.Options{Request: way.request, DisableToolCache: true})
				checkAlmanac(ctx, c, client, way.version, way.edition)
				return c.err()
			})
		})
	}
}

// checkAlmanac uses every operation of an almanac, and says what is not as it
// should be.
func checkAlmanac(ctx workflow.Context, c *complaints, client *caller.Client, version, edition string) {
	want := func(result string) string { return almanacResult(c, version, result) }
	list := func(result string) string {
		return want(strings.Replace(result, "{", `{"ttlMs":0,"cacheScope":"public",`, 1))
	}

	check(ctx, c, client, (*caller.Client).ListTools, (*caller.Client).ListToolsAsync, nil, list(`{"tools":[
		{"name":"forecast","title":"Forecast","description":"The weather of a city",
			"icons":[{"src":"https://almanac.example/sun.svg","mimeType":"image/svg+xml","sizes":["any"]}],
			"annotations":{"title":"Read the sky","readOnlyHint":true,"idempotentHint":false,"openWorldHint":false},
			"inputSchema":{"type":"object","properties":{"city":{"type":"string","description":"where"}},"required":["city"],"additionalProperties":false},
			"outputSchema":{"type":"object","properties":{"city":{"type":"string"},"celsius":{"type":"number"}},"required":["city","celsius"],"additionalProperties":false},
			"_meta":{"almanac.example/page":7}},
		{"name":"star","inputSchema":{"type":"object"}},
		{"name":"sunset","inputSchema":{"type":"object"}},
		{"name":"tides","inputSchema":{"type":"object"}}]}`))

	for _, call := range []struct{ tool, arguments, want string }{
		{"forecast", `{"city":"Oslo"}`, `{
			"content":[
				{"type":"text","text":"sunny <in> Oslo","annotations":{"audience":["user"],"priority":0.5}},
				{"type":"image","data":"AQID","mimeType":"image/png"},
				{"type":"audio","data":"BAUG","mimeType":"audio/wav"},
				{"type":"resource_link","uri":"almanac://march","name":"march"},
				{"type":"resource","resource":{"uri":"almanac://march","text":"in like a lion"}}],
			"structuredContent":{"city":"Oslo","celsius":21.5},
			"_meta":{"almanac.example/source":["radar","frogs"]}}`},
		// A tool's own error is a result.
		{"forecast", `{"city":"Atlantis"}`, `{"content":[{"type":"text","text":"no such city: Atlantis"}],"isError":true}`},
		{"star", `{}`, `{"content":[],"structuredContent":{"id":9007199254740993,"magnitude":-1.46}}`},
	} {
		check(ctx, c, client, (*caller.Client).CallTool, (*caller.Client).CallToolAsync,
			&mcp.CallToolParams{Name: call.tool, Arguments: json.RawMessage(call.arguments)}, want(call.want))
	}

	const arguments = `[{"name":"month","description":"when","required":true},{"name":"crop"}]`
	check(ctx, c, client, (*caller.Client).ListPrompts, (*caller.Client).ListPromptsAsync, nil, list(`{"prompts":[
		{"name":"harvest","title":"HARVEST","description":"advice","arguments":`+arguments+`},
		{"name":"sowing","title":"SOWING","description":"advice","arguments":`+arguments+`},
		{"name":"winter","title":"WINTER","description":"advice","arguments":`+arguments+`}]}`))
	check(ctx, c, client, (*caller.Client).GetPrompt, (*caller.Client).GetPromptAsync,
		&mcp.GetPromptParams{Name: "sowing", Arguments: map[string]string{"month": "may", "crop": "beans"}}, want(`{
			"description":"advice on sowing",
			"messages":[
				{"role":"user","content":{"type":"text","text":"beans in may"}},
				{"role":"assistant","content":{"type":"text","text":"Wait."}}]}`))

	const resource = `"mimeType":"text/plain","size":12,"annotations":{"lastModified":"2026-01-02T03:04:05Z"},"_meta":{"almanac.example/days":31}}`
	check(ctx, c, client, (*caller.Client).ListResources, (*caller.Client).ListResourcesAsync, nil, list(`{"resources":[
		{"name":"june","uri":"almanac://june",`+resource+`,
		{"name":"march","uri":"almanac://march",`+resource+`,
		{"name":"may","uri":"almanac://may",`+resource+`]}`))
	check(ctx, c, client, (*caller.Client).ListResourceTemplates, (*caller.Client).ListResourceTemplatesAsync, nil, list(`{"resourceTemplates":[
		{"name":"day","title":"One day","uriTemplate":"almanac://day/{n}","mimeType":"text/plain"},
		{"name":"hour","title":"One hour","uriTemplate":"almanac://hour/{n}","mimeType":"text/plain"},
		{"name":"week","title":"One week","uriTemplate":"almanac://week/{n}","mimeType":"text/plain"}]}`))
	for _, uri := range []string{"almanac://may", "almanac://week/5"} { // a resource, and one of a template
		check(ctx, c, client, (*caller.Client).ReadResource, (*caller.Client).ReadResourceAsync,
			&mcp.ReadResourceParams{URI: uri}, list(`{"contents":[
				{"uri":"`+uri+`","mimeType":"text/plain","text":"all about `+uri+`"},
				{"uri":"`+uri+`#map","mimeType":"image/png","blob":"BAUG"}]}`))
	}

	check(ctx, c, client, (*caller.Client).Complete, (*caller.Client).CompleteAsync, &mcp.CompleteParams{
		Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "sowing"},
		Argument: mcp.CompleteParamsArgument{Name: "month", Value: "ma"},
	}, want(`{"completion":{"values":["march","may"],"total":2}}`))

	quoted, err := json.Marshal(edition)
	assert.NoError(c, err)
	check(ctx, c, client, (*caller.Client).Discover, (*caller.Client).DiscoverAsync, nil, `{
		"serverInfo":`+almanacInfo+`,
		"capabilities":{"completions":{},"logging":{},"prompts":{"listChanged":true},"resources":{"listChanged":true},"tools":{"listChanged":true}},
		"instructions":`+string(quoted)+`,
		"protocolVersion":"`+version+`"}`)
}

// check uses a method of a client and its twin, and compares both results.
func check[Params, Result any](
	ctx workflow.Context, c *complaints, client *caller.Client,
	call func(*caller.Client, workflow.Context, Params) (Result, error),
	twin func(*caller.Client, workflow.Context, Params) *caller.Future[Result],
	params Params, want string,
) {
	for _, get := range []func() (Result, error){
		func() (Result, error) { return call(client, ctx, params) },
		func() (Result, error) { return twin(client, ctx, params).Get(ctx) },
	} {
		result, err := get()
		if !assert.NoError(c, err) {
			continue
		}
		got, err := json.Marshal(result)
		assert.NoError(c, err)
		sameJSON(c, want, string(got))
	}
}

// sameJSON is assert.JSONEq, except that 9007199254740993 is not the same as
// 9007199254740992.
func sameJSON(t assert.TestingT, want, got string) {
	decode := func(text string) (value any) {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		assert.NoError(t, decoder.Decode(&value), text)
		return value
	}
	assert.Equal(t, decode(want), decode(got), got)
}

const almanacInfo = `{"name":"almanac","title":"The Almanac","version":"1.2.3","websiteUrl":"https://almanac.example"}`

// almanacResult adds to a result what each has in a protocol version.
func almanacResult(t assert.TestingT, version, result string) string {
	if version != modern {
		return result
	}
	var out map[string]json.RawMessage
	meta := map[string]json.RawMessage{}
	assert.NoError(t, json.Unmarshal([]byte(result), &out), result)
	if out["_meta"] != nil {
		assert.NoError(t, json.Unmarshal(out["_meta"], &meta), result)
	}
	meta[mcp.MetaKeyServerInfo] = json.RawMessage(almanacInfo)
	encoded, err := json.Marshal(meta)
	assert.NoError(t, err)
	out["_meta"], out["resultType"] = encoded, json.RawMessage(`"complete"`)
	encoded, err = json.Marshal(out)
	assert.NoError(t, err)
	return string(encoded)
}

func TestAFactorysArgumentIsTheCallersAndEachCallWithOneConnectsAnew(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var arguments []string
	p := publish(t, handler.Server{Name: "almanac", Transport: handler.ArgumentFactory(func(_ context.Context, argument json.RawMessage) (mcp.Transport, error) {
		mu.Lock()
		defer mu.Unlock()
		arguments = append(arguments, string(argument))
		return inMemoryAlmanac("edition of " + string(argument))
	})})
	mu.Lock()
	assert.Equal(t, []string{""}, arguments, "the handler tries the factory")
	arguments = nil
	mu.Unlock()
	p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		client := p.client("almanac", caller.Options{})
		ask := func(client *caller.Client) {
			for range 2 {
				_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "sunset"})
				assert.NoError(c, err)
			}
		}
		ask(client)
		acme := client.With(mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`"acme"`)})
		ask(acme)
		ask(acme.With(mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`[1, {"a": null}]`)}))
		ask(acme.With(mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`null`)}))
		return c.err()
	})
	mu.Lock()
	defer mu.Unlock()
	assert.Equal(t, []string{"", `"acme"`, `"acme"`, `"acme"`, `[1,{"a":null}]`, `[1,{"a":null}]`, `[1,{"a":null}]`}, arguments,
		"once more for each argument, to list the tools of its server")
}

func TestHeadersReachTheServerWithEveryRequest(t *testing.T) {
	t.Parallel()
	almanac := newAlmanac("with headers")
	getServer := func(*http.Request) *mcp.Server { return almanac }
	header := http.Header{"Authorization": {"Bearer open sesame"}, "X-Tenant": {"a", "b"}}
	for name, c := range map[string]struct {
		handler   http.Handler
		transport func(url string) handler.Transport
	}{
		"streamable HTTP": {
			mcp.NewStreamableHTTPHandler(getServer, &mcp.StreamableHTTPOptions{Stateless: true}),
			func(url string) handler.Transport { return handler.HTTP{Endpoint: url, Header: header} },
		},
		"streamable HTTP with sessions": {
			mcp.NewStreamableHTTPHandler(getServer, nil),
			func(url string) handler.Transport { return handler.HTTP{Endpoint: url, Header: header} },
		},
		"SSE": {
			mcp.NewSSEHandler(getServer, nil),
			func(url string) handler.Transport { return handler.SSE{Endpoint: url, Header: header} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := &requests{}
			listener := httptest.NewServer(seen.before(c.handler))
			t.Cleanup(listener.Close)
			p := publish(t, handler.Server{Name: "almanac", Transport: c.transport(listener.URL)})
			p.run(t, func(ctx workflow.Context) error {
				_, err := p.client("almanac", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "sunset"})
				return err
			})
			all := seen.headers()
			assert.NotEmpty(t, all)
			for _, got := range all {
				assert.Equal(t, header.Values("Authorization"), got.Values("Authorization"))
				assert.Equal(t, header.Values("X-Tenant"), got.Values("X-Tenant"))
			}
		})
	}
}

// passes is an OAuth flow at whose end there is a new token.
type passes struct {
	issued  atomic.Int64
	asked   atomic.Int64 // how often a token was asked for
	current atomic.Pointer[oauth2.Token]
}

// TokenSource implements auth.OAuthHandler.
func (p *passes) TokenSource(context.Context) (oauth2.TokenSource, error) {
	if token := p.current.Load(); token != nil {
		return oauth2.StaticTokenSource(token), nil
	}
	return nil, nil
}

// Authorize implements auth.OAuthHandler.
func (p *passes) Authorize(_ context.Context, _ *http.Request, resp *http.Response) error {
	resp.Body.Close()
	p.asked.Add(1)
	p.current.Store(&oauth2.Token{AccessToken: fmt.Sprint("pass-", p.issued.Load())})
	return nil
}

func TestARequestIsRepeatedWithTheTokenOfAnOAuthHandler(t *testing.T) {
	t.Parallel()
	for _, version := range []string{modern, legacy} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			almanac := newAlmanac("for members")
			streamable := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return almanac }, &mcp.StreamableHTTPOptions{Stateless: version == modern})
			oauth := &passes{}
			listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Authorization") != fmt.Sprint("Bearer pass-", oauth.issued.Load()) {
					http.Error(w, "no pass", http.StatusUnauthorized)
					return
				}
				streamable.ServeHTTP(w, r)
			}))
			t.Cleanup(listener.Close)
			p := publish(t, handler.Server{Name: "almanac", ProtocolVersion: version, Stateless: true, Transport: handler.Factory(func(context.Context) (mcp.Transport, error) {
				return &mcp.StreamableClientTransport{Endpoint: listener.URL, DisableStandaloneSSE: true, OAuthHandler: oauth}, nil
			})})
			for round := range int64(3) {
				oauth.issued.Store(round) // and the last is void
				p.run(t, func(ctx workflow.Context) error {
					result, err := p.client("almanac", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "forecast", Arguments: map[string]any{"city": "Oslo"}})
					if err != nil {
						return err
					}
					if text, ok := result.Content[0].(*mcp.TextContent); !ok || text.Text != "sunny <in> Oslo" {
						return fmt.Errorf("the tool got other arguments: %+v", result.Content[0])
					}
					return nil
				})
				assert.Equal(t, round+1, oauth.asked.Load(), "the token serves until it is void")
			}
		})
	}
}

func TestCallsShareASessionOnlyIfTheServerIsDeclaredStateless(t *testing.T) {
	t.Parallel()
	const calls = 5
	for name, c := range map[string]struct {
		stateless bool
		sessions  int
	}{
		"declared":     {true, 1},
		"not declared": {false, calls},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			almanac := newAlmanac("with sessions")
			seen := &requests{}
			listener := httptest.NewServer(seen.before(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return almanac }, nil)))
			t.Cleanup(listener.Close)
			p := publish(t, handler.Server{Name: "almanac", Transport: handler.HTTP{Endpoint: listener.URL}, Stateless: c.stateless})
			p.run(t, func(ctx workflow.Context) error {
				for range calls {
					if _, err := p.client("almanac", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "sunset"}); err != nil {
						return err
					}
				}
				return nil
			})
			assert.Len(t, seen.sessions("tools/call"), c.sessions)
		})
	}
}

// requests remembers the requests to an HTTP server.
type requests struct {
	mu   sync.Mutex
	seen []seenRequest
}

type seenRequest struct {
	header http.Header
	method string // of MCP
}

func (r *requests) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		var message struct{ Method string }
		_ = json.Unmarshal(body, &message) // GET and DELETE have no body
		r.mu.Lock()
		r.seen = append(r.seen, seenRequest{req.Header.Clone(), message.Method})
		r.mu.Unlock()
		next.ServeHTTP(w, req)
	})
}

func (r *requests) headers() (all []http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, request := range r.seen {
		all = append(all, request.header)
	}
	return all
}

// sessions returns the sessions in which requests of an MCP method came.
func (r *requests) sessions(method string) (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, request := range r.seen {
		if id := request.header.Get("Mcp-Session-Id"); request.method == method && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// newAlmanac returns an MCP server built with the MCP SDK that has something to
// answer to every operation, lists of several pages among it. Its edition stands
// in its instructions.
func newAlmanac(edition string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "almanac", Title: "The Almanac", Version: "1.2.3", WebsiteURL: "https://almanac.example"}, &mcp.ServerOptions{
		Instructions: edition,
		PageSize:     2,
		CompletionHandler: func(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
			var values []string
			for _, month := range []string{"march", "may", "june"} {
				if strings.HasPrefix(month, req.Params.Argument.Value) {
					values = append(values, month)
				}
			}
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values), HasMore: false}}, nil
		},
	})

	type place struct {
		City string `json:"city" jsonschema:"where"`
	}
	type forecast struct {
		City    string  `json:"city"`
		Celsius float64 `json:"celsius"`
	}
	no := false
	mcp.AddTool(server, &mcp.Tool{
		Name: "forecast", Title: "Forecast", Description: "The weather of a city",
		Icons:       []mcp.Icon{{Source: "https://almanac.example/sun.svg", MIMEType: "image/svg+xml", Sizes: []string{"any"}}},
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no, Title: "Read the sky"},
		Meta:        mcp.Meta{"almanac.example/page": 7},
	}, func(_ context.Context, _ *mcp.CallToolRequest, in place) (*mcp.CallToolResult, forecast, error) {
		if in.City == "Atlantis" {
			return nil, forecast{}, fmt.Errorf("no such city: %s", in.City)
		}
		return &mcp.CallToolResult{
			Meta: mcp.Meta{"almanac.example/source": []any{"radar", "frogs"}},
			Content: []mcp.Content{
				&mcp.TextContent{Text: "sunny <in> " + in.City, Annotations: &mcp.Annotations{Audience: []mcp.Role{"user"}, Priority: 0.5}},
				&mcp.ImageContent{Data: []byte{1, 2, 3}, MIMEType: "image/png"},
				&mcp.AudioContent{Data: []byte{4, 5, 6}, MIMEType: "audio/wav"},
				&mcp.ResourceLink{URI: "almanac://march", Name: "march"},
				&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "almanac://march", Text: "in like a lion"}},
			},
		}, forecast{City: in.City, Celsius: 21.5}, nil
	})
	for _, name := range []string{"sunset", "tides"} {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: req.Params.Name}}}, nil
		})
	}

	server.AddTool(&mcp.Tool{Name: "star", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: json.RawMessage(`{"id":9007199254740993,"magnitude":-1.46}`)}, nil
	})

	for _, name := range []string{"harvest", "sowing", "winter"} {
		server.AddPrompt(&mcp.Prompt{
			Name: name, Title: strings.ToUpper(name), Description: "advice",
			Arguments: []*mcp.PromptArgument{{Name: "month", Description: "when", Required: true}, {Name: "crop"}},
		}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{
				Description: "advice on " + name,
				Messages: []*mcp.PromptMessage{
					{Role: "user", Content: &mcp.TextContent{Text: fmt.Sprintf("%s in %s", req.Params.Arguments["crop"], req.Params.Arguments["month"])}},
					{Role: "assistant", Content: &mcp.TextContent{Text: "Wait."}},
				},
			}, nil
		})
	}

	read := func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{
			{URI: req.Params.URI, MIMEType: "text/plain", Text: "all about " + req.Params.URI},
			{URI: req.Params.URI + "#map", MIMEType: "image/png", Blob: []byte{4, 5, 6}},
		}}, nil
	}
	for _, month := range []string{"june", "march", "may"} {
		server.AddResource(&mcp.Resource{
			Name: month, URI: "almanac://" + month, MIMEType: "text/plain", Size: 12,
			Annotations: &mcp.Annotations{LastModified: "2026-01-02T03:04:05Z"},
			Meta:        mcp.Meta{"almanac.example/days": 31},
		}, read)
	}
	for _, part := range []string{"day", "hour", "week"} {
		server.AddResourceTemplate(&mcp.ResourceTemplate{Name: part, Title: "One " + part, URITemplate: "almanac://" + part + "/{n}", MIMEType: "text/plain"}, read)
	}
	return server
}

// almanacEnv is the environment variable that makes this test binary an
// almanac on stdio, of the edition that it holds.
const almanacEnv = "ALMANAC_MCP_SERVER"

// almanacMainIfAsked serves stdio and exits if [almanacEnv] is set.
func almanacMainIfAsked() {
	edition, ok := os.LookupEnv(almanacEnv)
	if !ok {
		return
	}
	// It ends with an error when the other side leaves in the middle of something.
	_ = newAlmanac(edition).Run(context.Background(), &mcp.StdioTransport{})
	os.Exit(0)
}

// inMemoryAlmanac returns the way to an almanac of its own.
func inMemoryAlmanac(edition string) (mcp.Transport, error) {
	ours, theirs := mcp.NewInMemoryTransports()
	_, err := newAlmanac(edition).Connect(context.Background(), theirs, nil)
	return ours, err
}
