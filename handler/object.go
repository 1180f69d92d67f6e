package handler

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
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
	member, err := decodeObject(raw)
	if err != nil {
		return nil, fmt.Errorf("%s is not a JSON object", name)
	}
	return member, nil
}

// decodeObject decodes valid JSON that should be an object. The members may be parts
// of it.
func decodeObject(raw json.RawMessage) (object, error) {
	if o := scanObject(raw); o != nil {
		return o, nil
	}
	var o object
	err := json.Unmarshal(raw, &o)
	return o, err
}

// decodeString decodes valid JSON that should be a string.
func decodeString(raw json.RawMessage) (text string, err error) {
	if len(raw) >= 2 && raw[0] == '"' && isPlain(string(raw[1:len(raw)-1])) {
		return string(raw[1 : len(raw)-1]), nil
	}
	err = json.Unmarshal(raw, &text)
	return text, err
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

// encode writes a value of this package, which always encodes, as JSON.
func encode(value any) json.RawMessage {
	if text, ok := value.(string); ok && isPlain(text) {
		return appendString(nil, text)
	}
	out, err := plainjson.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("handler: encoding %T: %v", value, err))
	}
	return out
}

// join returns the object as JSON, like encode, but with the values as they are:
// encode scans each once more, to leave spaces out.
func (o object) join() json.RawMessage {
	size := len("{}")
	names := make([]string, 0, 8) // few have more, and these take no allocation
	for name, value := range o {
		size += len(name) + len(value) + len(`"":,`)
		names = append(names, name)
	}
	slices.Sort(names)
	out := append(make(json.RawMessage, 0, size), '{')
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		out = appendString(out, name)
		out = append(out, ':')
		out = append(out, o[name]...)
	}
	return append(out, '}')
}

func appendString(out []byte, text string) []byte {
	if !isPlain(text) {
		return append(out, encode(text)...)
	}
	out = append(out, '"')
	out = append(out, text...)
	return append(out, '"')
}

// isPlain reports whether a text stands in JSON as it is.
func isPlain(text string) bool {
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
