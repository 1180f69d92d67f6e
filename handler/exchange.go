package handler

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An exchange is one JSON-RPC request and what came back for it, as it stood on
// the wire.
//
// The MCP SDK decodes a result into Go types and an HTTP failure into a
// sentence. The first loses what the types do not know (a field of a later
// protocol version, an integer above 2^53, the order of a schema's properties),
// the second the status and Retry-After on which the contract's retries depend.
// So the exchange travels in the request's context, and the taps on the
// transports ([tapConn], [tapRoundTripper]) write into it.
type exchange struct {
	// params replaces what the SDK would send, nil during a handshake.
	params json.RawMessage
	// addParams is true when the SDK sends the request without params and the tap
	// is to add them, and with them the name of what they are about.
	addParams bool
	name      string

	// withdrawn is closed, by withdraw, when the server was sent word that the
	// request is cancelled.
	withdrawn chan struct{}
	withdraw  func()

	mu         sync.Mutex
	reader     *reader // of the HTTP response that brings the answer, nil where none does
	id         string  // of the request, in JSON
	closed     bool
	sent       time.Time // when the HTTP request was made, zero once its response has begun
	answer     *answer
	status     int
	retryAfter time.Duration
	// sessionID is true when the request named a session that the server had
	// opened, so that 404 means that the session is lost and not the endpoint.
	sessionID bool
	// resumed counts the times that the answer's stream was taken up from the
	// event resumedFrom.
	resumedFrom string
	resumed     int
	// unread is true when the answer is a JSON-RPC error without the request's
	// ID: the server refused the request before it read it.
	unread bool
}

// An answer is a JSON-RPC response: a result or an error.
type answer struct {
	id     string // in JSON
	result json.RawMessage
	err    *jsonrpc.Error
}

// decodeAnswer reads a message as the SDK will. The answer is nil when the
// message is a request or a notification.
func decodeAnswer(message []byte) (*answer, error) {
	// The SDK's decoder overlooks what follows the message.
	if !json.Valid(message) {
		return nil, errors.New("not a JSON-RPC message: not JSON")
	}
	if a := scanResult(message); a != nil {
		return a, nil
	}
	msg, err := jsonrpc.DecodeMessage(message)
	if err != nil {
		return nil, fmt.Errorf("not a JSON-RPC message: %w", err)
	}
	resp, ok := msg.(*jsonrpc.Response)
	if !ok {
		return nil, nil
	}
	return newAnswer(resp), nil
}

func newAnswer(resp *jsonrpc.Response) *answer {
	a := &answer{id: idJSON(resp.ID), result: resp.Result}
	a.err, _ = errors.AsType[*jsonrpc.Error](resp.Error)
	return a
}

// idJSON writes a request ID as it stands on the wire.
func idJSON(id jsonrpc.ID) string { return string(encode(id.Raw())) }

func newExchange(params json.RawMessage) *exchange {
	withdrawn := make(chan struct{})
	return &exchange{params: params, withdrawn: withdrawn, withdraw: sync.OnceFunc(func() { close(withdrawn) })}
}

type exchangeKey struct{}

func withExchange(ctx context.Context, ex *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, ex)
}

// exchangeFrom returns the exchange that ctx's request belongs to, or nil. A
// connection keeps the context of its handshake for as long as it lives; the
// handshake's exchange is closed by then.
func exchangeFrom(ctx context.Context) *exchange {
	ex, _ := ctx.Value(exchangeKey{}).(*exchange)
	if ex == nil {
		return nil
	}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.closed {
		return nil
	}
	return ex
}

// begin notes that a request with the given ID goes out. A handshake may send
// several, of which the last one counts.
func (ex *exchange) begin(id string) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.id, ex.answer, ex.status, ex.retryAfter, ex.sessionID, ex.unread = id, nil, 0, 0, false, false
}

func (ex *exchange) requestID() string {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.id
}

// resume notes that the answer's stream is to be taken up from an event, and
// reports whether that is worth trying: not when it has led nowhere twice. The
// SDK gives up then too, and with the stream the connection.
func (ex *exchange) resume(event string) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if event != ex.resumedFrom {
		ex.resumedFrom, ex.resumed = event, 0
	}
	ex.resumed++
	return ex.resumed <= maxResumptions
}

// maxResumptions is less than what the SDK takes to give a connection up: the
// MaxRetries of [HTTP], and a factory's, which is 5 by default.
const maxResumptions = 2

// receive notes an answer, and reports whether it was the request's.
func (ex *exchange) receive(a *answer) bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.id == "" || a.id != ex.id || ex.answer != nil {
		return false
	}
	ex.answer = a
	return true
}

func (ex *exchange) received() *answer {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.answer
}

func (ex *exchange) receiveStatus(resp *http.Response) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.status = resp.StatusCode
	ex.retryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	ex.sessionID = resp.Request != nil && resp.Request.Header.Get("Mcp-Session-Id") != ""
}

// sessionLost reports whether the server said that it does not know the session
// (any more), and whether it has read the request all the same: "When a client receives
// HTTP 404 in response to a request containing an Mcp-Session-Id, it MUST start a new
// session". A body that names the request's ID is an answer to it, which is not to be
// sent again.
// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#session-management
//
// Servers built with the TypeScript SDK answer a session that they do not know
// with 400 and JSON-RPC error -32000, before they have read the request's ID.
func (ex *exchange) sessionLost() (lost, read bool) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	switch {
	case !ex.sessionID:
		return false, false
	case ex.status == http.StatusNotFound:
		return true, ex.answer != nil && !ex.unread
	}
	return ex.status == http.StatusBadRequest && ex.unread && ex.answer.err.Code == -32000, false
}

// failed reports whether the last HTTP status was a failure.
func (ex *exchange) failed() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return ex.status >= 300
}

// sends notes that the request is about to be sent, and taken that the server has
// it: its response has begun.
func (ex *exchange) sends() { ex.setSent(time.Now()) }
func (ex *exchange) taken() { ex.setSent(time.Time{}) }

func (ex *exchange) setSent(at time.Time) {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.sent = at
}

// awaitTaken waits until the server has the request, as far as can be told. Two HTTP
// requests arrive in any order, and a server that hears of a cancellation before the
// request lets it run.
func (ex *exchange) awaitTaken(ctx, life context.Context) {
	ex.mu.Lock()
	sent := ex.sent
	ex.mu.Unlock()
	if sent.IsZero() {
		return
	}
	select {
	case <-time.After(time.Until(sent.Add(overtakeTime))):
	case <-ctx.Done():
	case <-life.Done():
	}
}

// overtakeTime is how long after a request word of its cancellation is held back, when
// the server has not begun to answer.
const overtakeTime = 200 * time.Millisecond

// awaitWithdrawal waits until the server was sent word of the request's
// cancellation. The SDK sends it on a goroutine of its own after the call has
// returned, and not at all once the connection is closed, with which life ends.
func (ex *exchange) awaitWithdrawal(life context.Context) {
	timer := time.NewTimer(terminateAfter)
	defer timer.Stop()
	select {
	case <-ex.withdrawn:
	case <-life.Done():
	case <-timer.C:
	}
}

// close ends the exchange. The answer's response may still be read.
func (ex *exchange) close() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.closed = true
	if ex.answer != nil && ex.reader != nil {
		ex.reader.outlive()
	}
}

// retryAfter reads the header of RFC 9110 section 10.2.3: seconds or a date.
// What is neither, or in the past, asks for nothing.
func retryAfter(header string, now time.Time) time.Duration {
	if header == "" { // as nearly always, and the errors below have their price
		return 0
	}
	// A server that asks for more is not heeded beyond: its word would park a
	// workflow for as long as it likes.
	const longest = 24 * time.Hour
	// What does not fit is the nearest that does.
	if seconds, err := strconv.ParseInt(header, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(max(0, seconds), int64(longest/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(header); err == nil {
		return min(longest, max(0, date.Sub(now)))
	}
	return 0
}

// wireParams are params that are sent exactly as they are.
type wireParams struct {
	mcp.ParamsBase
	raw json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (p *wireParams) MarshalJSON() ([]byte, error) { return p.raw, nil }

// A verdict is a tap's finding that an answer cannot be handed on. It takes the
// answer's place as a JSON-RPC error, so that one bad answer fails one call:
// the SDK, seeing the bad answer itself, would give up the whole connection and
// with it every other call on it.
type verdict struct {
	// Problem says how the answer broke the protocol.
	Problem string `json:"problem,omitempty"`
	// Broken is set when the answer's stream ended before it.
	Broken bool `json:"broken,omitempty"`
	// Size is set when the answer was given up for its size: the bytes read
	// until then.
	Size int64 `json:"size,omitempty"`
}

// verdictKey marks a verdict's error data. It is random, so that no server can
// pass one off.
var verdictKey = "nexusmcp/verdict/" + rand.Text()

func (v verdict) answer(id string) []byte {
	return encode(map[string]any{
		"jsonrpc": "2.0",
		"id":      json.RawMessage(id),
		"error": map[string]any{
			"code": jsonrpc.CodeInternalError, "message": "answer refused by the MCP client",
			"data": map[string]verdict{verdictKey: v},
		},
	})
}

// refuse puts a verdict in the answer's place.
func (ex *exchange) refuse(v verdict) []byte {
	message := v.answer(ex.requestID())
	if a, err := decodeAnswer(message); err == nil {
		ex.receive(a)
	}
	return message
}

// verdictOf returns the verdict that stands in for an answer, if one does.
func verdictOf(e *jsonrpc.Error) (verdict, bool) {
	var data map[string]verdict
	// Most errors have no data, or other data: no need to decode it.
	if !bytes.Contains(e.Data, []byte(verdictKey)) || json.Unmarshal(e.Data, &data) != nil {
		return verdict{}, false
	}
	v, ok := data[verdictKey]
	return v, ok
}
