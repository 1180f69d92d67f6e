package handler

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
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

// Defaults of [Server] and [Options].
const (
	DefaultIdleTimeout    = 5 * time.Minute
	DefaultConnectTimeout = 30 * time.Second
)

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
	// validate reports a mistake in the configuration as a field and a reason.
	validate() *fieldError
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

// A sharedClient is the HTTP client of a server's connections. With servers
// that keep sessions each call has a connection to itself; TCP connections must
// not end with it.
type sharedClient struct {
	once   sync.Once
	client *http.Client
	own    *http.Transport // nil when the publisher gave the client
}

func (c *sharedClient) get(endpoint string, header http.Header, config *tls.Config, given *http.Client) *http.Client {
	c.once.Do(func() {
		c.client = &http.Client{}
		if given != nil {
			*c.client = *given
		} else {
			// Somebody may have put another RoundTripper in its place.
			if base, ok := http.DefaultTransport.(*http.Transport); ok {
				c.own = base.Clone()
			} else {
				c.own = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second}
			}
			c.own.TLSClientConfig = config.Clone()
			// Calls run side by side; with Go's default of 2 most would open a TCP
			// connection of their own.
			c.own.MaxIdleConnsPerHost = 100
			c.client.Transport = c.own
		}
		if u, err := url.Parse(endpoint); err == nil && len(header) > 0 {
			c.client.Transport = &headerRoundTripper{next: orDefault(c.client.Transport), origin: origin(u), header: canonical(header)}
		}
		if c.client.CheckRedirect == nil {
			c.client.CheckRedirect = sameOrigin
		}
	})
	return c.client
}

func (c *sharedClient) close() {
	c.once.Do(func() {}) // a connection that did not end may be about to make it
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

type fieldError struct{ field, reason string }

// HTTP reaches a server over streamable HTTP.
// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
type HTTP struct {
	// Endpoint is the server's URL, http or https. Required.
	Endpoint string
	// Header is added to every request to the endpoint's origin: its scheme, host
	// and port. Those that the transport sets itself are refused.
	Header http.Header
	// TLS configures https. Nil means Go's defaults. Not together with Client.
	TLS *tls.Config
	// Client makes the requests. Nil means a client of the server's own, without
	// a timeout: calls bring theirs. Redirects are followed within the endpoint's
	// origin only, unless the client has a CheckRedirect of its own.
	Client *http.Client
}

func (t HTTP) validate() *fieldError { return validateHTTP(t.Endpoint, t.Header, t.TLS, t.Client) }

func (t HTTP) open(_ context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	return &mcp.StreamableClientTransport{
		Endpoint:   t.Endpoint,
		HTTPClient: env.http.get(t.Endpoint, t.Header, t.TLS, t.Client),
		// Answers come with their requests; nothing here waits for what a server
		// may say unasked.
		DisableStandaloneSSE: true,
		// The SDK takes up a stream that broke off. Its five attempts last longer
		// than a Nexus handler, so that a server that died would look like a slow one.
		MaxRetries: 2,
	}, nil
}

func (HTTP) takesArgument() bool { return false }

// SSE reaches a server over HTTP with server-sent events, the protocol's HTTP
// transport until version 2025-03-26.
// Source: https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse
type SSE struct {
	// Endpoint is the URL of the event stream, http or https. Required.
	Endpoint string
	// Header is as in [HTTP].
	Header http.Header
	// TLS is as in [HTTP].
	TLS *tls.Config
	// Client is as in [HTTP].
	Client *http.Client
}

func (t SSE) validate() *fieldError { return validateHTTP(t.Endpoint, t.Header, t.TLS, t.Client) }

func (t SSE) open(_ context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	return &mcp.SSEClientTransport{Endpoint: t.Endpoint, HTTPClient: env.http.get(t.Endpoint, t.Header, t.TLS, t.Client)}, nil
}

func (SSE) takesArgument() bool { return false }

func validateHTTP(endpoint string, header http.Header, config *tls.Config, client *http.Client) *fieldError {
	if endpoint == "" {
		return &fieldError{"Endpoint", "is empty, want an http or https URL"}
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		// The parser's error repeats the URL, which may hold a password.
		return &fieldError{"Endpoint", "is not a URL"}
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return &fieldError{"Endpoint", fmt.Sprintf("has the scheme %q, want http or https", u.Scheme)}
	}
	if u.Hostname() == "" {
		return &fieldError{"Endpoint", "names no host"}
	}
	for name := range header {
		if slices.Contains(transportHeaders, http.CanonicalHeaderKey(name)) {
			return &fieldError{"Header", fmt.Sprintf("has %q, which the transport sets", name)}
		}
	}
	if config != nil && client != nil {
		return &fieldError{"TLS", "is set together with Client, which has its own"}
	}
	return nil
}

// sameOrigin keeps a request, whose body holds a caller's data and whose headers
// may hold a credential, from following a redirect elsewhere, and from becoming a
// GET that asks for something else.
func sameOrigin(req *http.Request, via []*http.Request) error {
	switch first := via[0]; {
	case len(via) >= 10:
		return errors.New("stopped after 10 redirects")
	case origin(req.URL) != origin(first.URL):
		return errors.New("a redirect to another origin is not followed")
	case req.Method != first.Method:
		return fmt.Errorf("a redirect that makes a %s of a %s is not followed", req.Method, first.Method)
	}
	return nil
}

// origin is what a credential is meant for: scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// headerRoundTripper adds headers to requests to one origin.
type headerRoundTripper struct {
	next   http.RoundTripper
	origin string
	header http.Header
}

// RoundTrip implements [http.RoundTripper].
func (t *headerRoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	if origin(req.URL) == t.origin {
		req = req.Clone(req.Context())
		maps.Copy(req.Header, t.header)
	}
	return t.next.RoundTrip(req)
}

func canonical(header http.Header) http.Header {
	out := make(http.Header, len(header))
	for name, values := range header {
		for _, value := range values {
			out.Add(name, value)
		}
	}
	return out
}

// transportHeaders are the headers that the transport itself sets.
var transportHeaders = []string{"Accept", "Content-Length", "Content-Type", "Host", "Last-Event-Id", "Mcp-Method", "Mcp-Name", "Mcp-Protocol-Version", "Mcp-Session-Id"}

func orDefault(t http.RoundTripper) http.RoundTripper {
	if t == nil {
		return http.DefaultTransport
	}
	return t
}

// tapClient returns a copy of client whose requests are tapped.
func tapClient(client *http.Client, answers bool, limit int64) *http.Client {
	out := &http.Client{}
	if client != nil {
		*out = *client
	}
	out.Transport = &tapRoundTripper{next: orDefault(out.Transport), answers: answers, limit: limit}
	return out
}

// Command reaches a server that it starts, over the server's stdin and stdout.
// What the server writes to stderr goes to the worker's log.
// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio
type Command struct {
	// Path is the program: a path, or a name that is looked up in PATH. Required.
	Path string
	// Args are the program's arguments, without its name.
	Args []string
	// Env is added to the few variables that the process inherits (PATH, HOME and
	// others of the kind, as other MCP hosts do). The worker's other variables
	// stay with the worker: its own credentials may be among them.
	Env map[string]string
	// Dir is the working directory. Empty means the worker's.
	Dir string
}

func (t Command) validate() *fieldError {
	if t.Path == "" {
		return &fieldError{"Path", "is empty, want the program to start"}
	}
	for name := range t.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return &fieldError{"Env", fmt.Sprintf("has the name %q, which no environment variable can have", name)}
		}
	}
	for _, s := range slices.Concat([]string{t.Path, t.Dir}, t.Args, slices.Collect(maps.Values(t.Env))) {
		if strings.ContainsRune(s, 0) {
			return &fieldError{"Path, Args, Env or Dir", "contains a NUL byte, which no process can be given"}
		}
	}
	return nil
}

func (t Command) open(_ context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	// Not CommandContext: the process outlives the call that started it.
	cmd := exec.Command(t.Path, t.Args...)
	if errors.Is(cmd.Err, exec.ErrNotFound) && strings.Contains(t.Path, " ") {
		return nil, fmt.Errorf("%w; arguments belong into Args", cmd.Err)
	}
	if t.Dir != "" {
		// Starting the process would blame the program.
		if _, err := os.Stat(t.Dir); err != nil {
			return nil, fmt.Errorf("the working directory: %w", err)
		}
	}
	cmd.Dir = t.Dir
	cmd.Env = []string{} // nil would inherit everything
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		cmd.Env = append(cmd.Env, name+"="+t.Env[name])
	}
	return &stdioTransport{cmd: cmd, logger: env.logger, limit: env.limit}, nil
}

func (Command) takesArgument() bool { return false }

// inherited are the variables that a program needs to find itself at home, and
// in which nobody keeps a secret.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR",
	// Windows.
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
	"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
}

// InProcess reaches a server that lives in the worker's own process.
type InProcess struct {
	// Server is the server. Required. It may also be published elsewhere.
	Server *mcp.Server
}

func (t InProcess) validate() *fieldError {
	if t.Server == nil {
		return &fieldError{"Server", "is nil"}
	}
	return nil
}

func (t InProcess) open(ctx context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	// The SDK's own in-memory transport, with the limit on messages that the
	// other transports have.
	ours, theirs := net.Pipe()
	// The session ends when our side of it closes.
	if _, err := t.Server.Connect(context.WithoutCancel(ctx), &mcp.IOTransport{Reader: theirs, Writer: theirs, MaxLineLength: -1}, nil); err != nil {
		return nil, err
	}
	lines := &messageLines{in: bufio.NewReaderSize(ours, 64<<10), logger: env.logger, limit: env.limit}
	return &mcp.IOTransport{Reader: struct {
		io.Reader
		io.Closer
	}{lines, ours}, Writer: ours, MaxLineLength: -1}, nil
}

func (InProcess) takesArgument() bool { return false }

// A Factory makes the transport of each new connection, for what the other
// transports do not cover: an OAuth handler, a token that changes, a transport
// of one's own. It must be safe for concurrent use and heed ctx. An error makes
// the call fail with MCPTransportError; a non-retryable ApplicationError in it
// makes that non-retryable.
//
// [New] calls it once to see that it returns a transport, which is then dropped
// without being connected.
type Factory func(ctx context.Context) (mcp.Transport, error)

func (f Factory) validate() *fieldError {
	if f == nil {
		return &fieldError{"Transport", "is a nil Factory"}
	}
	ctx, cancel := context.WithTimeout(context.Background(), factoryTrial)
	defer cancel()
	tried := make(chan error, 1)
	go func() {
		_, err := guard(func() (mcp.Transport, error) { return f(ctx) })
		tried <- err
	}()
	select {
	case err := <-tried:
		if errors.Is(err, errNoTransport) {
			return &fieldError{"Transport", "is a Factory that " + errNoTransport.Error()}
		}
	case <-ctx.Done():
	}
	// A factory that cannot make a transport now may when it is needed.
	return nil
}

// factoryTrial is how long [New] waits for a factory.
const factoryTrial = 5 * time.Second

func (f Factory) open(ctx context.Context, _ json.RawMessage, _ environment) (mcp.Transport, error) {
	return guard(func() (mcp.Transport, error) { return f(ctx) })
}

func (Factory) takesArgument() bool { return false }

// An ArgumentFactory is a [Factory] to which each caller may hand an argument:
// a tenant, an environment. The argument is the request option factoryArgument
// as JSON, or nil when the caller gave none. A call with an argument gets a
// connection of its own.
//
// The argument comes from the caller: check it before a URL or a command is
// made of it. It is recorded in the caller's history, so it never is a secret;
// the factory looks credentials up by it.
type ArgumentFactory func(ctx context.Context, argument json.RawMessage) (mcp.Transport, error)

func (f ArgumentFactory) validate() *fieldError {
	if f == nil {
		return &fieldError{"Transport", "is a nil ArgumentFactory"}
	}
	return nil
}

func (f ArgumentFactory) open(ctx context.Context, argument json.RawMessage, _ environment) (mcp.Transport, error) {
	return guard(func() (mcp.Transport, error) { return f(ctx, argument) })
}

func (ArgumentFactory) takesArgument() bool { return true }

var errNoTransport = errors.New("returned neither a transport nor an error")

// guard calls a factory, which is somebody else's code on a goroutine of ours:
// a panic there would end the worker.
func guard(factory func() (mcp.Transport, error)) (t mcp.Transport, err error) {
	defer func() {
		if p := recover(); p != nil {
			t, err = nil, fmt.Errorf("the factory panicked: %v", p)
		}
	}()
	t, err = factory()
	if err != nil {
		return nil, fmt.Errorf("the factory failed: %w", err)
	}
	if v := reflect.ValueOf(t); t == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errNoTransport
	}
	return t, nil
}

func (s *Server) validate() *fieldError {
	if strings.TrimSpace(s.Name) == "" {
		return &fieldError{"Name", "is empty"}
	}
	if !utf8.ValidString(s.Name) {
		return &fieldError{"Name", "is not UTF-8"}
	}
	if i := strings.IndexFunc(s.Name, func(r rune) bool { return r == '/' || unicode.IsControl(r) }); i >= 0 {
		return &fieldError{"Name", fmt.Sprintf("contains %q, which no Nexus request can carry in a service's name", s.Name[i:i+1])}
	}
	if strings.HasPrefix(s.Name, "__temporal_") {
		return &fieldError{"Name", `begins with "__temporal_", which Temporal keeps for itself`}
	}
	if s.Transport == nil {
		return &fieldError{"Transport", "is nil, want HTTP, Command, SSE, InProcess, Factory or ArgumentFactory"}
	}
	if s.ProtocolVersion != "" && !slices.Contains(mcp.SupportedProtocolVersions(), s.ProtocolVersion) {
		return &fieldError{"ProtocolVersion", fmt.Sprintf("is %q, want one of %s", s.ProtocolVersion, strings.Join(mcp.SupportedProtocolVersions(), ", "))}
	}
	if s.IdleTimeout < 0 && s.IdleTimeout != KeepOpen {
		return &fieldError{"IdleTimeout", fmt.Sprintf("is %v, want a positive duration or KeepOpen", s.IdleTimeout)}
	}
	if s.ConnectTimeout < 0 {
		return &fieldError{"ConnectTimeout", fmt.Sprintf("is %v, want a positive duration", s.ConnectTimeout)}
	}
	return s.Transport.validate()
}
