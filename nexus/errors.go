package nexus

import (
	"encoding/json"
	"iter"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
)

// ErrorType is the type of the ApplicationError with which an operation fails.
// A tool that fails is none of these: it is a normal result with isError.
type ErrorType string

const (
	// ErrorTypeProtocol is an answer that is no result: a JSON-RPC error, an
	// answer that breaks the protocol's schema, or a list that never ends.
	ErrorTypeProtocol ErrorType = "MCPProtocolError"
	// ErrorTypeTransport is the absence of an answer: no connection, a connection
	// that closed, a process that died, or an HTTP status that means failure.
	ErrorTypeTransport ErrorType = "MCPTransportError"
	// ErrorTypeTimeout is an attempt that outlived its timeout.
	ErrorTypeTimeout ErrorType = "MCPTimeoutError"
	// ErrorTypeResultTooLarge is a result that does not fit into a Temporal payload.
	ErrorTypeResultTooLarge ErrorType = "MCPResultTooLarge"
	// ErrorTypeOutcomeUnknown is an at-most-once call whose worker vanished or stopped,
	// or a call that could not be handed off: it may have run.
	ErrorTypeOutcomeUnknown ErrorType = "MCPOutcomeUnknown"
	// ErrorTypeDenied is a request that the publisher's policy refused.
	ErrorTypeDenied ErrorType = "MCPDenied"
)

func (t ErrorType) known() bool {
	switch t {
	case ErrorTypeProtocol, ErrorTypeTransport, ErrorTypeTimeout,
		ErrorTypeResultTooLarge, ErrorTypeOutcomeUnknown, ErrorTypeDenied:
		return true
	}
	return false
}

// CodeResourceNotFound is the JSON-RPC code with which servers of protocol
// versions before 2026-07-28 say that a resource does not exist. Later versions
// use jsonrpc.CodeInvalidParams (SEP-2164).
const CodeResourceNotFound = -32002

// permanentCodes are the JSON-RPC codes that say that the request itself is
// wrong, so that sending it again cannot help.
var permanentCodes = map[int64]bool{
	jsonrpc.CodeParseError:                    true,
	jsonrpc.CodeInvalidRequest:                true,
	jsonrpc.CodeMethodNotFound:                true,
	jsonrpc.CodeInvalidParams:                 true,
	mcp.CodeHeaderMismatch:                    true,
	mcp.CodeMissingRequiredClientCapabilities: true,
	mcp.CodeUnsupportedProtocolVersion:        true,
	mcp.CodeURLElicitationRequired:            true,
	CodeResourceNotFound:                      true,
}

// RetryableCode reports whether a request that was answered with the JSON-RPC
// error code may succeed when it is sent again.
func RetryableCode(code int64) bool { return !permanentCodes[code] }

// RetryableHTTPStatus reports whether a request that failed with the HTTP
// status may succeed when it is sent again. 4xx says that the request is wrong,
// except where it speaks of time: 408, 425 and 429.
func RetryableHTTPStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status < 400 || status >= 500
}

// Error is a failed operation in the contract's terms. Only the fields that
// belong to its Type are set. Workflow code gets one from [ErrorFrom]; whoever
// makes one uses [NewError] and sends it as [Error.ApplicationError].
type Error struct {
	// Type says what went wrong, and which of the fields below are set.
	Type ErrorType
	// Message is for people. It names the service, the operation and the tool,
	// prompt or URI.
	Message string
	// Code is the JSON-RPC error code of an [ErrorTypeProtocol]. Zero means that
	// the server's answer was not a JSON-RPC error, see Problem.
	Code int64
	// Data is the JSON-RPC error's data, nil when the server sent none.
	Data json.RawMessage
	// Problem says how the server's answer broke the protocol, for an
	// [ErrorTypeProtocol] without a Code.
	Problem string
	// HTTPStatus is the status of an [ErrorTypeTransport]. Zero when no HTTP
	// answer arrived or the transport is not HTTP.
	HTTPStatus int
	// Timeout is what an [ErrorTypeTimeout] outlived.
	Timeout time.Duration
	// Size and Limit are the bytes of an [ErrorTypeResultTooLarge]. Size is the
	// least that the result would have taken when it was given up before its end. Both
	// are zero when the handler's payload codec made it too large for the Temporal server.
	Size, Limit int64
	// Rule is the policy rule of an [ErrorTypeDenied].
	Rule string
	// NonRetryable says that the same request would fail again.
	NonRetryable bool
	// NextRetryDelay is how long the server asked to be left alone (HTTP
	// Retry-After). Zero when it did not.
	NextRetryDelay time.Duration
}

// NewError returns e with NonRetryable set as the contract's table says for its
// type, code and HTTP status.
func NewError(e Error) *Error {
	switch e.Type {
	case ErrorTypeProtocol:
		e.NonRetryable = e.Code == 0 || !RetryableCode(e.Code)
	case ErrorTypeTransport:
		e.NonRetryable = !RetryableHTTPStatus(e.HTTPStatus)
	case ErrorTypeTimeout:
		e.NonRetryable = false
	default:
		e.NonRetryable = true
	}
	return &e
}

// Error implements the error interface.
func (e *Error) Error() string { return string(e.Type) + ": " + e.Message }

// ApplicationError returns the form in which the error crosses Nexus and
// activities: a Temporal ApplicationError with the contract's type and details.
// Read what it says with [ErrorFrom]. The error's own Details method takes pointers
// to any type only once the error has crossed; before that, and in the outcome of a
// call of a batch, it panics over a pointer to another type than the detail's.
func (e *Error) ApplicationError() error {
	details := e.details()
	for i, detail := range details {
		if data, ok := detail.(json.RawMessage); ok {
			details[i] = plainjson.Payload(data)
		}
	}
	return temporal.NewApplicationErrorWithOptions(e.Message, string(e.Type), temporal.ApplicationErrorOptions{
		NonRetryable:   e.NonRetryable,
		NextRetryDelay: e.NextRetryDelay,
		Details:        details,
	})
}

// details are those of the error's type, in the contract's order.
func (e *Error) details() []any {
	switch e.Type {
	case ErrorTypeProtocol:
		switch {
		case e.Code == 0:
			return []any{e.Problem}
		case e.Data == nil:
			return []any{e.Code}
		default:
			return []any{e.Code, e.Data}
		}
	case ErrorTypeTransport:
		if e.HTTPStatus != 0 {
			return []any{e.HTTPStatus}
		}
	case ErrorTypeTimeout:
		return []any{duration(e.Timeout)}
	case ErrorTypeResultTooLarge:
		return []any{e.Size, e.Limit}
	case ErrorTypeDenied:
		return []any{e.Rule}
	}
	return nil
}

// ErrorFrom finds the contract's error in the cause chain of any error that an
// operation, a child workflow or an activity handed to workflow code. It
// returns false when there is none: the operation itself timed out, was cancelled
// or terminated, or the request was refused before it reached the server (a
// nexus.HandlerError, such as BAD_REQUEST or NOT_FOUND). It is deterministic, and
// of use outside of workflows too: to whoever awaits one that failed with it.
func ErrorFrom(err error) (*Error, bool) {
	for err := range chain(err) {
		if e, ok := err.(*Error); ok {
			return e, true
		}
		if app, ok := err.(*temporal.ApplicationError); ok && ErrorType(app.Type()).known() {
			return fromApplicationError(app), true
		}
	}
	return nil, false
}

// chain yields err and what it wraps, in the order of [errors.As].
func chain(err error) iter.Seq[error] {
	return func(yield func(error) bool) { walk(err, yield) }
}

func walk(err error, yield func(error) bool) bool {
	if err == nil {
		return true
	}
	if !yield(err) {
		return false
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			if !walk(err, yield) {
				return false
			}
		}
	}
	return true
}

func fromApplicationError(app *temporal.ApplicationError) *Error {
	e := &Error{
		Type:           ErrorType(app.Type()),
		Message:        app.Message(),
		NonRetryable:   app.NonRetryable(),
		NextRetryDelay: app.NextRetryDelay(),
	}
	e.readDetails(rawDetails(app))
	return e
}

// readDetails sets the fields that belong to the error's type. Details that
// another implementation of the contract left out, or wrote in another form,
// leave their fields zero: the type and the message still tell.
func (e *Error) readDetails(details []json.RawMessage) {
	detail := func(i int, target any) bool {
		return i < len(details) && json.Unmarshal(details[i], target) == nil
	}
	switch e.Type {
	case ErrorTypeProtocol:
		if detail(0, &e.Code) {
			if detail(1, &e.Data) && string(e.Data) == "null" {
				e.Data = nil
			}
		} else {
			detail(0, &e.Problem)
		}
	case ErrorTypeTransport:
		detail(0, &e.HTTPStatus)
	case ErrorTypeTimeout:
		var d duration
		if detail(0, &d) {
			e.Timeout = time.Duration(d)
		}
	case ErrorTypeResultTooLarge:
		detail(0, &e.Size)
		detail(1, &e.Limit)
	case ErrorTypeDenied:
		detail(0, &e.Rule)
	}
}

// rawDetails returns the error's details as JSON. The SDK keeps them in two
// forms with different rules: encoded in an error that crossed the wire, which
// fills any number of targets of any type, and as the values themselves in one
// that did not, which refuses more targets than it has values and panics on a
// target of another type. The second form is encoded first.
func rawDetails(app *temporal.ApplicationError) []json.RawMessage {
	const more = 64 // than any error has
	raw := make([]json.RawMessage, more)
	targets := make([]any, more)
	for i := range raw {
		targets[i] = &raw[i]
	}
	// A detail that is not JSON stays empty, as if it were missing.
	if err := app.Details(targets...); err != nil && app.HasDetails() {
		failure := temporal.GetDefaultFailureConverter().ErrorToFailure(app)
		_ = converter.GetDefaultDataConverter().FromPayloads(failure.GetApplicationFailureInfo().GetDetails(), targets...)
	}
	return raw
}

// Retryable reports whether the request behind err may succeed when it is sent
// again: by the contract's table for an [Error], by the error's own word for
// other ApplicationErrors and Nexus handler errors. A timeout is retryable, a
// cancellation and an unknown error are not.
//
// It does not say whether the request should be sent again. A request that was made
// at most once can fail with a retryable error too, and sending it again is a second
// time, with another idempotency key.
func Retryable(err error) bool {
	if e, ok := ErrorFrom(err); ok {
		return !e.NonRetryable
	}
	for err := range chain(err) {
		switch e := err.(type) {
		case *temporal.CanceledError, *temporal.TerminatedError:
			return false
		case *temporal.TimeoutError:
			return true
		case *nexus.HandlerError:
			return e.Retryable()
		case *temporal.ApplicationError:
			return !e.NonRetryable()
		}
	}
	return false
}
