package effects

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// ClientHeader is the request header in which a client may say which process it
// is, for Entry.Client.
const ClientHeader = "X-Client-Process"

const sessionHeader = "Mcp-Session-Id"

// ServeHTTP serves streamable HTTP. The answer to a handshake or a list is JSON;
// that to a call is a stream of events, which begins when the run does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session := r.Header.Get(sessionHeader)
	switch {
	case session != "" && !s.knows(session):
		// "The server MUST respond to requests containing that session ID with HTTP
		// 404 Not Found."
		// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
		http.Error(w, "no such session", http.StatusNotFound)
		return
	case r.Method == http.MethodDelete && session != "":
		s.forget(session)
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	var m message
	if err != nil || json.Unmarshal(body, &m) != nil {
		http.Error(w, "not a message", http.StatusBadRequest)
		return
	}
	c := &httpConnection{w: w, r: r}
	switch m.Method {
	case "initialize":
		w.Header().Set(sessionHeader, s.open())
	case "tools/call":
		if s.refuses(c, m) {
			return
		}
		c.begin()
	}
	s.handle(c, m)
	if m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
	}
}

// refuses answers a call with an HTTP status, if it is to be refused.
func (s *Server) refuses(c *httpConnection, m message) bool {
	var p toolCall
	if json.Unmarshal(m.Params, &p) != nil || p.Arguments.Refuse == 0 {
		return false
	}
	if s.options.Ledger.count(s.options.Service, p.Arguments.Call, Refused) >= p.Arguments.Refuse {
		return false
	}
	e := s.entry(c, Refused)
	e.Tool, e.Call, e.Key = p.Name, p.Arguments.Call, p.Meta.Key
	s.options.Ledger.Append(e)
	if p.Arguments.Status == http.StatusNotFound {
		s.forget(c.session()) // that is what it means
	}
	if p.Arguments.RetryAfter != "" {
		c.w.Header().Set("Retry-After", p.Arguments.RetryAfter)
	}
	http.Error(c.w, "refused as wished", p.Arguments.Status)
	return true
}

// open begins a session. Its ID is of no meaning to a server that is started
// again.
func (s *Server) open() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := rand.Text()
	s.sessions[session] = true
	return session
}

func (s *Server) knows(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[session]
}

func (s *Server) forget(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, session)
}

type httpConnection struct {
	w      http.ResponseWriter
	r      *http.Request
	events bool // the answer is a stream of them, whose head is sent
}

// begin sends the head of a stream of events.
func (c *httpConnection) begin() {
	c.events = true
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.WriteHeader(http.StatusOK)
	c.flush()
}

func (c *httpConnection) send(message string) {
	if c.events {
		fmt.Fprintf(c.w, "event: message\ndata: %s\n\n", message)
	} else {
		c.w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(c.w, message)
	}
	c.flush()
}

// flush fails when the client is gone, which is told by gone.
func (c *httpConnection) flush() { _ = http.NewResponseController(c.w).Flush() }

func (c *httpConnection) session() string { return c.r.Header.Get(sessionHeader) }

func (c *httpConnection) client() int {
	id, _ := strconv.Atoi(c.r.Header.Get(ClientHeader)) // zero when unknown
	return id
}

func (c *httpConnection) gone() <-chan struct{} { return c.r.Context().Done() }
