package handler

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// tapRoundTripper taps an MCP transport's HTTP requests, see [exchange].
type tapRoundTripper struct {
	next http.RoundTripper
	// answers is true when a request's answer comes in its own HTTP response, as
	// in streamable HTTP. Legacy SSE answers in another one.
	answers bool
	// limit is the most bytes that one answer may have.
	limit int64
}

// RoundTrip implements [http.RoundTripper].
func (t *tapRoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	ex := exchangeFrom(req.Context())
	if ex == nil {
		return t.next.RoundTrip(req)
	}
	id, isCall := requestID(req)
	if isCall && t.answers {
		ex.begin(id)
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if !t.answers {
		ex.receiveStatus(resp)
		return resp, nil
	}
	if !isCall {
		// A notification, or a GET with which the SDK takes up a stream that broke
		// off: its status is not the call's, but the answer may come on it.
		if ex.requestID() != "" && resp.StatusCode/100 == 2 && mediaType(resp.Header) == "text/event-stream" {
			resp.Body = t.tapEvents(resp.Body, ex)
		}
		return resp, nil
	}
	ex.receiveStatus(resp)
	switch media := mediaType(resp.Header); {
	case resp.StatusCode/100 != 2:
		err = t.tapBody(resp, ex.inspectFailure)
	case media == "text/event-stream":
		resp.Body = t.tapEvents(resp.Body, ex)
	case media == "application/json":
		err = t.tapBody(resp, func(body []byte) []byte { return ex.inspect(body, t.limit) })
	default:
		// A login page, or an acceptance without an answer. The SDK would give the
		// connection up.
		err = t.tapBody(resp, func([]byte) []byte {
			return ex.refuse(verdict{Problem: fmt.Sprintf("HTTP status %d with the content type %q, want application/json or text/event-stream", resp.StatusCode, media)})
		})
		resp.Header.Set("Content-Type", "application/json")
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// tapBody reads the whole body, as the SDK would next, and replaces it.
func (t *tapRoundTripper) tapBody(resp *http.Response, inspect func([]byte) []byte) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, t.limit+1))
	resp.Body.Close()
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	body = inspect(body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return nil
}

// inspect shows a message to the exchange and returns what the SDK shall see:
// the message, or a verdict on it.
func (ex *exchange) inspect(message []byte, limit int64) []byte {
	if int64(len(message)) > limit {
		return ex.refuse(verdict{Size: int64(len(message))})
	}
	var a answer
	if err := json.Unmarshal(message, &a); err != nil {
		return ex.refuse(verdict{Problem: "not a JSON-RPC message: " + err.Error()})
	}
	ex.receive(&a)
	return message
}

// inspectFailure does the same for the body of an HTTP failure, which may be a
// JSON-RPC error or anything. The SDK shall see a JSON-RPC error in each case:
// over another body it gives up the connection, and with it the calls that are
// not concerned.
func (ex *exchange) inspectFailure(body []byte) []byte {
	var a answer
	if json.Unmarshal(body, &a) == nil && a.Error != nil {
		// Some servers do not read the request's ID before they refuse it.
		unread := len(a.ID) == 0 || string(a.ID) == "null"
		if unread {
			a.ID = json.RawMessage(ex.requestID())
		}
		if ex.receive(&a) {
			ex.mu.Lock()
			ex.unread = unread
			ex.mu.Unlock()
		}
		return body
	}
	if ex.lostSession() {
		return body // and the SDK shall give the connection up
	}
	return verdict{}.answer(ex.requestID())
}

// refuse puts a verdict in the answer's place.
func (ex *exchange) refuse(v verdict) []byte {
	message := v.answer(ex.requestID())
	var a answer
	if err := json.Unmarshal(message, &a); err == nil {
		ex.receive(&a)
	}
	return message
}

func (t *tapRoundTripper) tapEvents(body io.ReadCloser, ex *exchange) io.ReadCloser {
	return &eventTap{body: body, in: bufio.NewReader(body), ex: ex, limit: t.limit}
}

// eventTap passes a server-sent event stream on, one event at a time, and
// inspects the data of each.
// Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
type eventTap struct {
	body  io.Closer
	in    *bufio.Reader
	ex    *exchange
	limit int64

	out bytes.Buffer // the rest of an event that Read has not handed out yet
	err error        // of in, handed out after out
}

// Read implements [io.Reader].
func (t *eventTap) Read(p []byte) (int, error) {
	for t.out.Len() == 0 {
		if t.err != nil {
			return 0, t.err
		}
		t.next()
	}
	return t.out.Read(p)
}

// Close implements [io.Closer].
func (t *eventTap) Close() error { return t.body.Close() }

// next reads one event and puts it into out.
func (t *eventTap) next() {
	var event, data bytes.Buffer
	tooLarge, hasData, message := false, false, true
	for {
		line, complete, err := t.line(t.limit - int64(event.Len()))
		tooLarge = tooLarge || !complete
		if err != nil {
			t.err = err
			// The end of the stream discards an event that it cuts off, but some
			// servers leave the last empty line out after a whole one.
			if !hasData || !json.Valid(data.Bytes()) {
				return
			}
			event.WriteByte('\n')
			break
		}
		event.Write(line)
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if hasData {
				data.WriteByte('\n')
			}
			hasData = true
			data.Write(value)
		case "event":
			message = len(value) == 0 || string(value) == "message"
		}
	}
	switch {
	case tooLarge:
		fmt.Fprintf(&t.out, "data: %s\n\n", t.ex.refuse(verdict{Size: t.limit + 1}))
	case hasData && message && data.Len() > 0:
		if seen := t.ex.inspect(data.Bytes(), t.limit); !bytes.Equal(seen, data.Bytes()) {
			fmt.Fprintf(&t.out, "data: %s\n\n", seen)
			return
		}
		t.out.Write(event.Bytes())
	default:
		t.out.Write(event.Bytes())
	}
}

// line reads one line with its end. What exceeds room is read and forgotten,
// and complete is false.
func (t *eventTap) line(room int64) (line []byte, complete bool, err error) {
	complete = true
	for {
		part, err := t.in.ReadSlice('\n')
		if int64(len(line)+len(part)) > room {
			complete = false
		}
		if complete {
			line = append(line, part...)
		}
		if err != bufio.ErrBufferFull {
			return line, complete, err
		}
	}
}

// requestID reads the ID of the JSON-RPC request in an HTTP request's body. It
// returns false for notifications, responses, and requests without a body.
func requestID(req *http.Request) (string, bool) {
	if req.GetBody == nil {
		return "", false
	}
	body, err := req.GetBody()
	if err != nil {
		return "", false
	}
	defer body.Close()
	// The ID stands before the params, which may be large: read no further.
	dec := json.NewDecoder(body)
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", false
	}
	var id json.RawMessage
	method := false
	for dec.More() && (id == nil || !method) {
		key, err := dec.Token()
		if err != nil {
			return "", false
		}
		switch key {
		case "id":
			err = dec.Decode(&id)
		case "method":
			method = true
			err = dec.Decode(new(json.RawMessage))
		default:
			err = dec.Decode(new(json.RawMessage))
		}
		if err != nil {
			return "", false
		}
	}
	return string(id), id != nil && method
}

func mediaType(h http.Header) string {
	t, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return strings.ToLower(strings.TrimSpace(h.Get("Content-Type")))
	}
	return t
}
