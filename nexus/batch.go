package nexus

import (
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
)

// MaxBatchCalls is the most calls that one [CallTools] may carry. A batch with
// more is refused with BAD_REQUEST.
const MaxBatchCalls = 500

// CallToolsParams are the input of the call-tools operation: tool calls that are
// made at the same time, each as if by an operation of its own. A Temporal server
// starts only so many operations in a second, a hundred for each endpoint and
// calling namespace by default; in a batch many calls are one.
//
// The calls have the attempts, the idempotency key and the outcome of their own:
// the key of the call at index i is the operation's with "/" and i after it. A
// call that fails does not fail the operation. All are answered together, when
// the last one has ended, and cancelled together. A call that cannot be right
// refuses the batch with BAD_REQUEST, and nothing is sent.
//
// If one call is to be durable from its first attempt, all are: one with
// [ExecutionDurable], one that may be made only once, or one of which it is not known
// in time what its tool declares.
//
// A batch has at most [MaxBatchCalls] calls and [MaxRequestBytes] of JSON. Its calls
// have at most 3 MiB, counting for each the names, options and trace headers that it
// has from the batch.
type CallToolsParams struct {
	// Meta carries, under [MetaKeyOptions], the [RequestOptions] of every call that
	// has none in its own _meta. Nothing else in it is used.
	Meta mcp.Meta `json:"_meta,omitempty"`
	// Calls are at least one. Their _meta reaches the server.
	//
	// If the options of one say [ExecutionInline], those of all must.
	Calls []*mcp.CallToolParams `json:"calls"`
}

// CallToolsResult is the output of the call-tools operation.
type CallToolsResult struct {
	// Results are in the order of the calls, one for each.
	Results []CallToolsOutcome `json:"results"`
}

// CallToolsOutcome is what became of one call of a batch. One of the fields is
// set.
type CallToolsOutcome struct {
	// Result is the tool's, also of a tool that failed (isError).
	Result *mcp.CallToolResult `json:"result,omitempty"`
	// Error is that with which an operation of the call's own would have failed. It
	// is an [ErrorTypeResultTooLarge] too if the results of a batch do not fit
	// together into an operation's result: those that do, in the order of the calls,
	// are there. Of more than 20 calls that are settled durably, each result may have
	// no more than its share of 40 MiB, of which 64 KiB go to each call that was handed
	// off. Make smaller batches then.
	Error *Error `json:"error,omitempty"`
}

// errorJSON is an [Error] inside a result, where no ApplicationError can be.
type errorJSON struct {
	Type           ErrorType         `json:"type"`
	Message        string            `json:"message"`
	Details        []json.RawMessage `json:"details,omitempty"`
	NonRetryable   bool              `json:"nonRetryable,omitempty"`
	NextRetryDelay *duration         `json:"nextRetryDelay,omitempty"`
}

// MarshalJSON writes the form that an error has in the result of a batch. Its
// details are those of the ApplicationError.
func (e Error) MarshalJSON() ([]byte, error) {
	out := errorJSON{Type: e.Type, Message: e.Message, NonRetryable: e.NonRetryable, NextRetryDelay: newDuration(e.NextRetryDelay)}
	for _, detail := range e.details() {
		raw, err := plainjson.Marshal(detail)
		if err != nil {
			return nil, fmt.Errorf("details of the error: %w", err)
		}
		out.Details = append(out.Details, raw)
	}
	return plainjson.Marshal(out)
}

// UnmarshalJSON reads the form of [Error.MarshalJSON]. As with [ErrorFrom],
// details of another form than the contract's leave their fields zero.
func (e *Error) UnmarshalJSON(data []byte) error {
	var in errorJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*e = Error{Type: in.Type, Message: in.Message, NonRetryable: in.NonRetryable, NextRetryDelay: max(0, in.NextRetryDelay.value())}
	e.readDetails(in.Details)
	return nil
}
