package caller

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"
)

// DefaultLimit is how many Nexus operations a Temporal server lets one workflow
// have open by default (component.nexusoperations.limit.operation.concurrency).
const DefaultLimit = 30

// Limit is how many Nexus operations the clients that share it may have open at
// the same time in one workflow run. Calls beyond it wait, in the order in which
// they were made.
//
// A workflow that schedules one operation more than the server allows fails its
// workflow task, and every retry of it: it hangs until someone changes the
// server or the code. So give all clients of a workflow one Limit, and a lower
// one if the workflow also opens Nexus operations in other ways. A child
// workflow has the server's whole allowance for itself. The zero value is a
// limit of [DefaultLimit].
//
// Calls also wait for the next workflow task when the requests of this one would
// have more than 3 MiB together: a workflow task of more than 4 MiB, which is what
// gRPC carries by default, makes the Temporal server terminate the workflow. A
// timer of a millisecond, which the history shows, brings the next task about: about a
// second later, as Temporal's timers go.
//
// A call waits until an operation has ended. When its context is cancelled
// before, it returns a CanceledError and nothing is scheduled. All coroutines of
// the workflow may use a Limit; another run must not.
type Limit struct {
	max int // 0 is DefaultLimit, see places
	run run

	open    int // calls that have a place
	waiting []*turn
	// bytes is what the workflow task with the number task schedules.
	bytes, task int
	ticking     bool // a timer will bring the next workflow task about
	// watches has one entry for each cancellation scope with a waiting turn.
	// It is never ranged over.
	watches map[workflow.Channel]*watch
}

// turn is a call on its way to a place under a limit.
type turn struct {
	ctx     workflow.Context
	client  *Client
	request request
	result  settler
}

func (t *turn) size() int { return len(t.request.input) }

// watch is the coroutine that notices that a cancellation scope is cancelled.
// The calls of a fan-out usually share one scope, and 1,000 coroutines would
// cost each workflow task 1,000 turns of the SDK's scheduler.
type watch struct {
	waiting int
	idle    workflow.Settable // set when no call of the scope waits any more
}

// NewLimit returns a limit of max open operations. Zero means [DefaultLimit]; a
// negative max makes every call under the limit fail.
func NewLimit(max int) *Limit { return &Limit{max: max} }

func (l *Limit) validate() error {
	if l.max < 0 {
		return fmt.Errorf("a Limit of %d open operations lets nothing through, want at least 1, or 0 for %d", l.max, DefaultLimit)
	}
	return nil
}

func (l *Limit) places() int { return cmp.Or(l.max, DefaultLimit) }

// admit gives the turn a place, now or when those before it have had theirs. It
// does not block.
func (l *Limit) admit(t *turn) {
	if len(l.waiting) == 0 && l.open < l.places() && l.fits(t) {
		l.start(t)
		return
	}
	l.watch(t.ctx)
	l.waiting = append(l.waiting, t)
	l.drain()
}

// drain starts those who waited longest, as many as there is room for.
func (l *Limit) drain() {
	for len(l.waiting) > 0 && l.open < l.places() {
		t := l.waiting[0]
		if !l.fits(t) {
			l.tick(t.ctx)
			return
		}
		l.waiting[0] = nil
		l.waiting = l.waiting[1:]
		l.unwatch(t.ctx)
		l.start(t)
	}
}

// maxTaskBytes is the most bytes of requests that one workflow task schedules. It
// leaves a quarter of gRPC's 4 MiB to what else the workflow does.
const maxTaskBytes = 3 << 20

// fits reports whether the turn's request is not too much for this workflow task.
// Every request fits into a task of its own.
func (l *Limit) fits(t *turn) bool {
	// The history's length is the same throughout a workflow task, and greater in
	// the next. A test environment has none unless the test sets it.
	if task := workflow.GetInfo(t.ctx).GetCurrentHistoryLength(); task != l.task || task == 0 {
		l.task, l.bytes = task, 0
	}
	return l.bytes+t.size() <= maxTaskBytes
}

// tick drains again in the next workflow task.
func (l *Limit) tick(ctx workflow.Context) {
	if l.ticking {
		return
	}
	l.ticking = true
	task := l.task
	ctx, _ = workflow.NewDisconnectedContext(ctx) // whoever waits now may give up
	workflow.GoNamed(ctx, "waiting for the next workflow task", func(ctx workflow.Context) {
		_ = workflow.NewTimerWithOptions(ctx, time.Millisecond, workflow.TimerOptions{Summary: "more requests in the next workflow task"}).Get(ctx, nil)
		l.ticking = false
		if l.task == task {
			l.bytes = 0 // also where the history's length stands still
		}
		l.drain()
	})
}

// start runs the turn in a coroutine, with its own context. The SDK runs new
// coroutines in the order in which they are made, so that turns start in the
// order in which they were admitted. And what the current coroutine cancels
// before it next blocks is never scheduled.
func (l *Limit) start(t *turn) {
	l.open++
	l.bytes += t.size()
	workflow.GoNamed(t.ctx, t.request.operation, func(ctx workflow.Context) {
		t.run(ctx)
		l.leave()
	})
}

// leave gives the place of an operation that has ended to who waited longest.
//
// The SDK shows the end of an operation to the workflow only once the server
// has closed it, so the command that takes the place over, even one of the same
// workflow task, meets a server that no longer counts the old one.
func (l *Limit) leave() {
	l.open--
	l.drain()
}

// watch makes sure that the cancellation of ctx is noticed while a turn waits.
func (l *Limit) watch(ctx workflow.Context) {
	scope := ctx.Done()
	if w := l.watches[scope]; w != nil {
		w.waiting++
		return
	}
	idle, settable := workflow.NewFuture(ctx)
	if l.watches == nil {
		l.watches = make(map[workflow.Channel]*watch)
	}
	l.watches[scope] = &watch{waiting: 1, idle: settable}
	workflow.GoNamed(ctx, "calls waiting for their turn", func(ctx workflow.Context) {
		workflow.NewSelector(ctx).
			AddFuture(idle, func(workflow.Future) {}).
			AddReceive(scope, func(workflow.ReceiveChannel, bool) {}).
			Select(ctx)
		if !idle.IsReady() {
			l.cancel(scope, ctx.Err())
		}
	})
}

// unwatch is told of each turn that waits no longer.
func (l *Limit) unwatch(ctx workflow.Context) {
	w := l.watches[ctx.Done()]
	if w.waiting--; w.waiting == 0 {
		delete(l.watches, ctx.Done())
		w.idle.SetValue(nil)
	}
}

// cancel drops the waiting turns of a cancelled scope.
func (l *Limit) cancel(scope workflow.Channel, err error) {
	delete(l.watches, scope)
	l.waiting = slices.DeleteFunc(l.waiting, func(t *turn) bool {
		if t.ctx.Done() != scope {
			return false
		}
		t.result.SetError(err)
		return true
	})
	l.drain() // one that did not fit may have been in the way
}
