package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
// start: one, or up to [MaxOpenAhead] when calls follow each other faster than
// connections open. It is safe for concurrent use.
//
// A connection that is being opened belongs to no call: it goes to whoever waits
// the longest when it is there. A call that gave up has not opened it in vain.
type pool struct {
	server Server
	env    environment
	// declarations are what the server's tools declared on any connection.
	declarations *declarations

	// life ends with the pool, and with it every connection that is being opened.
	life context.Context
	end  context.CancelCauseFunc

	mu     sync.Mutex
	shared *conn
	// single is true once the server turned out to keep sessions.
	single  bool
	waiting []*waiter // first come, first served
	ready   []*conn   // with single: those that no call has, oldest first
	opening int       // connections that are being opened for any call
	// ahead is how many connections shall be ready or being opened for the next calls,
	// with single. It grows when they were not enough, once for each that opens: a
	// burst of calls shows no more than one does, nor does a server that hangs. It
	// shrinks when nobody needed one, and a failure resets it.
	ahead int
	grown bool // since a connection was last opened

	conns map[*conn]struct{} // all that exist
	wg    sync.WaitGroup     // of goroutines that open or close connections
}

// A conn is a session in a pool's care.
type conn struct {
	*session
	pool *pool

	// alone is true when a factory argument made it for one call, and with it for
	// one tenant.
	alone bool

	// Guarded by pool.mu.
	calls   int
	used    bool // by a call that has ended
	retired bool
	idle    *time.Timer
	// closing is closed when the connection is no longer the pool's.
	closing chan struct{}
}

// A waiter is a call without a connection yet.
type waiter struct {
	delivery chan delivery // of one
	// call is true unless the connection comes back for the next call to have.
	call bool
	left bool // guarded by pool.mu
}

type delivery struct {
	conn *conn // counts the call already
	err  error
}

var errStopping = errors.New("the worker is stopping")

func newPool(server Server, limit int64) *pool {
	if server.IdleTimeout == 0 {
		server.IdleTimeout = DefaultIdleTimeout
	}
	if server.ConnectTimeout == 0 {
		server.ConnectTimeout = DefaultConnectTimeout
	}
	p := &pool{server: server, env: environment{limit: limit, http: &sharedClient{}}, declarations: newDeclarations(), ahead: 1, conns: make(map[*conn]struct{})}
	p.life, p.end = context.WithCancelCause(context.Background())
	return p
}

// acquire returns a connection for one call, which must release it.
func (p *pool) acquire(ctx context.Context, argument json.RawMessage, logger log.Logger) (*conn, error) {
	return p.take(ctx, argument, logger, true)
}

// borrow returns a connection for the handler's own use, which must give it back
// or release it. The next call can have it, so that none is opened ahead.
func (p *pool) borrow(ctx context.Context, argument json.RawMessage, logger log.Logger) (*conn, error) {
	return p.take(ctx, argument, logger, false)
}

func (p *pool) take(ctx context.Context, argument json.RawMessage, logger log.Logger, call bool) (*conn, error) {
	w := &waiter{delivery: make(chan delivery, 1), call: call}
	p.mu.Lock()
	switch {
	case p.life.Err() != nil:
		p.mu.Unlock()
		return nil, stopping()
	case len(argument) > 0:
		p.open(argument, logger, w)
	case p.shared != nil:
		p.give(w, p.shared)
	case len(p.ready) > 0:
		// The newest, so that those beyond need become idle.
		last := len(p.ready) - 1
		c := p.ready[last]
		p.ready = p.ready[:last]
		p.give(w, c)
		p.openFor(w, logger)
	default:
		if w.call && p.single && p.opening >= p.ahead && !p.grown {
			p.ahead = min(p.ahead+1, MaxOpenAhead)
			p.grown = true
		}
		p.waiting = append(p.waiting, w)
		p.openFor(w, logger)
	}
	p.mu.Unlock()

	select {
	case d := <-w.delivery:
		return d.conn, d.err
	case <-ctx.Done():
	}
	p.mu.Lock()
	w.left = true
	p.waiting = slices.DeleteFunc(p.waiting, func(other *waiter) bool { return other == w })
	p.mu.Unlock()
	select {
	case d := <-w.delivery: // just now
		if d.conn != nil {
			d.conn.giveBack(logger)
		}
	default:
	}
	return nil, fmt.Errorf("the connection is not there yet: %w", context.Cause(ctx))
}

// give lets a call have the connection. The caller holds p.mu.
func (p *pool) give(w *waiter, c *conn) {
	c.calls++
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	w.delivery <- delivery{conn: c}
}

// openFor opens what the waiting calls need and is not being opened yet, and if w
// is a call, what the next ones need. The caller holds p.mu.
func (p *pool) openFor(w *waiter, logger log.Logger) {
	need := len(p.waiting)
	if !p.single {
		// One will do for all, or show that it does not.
		need = min(need, 1)
	} else if w.call && p.server.IdleTimeout != CloseAtOnce {
		need = max(need, p.ahead-len(p.ready))
	}
	for p.opening < need {
		p.opening++
		p.open(nil, logger, nil)
	}
}

// open opens a connection: for one call if it has an argument, or else for
// whoever waits then. The caller holds p.mu.
func (p *pool) open(argument json.RawMessage, logger log.Logger, alone *waiter) {
	p.wg.Go(func() {
		ctx, cancel := context.WithTimeoutCause(p.life, p.server.ConnectTimeout, &timeoutError{
			what: "no connection to the server", timeout: p.server.ConnectTimeout,
			why: "; one that takes longer to start needs a longer Server.ConnectTimeout, one that does not answer requests that it does not know needs Server.ProtocolVersion",
		})
		defer cancel()
		s, err := p.dialWithin(ctx, argument, logger)
		if err != nil && p.life.Err() == nil {
			warn(logger, "Opening a connection to an MCP server failed", "MCPServer", p.server.Name, "error", err)
		}

		p.mu.Lock()
		defer p.mu.Unlock()
		if alone == nil {
			p.opening--
		}
		if err != nil {
			p.opened(alone, err)
			return
		}
		c := &conn{session: s, pool: p, alone: alone != nil, closing: make(chan struct{})}
		p.conns[c] = struct{}{}
		if p.life.Err() != nil {
			p.closeConn(c)
			p.opened(alone, stopping())
			return
		}
		go p.watch(c) // until the SDK lets go of it
		if alone != nil {
			if alone.left {
				p.closeConn(c)
				return
			}
			p.give(alone, c)
			return
		}
		if p.single = !s.modern() && !p.server.Stateless; p.single {
			p.grown = false
			p.offer(c, logger)
			return
		}
		if p.shared != nil { // another one was faster
			p.closeConn(c)
			return
		}
		p.shared = c
		for _, w := range p.waiting {
			p.give(w, c)
		}
		if p.waiting = nil; c.calls == 0 {
			p.startIdle(c)
		}
	})
}

// opened tells the calls concerned that a connection could not be opened: the
// one that it was for, all that were to share it, or the one that waits the
// longest, unless those that are still being opened are enough for all that wait.
// The caller holds p.mu.
func (p *pool) opened(alone *waiter, err error) {
	concerned := []*waiter{alone}
	if alone == nil {
		p.ahead = 1 // of a server that is not there, each call tries one
		n := len(p.waiting)
		if p.single {
			n = max(0, n-p.opening)
		}
		concerned, p.waiting = p.waiting[:n:n], p.waiting[n:]
	}
	for _, w := range concerned {
		w.delivery <- delivery{err: err}
	}
}

// offer gives a connection that calls do not share to who waits the longest, or
// keeps it ready for the next call. The caller holds p.mu.
func (p *pool) offer(c *conn, logger log.Logger) {
	if len(p.waiting) > 0 {
		w := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.give(w, c)
		p.openFor(w, logger)
		return
	}
	if p.server.IdleTimeout == CloseAtOnce || len(p.ready) >= p.ahead {
		p.retire(c)
		p.closeConn(c)
		return
	}
	p.ready = append(p.ready, c)
	p.startIdle(c)
}

// giveBack returns a connection that the call did not use after all.
func (c *conn) giveBack(logger log.Logger) {
	p := c.pool
	p.mu.Lock()
	if p.single && p.shared != c && !c.alone && !c.retired && !c.used && p.life.Err() == nil {
		c.calls--
		p.offer(c, logger)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	c.release(nil)
}

// cutWhenStuck breaks the connection when ctx has ended and what uses it goes on
// all the same, until stop is called: a write that does not heed ctx would keep
// the connection busy for ever.
func (c *conn) cutWhenStuck(ctx context.Context) (stop func()) {
	finished := make(chan struct{})
	forget := context.AfterFunc(ctx, func() {
		select {
		case <-finished:
		case <-time.After(terminateAfter):
			c.cut()
		}
	})
	return func() {
		forget()
		close(finished)
	}
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
				s.close()
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
		e := mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: forCallers(err)})
		app, ok := errors.AsType[*temporal.ApplicationError](err)
		e.NonRetryable = ok && app.NonRetryable() || errors.Is(err, errNoTransport)
		return nil, &connectError{told: e, detail: forLog(err)}
	}
	s, ex, err := connect(ctx, &p.server, transport, env.logger, env.limit, p.declarations.memory(argument))
	if errors.Is(err, errHidden) {
		e := mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: err.Error()})
		e.NonRetryable = true
		return nil, e
	}
	if err != nil {
		told := handshakeError(ctx, ex, err)
		if e, ok := errors.AsType[*mcpnexus.Error](told); ok {
			e.Message = "connecting: " + e.Message
		}
		detail := told
		if e, ok := errors.AsType[*mcpnexus.Error](told); ok && e.Type == mcpnexus.ErrorTypeTransport && e.HTTPStatus == 0 {
			detail = err
		}
		return nil, &connectError{told: told, detail: forLog(detail)}
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
	if i := slices.Index(p.ready, c); i >= 0 {
		p.ready = slices.Delete(p.ready, i, i+1)
		p.ahead = max(p.ahead-1, 1) // nobody needed it
	}
}

// startIdle begins the time after which an unused connection is closed. The
// caller holds p.mu.
func (p *pool) startIdle(c *conn) {
	if p.server.IdleTimeout == KeepOpen {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(p.server.IdleTimeout, func() {
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
	close(c.closing)
}

// release ends a call's use of the connection. The call's error tells whether
// the connection is fit for another.
func (c *conn) release(err error) {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.calls--
	c.used = true
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
	p.startIdle(c)
}

// retires reports whether an error says that the connection is no good: it
// closed, did not answer in time, lost its session, or the server no longer
// speaks its version. A JSON-RPC error or an HTTP status is an answer.
func retires(err error) bool {
	if err == nil {
		return false
	}
	if _, notSent := errors.AsType[*unsent](err); notSent {
		return false
	}
	if _, lost := errors.AsType[*lostSession](err); lost {
		return true
	}
	e, ok := errors.AsType[*mcpnexus.Error](err)
	if !ok {
		return !isCancelled(err) // which says nothing of the server
	}
	switch e.Type {
	case mcpnexus.ErrorTypeTransport:
		return e.HTTPStatus == 0
	case mcpnexus.ErrorTypeTimeout:
		return true
	case mcpnexus.ErrorTypeProtocol:
		return e.Code == mcp.CodeUnsupportedProtocolVersion
	}
	return false
}

// closeTimeout is how long the connections may take to end: their calls may use
// half of terminateAfter, a process four times.
const closeTimeout = 5 * terminateAfter

// close ends all connections, also those that calls still use, and waits for
// their end, ctx's, or closeTimeout.
func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	p.end(errStopping)
	for c := range p.conns {
		if p.retire(c); c.calls == 0 {
			p.closeConn(c)
			continue
		}
		// Its calls were cancelled. They say so to the server, and the last one
		// closes the connection.
		p.wg.Go(func() {
			select {
			case <-c.closing:
				return
			case <-time.After(terminateAfter / 2):
			}
			c.cut()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.closeConn(c)
		})
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
