package handler

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// tapRoundTripper taps an MCP transport's HTTP requests, see [exchange].
type tapRoundTripper struct {
	next http.RoundTripper
	// answers is true when a request's answer comes in its own HTTP response, as
	// in streamable HTTP. Legacy SSE answers in another one.
	answers bool
	// limit is the most bytes that one answer may have.
	limit int64
	// life ends with the session.
	life context.Context
}

// RoundTrip implements [http.RoundTripper].
func (t *tapRoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	ex := exchangeFrom(ctx)
	id, isCall := requestID(req)
	if ex != nil && ex.params != nil && t.answers && req.Method == http.MethodPost && !isCall {
		// A call has nothing else to post than word of its cancellation.
		defer ex.withdraw()
		ex.awaitTaken(ctx, t.life)
		ex = nil
	}
	if ex == nil && req.Method == http.MethodPost && !isCall {
		return t.tell(req)
	}
	if ex == nil {
		return t.send(req)
	}
	if isCall && t.answers {
		ex.begin(id)
		if ex.addParams {
			var err error
			if req, err = ex.withParams(req); err != nil {
				return nil, err
			}
		}
	}
	last := req.Header.Get("Last-Event-ID")
	resumes := t.answers && req.Method == http.MethodGet && last != ""
	if resumes && !ex.resume(last) {
		return ex.brokenStream(req), nil
	}
	if t.answers && ex.params != nil && !isCall && !resumes {
		return nil, fmt.Errorf("a redirect that makes a %s of a call is not followed", req.Method)
	}
	release := func() {}
	if isCall && t.answers || resumes {
		if ctx.Err() != nil {
			// The transport would not send it, but hears of the end a moment later.
			if req.Body != nil {
				req.Body.Close()
			}
			return nil, context.Cause(ctx)
		}
		var reading context.Context
		reading, release = ex.untilRead(ctx, t.life)
		req = req.WithContext(reading)
		ex.sends()
	}
	resp, err := t.send(req)
	if err != nil {
		release()
	} else {
		ex.taken()
		resp.Body = &releasingBody{ReadCloser: resp.Body, release: release}
	}
	if resumes && ctx.Err() == nil {
		// The SDK takes up a stream that broke off. If it cannot, it gives the
		// connection up; but only this call's stream is broken.
		if err != nil || resp.StatusCode/100 != 2 || mediaType(resp.Header) != "text/event-stream" {
			if err == nil {
				resp.Body.Close()
			}
			return ex.brokenStream(req), nil
		}
	}
	if err != nil {
		return nil, err
	}
	if !t.answers {
		ex.receiveStatus(resp)
		return resp, nil
	}
	if req.Header.Get("Mcp-Protocol-Version") >= sessionless {
		// There are no sessions, but the SDK would insist on the first that it sees.
		resp.Header.Del("Mcp-Session-Id")
	}
	if isCall && resp.StatusCode < 200 {
		resp.Body.Close()
		return nil, fmt.Errorf("HTTP status %d is no answer", resp.StatusCode)
	}
	media := mediaType(resp.Header)
	switch events := media == "text/event-stream" && resp.StatusCode/100 == 2; {
	case events && ex.requestID() != "":
		// The call's own stream, or one with which the SDK takes it up again.
		resp.Body = &eventTap{body: resp.Body, in: bufio.NewReader(resp.Body), ex: ex, limit: t.limit}
	case !isCall:
		// Nothing that these answer is of interest, but a handshake ends with one.
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, t.limit), resp.Body}
	case redirects[resp.StatusCode] && resp.Header.Get("Location") != "":
		// http.Client follows it or says why not.
	case resp.StatusCode/100 != 2:
		err = t.tapBody(resp, func(body []byte) []byte { return ex.inspectFailure(resp.StatusCode, body) })
	case media == "application/json":
		err = t.tapBody(resp, func(body []byte) []byte { return ex.inspectAnswer(body, t.limit) })
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
	if isCall || ex.params == nil && req.Method == http.MethodPost && resp.StatusCode >= 400 {
		ex.receiveStatus(resp)
	}
	return resp, nil
}

// send has the request sent by what may be the publisher's own code. A panic in its
// RoundTrip would end the worker: the SDK sends word of cancellations on goroutines of
// its own.
func (t *tapRoundTripper) send(req *http.Request) (resp *http.Response, err error) {
	defer recovered(&err, "panic: %v")
	resp, err = t.next.RoundTrip(req)
	if err == nil && resp.Body == nil {
		resp.Body = http.NoBody
	}
	if err == nil && resp.Header == nil {
		resp.Header = http.Header{}
	}
	return resp, err
}

// withParams returns the request with the params that the SDK has left out, and
// with the header that it would have read from them (SEP-2243). The SDK decodes the
// params of a request up to twice for its headers, into 32 KB of memory each time.
func (ex *exchange) withParams(req *http.Request) (*http.Request, error) {
	body, err := io.ReadAll(req.Body)
	req.Body.Close()
	if err != nil {
		return nil, err
	}
	open, ok := bytes.CutSuffix(bytes.TrimSpace(body), []byte("}"))
	if !ok {
		return nil, fmt.Errorf("the request %.100q is not a JSON object", body)
	}
	whole := slices.Concat(open, []byte(`,"params":`), ex.params, []byte("}"))
	out := *req
	out.ContentLength = int64(len(whole))
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil }
	out.Body, _ = out.GetBody()
	if ex.name != "" && out.Header.Get("Mcp-Method") != "" {
		out.Header = out.Header.Clone()
		out.Header.Set("Mcp-Name", ex.name)
	}
	return &out, nil
}

// untilRead returns a context for an HTTP request that ends with the call, but not
// while the response is read to its end once the answer is there: a response that
// is not costs the TCP connection. The SDK reads on when the call has returned, and
// may until life ends.
func (ex *exchange) untilRead(ctx, life context.Context) (_ context.Context, release func()) {
	reading, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	r := &reader{stop: stop, cancel: cancel, life: life}
	ex.mu.Lock()
	ex.reader = r
	ex.mu.Unlock()
	return &sameDeadline{Context: reading, of: ctx}, r.release
}

// sameDeadline is a context that tells another one's deadline, for RoundTrippers
// that ask.
type sameDeadline struct {
	context.Context
	of context.Context
}

// Deadline implements [context.Context].
func (c *sameDeadline) Deadline() (time.Time, bool) { return c.of.Deadline() }

// A reader is who reads the response of an exchange.
type reader struct {
	stop   func() bool
	cancel context.CancelCauseFunc
	life   context.Context

	mu       sync.Mutex
	released bool
	outlived func() // undoes outlive
}

// outlive lets the reader go on for a while after the call.
func (r *reader) outlive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released || !r.stop() {
		return
	}
	giveUp := func() { r.cancel(errUnended) }
	timer, stop := time.AfterFunc(endTimeout, giveUp), context.AfterFunc(r.life, giveUp)
	r.outlived = func() {
		timer.Stop()
		stop()
	}
}

var errUnended = errors.New("the response did not end after the answer")

// release says that the response was read.
func (r *reader) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released = true; r.outlived != nil {
		r.outlived()
	}
	r.stop()
	r.cancel(nil)
}

// releasingBody is a response's body that releases a context when it is closed.
type releasingBody struct {
	io.ReadCloser
	release func()
}

// Close implements [io.Closer].
func (b *releasingBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// tell sends what has no answer: word of a cancellation, or what the client says
// to something that the server asked. Nobody depends on how the server takes it,
// but the SDK would give the connection up, and wait for ever.
func (t *tapRoundTripper) tell(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), tellTimeout)
	defer cancel()
	defer context.AfterFunc(t.life, cancel)()
	resp, err := t.send(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	// What is not read would cost the TCP connection.
	_, _ = io.CopyN(io.Discard, resp.Body, maxDiscarded)
	resp.Body.Close()
	if resp.StatusCode/100 != 2 || t.answers {
		resp.StatusCode = http.StatusAccepted
	}
	resp.Header.Del("Mcp-Session-Id") // it opens none
	resp.Body, resp.ContentLength = http.NoBody, 0
	return resp, nil
}

const (
	// tellTimeout is how long the server may take to accept a message without an
	// answer.
	tellTimeout = 10 * time.Second
	// endTimeout is how long the server may take to end a response after the answer.
	// One that does not end holds a TCP connection for that long.
	endTimeout = 200 * time.Millisecond
	// maxDiscarded is the most bytes that are read of what nobody wants.
	maxDiscarded = 64 << 10
)

// tapBody reads the whole body, as the SDK would next, and replaces it.
func (t *tapRoundTripper) tapBody(resp *http.Response, inspect func([]byte) []byte) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, t.limit+1))
	resp.Body.Close()
	if err != nil && resp.StatusCode/100 == 2 {
		return fmt.Errorf("reading the answer: %w", err)
	}
	body = inspect(body)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
	return nil
}

// redirects are the statuses that http.Client follows.
var redirects = map[int]bool{
	http.StatusMovedPermanently: true, http.StatusFound: true, http.StatusSeeOther: true,
	http.StatusTemporaryRedirect: true, http.StatusPermanentRedirect: true,
}

// brokenStream answers the request for the rest of a stream.
func (ex *exchange) brokenStream(req *http.Request) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:  http.Header{"Content-Type": {"text/event-stream"}},
		Body:    io.NopCloser(strings.NewReader(fmt.Sprintf("data: %s\n\n", ex.refuse(verdict{Broken: true})))),
		Request: req,
	}
}

// inspectAnswer shows a message that must be the request's answer to the
// exchange, and returns what the SDK shall see: the message, or a verdict on it.
func (ex *exchange) inspectAnswer(message []byte, limit int64) []byte {
	if int64(len(message)) > limit {
		return ex.refuse(verdict{Size: int64(len(message))})
	}
	a, err := decodeAnswer(message)
	if err != nil {
		return ex.refuse(verdict{Problem: err.Error()})
	}
	if a == nil || !ex.receive(a) {
		return ex.refuse(verdict{Problem: "the answer is to another request"})
	}
	return message
}

// statusRules are the HTTP statuses that mean the same whatever the body says:
// they are about who asks and how often, not about the request.
var statusRules = map[int]bool{
	http.StatusUnauthorized: true, http.StatusForbidden: true, http.StatusRequestTimeout: true, http.StatusTooEarly: true,
	http.StatusTooManyRequests: true, http.StatusServiceUnavailable: true,
}

// inspectFailure does the same for the body of an HTTP failure, which may be a
// JSON-RPC error or anything. The SDK shall see a JSON-RPC error in each case:
// over another body it gives up the connection, and with it the calls that are
// not concerned.
func (ex *exchange) inspectFailure(status int, body []byte) []byte {
	var failure struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}
	if json.Unmarshal(body, &failure) == nil && failure.JSONRPC == "2.0" && failure.Error != nil && !statusRules[status] {
		// Some servers do not read the request's ID before they refuse it.
		unread := len(failure.ID) == 0 || string(failure.ID) == "null"
		if unread || string(failure.ID) == ex.requestID() {
			ex.mu.Lock()
			ex.answer, ex.unread = &answer{id: ex.id, err: failure.Error}, unread
			ex.mu.Unlock()
			return encode(map[string]any{"jsonrpc": "2.0", "id": json.RawMessage(ex.requestID()), "error": failure.Error})
		}
	}
	return verdict{}.answer(ex.requestID())
}

// eventTap passes a server-sent event stream on, one event at a time, and
// inspects the data of each. It writes the events anew: the SDK is stricter than
// the standard about what else a stream may hold.
// Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
type eventTap struct {
	body  io.Closer
	in    *bufio.Reader
	ex    *exchange
	limit int64

	out     bytes.Buffer // the rest of an event that Read has not handed out yet
	err     error        // of in, handed out after out
	started bool         // once a byte order mark would have been read
	halfEnd bool         // the last line ended with CR, whose LF may follow
}

// Read implements [io.Reader].
func (t *eventTap) Read(p []byte) (int, error) {
	for t.out.Len() == 0 {
		switch {
		case t.err != nil:
			return 0, t.err
		case t.ex.received() != nil:
			// What follows the answer interests nobody, but the TCP connection is of use
			// again once the response was read.
			_, _ = io.CopyN(io.Discard, t.in, maxDiscarded)
			t.err = io.EOF
		default:
			t.next()
		}
	}
	return t.out.Read(p)
}

// Close implements [io.Closer].
func (t *eventTap) Close() error { return t.body.Close() }

// next reads one event and puts it into out.
func (t *eventTap) next() {
	var data []byte
	var size int64
	tooLarge, hasData, message := false, false, true
	for {
		line, complete, err := t.line(t.limit - size)
		size += int64(len(line))
		tooLarge = tooLarge || !complete
		if t.err = err; len(line) == 0 && complete {
			break
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if !hasData {
				data, hasData = value, true
				break
			}
			data = append(append(data, '\n'), value...)
		case "event":
			message = len(value) == 0 || string(value) == "message"
		case "id", "retry":
			if bytes.ContainsFunc(value, unicode.IsControl) {
				continue // the ID comes back in a header
			}
			t.writeField(string(field), value)
		}
		if err != nil {
			break
		}
	}
	if t.err != nil && !tooLarge && (!hasData || !json.Valid(data)) {
		// The end of the stream discards an event that it cuts off, but some servers
		// leave the last line's end, or the empty line, out after a whole one.
		t.out.Reset()
		return
	}
	switch {
	case tooLarge:
		t.write(t.ex.refuse(verdict{Size: t.limit + 1}))
	case hasData && message && len(data) > 0:
		t.write(t.inspect(data))
	case t.out.Len() > 0:
		t.write(nil) // an event that only carries the ID to resume from
	}
}

// inspect shows a message of the stream to the exchange. Others than the answer
// may stand before it.
func (t *eventTap) inspect(message []byte) []byte {
	a, err := decodeAnswer(message)
	if err != nil {
		return t.ex.refuse(verdict{Problem: err.Error()})
	}
	if a != nil && !t.ex.receive(a) {
		return nil // to another request, which is none of this stream's
	}
	return message
}

func (t *eventTap) write(data []byte) {
	t.out.Grow(len(data) + len("data: \n\n"))
	for line := range bytes.Lines(data) {
		t.writeField("data", bytes.TrimSuffix(line, []byte("\n")))
	}
	t.out.WriteByte('\n')
}

func (t *eventTap) writeField(name string, value []byte) {
	t.out.WriteString(name)
	t.out.WriteString(": ")
	t.out.Write(value)
	t.out.WriteByte('\n')
}

// line reads one line without its end, which is LF, CR, or both. What exceeds
// room is read and forgotten, and complete is false.
func (t *eventTap) line(room int64) (line []byte, complete bool, err error) {
	if !t.started {
		t.started = true
		if mark, _ := t.in.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
			_, _ = t.in.Discard(len(mark))
		}
	}
	complete = true
	for {
		if _, err := t.in.Peek(1); err != nil {
			return line, complete, err
		}
		part, _ := t.in.Peek(t.in.Buffered())
		if t.halfEnd {
			t.halfEnd = false
			if part[0] == '\n' {
				_, _ = t.in.Discard(1)
				continue
			}
		}
		read := len(part)
		part, _, ended := bytes.Cut(part, []byte("\n"))
		if before, _, found := bytes.Cut(part, []byte("\r")); found {
			part, ended, t.halfEnd = before, true, true
		}
		if ended {
			read = len(part) + 1
		}
		if int64(len(line)+len(part)) > room {
			complete = false
		}
		if complete {
			line = append(line, part...)
		}
		_, _ = t.in.Discard(read)
		if ended {
			return line, complete, nil
		}
	}
}

const byteOrderMark = "\ufeff"

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
	var start [64]byte
	n, _ := io.ReadFull(body, start[:]) // an error comes again
	if id, ok := leadingID(start[:n]); ok {
		return id, true
	}
	return decodeID(io.MultiReader(bytes.NewReader(start[:n]), body))
}

// leadingID reads the ID of a request that begins as the SDK writes one.
func leadingID(start []byte) (string, bool) {
	start, ok := bytes.CutPrefix(start, []byte(`{"jsonrpc":"2.0","id":`))
	id, rest, found := bytes.Cut(start, []byte(","))
	if !ok || !found || !isCanonicalID(id) || !bytes.HasPrefix(rest, []byte(`"method":"`)) {
		return "", false
	}
	return string(id), true
}

// decodeID reads the ID of any request.
func decodeID(body io.Reader) (string, bool) {
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
	value := h.Get("Content-Type")
	if value == "application/json" || value == "text/event-stream" {
		return value // and needs no parsing
	}
	t, _, err := mime.ParseMediaType(value)
	if err != nil {
		return strings.ToLower(strings.TrimSpace(value))
	}
	return t
}
