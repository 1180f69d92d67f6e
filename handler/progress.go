package handler

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type progressKey struct{}

// A progressWish is what a context asks of its requests, see [withProgress].
type progressWish struct {
	token  string
	report func(mcp.ProgressNotificationParams)
}

// withProgress returns a context whose requests ask the server for progress, and
// hands what it says to report.
//
// The token must be one that no other request in flight has. A request whose
// caller gave it a token of its own keeps that.
//
// The server's notifications are reported in their order, one at a time, and not
// any more once the request has returned. The last ones before the answer may
// not be reported at all: the SDK handles notifications beside answers. Report
// must be quick: it holds up all that the server says unasked on the connection,
// and the end of the request. A panic in it is logged.
func withProgress(ctx context.Context, token string, report func(mcp.ProgressNotificationParams)) context.Context {
	return context.WithValue(ctx, progressKey{}, &progressWish{token: token, report: report})
}

// progressDetails are what is kept of a progress notification, for operators.
type progressDetails struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"`
	Message  string  `json:"message,omitempty"`
}

// maxProgressMessage is the most bytes of a message that are kept. They are sent to
// the Temporal server with each heartbeat.
const maxProgressMessage = 1000

// remember returns what keeps the last progress that was reported.
func remember(last *atomic.Pointer[progressDetails]) func(mcp.ProgressNotificationParams) {
	return func(p mcp.ProgressNotificationParams) {
		last.Store(&progressDetails{Progress: p.Progress, Total: p.Total, Message: truncate(strings.ToValidUTF8(p.Message, "\uFFFD"), maxProgressMessage)})
	}
}

// progressReports are those of a session's requests in flight whose progress
// somebody wants to know, by token. The zero value has none.
type progressReports struct {
	mu      sync.Mutex
	waiting map[any][]*progressReport
}

// A progressReport belongs to one request.
type progressReport struct {
	mu     sync.Mutex
	report func(mcp.ProgressNotificationParams) // nil when the request is over
}

// follow makes a request with the given _meta ask for progress, if ctx wants
// that, until stop is called.
func (r *progressReports) follow(ctx context.Context, meta object) (stop func()) {
	wish, ok := ctx.Value(progressKey{}).(*progressWish)
	if !ok {
		return func() {}
	}
	var token any
	if own, ok := meta["progressToken"]; !ok {
		meta["progressToken"] = encode(wish.token)
		token = wish.token
	} else if err := json.Unmarshal(own, &token); err != nil || !isProgressToken(token) {
		return func() {} // it is the server's to refuse
	}
	report := &progressReport{report: wish.report}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = make(map[any][]*progressReport)
	}
	r.waiting[token] = append(r.waiting[token], report)
	return func() {
		r.remove(token, report)
		report.mu.Lock()
		defer report.mu.Unlock()
		report.report = nil
	}
}

func (r *progressReports) remove(token any, report *progressReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting[token]) == 1 { // itself
		delete(r.waiting, token)
		return
	}
	others := make([]*progressReport, 0, len(r.waiting[token]))
	for _, other := range r.waiting[token] {
		if other != report {
			others = append(others, other)
		}
	}
	r.waiting[token] = others
}

// notified reports one notification to the request that it is about.
func (r *progressReports) notified(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
	if req.Params == nil || !isProgressToken(req.Params.ProgressToken) {
		return
	}
	r.mu.Lock()
	// Callers choose tokens that others choose too. Whose progress it is then
	// nobody can tell, and it is not for everyone.
	var report *progressReport
	if waiting := r.waiting[req.Params.ProgressToken]; len(waiting) == 1 {
		report = waiting[0]
	}
	r.mu.Unlock()
	if report == nil {
		return
	}
	report.mu.Lock()
	defer report.mu.Unlock()
	if report.report != nil {
		report.report(*req.Params)
	}
}

// isProgressToken reports whether a decoded JSON value can be a token: "Progress
// tokens MUST be a string or integer value".
// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/progress
func isProgressToken(token any) bool {
	switch token.(type) {
	case string, float64:
		return true
	}
	return false
}
