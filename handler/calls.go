package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A call is what this process does for one operation before, if at all, a
// durable workflow takes over: the first attempt, or all attempts of a request
// that runs inline. It goes on when the Nexus request that began it has ended.
type call struct {
	key    string
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	// ended is closed when the outcome is set.
	ended chan struct{}
	ending
	// progress is what the server reported last.
	progress atomic.Pointer[mcp.ProgressNotificationParams]

	// Guarded by calls.mu. A call that was handed off is owed to the workflow that
	// asks for its outcome, until it has it or nobody asks.
	owed      bool
	claimed   bool
	unclaimed *time.Timer
}

// An ending is what came of a call: a result or a failure.
type ending struct {
	result  json.RawMessage
	failure *mcpnexus.Error
	// stopped is true when the call failed because the worker stops: another
	// worker is to make the attempt instead.
	stopped bool
	// cancelled is true when the call failed because nobody wants its outcome.
	cancelled bool
	at        time.Time
}

// calls are the calls of this process by operation: those that run, and for a
// while those that have ended. Temporal starts an operation again when it has not
// got the answer (the answer was late, or lost, or could not be saved), with the
// same request ID, and is then answered by the call of the first time. It is safe
// for concurrent use.
type calls struct {
	// busy counts the calls that run and those that are owed.
	busy *sync.WaitGroup

	mu      sync.Mutex
	byKey   map[string]*call
	running int
	// ended are in the order in which they ended.
	ended []endedCall
	bytes int
	sweep *time.Timer
}

type endedCall struct {
	call *call
	at   time.Time
	size int
}

const (
	// maxRunning is the most calls that run in the process outside of durable
	// workflows. What comes beyond is run durably, where the worker's own
	// limits hold it back.
	maxRunning = 1000
	// rememberFor is how long the outcome of a call is kept. A start is repeated
	// after a second or so, or after a minute and a half when a circuit breaker was
	// in the way.
	rememberFor = 2 * time.Minute
	// rememberBytes is the most bytes of outcomes that are kept.
	rememberBytes = 64 << 20
	// claimWithin is how long a call that was handed off runs on without anybody
	// who asks for its outcome. The workflow asks at once, and once more by its next
	// attempt; what takes time is a Temporal server that is away meanwhile.
	claimWithin = time.Minute
)

func newCalls(busy *sync.WaitGroup) *calls { return &calls{busy: busy, byKey: make(map[string]*call)} }

var keySeed = maphash.MakeSeed()

// callKey tells operations apart. The request ID alone does in Temporal; a
// client of another kind may use one twice.
func callKey(service, operation, requestID string, input []byte) string {
	return fmt.Sprintf("%s/%s/%s/%x", service, operation, requestID, maphash.Bytes(keySeed, input))
}

// begin returns the call with the key. It returns false when that one is new and
// the caller must run it; nil when there is no room for a new one.
func (c *calls) begin(ctx context.Context, key string, room int) (_ *call, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.byKey[key]; found != nil {
		return found, true
	}
	if c.running >= room {
		return nil, false
	}
	c.running++
	began := &call{key: key, began: time.Now(), ended: make(chan struct{})}
	// It may outlive the Nexus request, and keeps its logger.
	began.ctx, began.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.byKey[key] = began
	return began, false
}

// end notes the outcome of a call, and forgets the oldest.
func (c *calls) end(call *call, o ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.at = time.Now()
	call.ending = o
	call.cancel(nil)
	close(call.ended)
	c.running--
	const overhead = 1 << 10
	entry := endedCall{call: call, at: o.at, size: len(o.result) + overhead}
	if o.failure != nil {
		entry.size += len(o.failure.Data) + len(o.failure.Message)
	}
	c.ended = append(c.ended, entry)
	c.bytes += entry.size
	c.forget()
}

// forget drops what is too old or too much. The caller holds c.mu.
func (c *calls) forget() {
	for len(c.ended) > 0 && (c.bytes > rememberBytes || time.Since(c.ended[0].at) >= rememberFor) {
		oldest := c.ended[0]
		c.ended[0] = endedCall{}
		c.ended = c.ended[1:]
		c.bytes -= oldest.size
		delete(c.byKey, oldest.call.key)
	}
	if len(c.ended) == 0 {
		c.ended = nil
		return
	}
	if c.sweep == nil {
		c.sweep = time.AfterFunc(time.Until(c.ended[0].at.Add(rememberFor)), func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sweep = nil
			c.forget()
		})
	}
}

// owe keeps the process from ending before the call's outcome was asked for. It
// ends the call, and the debt, when nobody asks soon. The call or something else
// must be busy.
func (c *calls) owe(call *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.owed || call.claimed { // by an earlier start
		return
	}
	call.owed = true
	c.busy.Add(1)
	call.unclaimed = time.AfterFunc(claimWithin, func() {
		call.cancel(errUnclaimed)
		c.pay(call)
	})
}

// pay ends the debt.
func (c *calls) pay(call *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.owed {
		call.owed = false
		c.busy.Done()
	}
}

// claim returns the call with the key, which goes on from now on for as long as
// whoever claims it wants, and then pays. Nil when it is not known.
func (c *calls) claim(key string) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.byKey[key]
	if call == nil {
		return nil
	}
	call.claimed = true
	if call.unclaimed != nil {
		call.unclaimed.Stop()
	}
	return call
}

// clear forgets all calls that have ended.
func (c *calls) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, entry := range c.ended {
		delete(c.byKey, entry.call.key)
	}
	c.ended, c.bytes = nil, 0
	if c.sweep != nil {
		c.sweep.Stop()
		c.sweep = nil
	}
}
