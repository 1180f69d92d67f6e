// Package rude is an MCP server for tests that misbehaves on demand, in ways
// that no server built with an SDK would: it writes its messages by hand. It
// serves streamable HTTP and stdio.
//
// What it does is chosen by the tool that is called; see [Tools].
package rude

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// Options choose what kind of server it is. They have a JSON form, so that a
// process can be given them in its environment.
type Options struct {
	// Legacy makes it speak protocol version 2025-11-25, with a session per
	// connection, instead of 2026-07-28.
	Legacy bool
	// Pages are the pages of every list: how many items each has. Nil means one
	// page with all tools. With more than one page the items are invented.
	Pages []int
	// RepeatCursor makes the last page point back to the second.
	RepeatCursor bool
	// EventStream makes it answer over HTTP with a stream of events.
	EventStream bool
	// Annotations are those of the tools, by name. A tool without has none.
	Annotations map[string]json.RawMessage
	// ListChanged makes it declare that its tool list changes, and take
	// subscriptions to that.
	ListChanged bool
	// Banner is printed to stdout before anything else (stdio only).
	Banner string
}

// Tools are the tools it has. Their arguments, all optional:
//
//	echo             any: a text and the same as structuredContent
//	error            code, message, data: a JSON-RPC error
//	raw-result       result: the JSON-RPC result, as given
//	raw-message      message: the whole line or body, as given; $ID is the request's
//	close            nothing: half an answer, then the connection closes
//	exit             nothing: the process ends without an answer (stdio), as close (HTTP)
//	slow             ms, n: a log notification, n of progress if asked for (1 by default), and the answer after that time
//	silent           nothing: never answers
//	noise            n: log and progress notifications before the answer; progress of another's if not asked for
//	flood-stderr     bytes: that many to stderr before the answer (stdio)
//	huge             bytes: a text of that many bytes
//	huge-id-last     bytes: the same, with the message's ID at its end
//	huge-notification bytes: a notification of that many bytes before the answer
//	status           status, retryAfter: an HTTP status (HTTP only)
//	list-changed     annotations: a notification that the tool list changed, if there is someone to tell, and now has these
//	stats            nothing: a Stats as structuredContent
var Tools = []string{"echo", "error", "raw-result", "raw-message", "close", "exit", "slow", "silent", "noise", "flood-stderr", "huge", "huge-id-last", "huge-notification", "status", "list-changed", "stats"}

// Stats count what the server saw.
type Stats struct {
	// Handshakes are the connections that were opened.
	Handshakes int `json:"handshakes"`
	// Calls are the tool calls that began, by tool.
	Calls map[string]int `json:"calls"`
	// Sessions are the tool calls of each session (legacy HTTP).
	Sessions map[string]int `json:"sessions,omitempty"`
	// Lists are the requests for the tool list.
	Lists int `json:"lists"`
	// Subscriptions are the streams of changes that were opened.
	Subscriptions int `json:"subscriptions"`
	// Answered are the slow calls that were answered, by tool.
	Answered map[string]int `json:"answered,omitempty"`
	// Cancelled are the requests that were cancelled on the wire, each counted once:
	// over HTTP the end of the request and a notification may both say it.
	Cancelled int `json:"cancelled"`
	// Meta is the _meta of the last tool call.
	Meta json.RawMessage `json:"meta,omitempty"`
	// Params are the params of the last tool call, as they stood on the wire.
	Params json.RawMessage `json:"params,omitempty"`
}

// Server is the server. It is safe for concurrent use.
type Server struct {
	options Options

	mu        sync.Mutex
	stats     Stats
	cancelled map[string]chan struct{} // by session and request ID
	sessions  int
	// subscription is the ID of the last request for changes.
	subscription json.RawMessage
}

// New returns a server.
func New(options Options) *Server {
	return &Server{options: options, stats: Stats{Calls: map[string]int{}, Sessions: map[string]int{}, Answered: map[string]int{}}, cancelled: map[string]chan struct{}{}}
}

// Stats returns what the server saw until now.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Calls = maps.Clone(s.stats.Calls)
	out.Sessions = maps.Clone(s.stats.Sessions)
	out.Answered = maps.Clone(s.stats.Answered)
	return out
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

type arguments struct {
	Code       int64           `json:"code"`
	Message    json.RawMessage `json:"message"`
	Data       json.RawMessage `json:"data"`
	Result     json.RawMessage `json:"result"`
	MS         int             `json:"ms"`
	N          int             `json:"n"`
	Bytes      int             `json:"bytes"`
	Status     int             `json:"status"`
	RetryAfter string          `json:"retryAfter"`

	Annotations map[string]json.RawMessage `json:"annotations"`
}

// connection is what differs between the transports.
type connection interface {
	// send writes a message: an answer, or a notification before it.
	send(message string)
	// cut writes half of a message and closes the connection.
	cut(half string)
	// session tells requests with the same ID apart.
	session() string
	// gone is closed when the other side has left.
	gone() <-chan struct{}
	// flood writes to stderr, where there is one.
	flood(bytes int)
	// status answers with an HTTP status, where there is one.
	status(status int, retryAfter string)
}

func (s *Server) handle(c connection, m message) {
	switch m.Method {
	case "server/discover":
		if s.options.Legacy {
			s.fail(c, m, -32601, "method not found", nil)
			return
		}
		s.count(func() { s.stats.Handshakes++ })
		s.answer(c, m, fmt.Sprintf(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":%s,"prompts":{},"resources":{},"completions":{},"experimental":{"rude":{"since":9007199254740993}}},"instructions":"Expect anything.","ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"rude","version":"1"}}}`, s.toolsCapability()))
	case "initialize":
		s.count(func() { s.stats.Handshakes++ })
		s.answer(c, m, fmt.Sprintf(`{"protocolVersion":"2025-11-25","capabilities":{"tools":%s,"prompts":{},"resources":{},"completions":{}},"serverInfo":{"name":"rude","version":"1"},"instructions":"Expect anything."}`, s.toolsCapability()))
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		_ = json.Unmarshal(m.Params, &p)
		s.cancel(c.session() + "/" + string(p.RequestID))
	case "notifications/initialized":
	case "tools/list":
		s.count(func() { s.stats.Lists++ })
		s.list(c, m, "tools", `{"name":%q,"inputSchema":{"type":"object"}%s}`)
	case "subscriptions/listen":
		if !s.options.ListChanged {
			s.fail(c, m, -32601, "method not found", nil)
			return
		}
		s.count(func() { s.stats.Subscriptions++; s.subscription = m.ID })
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, m.ID))
	case "prompts/list":
		s.list(c, m, "prompts", `{"name":%q}`)
	case "resources/list":
		s.list(c, m, "resources", `{"name":%[1]q,"uri":"rude://%[1]s"}`)
	case "resources/templates/list":
		s.list(c, m, "resourceTemplates", `{"name":%[1]q,"uriTemplate":"rude://%[1]s/{id}"}`)
	case "tools/call":
		s.call(c, m)
	case "prompts/get":
		s.answer(c, m, `{"resultType":"complete","messages":[{"role":"user","content":{"type":"text","text":"hello"}}]}`)
	case "resources/read":
		s.answer(c, m, `{"resultType":"complete","contents":[{"uri":"rude://a","text":"a"}],"ttlMs":60000,"cacheScope":"private"}`)
	case "completion/complete":
		s.answer(c, m, `{"resultType":"complete","completion":{"values":["a","b"],"total":2}}`)
	default:
		if m.ID != nil {
			s.fail(c, m, -32601, "method not found", nil)
		}
	}
}

func (s *Server) call(c connection, m message) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &p)
	var a arguments
	_ = json.Unmarshal(p.Arguments, &a)
	var meta struct {
		ProgressToken json.RawMessage `json:"progressToken"`
	}
	_ = json.Unmarshal(p.Meta, &meta)
	cancelled := make(chan struct{})
	key := c.session() + "/" + string(m.ID)
	s.mu.Lock()
	s.stats.Calls[p.Name]++
	if p.Name != "stats" {
		s.stats.Meta, s.stats.Params = p.Meta, m.Params
	}
	s.cancelled[key] = cancelled
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cancelled[key] == cancelled {
			delete(s.cancelled, key)
		}
	}()

	switch p.Name {
	case "echo":
		arguments := p.Arguments
		if arguments == nil {
			arguments = json.RawMessage("{}")
		}
		text, _ := json.Marshal(string(arguments))
		s.answer(c, m, fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%s}],"structuredContent":%s,"_meta":{"rude/seen":%s}}`, text, arguments, m.ID))
	case "error":
		text := "rude"
		_ = json.Unmarshal(a.Message, &text)
		s.fail(c, m, a.Code, text, a.Data)
	case "raw-result":
		s.answer(c, m, string(a.Result))
	case "raw-message":
		var text string
		_ = json.Unmarshal(a.Message, &text)
		c.send(strings.ReplaceAll(text, "$ID", string(m.ID)))
	case "close", "exit":
		c.cut(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"te`, m.ID))
	case "slow", "silent":
		var answerIn <-chan time.Time
		if p.Name == "slow" {
			c.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"working"}}`)
			for i := 0; meta.ProgressToken != nil && i < max(1, a.N); i++ {
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"total":%d,"message":"working"}}`, meta.ProgressToken, i+1, max(1, a.N)))
			}
			timer := time.NewTimer(time.Duration(a.MS) * time.Millisecond)
			defer timer.Stop()
			answerIn = timer.C
		}
		select {
		case <-answerIn:
			s.count(func() { s.stats.Answered[p.Name]++ })
			s.text(c, m, "at last")
		case <-cancelled:
		case <-c.gone():
			s.count(func() {
				select {
				case <-cancelled: // a notification has said so just now
				default:
					s.stats.Cancelled++
				}
				if s.cancelled[key] == cancelled {
					delete(s.cancelled, key) // one that comes now says nothing new
				}
			})
		}
	case "noise":
		token := `"none"`
		if meta.ProgressToken != nil {
			token = string(meta.ProgressToken)
		}
		for i := range a.N {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"noise %d"}}`, i))
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i))
		}
		s.text(c, m, "sorry for the noise")
	case "flood-stderr":
		c.flood(a.Bytes)
		s.text(c, m, "flooded")
	case "huge":
		s.text(c, m, strings.Repeat("x", a.Bytes))
	case "huge-id-last":
		c.send(fmt.Sprintf(`{"result":{"resultType":"complete","content":[{"type":"text","text":"%s"}]},"jsonrpc":"2.0","id":%s}`, strings.Repeat("x", a.Bytes), m.ID))
	case "huge-notification":
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","id":2,"data":"%s"}}`, strings.Repeat("x", a.Bytes)))
		s.text(c, m, "sorry")
	case "status":
		c.status(a.Status, a.RetryAfter)
	case "list-changed":
		s.mu.Lock()
		s.options.Annotations = a.Annotations
		params := ""
		if s.subscription != nil {
			params = fmt.Sprintf(`,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, s.subscription)
		}
		s.mu.Unlock()
		if s.options.Legacy || params != "" {
			c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"%s}`, params))
		}
		s.text(c, m, "changed")
	case "stats":
		stats, _ := json.Marshal(s.Stats())
		s.answer(c, m, fmt.Sprintf(`{"resultType":"complete","content":[],"structuredContent":%s}`, stats))
	default:
		s.fail(c, m, -32602, fmt.Sprintf("unknown tool %q", p.Name), nil)
	}
}

func (s *Server) list(c connection, m message, field, format string) {
	var p struct {
		Cursor string `json:"cursor"`
	}
	_ = json.Unmarshal(m.Params, &p)
	page := 0
	_, _ = fmt.Sscanf(p.Cursor, "page-%d", &page)
	names := Tools
	if s.options.Pages != nil {
		names = nil
		for i := range s.options.Pages[page] {
			names = append(names, fmt.Sprintf("item-%d-%d", page, i))
		}
	}
	items := make([]string, len(names))
	for i, name := range names {
		if field == "tools" {
			items[i] = fmt.Sprintf(format, name, s.annotations(name))
			continue
		}
		items[i] = fmt.Sprintf(format, name)
	}
	cursor := ""
	switch {
	case page+1 < len(s.options.Pages):
		cursor = fmt.Sprintf(`,"nextCursor":"page-%d"`, page+1)
	case s.options.RepeatCursor:
		cursor = `,"nextCursor":"page-1"`
	}
	s.answer(c, m, fmt.Sprintf(`{"resultType":"complete","%s":[%s],"ttlMs":%d,"cacheScope":%q,"_meta":{"rude/page":%d,"rude/page-%d":true}%s}`,
		field, strings.Join(items, ","), 1000*(10-page), map[bool]string{true: "public", false: "private"}[page == 0], page, page, cursor))
}

// annotations returns a tool's, as a field that follows others.
func (s *Server) annotations(tool string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, ok := s.options.Annotations[tool]; ok {
		return fmt.Sprintf(`,"annotations":%s`, a)
	}
	return ""
}

func (s *Server) toolsCapability() string {
	if s.options.ListChanged {
		return `{"listChanged":true}`
	}
	return "{}"
}

func (s *Server) answer(c connection, m message, result string) {
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

func (s *Server) text(c connection, m message, text string) {
	out, _ := json.Marshal(text)
	s.answer(c, m, fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%s}]}`, out))
}

func (s *Server) fail(c connection, m message, code int64, text string, data json.RawMessage) {
	out, _ := json.Marshal(text)
	if data != nil {
		data = append([]byte(`,"data":`), data...)
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s%s}}`, m.ID, code, out, data))
}

func (s *Server) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.cancelled[id]; ok {
		s.stats.Cancelled++
		close(c)
		delete(s.cancelled, id)
	}
}

func (s *Server) count(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}
