package handler

import (
	"bytes"
	"encoding/json"
)

// scanResult reads a JSON-RPC result in the form in which servers send it, and
// returns nil for any other message: decoding one with the SDK takes two scans
// more and 32 KB of memory. The message must be valid JSON.
func scanResult(message []byte) *answer {
	rest, ok := bytes.CutPrefix(trimLeft(message), []byte("{"))
	if !ok {
		return nil
	}
	var version, id, result []byte
	for more := true; more; {
		var key, value []byte
		if key, value, rest, ok = cutMember(rest); !ok {
			return nil
		}
		var field *[]byte
		switch string(key) {
		case `"jsonrpc"`:
			field = &version
		case `"id"`:
			field = &id
		case `"result"`:
			field = &result
		}
		if field == nil || *field != nil { // unknown, or twice
			return nil
		}
		*field = value
		more = rest[0] == ','
		rest = rest[1:]
	}
	if string(version) != `"2.0"` || !isCanonicalID(id) || !isObject(result) {
		return nil
	}
	// A result is remembered, and the message need not be.
	return &answer{id: string(id), result: bytes.Clone(result)}
}

// scanObject reads an object whose names stand in JSON as they are, and returns
// nil for any other: a decoder takes several times as long. The value must be
// valid JSON, of which the members stay a part.
func scanObject(raw json.RawMessage) object {
	rest, ok := bytes.CutPrefix(raw, []byte("{"))
	if !ok {
		return nil
	}
	out := object{}
	for more := true; more; {
		var key, value []byte
		if key, value, rest, ok = cutMember(rest); !ok {
			return nil
		}
		name := string(key[1 : len(key)-1])
		if !isPlain(name) {
			return nil
		}
		out[name] = value[:len(value):len(value)]
		more = rest[0] == ','
		rest = rest[1:]
	}
	return out
}

// cutMember returns the first of an object's members, and what follows it: a
// comma or the object's end. It returns false when there is none, or when the
// value is nested so deeply that the SDK may refuse it.
func cutMember(members []byte) (key, value, rest []byte, ok bool) {
	members = trimLeft(members)
	if members[0] != '"' {
		return nil, nil, nil, false
	}
	end := stringEnd(members, 0)
	key, members = members[:end], trimLeft(members[end:])
	members = trimLeft(members[1:]) // after the colon
	for i, depth := 0, 0; ; i++ {
		switch members[i] {
		case '"':
			i = stringEnd(members, i) - 1
		case '{', '[':
			if depth++; depth > maxScanDepth {
				return nil, nil, nil, false
			}
		case ',':
			if depth == 0 {
				return key, trimRight(members[:i]), members[i:], true
			}
		case '}', ']':
			if depth == 0 {
				return key, trimRight(members[:i]), members[i:], true
			}
			depth--
		}
	}
}

// maxScanDepth is less than the SDK takes, which is 1000 (v1.8.0).
const maxScanDepth = 500

// stringEnd returns the index after the JSON string that begins at start.
func stringEnd(data []byte, start int) int {
	for end := start + 1; ; end++ {
		end += bytes.IndexByte(data[end:], '"')
		first := end
		for data[first-1] == '\\' {
			first--
		}
		if (end-first)%2 == 0 {
			return end + 1
		}
	}
}

// isCanonicalID reports whether a request ID is a number that every decoder and
// encoder leaves as it is.
func isCanonicalID(id []byte) bool {
	const digits = 15 // fit into a float64
	for _, c := range id {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(id) == 1 || 1 < len(id) && len(id) <= digits && id[0] != '0'
}

const jsonSpace = " \t\r\n"

func trimLeft(data []byte) []byte  { return bytes.TrimLeft(data, jsonSpace) }
func trimRight(data []byte) []byte { return bytes.TrimRight(data, jsonSpace) }
