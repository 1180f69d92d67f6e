package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporalnexus"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// An operation takes one of these ways, of which the first two end in the
// response to the start request:
//
//	start ─┬─ inline: all attempts, within the time of the Nexus request
//	       ├─ auto: attempt 1 ─┬─ result or permanent error
//	       │                   ├─ retryable error: durable, from attempt 2 on
//	       │                   └─ still running after a while: handed off
//	       └─ durable, or at most once: durable, from attempt 1 on
//
// Durable is [requestWorkflow]. A call that is handed off goes on in this
// process, whose own task queue the workflow asks for the outcome. A [batch] of
// calls takes the same ways.

// registered is an operation as Nexus sees it.
type registered struct {
	nexus.UnimplementedOperation[json.RawMessage, converter.RawValue]
	name  string
	start starter
	// temporal is what a Temporal worker runs. Any other host of the operation has
	// nothing to be durable with.
	temporal nexus.Operation[json.RawMessage, converter.RawValue]
}

// A starter runs an operation, or sees to it that it is run, and answers in the
// terms of Nexus. The client is nil outside of a Temporal worker.
type starter func(ctx context.Context, temporal *temporalnexus.NexusClient, input json.RawMessage, options nexus.StartOperationOptions) (reply, error)

func newRegistered(name string, start starter) *registered {
	return &registered{name: name, start: start, temporal: temporalnexus.MustNewTemporalOperation(temporalnexus.TemporalOperationOptions[json.RawMessage, converter.RawValue]{
		Name: name,
		Start: func(ctx context.Context, c temporalnexus.NexusClient, input json.RawMessage, o temporalnexus.StartTemporalOperationOptions) (durableAnswer, error) {
			r, err := start(ctx, &c, input, nexus.StartOperationOptions{Header: o.Header, RequestID: o.RequestID, Links: o.Links})
			if err != nil {
				return durableAnswer{}, err
			}
			if r.durable != nil {
				return *r.durable, nil
			}
			return temporalnexus.NewSyncResult(plainjson.Payload(r.result)), nil
		},
	})}
}

// Name implements [nexus.Operation].
func (r *registered) Name() string { return r.name }

// Start implements [nexus.Operation].
func (r *registered) Start(ctx context.Context, input json.RawMessage, options nexus.StartOperationOptions) (nexus.HandlerStartOperationResult[converter.RawValue], error) {
	if temporalnexus.IsNexusOperation(ctx) {
		return r.temporal.Start(ctx, input, options)
	}
	answer, err := r.start(ctx, nil, input, options)
	if err != nil {
		return nil, err
	}
	return &nexus.HandlerStartOperationResultSync[converter.RawValue]{Value: plainjson.Payload(answer.result)}, nil
}

// Cancel implements [nexus.Operation]. The token is that of a durable workflow.
func (r *registered) Cancel(ctx context.Context, token string, options nexus.CancelOperationOptions) error {
	return r.temporal.Cancel(ctx, token, options)
}

type durableAnswer = temporalnexus.TemporalOperationResult[converter.RawValue]

// A reply is what a start request is answered with, unless it is an error.
type reply struct {
	result  json.RawMessage
	durable *durableAnswer // instead of a result
}

// A start is a Nexus start request on its way.
type start struct {
	*service
	op       operation
	req      *request
	options  nexus.StartOperationOptions
	temporal *temporalnexus.NexusClient // nil outside of a Temporal worker
	// lookup is how long it has waited to find out what the tool declares.
	lookup time.Duration
}

// starter returns how an operation is started.
func (s *service) starter(op operation) starter {
	return func(ctx context.Context, temporal *temporalnexus.NexusClient, input json.RawMessage, options nexus.StartOperationOptions) (reply, error) {
		return s.start(ctx, temporal, op, input, options)
	}
}

// start starts an operation of one request.
func (s *service) start(ctx context.Context, temporal *temporalnexus.NexusClient, op operation, input json.RawMessage, options nexus.StartOperationOptions) (reply, error) {
	req, err := s.parse(op, input, options, mcpnexus.RequestOptions{})
	if err != nil {
		return reply{}, s.refuse(nexus.HandlerErrorTypeBadRequest, op, req, err.Error())
	}
	if !s.handler.begin() {
		// Nothing has been sent: Temporal shall ask another worker.
		return reply{}, s.refuse(nexus.HandlerErrorTypeUnavailable, op, req, errStopping.Error())
	}
	defer s.handler.calls.Done()
	st := &start{service: s, op: op, req: req, options: options, temporal: temporal}
	key := callKey(s.name, op.name, options.RequestID, input)
	execution := req.options.Execution
	if temporal == nil {
		if execution == mcpnexus.ExecutionDurable {
			return reply{}, s.refuse(nexus.HandlerErrorTypeNotImplemented, op, req, needsWorker)
		}
		return st.inline(ctx, key)
	}
	if execution == mcpnexus.ExecutionDurable {
		return st.durable(ctx, durableState{})
	}
	switch single, why := st.atMostOnce(ctx); {
	case single && execution == mcpnexus.ExecutionInline:
		return reply{}, s.refuse(nexus.HandlerErrorTypeBadRequest, op, req, notInline(why))
	case single:
		return st.durable(ctx, durableState{})
	case execution == mcpnexus.ExecutionInline:
		return st.inline(ctx, key)
	}
	return st.auto(ctx, key)
}

const needsWorker = "execution: durable needs a Temporal worker, which this handler does not run on; want auto or inline"

// notInline says that a request that may be sent only once, for the given reason,
// is not for inline.
func notInline(why string) string {
	return "execution: inline cannot keep a request to one attempt, as " + why + " asks, because Temporal starts an operation again when its answer is lost: want auto or durable, or a retryPolicy with more attempts"
}

// atMostOnce reports whether the request may reach the server only once, and who
// says so.
func (st *start) atMostOnce(ctx context.Context) (single bool, why string) {
	if once(st.req.options) {
		return true, "retryPolicy.maximumAttempts"
	}
	var known bool
	single, known, st.lookup = st.declaredWithin(ctx, st.op, st.req, time.Now(), 0, st.window(ctx))
	// What is not known now is asked again when the request is about to be sent.
	return single || !known && st.req.options.Execution != mcpnexus.ExecutionInline, "the tool's destructiveHint"
}

// declaredWithin is [service.declared] for no longer than the given time, and than half
// of what the request's attempts have left when that much of it is spent. It returns
// how long it took, zero when there was nothing to wait for.
func (s *service) declaredWithin(ctx context.Context, op operation, req *request, since time.Time, spent, longest time.Duration) (single, known bool, took time.Duration) {
	logger := s.handler.logger(ctx)
	if single, known = s.declared(noTime, op, req, since, logger); known {
		return single, true, 0
	}
	if left, _ := remaining(req.options, spent); left > 0 {
		longest = min(longest, left/2)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	single, known = s.declared(ctx, op, req, since, logger)
	return single, known, time.Since(began)
}

// noTime is a context that has ended, for what must not wait. Nearly always
// nothing would have to, and a context with a timeout has its price.
var noTime = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// declared reports whether a tool asks to be called at most once: it declares
// that it is destructive and not that it is idempotent, and the caller has no
// retry policy that says otherwise. What the server was asked for since the given
// time it need not be asked for again.
func (s *service) declared(ctx context.Context, op operation, req *request, since time.Time, logger log.Logger) (single, known bool) {
	if !mayDeclare(op.name, req.options) {
		return false, true
	}
	return s.declaresDestructive(ctx, req.options.FactoryArgument, req.subject, since, logger)
}

// declaredBefore is declared as far as it is remembered.
func (s *service) declaredBefore(op operation, req *request) bool {
	return mayDeclare(op.name, req.options) && s.pool.declarations.recall(digestOf(req.options.FactoryArgument), req.subject)
}

// mayBeOnly reports whether the request may be one that is sent at most once.
func mayBeOnly(operation string, options mcpnexus.RequestOptions) bool {
	return once(options) || mayDeclare(operation, options)
}

// mayDeclare reports whether it matters what a tool declares.
func mayDeclare(operation string, options mcpnexus.RequestOptions) bool {
	return operation == mcpnexus.OperationCallTool && options.RetryPolicy == nil
}

// auto makes the first attempt and answers with its outcome, or after a while
// with a durable workflow that takes over.
func (st *start) auto(ctx context.Context, key string) (reply, error) {
	c := st.launchFirst(ctx, key, maxRunning)
	if c == nil {
		return st.durable(ctx, durableState{})
	}
	awaitAll([]*call{c}, st.window(ctx))
	return st.conclude(ctx, []*call{c}, func() (reply, bool, error) {
		if !c.hasEnded() {
			return reply{}, false, nil
		}
		answer, err := st.settle(ctx, c)
		return answer, true, err
	}, func() (reply, error) {
		return st.handOff(ctx, c)
	}, func(cut *cutOffError) (reply, error) {
		return reply{}, failed(st.contractError(st.op, st.req, cut))
	})
}

// conclude answers a start whose first attempts were begun and given some time:
// with their outcome if that is known, or else with a workflow that takes over. It
// hands nothing off before it has asked for the outcome. If Temporal can never take them,
// for the reason why, those that run are cut off.
func (s *service) conclude(
	ctx context.Context, calls []*call,
	outcome func() (_ reply, known bool, _ error), handOff func() (reply, error), cutOff func(*cutOffError) (reply, error),
) (reply, error) {
	if s.handler.isDraining() {
		// The process that would take them over is about to end, and its worker runs no
		// workflow any more: the calls may well end before either.
		awaitAll(calls, leftOf(ctx)-handOffTime)
	}
	if answer, known, err := outcome(); known {
		return answer, err
	}
	answer, failure := handOff()
	if failure == nil {
		return answer, nil
	}
	// Temporal does not take them now. They may end in time all the same, and if
	// they do not the operation is started again, and finds them running.
	warn(s.handler.logger(ctx), "Handing a running call off failed", "MCPServer", s.name, "error", failure)
	awaitAll(calls, leftOf(ctx))
	answer, known, err := outcome()
	cut := &cutOffError{}
	if !known {
		var refused bool
		if cut.why, refused = refusal(failure); !refused {
			return reply{}, failure
		}
		answer, err = cutOff(cut)
	}
	for _, c := range calls {
		if c == nil {
			continue
		}
		if !known {
			c.cancel(cut) // a start that is repeated because its answer was lost hears the same
		}
		s.handler.running.pay(c)
	}
	return answer, err
}

// awaitAll waits until the calls have ended, not longer than the given time. Nil is
// one that was not begun.
func awaitAll(calls []*call, longest time.Duration) {
	timer := time.NewTimer(max(0, longest))
	defer timer.Stop()
	for _, c := range calls {
		if c == nil {
			continue
		}
		select {
		case <-c.ended:
		case <-timer.C:
			return
		}
	}
}

// settle answers with the outcome of a first attempt.
func (st *start) settle(ctx context.Context, c *call) (reply, error) {
	if state, again := st.after(c); again {
		answer, err := st.durable(ctx, state)
		if _, refused := refusal(err); !refused {
			return answer, err
		}
		if c.stopped { // and nothing came of it
			return reply{}, st.refuse(nexus.HandlerErrorTypeUnavailable, st.op, st.req, errStopping.Error())
		}
	}
	if c.failure != nil {
		return reply{}, failed(c.failure)
	}
	return reply{result: c.result}, nil
}

// after reports whether another attempt is to follow on a first one that has
// ended, and how far the request has come then.
func (st *start) after(c *call) (durableState, bool) {
	if c.failure == nil {
		return durableState{}, false
	}
	left, over := remaining(st.req.options, st.lookup+time.Since(c.began))
	if c.stopped {
		return durableState{Left: left}, true
	}
	delay, again := retryDelay(st.req.options, 1, c.failure, left)
	return durableState{Attempts: 1, Delay: delay, Left: left}, again && !over
}

// handOff starts a durable workflow that takes a running call over.
func (st *start) handOff(ctx context.Context, c *call) (reply, error) {
	queue, err := st.handler.processQueue(temporalnexus.GetClient(ctx))
	if err != nil {
		return reply{}, nexus.NewHandlerErrorf(nexus.HandlerErrorTypeUnavailable, "%s", message(st.title(st.op, st.req)+": "+err.Error()))
	}
	left, _ := remaining(st.req.options, st.lookup+time.Since(c.began))
	running := &runningCall{TaskQueue: queue, Key: c.key, Left: st.leftOfAttempt(c)}
	st.handler.running.owe(c)
	return st.durable(ctx, durableState{Running: running, Left: left})
}

// refusal returns why Temporal can never make a request durable, if that is what the
// error says.
func refusal(err error) (why string, ok bool) {
	refused, ok := errors.AsType[*nexus.HandlerError](err)
	if !ok || refused.Type != nexus.HandlerErrorTypeBadRequest {
		return "", false
	}
	return refused.Message, true
}

// A cutOffError is the end of a call that runs and that nobody can take over.
type cutOffError struct{ why string }

func (e *cutOffError) Error() string {
	return "it was still running when the time of its Nexus request was over, and may have been carried out; " + e.why
}

func (e *cutOffError) Unwrap() error { return errCancelled }

// leftOfAttempt is the time that a first attempt has left.
func (st *start) leftOfAttempt(c *call) time.Duration {
	return max(leastLeft, limitAttempt(st.req.options, st.lookup).within-time.Since(c.began))
}

// leastLeft is the least time that the workflow has to ask for an outcome, which is
// there already or about to be.
const leastLeft = time.Second

// inline makes all attempts within the time of the Nexus request. Without a
// deadline, outside of a Temporal worker, there is one attempt.
func (st *start) inline(ctx context.Context, key string) (reply, error) {
	_, bounded := ctx.Deadline()
	end := time.Now().Add(leftOf(ctx))
	c := st.launchInline(ctx, key, end)
	if st.temporal == nil { // where nobody cancels a Nexus request's context
		defer st.handler.running.attend(ctx, c)()
	}
	var last <-chan time.Time
	if bounded {
		timer := time.NewTimer(time.Until(end) + 3*settleTime)
		defer timer.Stop()
		last = timer.C
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
		return reply{}, failed(st.contractError(st.op, st.req, context.Cause(ctx)))
	case <-last:
		// A redelivered start met a call that takes longer than what it has.
		return reply{}, st.refuse(nexus.HandlerErrorTypeUnavailable, st.op, st.req, "still running")
	}
	switch {
	case c.stopped && st.temporal != nil:
		// Temporal shall ask another worker.
		return reply{}, st.refuse(nexus.HandlerErrorTypeUnavailable, st.op, st.req, errStopping.Error())
	case c.abandoned: // by another start
		return reply{}, st.refuse(nexus.HandlerErrorTypeUnavailable, st.op, st.req, errAbandoned.Error())
	case c.failure != nil:
		return reply{}, failed(c.failure)
	}
	return reply{result: c.result}, nil
}

// launchInline begins a call, or joins one, that makes all attempts until the
// given end; only one if ctx has no deadline.
func (st *start) launchInline(ctx context.Context, key string, end time.Time) *call {
	_, bounded := ctx.Deadline()
	return st.launch(ctx, key, noLimit, func(ctx context.Context, finish func(json.RawMessage, error)) {
		began := time.Now()
		spent := func() time.Duration { return st.lookup + time.Since(began) }
		limit := func() attemptLimit {
			limit := limitAttempt(st.req.options, spent())
			if bounded {
				limit = limit.beforeEnd(end)
			}
			return limit
		}
		st.tryThen(ctx, limit(), st.op, st.req, func(result json.RawMessage, err error) {
			for attempts := int32(1); err != nil && bounded && ctx.Err() == nil && st.handler.life.Err() == nil; attempts++ {
				left, over := remaining(st.req.options, spent())
				delay, again := retryDelay(st.req.options, attempts, st.contractError(st.op, st.req, err), left)
				if !again || over || delay >= time.Until(end) {
					break
				}
				select {
				case <-time.After(delay):
					result, err = st.try(ctx, limit(), st.op, st.req)
				case <-ctx.Done():
					err = context.Cause(ctx)
				case <-st.handler.life.Done():
					err = errStopping
				}
			}
			finish(result, err)
		})
	})
}

const noLimit = 1 << 30

// launchFirst begins a call, or joins one, that makes the first attempt.
func (st *start) launchFirst(ctx context.Context, key string, room int) *call {
	return st.launch(ctx, key, room, func(ctx context.Context, finish func(json.RawMessage, error)) {
		st.tryThen(ctx, limitAttempt(st.req.options, st.lookup), st.op, st.req, finish)
	})
}

// launch begins a call, or joins the one that an earlier start of the operation
// began. Nil when the process has too many. What runs must finish once.
func (st *start) launch(ctx context.Context, key string, room int, run func(ctx context.Context, finish func(json.RawMessage, error))) *call {
	running := st.handler.running
	c, known := running.begin(ctx, key, room)
	if c == nil || known {
		return c
	}
	ctx = withProgress(c.ctx, st.options.RequestID, remember(&c.progress))
	st.handler.calls.Add(1) // cannot be done yet: the start counts
	go run(ctx, func(result json.RawMessage, err error) {
		defer st.handler.calls.Done()
		end := st.ending(st.op, st.req, result, err)
		end.abandoned = err != nil && errors.Is(context.Cause(ctx), errAbandoned)
		running.end(c, end)
	})
	return c
}

// ending gives the end of an attempt the contract's form.
func (s *service) ending(op operation, req *request, result json.RawMessage, err error) ending {
	if err == nil {
		return ending{result: result}
	}
	return ending{
		failure:   s.contractError(op, req, err),
		stopped:   errors.Is(err, errStopping),
		cancelled: isCancelled(err),
		unasked:   errors.Is(err, errUnclaimed),
	}
}

// try makes one attempt and returns when its time is over, whatever the attempt
// does. The worker's stop ends it with errStopping.
func (s *service) try(ctx context.Context, limit attemptLimit, op operation, req *request) (json.RawMessage, error) {
	type end struct {
		result json.RawMessage
		err    error
	}
	ends := make(chan end, 1)
	go s.tryThen(ctx, limit, op, req, func(result json.RawMessage, err error) { ends <- end{result, err} })
	e := <-ends
	return e.result, e.err
}

// tryThen is try that hands the outcome to then. It returns when the attempt and
// then have.
func (s *service) tryThen(ctx context.Context, limit attemptLimit, op operation, req *request, then func(json.RawMessage, error)) {
	var once sync.Once
	// Of an attempt that ends its goroutine, as the tests of a publisher's transport
	// may do, somebody must hear all the same.
	defer once.Do(func() { then(nil, errors.New("the transport has ended the goroutine of the request")) })
	ctx, cancel := context.WithTimeoutCause(ctx, limit.within, limit.cause)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer context.AfterFunc(s.handler.life, func() { abort(errStopping) })()
	ended := make(chan struct{})
	heeded := context.AfterFunc(ctx, func() {
		// The request is being cancelled on the wire. It may have been answered at
		// the same moment, and an answer is worth more than a timeout.
		settle := time.NewTimer(settleTime)
		defer settle.Stop()
		select {
		case <-ended:
		case <-settle.C:
			once.Do(func() { then(nil, context.Cause(ctx)) })
		}
	})
	defer heeded()
	result, err := s.attempt(ctx, op, req)
	if lost, ok := errors.AsType[*lostSession](err); ok && lost.unread {
		// The server gets the request in a new session.
		result, err = s.attempt(ctx, op, req)
	}
	close(ended)
	heeded() // before then, which may end ctx
	once.Do(func() { then(result, err) })
}

// failed is the answer to a start whose request has failed for good.
func failed(e *mcpnexus.Error) error {
	return &nexus.OperationError{State: nexus.OperationStateFailed, Message: e.Message, Cause: e.ApplicationError()}
}

const (
	// handlerMargin is what is left of a Nexus handler's time for the answer's way
	// back: a handler that overruns is called again.
	handlerMargin = 500 * time.Millisecond
	// settleTime is how long an attempt whose time is over may take to say so.
	settleTime = 100 * time.Millisecond
	// handOffTime is what starting a workflow may take: the SDK gives each try half
	// of the time that is left, and at least a second.
	handOffTime = 2500 * time.Millisecond
)

// leftOf is the time that a Nexus request has left, without the margins.
func leftOf(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return noDeadline
	}
	left := time.Until(deadline)
	return max(0, left-min(handlerMargin, left/4))
}

const noDeadline = 365 * 24 * time.Hour

// window is how long a call may run before it is handed off.
func (st *start) window(ctx context.Context) time.Duration {
	left := leftOf(ctx)
	return min(st.handler.options.InlineWindow, max(left-handOffTime, left/2))
}

// A timeoutError is the cause of a context that ran out of time.
type timeoutError struct {
	what    string // did not happen
	timeout time.Duration
	why     string // it is not longer, if that is not the caller's wish
}

func (e *timeoutError) Error() string {
	return fmt.Sprintf("%s within %v%s", e.what, e.timeout, e.why)
}

// An attemptLimit is the time that an attempt has, and the error if it is over.
type attemptLimit struct {
	within time.Duration
	cause  *timeoutError
}

// limitAttempt returns the limit of an attempt that begins when the request has
// spent some of its time on earlier ones.
func limitAttempt(options mcpnexus.RequestOptions, spent time.Duration) attemptLimit {
	within := min(cmp.Or(options.StartToCloseTimeout, options.ScheduleToCloseTimeout, mcpnexus.DefaultStartToCloseTimeout), longest)
	limit := attemptLimit{within: within, cause: &timeoutError{what: "no answer", timeout: within}}
	if left, _ := remaining(options, spent); left > 0 && left <= within {
		limit.within, limit.cause.timeout = left, options.ScheduleToCloseTimeout
		if spent > 0 {
			limit.cause.what = "no attempt has succeeded"
		}
	}
	return limit
}

// beforeEnd returns the limit of an attempt that has no more time than until the
// end of what is left of a Nexus request.
func (l attemptLimit) beforeEnd(end time.Time) attemptLimit {
	left := max(time.Until(end).Round(time.Millisecond), time.Millisecond)
	if left >= l.within {
		return l
	}
	return attemptLimit{within: left, cause: &timeoutError{what: "no answer", timeout: left, why: ", the time that the Nexus request had left"}}
}

// remaining returns what is left of the time that all attempts have together,
// and whether that is over. Zero when they have no limit.
func remaining(options mcpnexus.RequestOptions, spent time.Duration) (left time.Duration, over bool) {
	if options.ScheduleToCloseTimeout == 0 {
		return 0, false
	}
	left = min(options.ScheduleToCloseTimeout, longest) - spent
	return max(left, 1), left <= 0
}

// longest is the most time that anything has. The contract allows more, to which
// nothing can be added without an overflow.
const longest = 100 * 365 * 24 * time.Hour
