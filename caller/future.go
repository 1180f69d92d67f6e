package caller

import (
	"encoding/json"

	"go.temporal.io/sdk/workflow"
)

// Future is the result of a call that may still be under way. A call that is
// never read is still made. Like all futures of a workflow, it belongs to the
// run that made it; any coroutine of that run may read it, more than once.
type Future[Result any] struct {
	request request
	raw     workflow.Future // of json.RawMessage
	err     error           // set when the request was never sent
}

// failed returns the future of a request that was never sent.
func failed[Result any](ctx workflow.Context, r request, err error) *Future[Result] {
	f := &Future[Result]{request: r, err: err}
	// Where calls are forbidden, the SDK's futures are too. The error is all that
	// a query handler needs to see.
	if !workflow.IsReadOnly(ctx) {
		var settable workflow.Settable
		f.raw, settable = workflow.NewFuture(ctx)
		settable.SetError(err)
	}
	return f
}

// Get waits for the call's end and returns its result, a new copy each time. As
// with any workflow.Future, cancelling ctx does not end the wait: it is the
// context that the call was made with that cancels it.
func (f *Future[Result]) Get(ctx workflow.Context) (Result, error) {
	var none Result
	if f.err != nil {
		return none, f.err
	}
	var raw json.RawMessage
	if err := f.raw.Get(ctx, &raw); err != nil {
		return none, err
	}
	result, err := decode[Result](raw)
	if err != nil {
		return none, undecodable(f.request, err)
	}
	return result, nil
}

// IsReady reports whether [Future.Get] would return at once.
func (f *Future[Result]) IsReady() bool { return f.err != nil || f.raw.IsReady() }

// AddTo adds the future to selector, which calls receive with it once it is
// ready, and returns selector.
func (f *Future[Result]) AddTo(selector workflow.Selector, receive func(*Future[Result])) workflow.Selector {
	return selector.AddFuture(f.raw, func(workflow.Future) { receive(f) })
}
