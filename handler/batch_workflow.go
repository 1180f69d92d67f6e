package handler

import (
	"encoding/json"
	"fmt"

	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A batchRequest is the first argument of [batchWorkflow]. The second are the
// items: a JSON array with the outcome of each call that has one, and with the
// others as they came.
type batchRequest struct {
	Service   string `json:"service"`
	RequestID string `json:"requestId"`
	// Options are those of calls that came without, see [durableRequest].
	Options json.RawMessage `json:"options,omitempty"`
	// Trace has the start request's headers that travel on in the calls' _meta.
	Trace nexus.Header `json:"trace,omitempty"`
	// Caller is the workflow whose end makes the request pointless.
	Caller         *callerRun `json:"caller,omitempty"`
	MaxResultBytes int        `json:"maxResultBytes"`
	// TaskQueue and Key are where calls run that run already.
	TaskQueue string      `json:"taskQueue,omitempty"`
	Key       string      `json:"key,omitempty"`
	Calls     []callState `json:"calls"`
	// Reserve is for the server's limit alone, see [reserve].
	Reserve string `json:"reserve,omitempty"`
}

// batchWorkflow sees the calls of a batch to their ends, and returns the
// operation's result.
func batchWorkflow(ctx workflow.Context, in batchRequest, encoded converter.RawValue) (converter.RawValue, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(encoded.Payload().GetData(), &items); err != nil || len(items) != len(in.Calls) {
		return converter.RawValue{}, temporal.NewNonRetryableApplicationError("the items are not an array with one for each call", "", err)
	}
	defaults, err := readOptions(in.Options)
	if err != nil {
		newerVersion("the batch's options", err)
	}
	open, handedOff := 0, 0
	for _, state := range in.Calls {
		if !state.Ended {
			open++
		}
		if state.Running > 0 {
			handedOff++
		}
	}
	room := min(in.MaxResultBytes, (maxBatchHistory-handedOff*maxHandedOffData)/max(1, open))
	outcomes := make([]batchOutcome, len(items))
	subjects := make([]string, len(items))
	wg := workflow.NewWaitGroup(ctx)
	for i, item := range items {
		if in.Calls[i].Ended {
			subjects[i] = in.Calls[i].Subject
			if err := json.Unmarshal(item, &outcomes[i]); err != nil {
				return converter.RawValue{}, temporal.NewNonRetryableApplicationError("an item is not an outcome", "", err)
			}
			continue
		}
		req, err := parseRequest(callToolOperation, item, nexus.StartOperationOptions{RequestID: callID(in.RequestID, i), Header: in.Trace}, defaults)
		if err != nil {
			newerVersion(fmt.Sprintf("items[%d]", i), err)
		}
		subjects[i] = req.subject
		wg.Add(1)
		workflow.GoNamed(ctx, fmt.Sprintf("calls[%d]", i), func(ctx workflow.Context) {
			defer wg.Done()
			outcomes[i] = in.settle(ctx, i, req, room)
		})
	}
	wg.Wait(ctx)
	if ctx.Err() != nil {
		return converter.RawValue{}, ctx.Err()
	}
	return plainjson.Payload(assemble(outcomes, in.MaxResultBytes, func(i int) string { return title(in.Service, callToolOperation.name, subjects[i]) })), nil
}

// settle sees one call to its end, as [requestWorkflow] does a single one.
func (in batchRequest) settle(ctx workflow.Context, i int, req *request, maxResultBytes int) batchOutcome {
	state := in.Calls[i]
	r := &durableRun{began: workflow.Now(ctx), options: req.options, durableRequest: durableRequest{
		Service: in.Service, Operation: callToolOperation.name, Subject: summarize(req.subject), RequestID: req.id,
		Options: writeOptions(req.options), Caller: in.Caller, MaxResultBytes: maxResultBytes,
		durableState: durableState{Attempts: state.Attempts, Delay: state.Delay, Left: state.Left},
	}}
	if state.Running > 0 {
		r.Running = &runningCall{TaskQueue: in.TaskQueue, Key: batchCallKey(in.Key, i), Left: state.Running}
	}
	result, err := r.settle(ctx, plainjson.Payload(encode(req.params)))
	if err == nil {
		return batchOutcome{Result: result.Payload().GetData()}
	}
	e, ok := mcpnexus.ErrorFrom(err)
	if !ok {
		e = r.error(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: err.Error()})
	}
	return batchOutcome{Error: e}
}
