package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/log"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// sessionless is the first protocol version without sessions (SEP-2575). All
// versions are dates, so that they compare as strings.
const sessionless = "2026-07-28"

// A session is one connection to an MCP server, ready for requests. It is safe
// for concurrent use.
type session struct {
	client *mcp.ClientSession
	// send sends a request past the SDK's response cache, which every operation
	// must bypass and which would keep every resource that was ever read.
	send mcp.MethodHandler
	// conn is the transport's connection, nil where the SDK hides it.
	conn atomic.Pointer[tapConn]
	// life ends with the session, by release.
	life    context.Context
	release context.CancelFunc
	// initialized is the server's own answer to the handshake.
	initialized json.RawMessage
	// http is true on streamable HTTP, where some params travel in headers too.
	http bool
	// limit is the most bytes that the handler reads of a tool list.
	limit int64
	// memory is where the handler remembers what the tools declare.
	memory toolMemory
	// tools are those that were last listed here, nil before.
	tools atomic.Pointer[toolSet]
	// headers are the tools that have params which travel in headers, by name, as
	// the SDK was given them.
	headers atomic.Pointer[map[string]*mcp.Tool]
	// sharesTools is true when the server lists the same tools on every connection:
	// without sessions it cannot do otherwise.
	sharesTools atomic.Bool
	// progress has the requests whose progress is reported.
	progress progressReports

	// giving is held while the SDK is given the tools of headers.
	giving sync.Mutex

	mu sync.Mutex
	// learned is closed once the tools were listed for the headers' sake, or
	// could not be. Nil before anyone tried.
	learned chan struct{}
	// stopLearning ends that.
	stopLearning context.CancelFunc
}

// connect performs the handshake over a transport. On failure the exchange says
// what was seen of it on the wire.
func connect(ctx context.Context, server *Server, transport mcp.Transport, logger log.Logger, limit int64, memory toolMemory) (_ *session, ex *exchange, err error) {
	s := &session{limit: limit, memory: memory}
	ex = newExchange(nil)
	defer ex.close()
	options := &mcp.ClientOptions{
		Logger: slogLogger(logger),
		// Nothing is declared on behalf of callers that cannot serve it: a caller
		// that can says so in its own request's _meta (SEP-2575).
		Capabilities:                &mcp.ClientCapabilities{},
		MultiRoundTrip:              &mcp.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: s.progress.notified,
	}

	// The connection keeps the handshake's context, and legacy SSE reads from it:
	// it must outlive ctx and end with the session.
	s.life, s.release = context.WithCancel(context.WithoutCancel(ctx))
	var tapped mcp.Transport
	switch t := transport.(type) {
	case *mcp.StreamableClientTransport:
		s.http = true
		streamable := *t
		streamable.HTTPClient = tapClient(s.life, t.HTTPClient, true, limit)
		streamable.MaxEventSize = -1 // the tap has the limit
		tapped = &streamable
	case *mcp.SSEClientTransport:
		sse := *t
		sse.HTTPClient = tapClient(s.life, t.HTTPClient, false, limit)
		tapped = &tapTransport{transport: &sse, connected: s.conn.Store}
	default:
		tapped = &tapTransport{transport: transport, connected: s.conn.Store}
		// With a handler the SDK subscribes to changes where that needs asking
		// (SEP-2575), which over HTTP would take a stream of its own, and fail the
		// connection with it. What is heard is heard by toolsChanged.
		options.ToolListChangedHandler = func(context.Context, *mcp.ToolListChangedRequest) {}
	}
	client := mcp.NewClient(clientInfo, options)
	client.AddSendingMiddleware(s.middleware)
	client.AddReceivingMiddleware(survive(logger), s.toolsChanged)

	stop := context.AfterFunc(ctx, s.cut)
	s.client, err = client.Connect(withExchange(s.life, ex), tapped, &mcp.ClientSessionOptions{ProtocolVersion: server.ProtocolVersion})
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.cut()
		if s.client != nil {
			_ = s.client.Close()
		}
		return nil, ex, err
	}
	if a := ex.received(); a != nil {
		s.initialized = a.result
	}
	s.sharesTools.Store(s.modern())
	return s, ex, nil
}

func (s *session) protocolVersion() string {
	if init := s.client.InitializeResult(); init != nil {
		return init.ProtocolVersion
	}
	return ""
}

// modern reports whether the server keeps no session, so that calls may share
// the connection.
func (s *session) modern() bool { return s.protocolVersion() >= sessionless }

// close ends the session: in an orderly way, if that does not take long. The SDK
// waits for what the server asked and has not been answered, which a server that
// reads no more makes a wait for ever.
func (s *session) close() {
	s.mu.Lock()
	if s.stopLearning != nil {
		s.stopLearning() // the SDK would wait for it
	}
	s.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.client.Close() // its error says how the other side took it
	}()
	timer := time.NewTimer(terminateAfter)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
	s.cut()
}

// cut breaks the connection, also under a request that does not heed its
// context: a write to a process that does not read.
func (s *session) cut() {
	if conn := s.conn.Load(); conn != nil {
		_ = conn.Close()
	}
	s.release()
}

// middleware sends an exchange's params in place of the SDK's.
func (s *session) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	s.send = next
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if given, ok := ctx.Value(learnKey{}).(*mcp.ListToolsResult); ok {
			return given, nil
		}
		if ex := exchangeFrom(ctx); ex != nil && ex.params != nil {
			req = s.request(ex.params)
		}
		return next(ctx, method, req)
	}
}

// survive keeps what a server sends unasked from ending the worker: the SDK
// handles it on goroutines of its own, and panics over some of it.
func survive(logger log.Logger) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (result mcp.Result, err error) {
			defer func() {
				if p := recover(); p != nil {
					logger.Warn("MCP server sent something that cannot be handled", "method", method, "panic", p)
					result, err = nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("%s cannot be handled", method)}
				}
			}()
			if method == "notifications/elicitation/complete" {
				// Nobody waits for it, and the SDK panics over one without params while
				// it holds a lock (v1.8.0).
				return nil, nil
			}
			return next(ctx, method, req)
		}
	}
}

func (s *session) request(params json.RawMessage) mcp.Request {
	return &mcp.ClientRequest[*wireParams]{Session: s.client, Params: &wireParams{raw: params}}
}

// prepare learns before a tool is called what of its params goes into headers. Not at any
// price: a server that wants headers refuses a call without, and has not run it.
func (s *session) prepare(ctx context.Context, params object) error {
	if !s.putsParamsInHeaders() {
		return nil
	}
	if learned := s.learnTools(params); !isClosed(learned) { // a timer has its price
		select {
		case <-learned:
		case <-halfway(ctx):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// call sends one request and returns the result as it stood on the wire and as
// the SDK understood it.
func (s *session) call(ctx context.Context, method string, params object) (json.RawMessage, mcp.Result, error) {
	if _, ok := params["arguments"]; method == "tools/call" && !ok {
		// They are optional, but many servers want an object. The SDK's own
		// CallTool sends one too.
		params = params.with("arguments", json.RawMessage(`{}`))
	}
	raw, result, err := s.callOnce(ctx, method, params)
	if e, ok := errors.AsType[*mcpnexus.Error](err); ok && method == "tools/call" && s.putsParamsInHeaders() && e.Code == mcp.CodeHeaderMismatch {
		// The tool's definition is not known, or changed under us.
		s.forgetTools()
		select {
		case <-s.learnTools(params):
			return s.callOnce(ctx, method, params)
		case <-halfway(ctx):
		case <-ctx.Done():
			return nil, nil, &unsent{context.Cause(ctx)} // it was refused before it was run
		}
	}
	return raw, result, err
}

func (s *session) callOnce(ctx context.Context, method string, params object) (json.RawMessage, mcp.Result, error) {
	meta, err := params.object("_meta")
	if err != nil {
		return nil, nil, err
	}
	defer s.progress.follow(ctx, meta)()
	wire := s.wire(params, meta)
	ex := newExchange(wire)
	// Ends what the taps keep for a request that will not be answered any more.
	ctx, cancel := context.WithCancel(withExchange(ctx, ex))
	defer cancel()
	defer ex.close()
	result, err := s.exchange(ctx, ex, method, params)
	raw, result, failure := outcome(ctx, ex, method, result, err)
	if failure != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		// The connection may be closed next.
		ex.awaitWithdrawal(s.life)
	}
	return raw, result, failure
}

// exchange sends a request through the SDK, whose panics are errors: see
// [decodeResult].
func (s *session) exchange(ctx context.Context, ex *exchange, method string, params object) (result mcp.Result, err error) {
	defer recovered(&err, "panic: %v")
	var name string
	if field := subjects[method]; field != "" {
		name, _ = decodeString(params[field])
	}
	switch {
	case method == "tools/call" && s.hasHeaders(name):
		// Only CallTool knows how to put params into Mcp-Param-* headers (SEP-2243).
		return s.client.CallTool(ctx, &mcp.CallToolParams{Name: name})
	case s.http:
		ex.addParams, ex.name = true, name
		return s.send(ctx, method, bareRequest{s.request(nil)})
	}
	return s.send(ctx, method, s.request(ex.params))
}

// subjects are the params by method that are repeated in the header Mcp-Name.
var subjects = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// A bareRequest has no params, for the SDK to send none.
type bareRequest struct{ mcp.Request }

// GetParams implements [mcp.Request].
func (bareRequest) GetParams() mcp.Params { return nil }

// wire completes the params with their _meta, to which it adds what every request
// of a sessionless protocol version carries (SEP-2575). The caller may have declared its own
// capabilities; the version is the connection's, whatever the caller says.
func (s *session) wire(params, meta object) json.RawMessage {
	if s.modern() {
		meta[mcp.MetaKeyProtocolVersion] = encode(s.protocolVersion())
		if _, ok := meta[mcp.MetaKeyClientInfo]; !ok {
			meta[mcp.MetaKeyClientInfo] = clientInfoJSON
		}
		if _, ok := meta[mcp.MetaKeyClientCapabilities]; !ok {
			meta[mcp.MetaKeyClientCapabilities] = json.RawMessage(`{}`)
		}
	} else {
		// The SDK would take the request's version from it.
		delete(meta, mcp.MetaKeyProtocolVersion)
	}
	return params.with("_meta", meta.join()).join()
}

// outcome reads a finished exchange: what the server said goes before what the
// SDK made of it. An error beside a result need not be about the result: the
// call's time may have run out, or the connection broken, the moment after.
func outcome(ctx context.Context, ex *exchange, method string, result mcp.Result, err error) (json.RawMessage, mcp.Result, error) {
	lost, read := ex.sessionLost()
	if lost && !read {
		return nil, nil, transportError(ex, err)
	}
	switch a := ex.received(); {
	case ctx.Err() != nil && (a == nil || a.err != nil):
		// An error that comes now is the server's answer to the cancellation.
		return nil, nil, context.Cause(ctx)
	case a != nil && a.err != nil && lost:
		return nil, nil, &lostSession{cause: answeredError(a.err)}
	case a != nil && a.err != nil:
		return nil, nil, answeredError(a.err)
	case a != nil:
		if err != nil {
			result, err = decodeResult(method, a.result)
		}
		if err == nil && !isObject(a.result) {
			err = errors.New("the result is not a JSON object")
		}
		if err != nil {
			return nil, nil, verdict{Problem: err.Error()}.err()
		}
		return a.result, result, nil
	case err == nil:
		err = errors.New("the transport hid the server's answer")
	}
	return nil, nil, transportError(ex, err)
}

// newResults make the SDK's results, by method.
var newResults = map[string]func() mcp.Result{
	"tools/list":               func() mcp.Result { return new(mcp.ListToolsResult) },
	"tools/call":               func() mcp.Result { return new(mcp.CallToolResult) },
	"prompts/list":             func() mcp.Result { return new(mcp.ListPromptsResult) },
	"prompts/get":              func() mcp.Result { return new(mcp.GetPromptResult) },
	"resources/list":           func() mcp.Result { return new(mcp.ListResourcesResult) },
	"resources/templates/list": func() mcp.Result { return new(mcp.ListResourceTemplatesResult) },
	"resources/read":           func() mcp.Result { return new(mcp.ReadResourceResult) },
	"completion/complete":      func() mcp.Result { return new(mcp.CompleteResult) },
	"server/discover":          func() mcp.Result { return new(mcp.DiscoverResult) },
}

// decodeResult decodes a result as the SDK does. Its UnmarshalJSON methods panic
// over some results (v1.8.0: a null among inputRequests).
func decodeResult(method string, raw json.RawMessage) (result mcp.Result, err error) {
	defer recovered(&err, "the result cannot be decoded: %v")
	result = newResults[method]()
	return result, json.Unmarshal(raw, result)
}

// discover asks the server what it is and can do.
func (s *session) discover(ctx context.Context, params object) (json.RawMessage, error) {
	answer := s.initialized
	if s.modern() {
		var err error
		if answer, _, err = s.call(ctx, "server/discover", params); err != nil {
			return nil, err
		}
	}
	var in object
	if err := json.Unmarshal(answer, &in); err != nil {
		return nil, fmt.Errorf("reading the handshake: %w", err)
	}
	out := object{"protocolVersion": encode(s.protocolVersion())}
	for _, field := range []string{"serverInfo", "capabilities", "instructions"} {
		if v, ok := in[field]; ok {
			out[field] = v
		}
	}
	// Since 2026-07-28 the server's name is in _meta.
	if meta, err := in.object("_meta"); err == nil && out["serverInfo"] == nil {
		if v, ok := meta[mcp.MetaKeyServerInfo]; ok {
			out["serverInfo"] = v
		}
	}
	return encode(out), nil
}

// wait blocks until the connection is gone.
func (s *session) wait() { _ = s.client.Wait() }
