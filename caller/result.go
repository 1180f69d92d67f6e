package caller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// decode reads an operation's result. It depends on nothing but raw, and an
// answer of whatever form is at worst an error: a panic would fail the workflow
// task for ever.
func decode[Result any](raw json.RawMessage) (result Result, err error) {
	defer func() {
		// A null among the inputRequests makes go-sdk v1.8.0 panic.
		if p := recover(); p != nil {
			var none Result
			result, err = none, fmt.Errorf("%v", p)
		}
	}()
	switch trimmed := bytes.TrimSpace(raw); {
	case len(trimmed) == 0:
		return result, errors.New("it is empty, want a JSON object")
	case trimmed[0] != '{':
		return result, fmt.Errorf("it is %.32s, want a JSON object", trimmed)
	}
	if !hasInexactNumber(raw) {
		err = json.Unmarshal(raw, &result)
		return result, err
	}
	err = unmarshalExactly(raw, &result)
	return result, err
}

// undecodable is the contract's error for a result that breaks the schema, in
// the form in which it would have arrived from the handler: a workflow that
// returns it fails with the contract's error type.
func undecodable(r request, err error) error {
	return mcpnexus.NewError(mcpnexus.Error{
		Type:    mcpnexus.ErrorTypeProtocol,
		Message: fmt.Sprintf("%s: the result cannot be read: %v", r, err),
		Problem: err.Error(),
	}).ApplicationError()
}
