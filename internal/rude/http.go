package rude

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// ServeHTTP serves streamable HTTP.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	var m message
	if err != nil || json.Unmarshal(body, &m) != nil {
		http.Error(w, "not a message", http.StatusBadRequest)
		return
	}
	c := &httpConnection{w: w, r: r, events: s.options.EventStream}
	if m.ID == nil {
		// Without a session it would be anybody's request that is cancelled: there,
		// a client cancels by closing the request's stream.
		if s.options.Legacy {
			s.handle(c, m)
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	// Only a stream can carry more than one message.
	if m.Method == "tools/call" {
		var p struct {
			Name string `json:"name"`
		}
		_ = json.Unmarshal(m.Params, &p)
		c.events = c.events || p.Name == "noise" || p.Name == "slow" || p.Name == "list-changed"
		if session := r.Header.Get("Mcp-Session-Id"); session != "" {
			s.count(func() { s.stats.Sessions[session]++ })
		}
	}
	if s.options.Legacy && m.Method == "initialize" {
		s.mu.Lock()
		s.sessions++
		w.Header().Set("Mcp-Session-Id", strconv.Itoa(s.sessions))
		s.mu.Unlock()
	}
	s.handle(c, m)
}

type httpConnection struct {
	w      http.ResponseWriter
	r      *http.Request
	events bool
	once   sync.Once
}

func (c *httpConnection) head() {
	c.once.Do(func() {
		if c.events {
			c.w.Header().Set("Content-Type", "text/event-stream")
		} else {
			c.w.Header().Set("Content-Type", "application/json")
		}
		c.w.WriteHeader(http.StatusOK)
	})
}

func (c *httpConnection) send(message string) {
	c.head()
	if c.events {
		message = fmt.Sprintf("event: message\ndata: %s\n\n", message)
	}
	_, _ = io.WriteString(c.w, message)
	c.w.(http.Flusher).Flush()
}

func (c *httpConnection) cut(half string) {
	c.head()
	if c.events {
		half = "data: " + half
	}
	_, _ = io.WriteString(c.w, half)
	c.w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler) // closes the connection without the end of the body
}

func (c *httpConnection) session() string { return c.r.Header.Get("Mcp-Session-Id") }

func (c *httpConnection) gone() <-chan struct{} { return c.r.Context().Done() }

func (c *httpConnection) flood(int) {}

func (c *httpConnection) status(status int, retryAfter string) {
	if retryAfter != "" {
		c.w.Header().Set("Retry-After", retryAfter)
	}
	http.Error(c.w, "rude", status)
}
