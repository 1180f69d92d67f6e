package handler

import (
	"context"
	"encoding/json"
	"hash/maphash"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A call is what this process does for one operation before, if at all, a
// durable workflow takes over: the first attempt, or all attempts of a request
// that runs inline. It goes on when the Nexus request that began it has ended.
type call struct {
	key   string
	began time.Time
	// ctx and stop are there until the call has ended. An outcome is kept for
	// minutes, and not with it the Nexus request, which they hold.
	ctx  context.Context
	stop atomic.Pointer[context.CancelCauseFunc]
	// ended is closed when the outcome is set.
	ended chan struct{}
	ending
	// progress is what the server reported last.
	progress atomic.Pointer[progressDetails]

	// Guarded by calls.mu. A call that was handed off is owed to the workflow that
	// asks for its outcome, until it has it or nobody asks.
	owed bool
	// claimed is true once somebody has asked, and claims are those who wait for it.
	claimed   bool
	claims    int
	unclaimed *time.Timer
	// kept is true when only the debt keeps the call from being forgotten.
	kept bool
	// attended is how often it was begun or joined, less those who have left, see attend.
	attended int
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
	// unasked is true when it was cancelled because nobody had asked for its outcome
	// in time. Who does so later wants another attempt.
	unasked bool
	// abandoned is true when the call failed because all clients that waited for it,
	// outside of Temporal, have gone.
	abandoned bool
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
	// kept are the bytes of outcomes that are older or more than what is remembered,
	// but owed.
	kept  int
	sweep *time.Timer
}

type endedCall struct {
	call *call
	at   time.Time
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
	// rememberBytes is the most bytes of outcomes that are remembered. As many may be
	// owed before what comes is run durably.
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
	return service + "/" + operation + "/" + requestID + "/" + strconv.FormatUint(maphash.Bytes(keySeed, input), 16)
}

// begin returns the call with the key. It returns false when that one is new and
// the caller must run it; nil when there is no room for a new one.
func (c *calls) begin(ctx context.Context, key string, room int) (_ *call, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.byKey[key]; found != nil {
		found.attended++
		return found, true
	}
	if c.running >= room || room != noLimit && c.kept >= rememberBytes {
		return nil, false
	}
	c.running++
	began := &call{key: key, began: time.Now(), ended: make(chan struct{}), attended: 1}
	// It may outlive the Nexus request, and keeps its logger.
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	began.ctx = ctx
	began.stop.Store(&stop)
	c.byKey[key] = began
	return began, false
}

// cancel ends the call's context, if the call has not ended.
func (c *call) cancel(cause error) {
	if stop := c.stop.Load(); stop != nil {
		(*stop)(cause)
	}
}

// end notes the outcome of a call, and forgets the oldest.
func (c *calls) end(call *call, o ending) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o.at = time.Now()
	call.ending = o
	call.cancel(nil)
	call.ctx = nil
	call.stop.Store(nil)
	close(call.ended)
	c.running--
	if call.abandoned {
		delete(c.byKey, call.key) // who asks again means it
		return
	}
	c.ended = append(c.ended, endedCall{call: call, at: o.at})
	c.bytes += call.size()
	c.forget()
}

func (c *call) hasEnded() bool { return isClosed(c.ended) }

// attend cancels a call that was begun or joined when ctx ends, unless somebody else
// attends to it. Whoever waits no longer for another reason calls leave.
func (c *calls) attend(ctx context.Context, call *call) (leave func()) {
	left := func() (none bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		call.attended--
		return call.attended == 0
	}
	stop := context.AfterFunc(ctx, func() {
		if left() {
			call.cancel(errAbandoned)
		}
	})
	return func() {
		// A context that has just ended may not have come to what is to follow on that.
		if stop() && left() && ctx.Err() != nil {
			call.cancel(errAbandoned)
		}
	}
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// size is what the call's outcome takes.
func (c *call) size() int {
	const overhead = 1 << 10
	size := len(c.result) + overhead
	if c.failure != nil {
		size += len(c.failure.Data) + len(c.failure.Message)
	}
	return size
}

// forget drops what is too old or too much. The caller holds c.mu.
func (c *calls) forget() {
	for len(c.ended) > 0 && (c.bytes > rememberBytes || time.Since(c.ended[0].at) >= rememberFor) {
		oldest := c.ended[0]
		c.ended[0] = endedCall{}
		c.ended = c.ended[1:]
		c.bytes -= oldest.call.size()
		if oldest.call.owed {
			oldest.call.kept = true
			c.kept += oldest.call.size()
			continue
		}
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

// owe keeps the process from ending, and the outcome from being forgotten, before
// it was asked for. It ends the call, and the debt, when nobody asks soon. The call
// or something else must be busy.
func (c *calls) owe(call *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call.claimed {
		return // by the workflow that an earlier start began
	}
	if !call.owed {
		call.owed = true
		c.busy.Add(1)
		if c.byKey[call.key] == nil { // forgotten just now
			c.byKey[call.key] = call
			call.kept = true
			c.kept += call.size()
		}
	}
	c.awaitClaim(call)
}

// awaitClaim gives up on a call that nobody claims soon. The caller holds c.mu.
func (c *calls) awaitClaim(call *call) {
	if call.unclaimed != nil {
		call.unclaimed.Stop()
	}
	call.unclaimed = time.AfterFunc(claimWithin, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if call.claims == 0 {
			call.cancel(errUnclaimed)
			c.paid(call)
		}
	})
}

// pay ends the debt: the outcome has been, or need not be, handed on.
func (c *calls) pay(call *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paid(call)
}

// paid is pay. The caller holds c.mu.
func (c *calls) paid(call *call) {
	if !call.owed {
		return
	}
	if call.owed = false; call.unclaimed != nil {
		call.unclaimed.Stop()
	}
	if call.kept {
		call.kept = false
		c.kept -= call.size()
		delete(c.byKey, call.key)
	}
	c.busy.Done()
}

// A claim is somebody who waits for a call's outcome. There can be several: a
// process that is slow to say that it lives is asked again. What one hears that ends
// the call is about the request, and so true for all.
type claim struct {
	*call
	calls *calls
}

// claim claims the call with the key. It returns false when that is not known.
func (c *calls) claim(key string) (claim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.byKey[key]
	if call == nil {
		return claim{}, false
	}
	return c.claimed(call), true
}

// claimAgain claims a call that was claimed, or was to be, by an earlier attempt.
// It returns false when the call is not known or has failed so that another attempt
// is to follow on it. The debt is paid then.
func (c *calls) claimAgain(key string) (claim, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.byKey[key]
	switch {
	case call == nil:
		return claim{}, false
	case call.hasEnded() && call.failure != nil && !(call.failure.NonRetryable && !call.stopped && !call.cancelled):
		c.paid(call)
		return claim{}, false
	}
	return c.claimed(call), true
}

// claimed is claim. The caller holds c.mu.
func (c *calls) claimed(call *call) claim {
	call.claimed = true
	call.claims++
	if call.unclaimed != nil {
		call.unclaimed.Stop()
	}
	return claim{call: call, calls: c}
}

// settle says that the outcome was handed on.
func (c claim) settle() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if c.call.claims--; c.call.claims == 0 {
		c.calls.paid(c.call)
	}
}

// leave gives the claim up while the call runs. Another is to claim it soon, if
// nobody has.
func (c claim) leave() {
	c.calls.mu.Lock()
	defer c.calls.mu.Unlock()
	if c.call.claims--; c.call.claims == 0 && c.owed {
		c.calls.awaitClaim(c.call)
	}
}

// isKnown reports whether a call with the key is remembered or runs.
func (c *calls) isKnown(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key] != nil
}

// clear forgets all calls that have ended.
func (c *calls) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, call := range c.byKey {
		if call.hasEnded() {
			delete(c.byKey, key)
			call.kept = false
		}
	}
	c.ended, c.bytes, c.kept = nil, 0, 0
	if c.sweep != nil {
		c.sweep.Stop()
		c.sweep = nil
	}
}
