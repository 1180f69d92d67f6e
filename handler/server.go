package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/log"
)

// Values of [Server.IdleTimeout] that are not a length of time.
const (
	// KeepOpen keeps an idle connection until the worker stops.
	KeepOpen time.Duration = -1
	// CloseAtOnce closes a connection as soon as no call uses it, and opens none
	// ahead of need.
	CloseAtOnce time.Duration = 1
)

const (
	// DefaultIdleTimeout is how long an unused connection stays open by default.
	DefaultIdleTimeout = 5 * time.Minute
	// DefaultConnectTimeout is how long a connection may take to be opened by default.
	DefaultConnectTimeout = 30 * time.Second
)

// MaxOpenAhead is the most connections to one server that are opened ahead of need,
// where calls do not share one. There is one as a rule, and more when calls follow
// each other faster than a connection opens, until they are idle for
// [Server.IdleTimeout].
const MaxOpenAhead = 8

// A Server is an MCP server to publish.
type Server struct {
	// Name is the name of the Nexus service. Required. Without "/" and control
	// characters.
	Name string
	// Transport is how the worker reaches the server: one of [HTTP], [Command],
	// [SSE], [InProcess], [Factory] and [ArgumentFactory]. Required.
	Transport Transport
	// ProtocolVersion is the MCP version to ask for first. Empty means the newest
	// that the MCP SDK knows; older servers are recognised and spoken to in their
	// own version. Set it for a server that does not answer a request it does not
	// know (server/discover), or to save that request.
	ProtocolVersion string
	// Stateless says that the server keeps nothing from one call to the next in
	// its session. Since protocol version 2026-07-28 there are no sessions and
	// calls share a connection anyway; with an older version they share one only
	// if Stateless is set, because state of one caller could reach another.
	Stateless bool
	// IdleTimeout is how long a connection stays open unused: one that calls share,
	// or one that was opened ahead of need. Zero means [DefaultIdleTimeout]; see also [KeepOpen] and [CloseAtOnce].
	IdleTimeout time.Duration
	// ConnectTimeout limits the start of a connection: of a process, and of the
	// handshake. It goes on when the call that needed it has given up, so that
	// the next call finds it done. Zero means [DefaultConnectTimeout].
	ConnectTimeout time.Duration
}

// A Transport is a way to reach an MCP server. This package's types are the
// only ones; [Factory] makes any [mcp.Transport] one.
type Transport interface {
	// validate reports the mistakes in the configuration.
	validate() []fieldError
	// open returns a new transport for one connection. The argument is JSON, or
	// nil; only transports that takeArgument get one.
	open(ctx context.Context, argument json.RawMessage, env environment) (mcp.Transport, error)
	takesArgument() bool
}

// environment is what the handler gives to a transport.
type environment struct {
	logger log.Logger
	limit  int64 // bytes of one message
	http   *sharedClient
}

// A fieldError is a mistake in one field of a configuration.
type fieldError struct{ field, reason string }

func (s *Server) validate() []fieldError {
	var mistakes []fieldError
	mistake := func(field, format string, args ...any) {
		mistakes = append(mistakes, fieldError{field, fmt.Sprintf(format, args...)})
	}
	switch unfit := strings.IndexFunc(s.Name, func(r rune) bool { return r == '/' || unicode.IsControl(r) }); {
	case strings.TrimSpace(s.Name) == "":
		mistake("Name", "is empty")
	case !utf8.ValidString(s.Name):
		mistake("Name", "is not UTF-8")
	case unfit >= 0:
		mistake("Name", "contains %q, which no Nexus request can carry in a service's name", s.Name[unfit:unfit+1])
	case strings.HasPrefix(s.Name, "__temporal_"):
		mistake("Name", `begins with "__temporal_", which Temporal keeps for itself`)
	}
	if s.ProtocolVersion != "" && !slices.Contains(mcp.SupportedProtocolVersions(), s.ProtocolVersion) {
		mistake("ProtocolVersion", "is %q, want one of %s", s.ProtocolVersion, strings.Join(mcp.SupportedProtocolVersions(), ", "))
	}
	if s.IdleTimeout < 0 && s.IdleTimeout != KeepOpen {
		mistake("IdleTimeout", "is %v, want a positive duration or KeepOpen", s.IdleTimeout)
	}
	if s.ConnectTimeout < 0 {
		mistake("ConnectTimeout", "is %v, want a positive duration", s.ConnectTimeout)
	}
	if v := reflect.ValueOf(s.Transport); s.Transport == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		mistake("Transport", "is nil, want HTTP, Command, SSE, InProcess, Factory or ArgumentFactory")
		return mistakes
	}
	return append(mistakes, s.Transport.validate()...)
}
