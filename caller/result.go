package caller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

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
	case !json.Valid(raw): // what follows relies on it
		err = json.Unmarshal(raw, &result)
	case hasInexactNumber(raw):
		err = unmarshalExactly(raw, &result)
	default:
		err = unmarshal(trimmed, &result)
	}
	return result, err
}

// unmarshal is json.Unmarshal of what is known to be valid JSON, all of which
// json.Unmarshal would look through twice before it left it to a type that decodes
// itself.
func unmarshal[Result any](valid []byte, result *Result) error {
	if t := reflect.TypeFor[Result](); t.Kind() == reflect.Pointer {
		value := reflect.New(t.Elem())
		if decoder, ok := value.Interface().(json.Unmarshaler); ok {
			*result = value.Interface().(Result)
			return decoder.UnmarshalJSON(valid)
		}
	}
	return json.Unmarshal(valid, result)
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
