package caller

import (
	"encoding/json"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// execute sends r as soon as the limit allows and returns the future of its raw
// result.
func (c *Client) execute(ctx workflow.Context, r request) workflow.Future {
	result, settable := workflow.NewFuture(ctx)
	c.submit(ctx, r, settable)
	return result
}

// settler is where a result goes: a workflow.Settable or several.
type settler interface {
	SetValue(raw any) // a json.RawMessage
	SetError(err error)
}

// submit sends r as soon as the limit allows and sets its raw result.
func (c *Client) submit(ctx workflow.Context, r request, result settler) {
	c.shared.limit.admit(&turn{ctx: ctx, client: c, request: r, result: result})
}

// run sends the request and returns once the operation has ended on the server. It
// sets the result by then, or earlier when the call is cancelled and does not wait
// for the operation's end.
func (t *turn) run(ctx workflow.Context) {
	if ctx.Err() != nil {
		t.result.SetError(ctx.Err())
		return
	}
	options := t.client.operation
	options.Summary = t.request.summary
	waits, requests := true, true // on cancellation
	switch options.CancellationType {
	case workflow.NexusOperationCancellationTypeTryCancel:
		waits = false
		options.CancellationType = workflow.NexusOperationCancellationTypeWaitCompleted
	case workflow.NexusOperationCancellationTypeAbandon:
		waits, requests = false, false
	}

	// The operation's context is not the call's, and what the cancellation type
	// promises is done here, because the SDK's own way has two faults. With
	// TryCancel and Abandon its future is ready while the operation is open on the
	// server, where it still counts. And an operation that is cancelled in the
	// workflow task that scheduled it stays in the queue in which SDK v1.50.0 looks
	// up what a NexusOperationScheduled event is about (commandsHelper.
	// requestCancelNexusOperation): from then on, each operation of the workflow
	// gets the events of the next, and the last one hangs.
	operationCtx, cancel := workflow.NewDisconnectedContext(ctx)
	operation := t.client.nexus.ExecuteOperation(operationCtx, t.request.operation, t.request.input, options)
	_ = workflow.Await(ctx, operation.IsReady) // or the call's context is cancelled

	if !operation.IsReady() {
		if !waits {
			t.result.SetError(ctx.Err())
		}
		if requests {
			// Once it has started it has surely been scheduled. Nothing is lost by
			// waiting: the server, too, holds a request back until then.
			_ = operation.GetNexusOperationExecution().Get(ctx, nil)
			cancel()
		}
		if !waits {
			_ = operation.Get(ctx, nil) // nobody wants to know
			return
		}
	}
	// First without a value: an error then is the operation's, not one of reading it.
	if err := operation.Get(ctx, nil); err != nil {
		t.result.SetError(err)
		return
	}
	raw, err := read(ctx, operation)
	if err != nil {
		t.result.SetError(undecodable(t.request, err))
		return
	}
	t.result.SetValue(raw)
}

// read returns the result of an operation that has one. The data of a JSON
// payload is taken as it is: a payload converter would parse and copy what decode
// parses anyway. Other payloads, and those of a data converter that knows no
// RawValue, are left to the converter.
func read(ctx workflow.Context, operation workflow.Future) (raw json.RawMessage, err error) {
	var value converter.RawValue
	if operation.Get(ctx, &value) == nil {
		payload := value.Payload()
		if string(payload.GetMetadata()[converter.MetadataEncoding]) == converter.MetadataEncodingJSON && len(payload.GetData()) > 0 {
			return payload.GetData(), nil
		}
	}
	err = operation.Get(ctx, &raw)
	return raw, err
}
