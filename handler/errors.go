package handler

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// handshakeError is the outcome of a handshake that failed. The requests of a
// handshake share an exchange, so that an answer in it may be to one that went
// well.
func handshakeError(ctx context.Context, ex *exchange, err error) error {
	a := ex.received()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, mcp.ErrConnectionClosed), errors.Is(err, io.EOF):
		// What was answered before was to another request of the handshake.
		return transportError(ex, err)
	case a != nil && a.err != nil:
		return answeredError(a.err)
	case ex.failed(), a == nil:
		return transportError(ex, err)
	}
	// It was answered, and the SDK could not agree with the answer.
	return verdict{Problem: forCallers(err)}.err()
}

// answeredError makes the contract's error of a JSON-RPC error, or of a tap's
// verdict in place of one.
func answeredError(e *jsonrpc.Error) *mcpnexus.Error {
	if v, ok := verdictOf(e); ok {
		return v.err()
	}
	data := e.Data
	if string(data) == "null" {
		data = nil
	}
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	out := mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: e.Code, Data: data, Message: fmt.Sprintf("%s (JSON-RPC error %d)", e.Message, e.Code)}
	if e.Code == 0 {
		out.Problem, out.Data = "a JSON-RPC error with code 0", nil
	}
	if len(data) > maxErrorData {
		out.Data = nil
		out.Message = fmt.Sprintf("%s (JSON-RPC error %d; its data of %d bytes was left out, the limit is %d)", truncate(e.Message, maxErrorMessage/2), e.Code, len(data), maxErrorData)
	}
	return mcpnexus.NewError(out)
}

func (v verdict) err() *mcpnexus.Error {
	if v.Broken {
		return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "the stream of the answer broke off and could not be taken up again"})
	}
	if v.Size > 0 {
		return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeResultTooLarge, Size: v.Size})
	}
	problem := truncate(v.Problem, maxErrorMessage)
	return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Problem: problem, Message: "the server's answer breaks the protocol: " + problem})
}

// transportError makes the contract's error of a request that got no answer.
func transportError(ex *exchange, err error) error {
	lost, _ := ex.sessionLost()
	ex.mu.Lock()
	defer ex.mu.Unlock()
	if ex.status < 300 {
		return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: forCallers(err)})
	}
	e := mcpnexus.NewError(mcpnexus.Error{
		Type: mcpnexus.ErrorTypeTransport, HTTPStatus: ex.status,
		Message: strings.TrimSpace(fmt.Sprintf("HTTP status %d %s", ex.status, http.StatusText(ex.status))),
	})
	switch {
	case ex.status == http.StatusTooManyRequests, ex.status == http.StatusServiceUnavailable:
		e.NextRetryDelay = ex.retryAfter
	case ex.status < 400:
		e.Message += ": " + forCallers(err)
	}
	if lost {
		// The session is gone, not the endpoint: a new connection gets a new one.
		e.NonRetryable = false
		e.Message += ": the server lost the session"
		return &lostSession{cause: e, unread: true}
	}
	return e
}

// forCallers returns an error's text without what callers are not to know:
// the server's URL, in which some keep a key, its address, the program that is
// it, a session.
func forCallers(err error) string {
	text := forLog(err)
	for _, cause := range causes(err) {
		public := ""
		switch e := cause.(type) {
		case *net.OpError:
			public = e.Op
			if e.Err != nil {
				public += ": " + e.Err.Error()
			}
		case *net.DNSError:
			public = "lookup: " + e.Err
		case *net.AddrError:
			public = e.Err
		case *fs.PathError:
			public = e.Op + ": " + e.Err.Error()
		case *os.LinkError:
			public = e.Op + ": " + e.Err.Error()
		case *exec.Error:
			public = "exec: " + e.Err.Error()
		case x509.HostnameError:
			public = "x509: the certificate is for another name"
		case x509.UnknownAuthorityError:
			public = "x509: the certificate is signed by an unknown authority"
		default:
			continue
		}
		text = strings.ReplaceAll(text, cause.Error(), public)
	}
	// The MCP SDK, and who wraps its transports, keeps some causes as text only.
	text = lookupText.ReplaceAllString(text, "lookup")
	text = networkText.ReplaceAllString(text, "$1:")
	text = hostnameText.ReplaceAllString(text, "x509: the certificate is for another name")
	return addressText.ReplaceAllString(urlText.ReplaceAllString(text, "[address]"), "[address]")
}

// causes returns an error and all that it wraps, from the outside in.
func causes(err error) []error {
	out := []error{err}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			out = append(out, causes(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			out = append(out, causes(inner)...)
		}
	}
	return out
}

// forLog returns an error's text for the worker's log: without sessions, and of
// URLs only the origin.
func forLog(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	text := sessionText.ReplaceAllString(err.Error(), "$1")
	text = parseText.ReplaceAllString(text, "parse the address:")
	if strings.Contains(text, "failed to parse Location header") {
		return "the server redirects to an address that cannot be read"
	}
	return urlText.ReplaceAllStringFunc(text, func(found string) string {
		scheme, rest, _ := strings.Cut(found, "://")
		if end := strings.IndexAny(rest, "/?#\\\"'<>`"); end >= 0 {
			rest = rest[:end]
		}
		return scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
	})
}

var (
	urlText      = regexp.MustCompile(`\b[a-zA-Z][a-zA-Z0-9+.-]*://\S+`)
	sessionText  = regexp.MustCompile(` ?\(session ID: [^)]*\)|(mismatching session IDs) "(?:\\.|[^"\\])*" and "(?:\\.|[^"\\])*"`)
	parseText    = regexp.MustCompile(`\bparse "(?:\\.|[^"\\])*":`)
	networkText  = regexp.MustCompile(`\b(dial|read|write|accept|proxyconnect) (?:unix|unixgram|unixpacket|tcp[46]?|udp[46]?)(?: \S+)?:`)
	hostnameText = regexp.MustCompile(`x509: (?:certificate is (?:not )?valid for|cannot validate certificate for) [^;\n]*`)
	lookupText   = regexp.MustCompile(`\blookup \S+( on \S+)?`)
	addressText  = regexp.MustCompile(`(\[[0-9a-fA-F:.%]+\]|[a-zA-Z0-9_-]+\.[a-zA-Z0-9_.-]+|localhost):[0-9]+\b`)
)

// recovered, when it is deferred, makes a panic the function's error, in the given
// format.
func recovered(err *error, format string) {
	if p := recover(); p != nil {
		*err = fmt.Errorf(format, p)
	}
}

// A connectError is a connection that could not be opened: what callers are told
// about it, and what the worker's log is.
type connectError struct {
	told   error
	detail string
}

func (e *connectError) Error() string { return e.detail }
func (e *connectError) Unwrap() error { return e.told }

// lostSession marks the error of a request whose connection is of no use to
// another: its session has ended.
type lostSession struct {
	cause *mcpnexus.Error
	// unread is true when the server has not read the request, which can be sent again.
	unread bool
}

func (e *lostSession) Error() string { return e.cause.Error() }
func (e *lostSession) Unwrap() error { return e.cause }

// maxErrorMessage is the most bytes of an error's message that are passed on.
const maxErrorMessage = 4 << 10

// truncate cuts s to at most n bytes, between characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	cut := n - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
