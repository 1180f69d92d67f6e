package handler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
)

// An object is a JSON object whose values are left as they are. Requests and
// results pass through the handler in this form, so that what it does not know
// is not lost.
type object map[string]json.RawMessage

// object returns a copy of the member object with the given name, empty when
// there is none.
func (o object) object(name string) (object, error) {
	raw, ok := o[name]
	if !ok || string(raw) == "null" {
		return object{}, nil
	}
	var member object
	if err := json.Unmarshal(raw, &member); err != nil {
		return nil, fmt.Errorf("%s is not a JSON object", name)
	}
	return member, nil
}

// with returns a copy of o in which name has another value.
func (o object) with(name string, value json.RawMessage) object {
	out := maps.Clone(o)
	if out == nil {
		out = object{}
	}
	out[name] = value
	return out
}

// encode writes a value of this package, which always encodes, as JSON. Unlike
// [json.Marshal] it leaves <, > and & alone: escaped they take six bytes each,
// and a page of HTML would no longer fit.
func encode(value any) json.RawMessage {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		panic(fmt.Sprintf("handler: encoding %T: %v", value, err))
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
