package handler

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/log"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// declarations remember what the tools of one server declare of themselves, so
// that a call need not ask. It is safe for concurrent use.
//
// What is remembered is replaced by each complete list that a connection reads
// and forgotten when the server says that its list changed. It says so on a
// connection that is open: one of a protocol version with sessions, or one of
// stdio and its like, where the SDK subscribes (SEP-2575). Over streamable HTTP
// word of a change needs a stream that stays open for nothing else, which many
// proxies cut and many servers pay for; and a connection that calls do not share
// is gone before anything changes. There a list that is used is read again when
// it has reached relistAfter.
type declarations struct {
	mu    sync.Mutex
	lists map[digest]*toolList
	// clock counts what happens, so that of two events the later one is known.
	clock uint64
}

const (
	// maxToolLists is for how many factory arguments the tools are remembered.
	maxToolLists = 64
	// maxToolNames is the most bytes that the names of one list take.
	maxToolNames = 1 << 20
	// relistAfter is the age at which a list is read again, while calls still rely
	// on it. The server's ttlMs (SEP-2549) is no better guide: most give 0, and
	// every call would list the tools first.
	relistAfter = 5 * time.Minute
	// askAgainAfter is for how long a tool that the server did not list is taken
	// to declare nothing.
	askAgainAfter = time.Minute
	// maxAbsent is for how many tools that is remembered. Of others it is found out
	// each time.
	maxAbsent = 1000
	// listEvery is the least time between two lists for the sake of tools that are not
	// in the last one. Callers may invent names as fast as they like.
	listEvery = time.Second
)

func newDeclarations() *declarations {
	return &declarations{lists: make(map[digest]*toolList)}
}

// A digest stands for what a caller gives, the size of which has no limit: a factory
// argument, with which the server may have other tools, or a tool's name. Zero stands
// for nothing.
type digest [sha256.Size]byte

func digestOf(given []byte) digest {
	if len(given) == 0 {
		return digest{}
	}
	return sha256.Sum256(given)
}

// A toolSet is what the tools of one list declare. It does not change.
type toolSet struct {
	// destructive has each tool's name, and whether it declares that calling it
	// twice destroys more than calling it once.
	destructive map[string]bool
	// rest is what any other tool is taken to declare: true if the list has more
	// destructive tools than are remembered.
	rest bool
	// refused is true when the server does not list its tools, whatever their names.
	refused bool
}

func newToolSet(tools []*mcp.Tool) *toolSet {
	set := &toolSet{destructive: make(map[string]bool)}
	room := maxToolNames
	// Those that must not be forgotten go first.
	for _, destructive := range []bool{true, false} {
		for _, tool := range tools {
			if isDestructive(tool) != destructive {
				continue
			}
			if room -= len(tool.Name) + toolNameOverhead; room < 0 {
				set.rest = set.rest || destructive
				return set
			}
			// A list may name a tool twice, and mean the destructive one.
			if !set.destructive[tool.Name] {
				set.destructive[strings.Clone(tool.Name)] = destructive
			}
		}
	}
	return set
}

// toolNameOverhead is about what a name takes in a map beside its bytes.
const toolNameOverhead = 32

// isDestructive reports whether a tool says of itself that it is
// destructive and not idempotent. The protocol's default for destructiveHint is
// true, but a server that says nothing has declared nothing: most do not.
func isDestructive(tool *mcp.Tool) bool {
	a := tool.Annotations
	return a != nil && a.DestructiveHint != nil && *a.DestructiveHint && !a.IdempotentHint
}

// of returns what a tool declares, and whether it is in the list.
func (t *toolSet) of(tool string) (destructive, known bool) {
	destructive, known = t.destructive[tool]
	return destructive || !known && t.rest, known || t.rest
}

// A toolList is what is known of the tools for one factory argument.
type toolList struct {
	tools *toolSet  // nil when not known
	taken time.Time // when the server listed them, or would not
	// former are the tools that were known before the server said that they changed.
	former *toolSet
	// absent are the tools that the handler itself listed in vain for, and when. A
	// caller's own list may be another one: its _meta is its own.
	absent map[digest]time.Time
	// tried is when the handler last began to list them, and asked when it began to
	// for the last time that it could.
	tried, asked time.Time
	inquiry      *inquiry // that is going on or about to, or nil

	used, changed uint64 // by the clock
}

// An inquiry is one listing of the tools, for which all who ask wait.
type inquiry struct {
	begins time.Time
	sought map[digest]string // tools for whose sake it is made, with their names
	done   chan struct{}
	tools  *toolSet // once done; nil if it failed for a reason that may pass
}

// A finding is what the memory has to say of a tool.
type finding struct {
	destructive bool
	// wait is the inquiry that will tell, if it is not known yet.
	wait *inquiry
	// begin is one that whoever asked must begin: wait, or one that renews an old
	// list.
	begin *inquiry
}

// ask looks a tool up. One that is not in the list is sought in one that the server is
// asked for after the given time. It is on the way of every call: no I/O, no allocation
// when the tool is known.
func (d *declarations) ask(key digest, tool string, since, now time.Time) (f finding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.list(key)
	begins := now
	if l.tools != nil {
		var known bool
		if f.destructive, known = l.tools.of(tool); known {
			if now.Sub(l.taken) > relistAfter && now.Sub(l.tried) > askAgainAfter && l.inquiry == nil {
				f.begin = l.inquire(now)
			}
			return f
		}
		if !l.asked.Before(since) || !l.mayHave(tool, now) {
			return f
		}
		if next := l.tried.Add(listEvery); next.After(now) {
			begins = next
		}
	}
	if l.inquiry == nil {
		f.begin = l.inquire(begins)
	}
	f.wait = l.inquiry
	f.wait.seek(tool, since)
	return f
}

// recall reports whether a tool is known to be destructive, however old the list.
func (d *declarations) recall(key digest, tool string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lists[key]
	if l == nil {
		return false
	}
	known := l.tools
	if known == nil {
		known = l.former
	}
	if known == nil {
		return false
	}
	destructive, _ := known.of(tool)
	return destructive
}

// mayHave reports whether a tool that is not in the list may have come since.
func (l *toolList) mayHave(tool string, now time.Time) bool {
	since, absent := l.absent[digestOf([]byte(tool))]
	if l.tools.refused {
		since, absent = l.taken, true
	}
	return !absent || now.Sub(since) >= askAgainAfter
}

func (l *toolList) inquire(begins time.Time) *inquiry {
	l.tried = begins
	l.inquiry = &inquiry{begins: begins, sought: make(map[digest]string), done: make(chan struct{})}
	return l.inquiry
}

// seek notes that the inquiry is made for the sake of a tool, unless it was begun
// before the given time.
func (i *inquiry) seek(tool string, since time.Time) {
	if !i.begins.Before(since) && len(i.sought) < maxAbsent && len(tool) <= maxSought {
		i.sought[digestOf([]byte(tool))] = tool
	}
}

// maxSought is the most bytes of a name of which it is remembered that the server does
// not list it.
const maxSought = 1 << 10

// list returns the list for an argument, in place of the one that nobody used
// for the longest if there are too many. The caller holds d.mu.
func (d *declarations) list(key digest) *toolList {
	l := d.lists[key]
	if l == nil {
		if len(d.lists) >= maxToolLists {
			var oldest digest
			least := d.clock + 1
			for k, other := range d.lists {
				if other.used < least {
					oldest, least = k, other.used
				}
			}
			delete(d.lists, oldest)
		}
		l = &toolList{}
		d.lists[key] = l
	}
	d.clock++
	l.used = d.clock
	return l
}

// end tells those who wait for an inquiry that it is over.
func (d *declarations) end(key digest, ended *inquiry, tools *toolSet) {
	d.mu.Lock()
	if l := d.lists[key]; l != nil && l.inquiry == ended {
		l.inquiry = nil
		if tools != nil {
			l.asked = ended.begins
			l.looked(ended.sought, tools, time.Now())
		}
	}
	d.mu.Unlock()
	ended.tools = tools
	close(ended.done)
}

// looked notes which of the tools that were sought are not in the list.
func (l *toolList) looked(sought map[digest]string, tools *toolSet, now time.Time) {
	maps.DeleteFunc(l.absent, func(_ digest, since time.Time) bool { return now.Sub(since) >= askAgainAfter })
	for key, tool := range sought {
		if _, known := tools.of(tool); known || tools.refused || len(l.absent) >= maxAbsent {
			continue
		}
		if l.absent == nil {
			l.absent = make(map[digest]time.Time)
		}
		l.absent[key] = now
	}
}

// A toolMemory is a connection's way to the declarations: those for the factory
// argument with which it was opened.
type toolMemory struct {
	declarations *declarations
	key          digest
}

func (d *declarations) memory(argument json.RawMessage) toolMemory {
	return toolMemory{declarations: d, key: digestOf(argument)}
}

// now returns the time of which a list is that is asked for next.
func (m toolMemory) now() uint64 {
	m.declarations.mu.Lock()
	defer m.declarations.mu.Unlock()
	return m.declarations.clock
}

// remember replaces what is known by a list that was asked for at the time
// since, unless the server has said that it changed after that. It returns what is to
// be believed: a list that cannot be read does not make harmless what was destructive.
func (m toolMemory) remember(tools *toolSet, since uint64) *toolSet {
	m.declarations.mu.Lock()
	defer m.declarations.mu.Unlock()
	l := m.declarations.list(m.key)
	if tools.refused {
		switch {
		case l.tools != nil && !l.tools.refused:
			return l.tools
		case l.former != nil:
			tools = l.former
		}
	}
	if l.changed <= since {
		l.tools, l.taken, l.former = tools, time.Now(), nil
	}
	return tools
}

// forget makes the next call that asks list the tools again.
func (m toolMemory) forget() {
	d := m.declarations
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.lists[m.key]; l != nil {
		d.clock++
		former := l.former
		if l.tools != nil && !l.tools.refused {
			former = l.tools
		}
		// Who waits for an inquiry gets what comes of it, but nobody joins them.
		*l = toolList{former: former, used: l.used, changed: d.clock}
	}
}

// toolsChanged heeds word of a change, on a connection where that has a meaning:
// in a protocol version with sessions it is about the session's own list. On one
// where nobody has read it, it says nothing of a list that we know. There are
// servers that add tools as soon as they know the client, and so send word on
// every connection; heeding that, every call would list the tools first.
func (s *session) toolsChanged(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if method == "notifications/tools/list_changed" && (s.sharesTools.Load() || s.tools.Load() != nil) {
			s.memory.forget()
		}
		return next(ctx, method, req)
	}
}

// toolsKnown remembers a complete list, asked for at the time since, and returns what is
// to be believed.
func (s *session) toolsKnown(tools *toolSet, since uint64) *toolSet {
	tools = s.memory.remember(tools, since)
	s.tools.Store(tools)
	return tools
}

// declaresDestructive reports whether a tool says of itself that it destroys and
// that calling it twice is not the same as once. What a tool does not say it
// does not declare; nor does a tool that the server does not list, nor, unless an
// earlier list said otherwise, any tool of a server that refuses to list them or whose
// list is too large to be read.
//
// known is false when ctx ended before the tools were listed, or when listing them
// failed for a reason that may pass. It then reports what an earlier list said.
func (s *service) declaresDestructive(ctx context.Context, argument json.RawMessage, tool string, since time.Time, logger log.Logger) (destructive, known bool) {
	for {
		f := s.pool.declarations.ask(digestOf(argument), tool, since, time.Now())
		if f.begin != nil {
			s.pool.learn(argument, f.begin, logger)
		}
		if f.wait == nil {
			return f.destructive, true
		}
		select {
		case <-f.wait.done:
		case <-ctx.Done():
			return s.pool.declarations.recall(digestOf(argument), tool), false
		}
		if f.wait.tools == nil {
			return s.pool.declarations.recall(digestOf(argument), tool), false
		}
		// One that was begun before may have missed a tool that is new.
		if destructive, listed := f.wait.tools.of(tool); listed || !f.wait.begins.Before(since) {
			return destructive, true
		}
	}
}

// learn lists the tools, for as long as learnTimeout: the first who asked may
// not wait for it, but others do.
func (p *pool) learn(argument json.RawMessage, i *inquiry, logger log.Logger) {
	key := digestOf(argument)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		p.declarations.end(key, i, nil)
		return
	}
	p.wg.Go(func() {
		select {
		case <-time.After(time.Until(i.begins)):
		case <-p.life.Done():
			p.declarations.end(key, i, nil)
			return
		}
		ctx, cancel := context.WithTimeout(p.life, learnTimeout)
		defer cancel()
		tools, err := p.listTools(ctx, argument, logger)
		if err != nil && p.life.Err() == nil {
			warn(logger, "Listing an MCP server's tools failed: it is not known which of them must not run twice", "MCPServer", p.server.Name, "error", err)
		}
		p.declarations.end(key, i, tools)
	})
}

// listTools lists the tools on a connection of the pool. On error it is not known
// what they declare.
func (p *pool) listTools(ctx context.Context, argument json.RawMessage, logger log.Logger) (*toolSet, error) {
	c, err := p.borrow(ctx, argument, logger)
	if err != nil {
		return nil, err
	}
	tools, err := c.readTools(ctx)
	switch {
	case err == nil:
		c.giveBack(logger) // without anything of a caller's in it
	case ctx.Err() != nil:
		c.release(nil) // that a list takes long does not mean that calls would
	default:
		c.release(err)
	}
	return tools, err
}

func (c *conn) readTools(ctx context.Context) (tools *toolSet, err error) {
	// A transport may be the publisher's own code.
	defer recovered(&err, "panic: %v")
	defer c.cutWhenStuck(ctx)()
	since := c.memory.now()
	if init := c.client.InitializeResult(); init != nil && init.Capabilities != nil && init.Capabilities.Tools != nil {
		_, err := c.list(ctx, listTools, object{}, c.limit)
		if err == nil {
			return c.tools.Load(), nil
		}
		e, ok := errors.AsType[*mcpnexus.Error](err)
		refused := ok && e.NonRetryable && (e.Type == mcpnexus.ErrorTypeProtocol || e.Type == mcpnexus.ErrorTypeResultTooLarge)
		if !refused {
			return nil, err
		}
	}
	none := newToolSet(nil)
	none.refused = true
	return c.toolsKnown(none, since), nil
}
