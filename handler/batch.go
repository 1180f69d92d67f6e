package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporalnexus"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A batch is a call-tools operation on its way. It is as many starts of call-tool,
// which have one answer: inline if all have ended in time, otherwise
// [batchWorkflow], to which each is handed over from where it is. If one of them
// is to be durable from its first attempt on, none is begun here: nothing would
// be gained by it.
type batch struct {
	*service
	calls []*start
	raw   []json.RawMessage // the calls as they came
	// defaults are the options of calls that came without.
	defaults mcpnexus.RequestOptions
	options  nexus.StartOperationOptions
	temporal *temporalnexus.NexusClient // nil outside of a Temporal worker
	key      string
	began    time.Time
}

// batchOperation names a batch in messages.
var batchOperation = operation{name: mcpnexus.OperationCallTools}

const (
	// batchWidth is the most calls of one batch that run at the same time in the
	// process that was asked. In a workflow the worker's own limits hold them back.
	// Each that is handed off is an activity with heartbeats, and more at the same
	// moment might not be taken up in time.
	batchWidth = 50
	// maxBatchHistory is the most bytes of results that a batch may put into the
	// history of its workflow, which a Temporal server terminates when it exceeds
	// 50 MB. Of more than 20 calls that are settled durably, each may therefore have
	// a result of no more than its share, less maxHandedOffData for each that was handed
	// off: together still 20 times what there is room for in the operation's result.
	maxBatchHistory = 40 << 20
	// maxHandedOffData is the most bytes of error data of an attempt that was handed
	// off, on which another may follow, whose outcome is in the history too.
	maxHandedOffData = 64 << 10
	// maxBatchBytes is the most bytes of requests in a batch, each with what it has
	// from the batch: at the worst they all leave the workflow in one task, for which
	// a Temporal server takes 4 MiB.
	maxBatchBytes = 3 << 20
)

// callID is the request ID of one call of a batch.
func callID(requestID string, i int) string { return fmt.Sprintf("%s/%d", requestID, i) }

func (b *batch) callKey(i int) string { return batchCallKey(b.key, i) }

func batchCallKey(key string, i int) string { return fmt.Sprintf("%s/%d", key, i) }

// startBatch is the [starter] of call-tools.
func (s *service) startBatch(ctx context.Context, temporal *temporalnexus.NexusClient, input json.RawMessage, options nexus.StartOperationOptions) (reply, error) {
	refuse := func(kind nexus.HandlerErrorType, reason string) (reply, error) {
		return reply{}, s.refuse(kind, batchOperation, &request{}, reason)
	}
	b, err := s.parseBatch(input, options)
	if err != nil {
		return refuse(nexus.HandlerErrorTypeBadRequest, err.Error())
	}
	if !s.handler.begin() {
		// Nothing has been sent: Temporal shall ask another worker.
		return refuse(nexus.HandlerErrorTypeUnavailable, errStopping.Error())
	}
	defer s.handler.calls.Done()
	b.temporal = temporal
	for i, c := range b.calls {
		c.temporal = temporal
		if c.req.options.Execution != mcpnexus.ExecutionDurable {
			continue
		}
		if temporal == nil {
			return refuse(nexus.HandlerErrorTypeNotImplemented, fmt.Sprintf("calls[%d]: %s", i, needsWorker))
		}
		return b.durable(ctx, b.standing(make([]*call, len(b.calls))))
	}
	if temporal == nil {
		return b.inline(ctx)
	}
	switch i, why := b.atMostOnce(ctx); {
	case i >= 0 && b.isInline():
		return refuse(nexus.HandlerErrorTypeBadRequest, fmt.Sprintf("calls[%d]: %s", i, notInline(why)))
	case i >= 0:
		return b.durable(ctx, b.standing(make([]*call, len(b.calls))))
	case b.isInline():
		return b.inline(ctx)
	}
	return b.auto(ctx)
}

// parseBatch reads the input of call-tools.
func (s *service) parseBatch(input json.RawMessage, options nexus.StartOperationOptions) (*batch, error) {
	whole, err := s.parse(batchOperation, input, options, mcpnexus.RequestOptions{})
	if err != nil {
		return nil, err
	}
	b := &batch{
		service: s, defaults: whole.options, options: options,
		key: callKey(s.name, batchOperation.name, options.RequestID, input), began: time.Now(),
	}
	// These params reach nobody: what is not known here would be lost.
	for _, name := range slices.Sorted(maps.Keys(whole.params)) {
		if name != "calls" && name != "_meta" {
			return nil, fmt.Errorf("%.64s: unknown field, want calls and _meta", name)
		}
	}
	if calls, ok := whole.params["calls"]; !ok {
		return nil, errors.New(`the input has no "calls"`)
	} else if err := json.Unmarshal(calls, &b.raw); err != nil {
		return nil, errors.New("calls is not an array, want one with the params of each call")
	}
	switch {
	case len(b.raw) == 0:
		return nil, errors.New("calls is empty, want at least one call")
	case len(b.raw) > mcpnexus.MaxBatchCalls:
		return nil, fmt.Errorf("calls has %d calls, the limit is %d", len(b.raw), mcpnexus.MaxBatchCalls)
	}
	// Each call is an activity, which has the names in its type and its input.
	size, names := 0, 2*len(s.name)+len(encode(callerOf(options.Links)))
	for i, raw := range b.raw {
		options.RequestID = callID(b.options.RequestID, i)
		req, err := s.parse(callToolOperation, raw, options, b.defaults)
		if err != nil {
			return nil, fmt.Errorf("calls[%d]: %w", i, err)
		}
		b.calls = append(b.calls, &start{service: s, op: callToolOperation, req: req, options: options})
		if first := b.calls[0].req.options.Execution; (first == mcpnexus.ExecutionInline) != (req.options.Execution == mcpnexus.ExecutionInline) {
			return nil, fmt.Errorf("calls[%d]: execution: inline is for all calls of a batch or for none", i)
		}
		if size += names + req.size(); size > maxBatchBytes {
			return nil, fmt.Errorf("calls[%d]: with it the calls have more than %d bytes of JSON, counting for each the names, options and trace headers that all have in common: make smaller batches", i, maxBatchBytes)
		}
	}
	return b, nil
}

// size is about what the request takes in the history of a workflow.
func (r *request) size() int {
	// The subject stands in the request, and in a summary with up to six bytes for each.
	size := 7*len(summarize(r.subject)) + len(r.id) + len(writeOptions(r.options))
	if r.options.RetryPolicy != nil {
		for _, name := range r.options.RetryPolicy.NonRetryableErrorTypes {
			size += len(name) + len(`"",`) // in the activity's own policy
		}
	}
	for name, value := range r.params {
		size += len(name) + len(value)
	}
	return size
}

func (b *batch) isInline() bool {
	return b.calls[0].req.options.Execution == mcpnexus.ExecutionInline
}

// atMostOnce returns the first call that may reach the server only once, or that
// may be one, and who says so; -1 when there is none.
func (b *batch) atMostOnce(ctx context.Context) (i int, why string) {
	since, end := time.Now(), time.Now().Add(b.calls[0].window(ctx))
	mute := make(map[digest]bool) // servers that do not tell need be asked only once
	for i, c := range b.calls {
		if once(c.req.options) {
			return i, "retryPolicy.maximumAttempts"
		}
		key := digestOf(c.req.options.FactoryArgument)
		if mute[key] || b.isInline() && !time.Now().Before(end) {
			// To begin to find out would be for nothing, and open a connection for each
			// argument.
			if b.declaredBefore(c.op, c.req) {
				return i, "the tool's destructiveHint"
			}
			continue
		}
		var single, known bool
		single, known, c.lookup = b.declaredWithin(ctx, c.op, c.req, since, 0, time.Until(end))
		// As for a single call: what is not known now is asked again when the request
		// is about to be sent.
		if single || !known && !b.isInline() {
			return i, "the tool's destructiveHint"
		}
		// One that has little time waits for less than the others may.
		left, _ := remaining(c.req.options, 0)
		mute[key] = !known && (left == 0 || c.lookup < left/2)
	}
	return -1, ""
}

// auto makes the first attempt of each call and answers with their outcomes, or
// after a while with a durable workflow that takes over.
func (b *batch) auto(ctx context.Context) (reply, error) {
	window, room, width := b.calls[0].window(ctx), maxRunning, batchWidth
	if b.handler.running.isKnown(b.key) {
		// A workflow has it, to which an earlier start gave also what it had not begun.
		window, room, width = 0, 0, len(b.calls)
	}
	over := time.NewTimer(window)
	defer over.Stop()
	end := time.Now().Add(window)
	calls := b.send(ctx, over, width, func(i int) *call {
		return b.calls[i].launchFirst(ctx, b.callKey(i), room)
	}, func(i int, ended *call) {
		// The next attempt of one is not to wait for the first of another.
		if state, again := b.calls[i].after(ended); again && time.Now().Add(state.Delay).Before(end) {
			end = time.Now().Add(state.Delay)
			over.Reset(state.Delay)
		}
	})
	var states []callState
	return b.conclude(ctx, calls, func() (reply, bool, error) {
		if states = b.standing(calls); !settled(states) {
			return reply{}, false, nil
		}
		return b.answer(calls, nil), true, nil
	}, func() (reply, error) {
		return b.durable(ctx, states)
	}, func(cut *cutOffError) (reply, error) {
		if !slices.ContainsFunc(calls, func(c *call) bool { return c != nil && !c.hasEnded() }) && slices.ContainsFunc(calls, func(c *call) bool { return c != nil && c.stopped }) {
			// Nothing is lost if Temporal asks another worker.
			return reply{}, b.refuse(nexus.HandlerErrorTypeUnavailable, batchOperation, &request{}, errStopping.Error())
		}
		return b.answer(calls, cut), nil
	})
}

// inline makes all attempts of all calls within the time of the Nexus request.
func (b *batch) inline(ctx context.Context) (reply, error) {
	end := time.Now().Add(leftOf(ctx))
	over := time.NewTimer(time.Until(end) + 3*settleTime)
	defer over.Stop()
	var leave []func()
	defer func() {
		for _, f := range leave {
			f()
		}
	}()
	calls := b.send(ctx, over, batchWidth, func(i int) *call {
		if !time.Now().Before(end) {
			return nil
		}
		c := b.calls[i].launchInline(ctx, b.callKey(i), end)
		if b.temporal == nil { // where nobody cancels a Nexus request's context
			leave = append(leave, b.handler.running.attend(ctx, c))
		}
		return c
	}, func(int, *call) {})
	if ctx.Err() != nil {
		return reply{}, failed(b.contractError(batchOperation, &request{}, context.Cause(ctx)))
	}
	for _, c := range calls {
		if c != nil && !c.hasEnded() {
			// A redelivered start met a call that takes longer than what it has.
			return reply{}, b.refuse(nexus.HandlerErrorTypeUnavailable, batchOperation, &request{}, "still running")
		}
		if c != nil && c.stopped && b.temporal != nil {
			// Temporal shall ask another worker.
			return reply{}, b.refuse(nexus.HandlerErrorTypeUnavailable, batchOperation, &request{}, errStopping.Error())
		}
		if c != nil && c.abandoned { // by another start
			return reply{}, b.refuse(nexus.HandlerErrorTypeUnavailable, batchOperation, &request{}, errAbandoned.Error())
		}
	}
	return b.answer(calls, nil), nil
}

// send begins the calls, at most width of them at a time, tells of each that has
// ended, and returns when all have, or when it is over. Calls that were not begun
// are nil.
func (b *batch) send(ctx context.Context, over *time.Timer, width int, begin func(i int) *call, ended func(i int, c *call)) []*call {
	calls := make([]*call, len(b.calls))
	ends := make(chan int, len(calls))
	running := 0
	for next := 0; ; {
		for ; next < len(calls) && running < width; next++ {
			i, c := next, begin(next)
			if c == nil {
				continue
			}
			calls[i] = c
			if c.hasEnded() { // for an earlier start
				ended(i, c)
				continue
			}
			running++
			go func() {
				<-c.ended
				ends <- i
			}()
		}
		if running == 0 {
			return calls
		}
		select {
		case i := <-ends:
			running--
			ended(i, calls[i])
		case <-over.C:
			return calls
		case <-ctx.Done():
			return calls
		}
	}
}

// A callState is how far one call of a batch has come. The zero value is its
// beginning.
type callState struct {
	// Ended is true when the call has its outcome, which then is with the workflow's
	// items in place of the call.
	Ended bool `json:"ended,omitempty"`
	// Subject is what messages say of such a call's subject.
	Subject string `json:"subject,omitempty"`
	// Running is the time that the attempt has left that is being made. A
	// call that has ended is running too, as far as the workflow can tell, if its
	// outcome is too large for the items.
	Running time.Duration `json:"runningNanoseconds,omitempty"`
	// The others are those of a durableState.
	Attempts int32         `json:"attempts,omitempty"`
	Delay    time.Duration `json:"delayNanoseconds,omitempty"`
	Left     time.Duration `json:"leftNanoseconds,omitempty"`

	call *call // nil when there is none
}

func settled(states []callState) bool {
	return !slices.ContainsFunc(states, func(s callState) bool { return !s.Ended })
}

// standing returns how far each call has come.
func (b *batch) standing(calls []*call) []callState {
	states := make([]callState, len(calls))
	for i, c := range calls {
		options := b.calls[i].req.options
		s := &states[i]
		if c == nil {
			// Another start of the operation, beside this one, may have begun it.
			c, _ = b.handler.running.begin(context.Background(), b.callKey(i), 0)
			calls[i] = c
		}
		if s.call = c; c == nil {
			s.Left, _ = remaining(options, b.calls[i].lookup)
			continue
		}
		s.Left, _ = remaining(options, b.calls[i].lookup+time.Since(c.began))
		if !c.hasEnded() {
			s.Running = b.calls[i].leftOfAttempt(c)
			continue
		}
		next, again := b.calls[i].after(c)
		if s.Ended = !again; s.Ended {
			s.Subject = summarize(b.calls[i].req.subject)
		} else {
			s.Attempts, s.Delay = next.Attempts, max(0, next.Delay-time.Since(c.at))
		}
	}
	return states
}

// answer answers with the outcomes of calls. Those that run, or were not begun, are cut
// off; nil means that none runs, and that there was no time to begin them.
func (b *batch) answer(calls []*call, cut *cutOffError) reply {
	outcomes := make([]batchOutcome, len(calls))
	for i, c := range calls {
		switch {
		case c == nil && cut != nil:
			outcomes[i].Error = b.contractError(callToolOperation, b.calls[i].req, errors.New("not begun: "+cut.why))
		case c == nil:
			notBegun := &timeoutError{what: "not begun", timeout: time.Since(b.began).Round(time.Millisecond), why: ", the time that the Nexus request had left"}
			outcomes[i].Error = b.contractError(callToolOperation, b.calls[i].req, notBegun)
		case !c.hasEnded():
			outcomes[i].Error = b.contractError(callToolOperation, b.calls[i].req, cut)
		default:
			outcomes[i] = c.outcome()
		}
	}
	return reply{result: assemble(outcomes, b.handler.options.MaxResultBytes, func(i int) string { return b.title(callToolOperation, b.calls[i].req) })}
}

func (c *call) outcome() batchOutcome { return batchOutcome{Result: c.result, Error: c.failure} }

// durable starts the batch's workflow, or finds it started by an earlier start of
// the operation.
func (b *batch) durable(ctx context.Context, states []callState) (reply, error) {
	// Whatever becomes of the answer, a start that comes later begins nothing.
	if mark, known := b.handler.running.begin(ctx, b.key, noLimit); !known {
		b.handler.running.end(mark, ending{stopped: true})
	}
	in := batchRequest{
		Service: b.name, RequestID: b.options.RequestID, Options: writeOptions(b.defaults), Trace: nexus.Header{}, Caller: callerOf(b.options.Links),
		MaxResultBytes: b.handler.options.MaxResultBytes, Calls: states,
	}
	for _, name := range traceHeaders {
		if value := b.options.Header.Get(name); value != "" {
			in.Trace[name] = value
		}
	}
	var handed []*call
	items := b.items(states, min(mcpnexus.MaxRequestBytes, b.handler.options.MaxResultBytes)-len(encode(in)))
	for i := range states {
		if states[i].Running > 0 {
			handed = append(handed, states[i].call)
		}
	}
	if len(handed) > 0 {
		queue, err := b.handler.processQueue(temporalnexus.GetClient(ctx))
		if err != nil {
			return reply{}, b.refuse(nexus.HandlerErrorTypeUnavailable, batchOperation, &request{}, err.Error())
		}
		in.TaskQueue, in.Key = queue, b.key
	}
	for _, c := range handed {
		b.handler.running.owe(c)
	}
	in.Reserve = reserve(items)
	answer, err := startWorkflow(ctx, *b.temporal, client.StartWorkflowOptions{
		ID:                       workflowID(b.name, batchOperation.name, b.options.RequestID),
		WorkflowExecutionTimeout: operationTimeout(b.options.Header),
		StaticSummary:            fmt.Sprintf("%s (%d calls)", b.title(batchOperation, &request{}), len(b.calls)),
	}, BatchWorkflowType, plainjson.Payload(encode(in)), plainjson.Payload(items))
	if startTooLarge(err) {
		err = b.refuse(nexus.HandlerErrorTypeBadRequest, batchOperation, &request{}, tooLarge(err)+": make smaller batches")
	}
	return answer, err
}

// items returns the workflow's second argument, which has an outcome in place of
// a call as long as there is room. Other outcomes are left to be asked for.
func (b *batch) items(states []callState, room int) json.RawMessage {
	items := slices.Clone(b.raw)
	for _, item := range items {
		room -= len(item) + len(",")
	}
	room = max(0, room) // the calls were taken, so what needs no more than its call is too
	for i := range states {
		s := &states[i]
		if !s.Ended {
			continue
		}
		outcome := s.call.outcome().encode()
		if more := len(outcome) + len(encode(s.Subject)) - len(items[i]); more <= room {
			room -= more
			items[i] = outcome
			continue
		}
		s.Ended, s.Subject, s.Running = false, "", leastLeft
	}
	return join(items)
}
