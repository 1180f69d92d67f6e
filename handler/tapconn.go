package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tapTransport taps the messages of a transport's connection, see [exchange].
// It suits every transport but the SDK's streamable HTTP client, whose
// connection the SDK recognises by its type; that one is tapped at its HTTP
// client.
type tapTransport struct {
	transport mcp.Transport
	connected func(*tapConn)
}

// Connect implements [mcp.Transport].
func (t *tapTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	// The type is not exported, so its name must do. A test wraps one.
	if logging, ok := t.transport.(*mcp.LoggingTransport); fmt.Sprintf("%T", conn) == "*mcp.streamableClientConn" || ok && isStreamable(logging.Transport) {
		_ = conn.Close()
		return nil, errHidden
	}
	tap := &tapConn{Connection: conn, waiting: make(map[jsonrpc.ID]*exchange)}
	t.connected(tap)
	return tap, nil
}

// errHidden is a mistake in a publisher's factory. The SDK tells a streamable
// HTTP connection the protocol version through a method that only the SDK can
// call, so that nothing may stand between them.
var errHidden = errors.New("the factory's transport wraps an mcp.StreamableClientTransport: return that itself, and put what the wrapper does into its HTTPClient")

func isStreamable(t mcp.Transport) bool {
	_, ok := t.(*mcp.StreamableClientTransport)
	return ok
}

type tapConn struct {
	mcp.Connection

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*exchange
}

// Write implements [mcp.Connection].
func (c *tapConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	ex := exchangeFrom(ctx)
	switch req, ok := msg.(*jsonrpc.Request); {
	case ex == nil || !ok:
	case req.Method == "notifications/cancelled":
		defer ex.withdraw()
	case req.IsCall():
		ex.begin(idJSON(req.ID))
		c.mu.Lock()
		c.waiting[req.ID] = ex
		c.mu.Unlock()
		// A call that ends without an answer must not be remembered for ever.
		context.AfterFunc(ctx, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.waiting, req.ID)
		})
	}
	return c.Connection.Write(ctx, msg)
}

// Read implements [mcp.Connection].
func (c *tapConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if err != nil {
		if problem, ok := malformed(err); ok {
			c.blame(problem)
		}
		return msg, err
	}
	if resp, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		ex := c.waiting[resp.ID]
		delete(c.waiting, resp.ID)
		c.mu.Unlock()
		if ex != nil {
			ex.receive(newAnswer(resp))
		}
	}
	return msg, nil
}

// blame gives the call that waits the reason for which the connection breaks.
// When several wait, the message does not say whose answer it was: all they know
// is that the connection broke.
func (c *tapConn) blame(problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 1 {
		for _, ex := range c.waiting {
			ex.refuse(verdict{Problem: problem})
		}
	}
	clear(c.waiting)
}

// malformed tells an unreadable message from a connection that ended, which any
// other error of a transport means.
func malformed(err error) (string, bool) {
	text := err.Error()
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok && (e.Code == jsonrpc.CodeParseError || e.Code == jsonrpc.CodeInvalidRequest) {
		return text, true
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return text, true
	}
	return text, slices.ContainsFunc(unreadable, func(mark string) bool { return strings.Contains(text, mark) })
}

// unreadable are parts of what the MCP SDK says of messages that it cannot read,
// where it says so in words only.
var unreadable = []string{
	"unmarshaling jsonrpc message", "invalid message version tag", "empty batch", "JSON-RPC batching is not supported",
	"duplicate message ID", "inbound JSON-RPC frame exceeded", "invalid trailing data", "malformed event",
}
