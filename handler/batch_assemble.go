package handler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A batchOutcome is what became of one call of a batch, in the contract's form. The
// result is as the MCP server sent it.
type batchOutcome struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *mcpnexus.Error `json:"error,omitempty"`
}

func (o batchOutcome) encode() json.RawMessage {
	if o.Error != nil {
		return encode(o)
	}
	// As it is: encoding it would cost time, and space that it has.
	return slices.Concat([]byte(`{"result":`), o.Result, []byte(`}`))
}

// assemble makes the operation's result of the outcomes. Those that do not fit,
// in the order of the calls, are cut down to an error.
func assemble(outcomes []batchOutcome, limit int, title func(i int) string) json.RawMessage {
	const before, after = `{"results":`, `}`
	sizes, entries := make([]int, len(outcomes)), make([]json.RawMessage, len(outcomes))
	room := limit - len(before) - len("[]") - len(after) + len(",") // there is none after the last
	for i, o := range outcomes {
		sizes[i] = o.size()
		room -= sizes[i] + len(",")
	}
	if room < 0 {
		for i, o := range outcomes {
			if entries[i] = o.cut(limit, title(i)).encode(); len(entries[i]) >= sizes[i] {
				entries[i] = nil
				continue
			}
			room += sizes[i] - len(entries[i])
		}
	}
	for i, o := range outcomes {
		// What is left out is not encoded: that may be many times what there is room for.
		if more := sizes[i] - len(entries[i]); entries[i] == nil {
			entries[i] = o.encode()
		} else if more <= room {
			room -= more
			entries[i] = o.encode()
		}
	}
	return bytes.Join([][]byte{[]byte(before), join(entries), []byte(after)}, nil)
}

// size is the most bytes that the outcome has when it is encoded.
func (o batchOutcome) size() int {
	if o.Error == nil {
		return len(`{"result":}`) + len(o.Result)
	}
	e := *o.Error
	e.Data = nil
	return len(batchOutcome{Error: &e}.encode()) + len(",") + len(o.Error.Data)
}

// cut returns what is left of an outcome for which there is no room.
func (o batchOutcome) cut(limit int, title string) batchOutcome {
	if o.Error == nil {
		return batchOutcome{Error: mcpnexus.NewError(mcpnexus.Error{
			Type: mcpnexus.ErrorTypeResultTooLarge, Size: int64(len(o.Result)), Limit: int64(limit),
			Message: message(fmt.Sprintf("%s: the results of the batch do not fit together into %d bytes, this one of %d has no room: make smaller batches", title, limit, len(o.Result))),
		})}
	}
	e := *o.Error
	e.Data = nil
	const enough = 256
	e.Message, e.Problem, e.Rule = truncate(e.Message, enough), truncate(e.Problem, enough), truncate(e.Rule, enough)
	return batchOutcome{Error: &e}
}

// join makes an array of values.
func join(values []json.RawMessage) json.RawMessage {
	out := []byte{'['}
	for i, value := range values {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, value...)
	}
	return append(out, ']')
}
