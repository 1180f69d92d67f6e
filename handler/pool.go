package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A pool keeps the connections to one MCP server.
//
// Calls share one connection when the server keeps no sessions or is declared
// stateless. Otherwise every call gets one of its own, and while a call has it
// the pool opens the next, so that a caller does not wait for a process to
// start. It is safe for concurrent use.
type pool struct {
	server Server
	env    environment

	// life ends with the pool, and with it every connection that is being opened.
	life context.Context
	end  context.CancelCauseFunc

	mu     sync.Mutex
	shared *conn
	// single is true once the server turned out to keep sessions.
	single bool
	// next is the connection that will be shared, which all calls await, or with
	// single the one that is made ready for the next call.
	next  *opening
	conns map[*conn]struct{} // all that exist
	wg    sync.WaitGroup     // of goroutines that open or close connections
}

// A conn is a session in a pool's care.
type conn struct {
	*session
	pool *pool

	// Guarded by pool.mu.
	calls   int
	retired bool
	idle    *time.Timer
}

// An opening is a connection that is being made. It does not depend on the call
// that wanted it: when that gives up, the next one finds it done.
type opening struct {
	done chan struct{}
	// waiters counts the calls that will share the connection, guarded by pool.mu.
	waiters int
	// Valid after done.
	conn   *conn
	err    error
	shared bool // every waiter is counted as a call on conn
}

var errStopping = errors.New("the worker is stopping")

func newPool(server Server, limit int64) *pool {
	if server.IdleTimeout == 0 {
		server.IdleTimeout = DefaultIdleTimeout
	}
	if server.ConnectTimeout == 0 {
		server.ConnectTimeout = DefaultConnectTimeout
	}
	p := &pool{server: server, env: environment{limit: limit, http: &sharedClient{}}, conns: make(map[*conn]struct{})}
	p.life, p.end = context.WithCancelCause(context.Background())
	return p
}

// acquire returns a connection for one call, which must release it.
func (p *pool) acquire(ctx context.Context, argument json.RawMessage, logger log.Logger) (*conn, error) {
	if len(argument) > 0 {
		return p.claim(ctx, p.openAlone(argument, logger))
	}
	for {
		p.mu.Lock()
		if p.life.Err() != nil {
			p.mu.Unlock()
			return nil, stopping()
		}
		if c := p.shared; c != nil {
			p.use(c)
			p.mu.Unlock()
			return c, nil
		}
		if p.next == nil {
			p.next = p.open(nil, logger)
		}
		o := p.next
		if p.single {
			// Whoever takes it is alone with it, and the next one follows.
			p.next = nil
			p.prepare(logger)
			p.mu.Unlock()
			return p.claim(ctx, o)
		}
		o.waiters++
		p.mu.Unlock()

		select {
		case <-o.done:
		case <-ctx.Done():
			p.leave(o)
			return nil, context.Cause(ctx)
		}
		if o.err != nil {
			return nil, o.err
		}
		if o.shared {
			return o.conn, nil
		}
		// The server keeps sessions: one call will take this one.
	}
}

// leave undoes a call's wait for a connection to share.
func (p *pool) leave(o *opening) {
	p.mu.Lock()
	o.waiters--
	shared := o.shared
	p.mu.Unlock()
	if shared { // just now
		o.conn.release(nil)
	}
}

func (p *pool) openAlone(argument json.RawMessage, logger log.Logger) *opening {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open(argument, logger)
}

// claim waits for a connection that no other call can get.
func (p *pool) claim(ctx context.Context, o *opening) (*conn, error) {
	select {
	case <-o.done:
	case <-ctx.Done():
		p.forsake(o)
		return nil, context.Cause(ctx)
	}
	if o.err != nil {
		return nil, o.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.use(o.conn)
	return o.conn, nil
}

// forsake closes what comes of an opening that no call will claim.
func (p *pool) forsake(o *opening) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return // close sees to it
	}
	p.wg.Go(func() {
		<-o.done
		if o.conn == nil {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.retire(o.conn)
		p.closeConn(o.conn)
	})
}

// use counts a call. The caller holds p.mu.
func (p *pool) use(c *conn) {
	c.calls++
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
}

// prepare opens a connection ahead of the next call's need. The caller holds
// p.mu.
func (p *pool) prepare(logger log.Logger) {
	if p.next == nil && p.server.IdleTimeout != CloseAtOnce {
		p.next = p.open(nil, logger)
	}
}

// open starts to open a connection. The caller holds p.mu.
func (p *pool) open(argument json.RawMessage, logger log.Logger) *opening {
	o := &opening{done: make(chan struct{})}
	if p.life.Err() != nil {
		o.err = stopping()
		close(o.done)
		return o
	}
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeoutCause(p.life, p.server.ConnectTimeout, &timeoutError{what: "no connection to the server", timeout: p.server.ConnectTimeout})
		defer cancel()
		s, err := p.dialWithin(ctx, argument, logger)

		p.mu.Lock()
		defer p.mu.Unlock()
		defer close(o.done)
		waited := p.next == o
		if err != nil {
			o.err = err
			if waited {
				p.next = nil
			}
			return
		}
		c := &conn{session: s, pool: p}
		p.conns[c] = struct{}{}
		if p.life.Err() != nil {
			o.err = stopping()
			p.closeConn(c)
			return
		}
		o.conn = c
		p.wg.Go(func() { p.watch(c) })
		if argument != nil {
			return
		}
		p.single = !s.modern() && !p.server.Stateless
		if !waited {
			return // a call has claimed it
		}
		if p.single {
			// The call that waits for it needs a moment to take it.
			p.startIdle(c, max(p.server.IdleTimeout, time.Second))
			return
		}
		p.shared, p.next = c, nil
		o.shared = true
		if c.calls = o.waiters; c.calls == 0 {
			p.startIdle(c, p.server.IdleTimeout)
		}
	})
	return o
}

// dialWithin does not wait for code that does not heed its context: a factory
// of the publisher's, a write to a process that does not read.
func (p *pool) dialWithin(ctx context.Context, argument json.RawMessage, logger log.Logger) (*session, error) {
	type result struct {
		session *session
		err     error
	}
	results := make(chan result)
	p.wg.Go(func() {
		s, err := func() (_ *session, err error) {
			defer func() {
				if r := recover(); r != nil { // in a transport of the publisher's own
					err = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: fmt.Sprintf("connecting: panic: %v", r)})
				}
			}()
			return p.dial(ctx, argument, logger)
		}()
		select {
		case results <- result{s, err}:
		case <-ctx.Done():
			if s != nil {
				s.cut()
			}
		}
	})
	select {
	case r := <-results:
		return r.session, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *pool) dial(ctx context.Context, argument json.RawMessage, logger log.Logger) (*session, error) {
	env := p.env
	// The connection outlives the operation whose logger this is.
	env.logger = log.With(logger, "MCPServer", p.server.Name)
	transport, err := p.server.Transport.open(ctx, argument, env)
	if err != nil {
		e := mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: err.Error()})
		app, ok := errors.AsType[*temporal.ApplicationError](err)
		e.NonRetryable = ok && app.NonRetryable() || errors.Is(err, errNoTransport)
		return nil, e
	}
	s, ex, err := connect(ctx, &p.server, transport, env.logger, env.limit)
	if errors.Is(err, errHidden) {
		e := mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: err.Error()})
		e.NonRetryable = true
		return nil, e
	}
	if err != nil {
		_, err = outcome(ctx, ex, fmt.Errorf("connecting: %w", err))
		return nil, err
	}
	return s, nil
}

// watch notices a connection that ends by itself.
func (p *pool) watch(c *conn) {
	c.wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retire(c)
	if c.calls == 0 {
		p.closeConn(c)
	}
}

// retire lets no new call use the connection. The caller holds p.mu.
func (p *pool) retire(c *conn) {
	c.retired = true
	if p.shared == c {
		p.shared = nil
	}
	if p.next != nil && p.next.conn == c {
		p.next = nil
	}
}

// startIdle begins the time after which an unused connection is closed. The
// caller holds p.mu.
func (p *pool) startIdle(c *conn, timeout time.Duration) {
	if p.server.IdleTimeout == KeepOpen {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(timeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.idle == timer { // else a call took it just now
			p.retire(c)
			p.closeConn(c)
		}
	})
	c.idle = timer
}

// closeConn closes a connection. The caller holds p.mu.
func (p *pool) closeConn(c *conn) {
	if _, ok := p.conns[c]; !ok {
		return
	}
	delete(p.conns, c)
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	p.wg.Go(c.close)
}

// release ends a call's use of the connection. The call's error tells whether
// the connection is fit for another.
func (c *conn) release(err error) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.calls--
	if retires(err) {
		p.retire(c)
	}
	if c.calls > 0 {
		return
	}
	if c.retired || p.shared != c {
		p.retire(c)
		p.closeConn(c)
		return
	}
	p.startIdle(c, p.server.IdleTimeout)
}

// retires reports whether an error says that the connection is no good: it
// closed, did not answer in time, lost its session, or the server no longer
// speaks its version. A JSON-RPC error or an HTTP status is an answer.
func retires(err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[*mcpnexus.Error](err)
	if !ok {
		return true
	}
	switch e.Type {
	case mcpnexus.ErrorTypeTransport:
		_, lost := errors.AsType[*lostSession](err)
		return lost || e.HTTPStatus == 0
	case mcpnexus.ErrorTypeTimeout:
		return true
	case mcpnexus.ErrorTypeProtocol:
		return e.Code == mcp.CodeUnsupportedProtocolVersion
	}
	return false
}

// closeTimeout is how long the connections may take to end: a process may use
// three times terminateAfter.
const closeTimeout = 4 * terminateAfter

// close ends all connections, also those that calls still use, and waits for
// their end, ctx's, or closeTimeout.
func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	p.end(errStopping)
	for c := range p.conns {
		if c.calls > 0 {
			p.wg.Go(c.cut)
		}
		p.retire(c)
		p.closeConn(c)
	}
	p.mu.Unlock()

	closed := make(chan struct{})
	go func() {
		p.wg.Wait()
		close(closed)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, closeTimeout, &timeoutError{what: "they did not end", timeout: closeTimeout})
	defer cancel()
	defer p.env.http.close()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("server %q: closing its connections: %w", p.server.Name, context.Cause(ctx))
	}
}

func stopping() *mcpnexus.Error {
	return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: errStopping.Error()})
}
