// Package effects is an MCP server for tests of what happens when things break.
// Its tools leave traces: each run of one is written down in a file, the
// [Ledger], which survives the server, so that runs can be counted across
// processes that are killed and started again. A run has one effect for each
// idempotency key, as a tool should that may be called more than once.
//
// Like package rude it writes its messages by hand, because a server built with
// the MCP SDK does not tell its tools when a request is cancelled over HTTP
// without sessions. It serves streamable HTTP and stdio.
package effects

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

// Options choose what kind of server it is. They have a JSON form, so that a
// process can be given them in its environment.
type Options struct {
	// Ledger is where everything is written down. Required. Several servers may
	// share one.
	Ledger Ledger `json:"ledger"`
	// Service tells servers that share a ledger apart.
	Service string `json:"service,omitempty"`
	// Legacy makes it speak protocol version 2025-11-25, with a session for each
	// connection, instead of 2026-07-28.
	Legacy bool `json:"legacy,omitempty"`
	// Mute is how many handshakes are never answered before the first that is,
	// counted in the ledger.
	Mute int `json:"mute,omitempty"`
	// Listen is the address where a process serves HTTP. Empty means stdio.
	Listen string `json:"listen,omitempty"`
}

// Names of the tools. They do the same, and differ in what they declare.
const (
	// Work declares nothing.
	Work = "work"
	// Destroy is destructive, and not idempotent.
	Destroy = "destroy"
	// Replace is destructive and idempotent.
	Replace = "replace"
)

const toolList = `[` +
	`{"name":"work","inputSchema":{"type":"object"}},` +
	`{"name":"destroy","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}},` +
	`{"name":"replace","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true,"idempotentHint":true}}]`

// Arguments are the arguments of every tool. A run has its effect when it begins.
type Arguments struct {
	// Call names the call in the ledger.
	Call string `json:"call"`
	// MS is how many milliseconds a run takes.
	MS int `json:"ms,omitempty"`
	// Hang is how many runs of the call never end, before the first that does.
	Hang int `json:"hang,omitempty"`
	// Fail is how many runs of the call end with a JSON-RPC error of this Code,
	// before the first that does not.
	Fail int   `json:"fail,omitempty"`
	Code int64 `json:"code,omitempty"`
	// Refuse is how many times the call is answered with the HTTP status Status,
	// and the header RetryAfter if it is set, before it runs. HTTP only.
	Refuse     int    `json:"refuse,omitempty"`
	Status     int    `json:"status,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"`
}

// Text is what a run of a call answers.
func (a Arguments) Text() string { return "done: " + a.Call }

// Server is the server. It is safe for concurrent use.
type Server struct {
	options Options
	closing chan struct{}

	mu       sync.Mutex
	running  map[string]chan struct{} // by session and request ID; closed by a cancellation
	sessions map[string]bool
}

// New returns a server.
func New(options Options) *Server {
	return &Server{options: options, closing: make(chan struct{}), running: make(map[string]chan struct{}), sessions: make(map[string]bool)}
}

// Close ends the runs that have not ended, also those that nobody waits for any
// more. It may be called once.
func (s *Server) Close() { close(s.closing) }

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// A toolCall is the params of tools/call.
type toolCall struct {
	Name      string    `json:"name"`
	Arguments Arguments `json:"arguments"`
	Meta      struct {
		Key string `json:"nexusmcp/idempotencyKey"`
	} `json:"_meta"`
}

// connection is what differs between the transports.
type connection interface {
	// send writes a message.
	send(message string)
	// session tells requests with the same ID apart.
	session() string
	// client is the process at the other end.
	client() int
	// gone is closed when the other side has closed the request's stream.
	gone() <-chan struct{}
}

func (s *Server) handle(c connection, m message) {
	switch m.Method {
	case "server/discover":
		if s.options.Legacy {
			s.fail(c, m, -32601, "method not found")
			return
		}
		s.shake(c, m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"effects","version":"1"}}}`)
	case "initialize":
		s.shake(c, m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"effects","version":"1"}}`)
	case "tools/list":
		s.answer(c, m, `{"resultType":"complete","tools":`+toolList+`,"ttlMs":0,"cacheScope":"public"}`)
	case "tools/call":
		s.call(c, m)
	case "notifications/cancelled":
		var p struct {
			RequestID json.RawMessage `json:"requestId"`
		}
		_ = json.Unmarshal(m.Params, &p)
		s.cancel(c.session() + "/" + string(p.RequestID))
	default:
		if m.ID != nil {
			s.fail(c, m, -32601, "method not found")
		}
	}
}

// shake answers a handshake, unless it is one of those that are not answered.
func (s *Server) shake(c connection, m message, result string) {
	if s.options.Mute > 0 && s.options.Ledger.count(s.options.Service, "", Muted) < s.options.Mute {
		s.note(c, Muted)
		select {
		case <-c.gone():
		case <-s.closing:
		}
		return
	}
	s.note(c, Connected)
	s.answer(c, m, result)
}

func (s *Server) note(c connection, event Event) { s.options.Ledger.Append(s.entry(c, event)) }

func (s *Server) entry(c connection, event Event) Entry {
	return Entry{Event: event, Server: os.Getpid(), Client: c.client(), Service: s.options.Service}
}

func (s *Server) call(c connection, m message) {
	var p toolCall
	if err := json.Unmarshal(m.Params, &p); err != nil {
		s.fail(c, m, -32602, err.Error())
		return
	}
	switch p.Name {
	case Work, Destroy, Replace:
	default:
		s.fail(c, m, -32602, fmt.Sprintf("unknown tool %q", p.Name))
		return
	}
	cancelled := make(chan struct{})
	id := c.session() + "/" + string(m.ID)
	s.mu.Lock()
	s.running[id] = cancelled
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, id)
	}()

	e := s.entry(c, Began)
	e.Tool, e.Call, e.Key = p.Name, p.Arguments.Call, p.Meta.Key
	ledger := s.options.Ledger
	ledger.Append(e)
	ledger.effect(e)
	run := 0
	if p.Arguments.Hang > 0 || p.Arguments.Fail > 0 {
		run = ledger.count(s.options.Service, p.Arguments.Call, Began)
	}
	var finished <-chan time.Time
	if run == 0 || run > p.Arguments.Hang {
		timer := time.NewTimer(time.Duration(p.Arguments.MS) * time.Millisecond)
		defer timer.Stop()
		finished = timer.C
	}
	// "Disconnection SHOULD NOT be interpreted as the client cancelling its request",
	// says the protocol of servers with sessions. Since, it means just that.
	// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server
	var gone <-chan struct{}
	if !s.options.Legacy {
		gone = c.gone()
	}
	select {
	case <-finished:
		e.Event = Finished
	case <-cancelled:
		e.Event = Cancelled
	case <-gone:
		e.Event = Cancelled
	case <-s.closing:
		e.Event = Left
		select {
		case <-cancelled: // before
			e.Event = Cancelled
		default:
		}
	}
	ledger.Append(e)
	if e.Event != Finished {
		return
	}
	if run > 0 && run <= p.Arguments.Fail {
		s.fail(c, m, p.Arguments.Code, "failed as wished")
		return
	}
	text, _ := json.Marshal(p.Arguments.Text()) // a string always has a JSON form
	s.answer(c, m, fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%s}]}`, text))
}

func (s *Server) answer(c connection, m message, result string) {
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

func (s *Server) fail(c connection, m message, code int64, text string) {
	quoted, _ := json.Marshal(text) // a string always has a JSON form
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, m.ID, code, quoted))
}

func (s *Server) cancel(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancelled, ok := s.running[id]; ok {
		close(cancelled)
		delete(s.running, id)
	}
}
