package nexus_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// overTheWire sends an error through Temporal's failure encoding, as Nexus does.
func overTheWire(t *testing.T, err error) error {
	t.Helper()
	converter := temporal.GetDefaultFailureConverter()
	return converter.FailureToError(converter.ErrorToFailure(err))
}

var everyRow = []struct {
	name       string
	err        mcpnexus.Error
	retryable  bool
	retryAfter time.Duration
}{
	{"a JSON-RPC error with data", mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Message: "m", Code: -32602, Data: json.RawMessage(`{"id":9007199254740993}`)}, false, 0},
	{"a JSON-RPC error without data", mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Message: "m", Code: -32603}, true, 0},
	{"a schema violation", mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Message: "m", Problem: "tools is a string"}, false, 0},
	{"a closed connection", mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "m"}, true, 0},
	{"an HTTP status that a retry cannot fix", mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "m", HTTPStatus: 401}, false, 0},
	{"an HTTP status with Retry-After", mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "m", HTTPStatus: 503, NextRetryDelay: 7 * time.Second}, true, 7 * time.Second},
	{"a timeout", mcpnexus.Error{Type: mcpnexus.ErrorTypeTimeout, Message: "m", Timeout: 1500 * time.Millisecond}, true, 0},
	{"a result that is too large", mcpnexus.Error{Type: mcpnexus.ErrorTypeResultTooLarge, Message: "m", Size: 3 << 20, Limit: 2 << 20}, false, 0},
	{"an unknown outcome", mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: "m"}, false, 0},
	{"a refusal by policy", mcpnexus.Error{Type: mcpnexus.ErrorTypeDenied, Message: "m", Rule: "tools.deny[0]"}, false, 0},
}

func TestEveryRowOfTheTableKeepsItsFieldsOverTheWire(t *testing.T) {
	for _, row := range everyRow {
		t.Run(row.name, func(t *testing.T) {
			want := mcpnexus.NewError(row.err)
			assert.Equal(t, !row.retryable, want.NonRetryable)

			for place, err := range map[string]error{
				"before the wire": want.ApplicationError(),
				"after the wire":  overTheWire(t, want.ApplicationError()),
				"as a cause": overTheWire(t, temporal.NewApplicationErrorWithOptions("failed", "OperationError", temporal.ApplicationErrorOptions{
					NonRetryable: true, Cause: want.ApplicationError()})),
				"wrapped by Go code": fmt.Errorf("calling: %w", overTheWire(t, want.ApplicationError())),
				"as itself":          fmt.Errorf("calling: %w", want),
				"joined with others": errors.Join(errors.New("other"), fmt.Errorf("a: %w, b: %w", errors.New("b"), overTheWire(t, want.ApplicationError()))),
			} {
				got, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok, place)
				assert.Equal(t, want, got, place)
				assert.Equal(t, row.retryable, mcpnexus.Retryable(err), place)
				assert.Equal(t, row.retryAfter, got.NextRetryDelay, place)
			}
		})
	}
}

func TestDataTravelsAsItIs(t *testing.T) {
	data := json.RawMessage(`{"page": "<p>a & b</p>", "n":1.0, "ü":"\u00fc"}`)
	err := mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32602, Data: data}).ApplicationError()
	details := temporal.GetDefaultFailureConverter().ErrorToFailure(err).GetApplicationFailureInfo().GetDetails().GetPayloads()
	require.Len(t, details, 2)
	assert.Equal(t, string(data), string(details[1].GetData()), "not six bytes for each <, > and &")
	assert.Equal(t, "json/plain", string(details[1].GetMetadata()["encoding"]))
	got, ok := mcpnexus.ErrorFrom(err)
	require.True(t, ok)
	assert.Equal(t, data, got.Data)
}

func TestCodesThatARetryCannotFixAreNotRetryable(t *testing.T) {
	for _, code := range []int64{-32700, -32600, -32601, -32602, -32020, -32021, -32022, -32042, -32002} {
		assert.False(t, mcpnexus.RetryableCode(code), code)
	}
	for _, code := range []int64{-32603, -32000, -32001, 1, -1, 429} {
		assert.True(t, mcpnexus.RetryableCode(code), code)
	}
}

func TestOnlyHTTPStatusesThatBlameTheRequestAreNotRetryable(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 405, 409, 410, 422, 451} {
		assert.False(t, mcpnexus.RetryableHTTPStatus(status), status)
	}
	for _, status := range []int{0, 408, 425, 429, 500, 502, 503, 504} {
		assert.True(t, mcpnexus.RetryableHTTPStatus(status), status)
	}
}

func TestErrorFromReadsWhatAnotherImplementationWrote(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    mcpnexus.ErrorType
		details []any
		want    mcpnexus.Error
	}{
		{"no details", mcpnexus.ErrorTypeProtocol, nil, mcpnexus.Error{}},
		{"a code as int", mcpnexus.ErrorTypeProtocol, []any{-32601}, mcpnexus.Error{Code: -32601}},
		{"a code and null data", mcpnexus.ErrorTypeProtocol, []any{-32601, nil}, mcpnexus.Error{Code: -32601}},
		{"data as a map", mcpnexus.ErrorTypeProtocol, []any{-32601, map[string]any{"a": 1}}, mcpnexus.Error{Code: -32601, Data: json.RawMessage(`{"a":1}`)}},
		{"a status of another type", mcpnexus.ErrorTypeTransport, []any{"teapot"}, mcpnexus.Error{}},
		{"more details than the contract has", mcpnexus.ErrorTypeTransport, []any{503, 1, 2, 3, 4, 5}, mcpnexus.Error{HTTPStatus: 503}},
		{"a timeout that is no duration", mcpnexus.ErrorTypeTimeout, []any{"soon"}, mcpnexus.Error{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Type = c.kind
			c.want.Message = "m"
			local := temporal.NewApplicationError("m", string(c.kind), c.details...)
			for _, err := range []error{local, overTheWire(t, local)} {
				got, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok)
				assert.Equal(t, &c.want, got)
			}
		})
	}
}

func TestErrorFromFindsNothingInOtherErrors(t *testing.T) {
	for _, err := range []error{
		nil,
		errors.New("plain"),
		temporal.NewApplicationError("m", "SomethingElse"),
		temporal.NewCanceledError(),
		nexus.NewHandlerErrorf(nexus.HandlerErrorTypeBadRequest, "bad"),
	} {
		_, ok := mcpnexus.ErrorFrom(err)
		assert.False(t, ok, err)
	}
}

func TestRetryableTakesOtherErrorsAtTheirWord(t *testing.T) {
	assert.False(t, mcpnexus.Retryable(nil))
	assert.False(t, mcpnexus.Retryable(errors.New("plain")))
	assert.False(t, mcpnexus.Retryable(temporal.NewCanceledError()))
	assert.True(t, mcpnexus.Retryable(temporal.NewApplicationError("m", "Other")))
	assert.False(t, mcpnexus.Retryable(temporal.NewNonRetryableApplicationError("m", "Other", nil)))
	assert.False(t, mcpnexus.Retryable(nexus.NewHandlerErrorf(nexus.HandlerErrorTypeBadRequest, "bad")))
	assert.True(t, mcpnexus.Retryable(nexus.NewHandlerErrorf(nexus.HandlerErrorTypeUnavailable, "away")))
	assert.True(t, mcpnexus.Retryable(temporal.NewTimeoutError(0, nil)))
}
