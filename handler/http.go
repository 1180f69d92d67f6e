package handler

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// HTTP reaches a server over streamable HTTP.
// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
type HTTP struct {
	// Endpoint is the server's URL, http or https. Required.
	Endpoint string
	// Header is added to every request to the endpoint's origin: its scheme, host
	// and port. Those that the transport sets itself are refused, and so are
	// Idempotency-Key and X-Idempotency-Key: with them net/http sends a call twice when
	// a connection breaks.
	Header http.Header
	// TLS configures https. Nil means Go's defaults. Not together with Client.
	TLS *tls.Config
	// Client makes the requests. Nil means a client of the server's own, without
	// a timeout: calls bring theirs. Redirects are followed within the endpoint's
	// origin only, unless the client has a CheckRedirect of its own. One that makes a
	// GET of a call (301, 302, 303), or that CheckRedirect does not follow, fails the
	// call.
	Client *http.Client
}

func (t HTTP) validate() []fieldError { return validateHTTP(t.Endpoint, t.Header, t.TLS, t.Client) }

func (t HTTP) open(_ context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	return &mcp.StreamableClientTransport{
		Endpoint:   t.Endpoint,
		HTTPClient: env.http.get(t.Endpoint, t.Header, t.TLS, t.Client),
		// Answers come with their requests; nothing here waits for what a server
		// may say unasked.
		DisableStandaloneSSE: true,
		// The SDK takes up a stream that broke off. Its five attempts last longer
		// than a Nexus handler, so that a server that died would look like a slow one.
		MaxRetries: maxResumptions,
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

func (t SSE) validate() []fieldError { return validateHTTP(t.Endpoint, t.Header, t.TLS, t.Client) }

func (t SSE) open(_ context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	return &mcp.SSEClientTransport{Endpoint: t.Endpoint, HTTPClient: env.http.get(t.Endpoint, t.Header, t.TLS, t.Client)}, nil
}

func (SSE) takesArgument() bool { return false }

func validateHTTP(endpoint string, header http.Header, config *tls.Config, client *http.Client) (mistakes []fieldError) {
	if reason := urlMistake(endpoint); reason != "" {
		mistakes = append(mistakes, fieldError{"Endpoint", reason})
	}
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if slices.Contains(transportHeaders, http.CanonicalHeaderKey(name)) {
			mistakes = append(mistakes, fieldError{"Header", fmt.Sprintf("has %q, which the transport sets", name)})
		}
		if slices.Contains(replayHeaders, http.CanonicalHeaderKey(name)) {
			mistakes = append(mistakes, fieldError{"Header", fmt.Sprintf("has %q, with which Go's HTTP client may send a request twice; servers find nexusmcp/idempotencyKey in its _meta", name)})
		}
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) }) {
			mistakes = append(mistakes, fieldError{"Header", fmt.Sprintf("has the name %q, which no header can have", name)})
		}
		for _, value := range header[name] {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				// The value may be a secret.
				mistakes = append(mistakes, fieldError{"Header", fmt.Sprintf("has a value of %q with a control character, which no header can carry", name)})
			}
		}
	}
	if config != nil && client != nil {
		mistakes = append(mistakes, fieldError{"TLS", "is set together with Client, which has its own"})
	}
	return mistakes
}

// urlMistake says what is wrong with a URL, or nothing.
func urlMistake(endpoint string) string {
	if endpoint == "" {
		return "is empty, want an http or https URL"
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		// The parser's error repeats the URL, which may hold a password.
		return "is not a URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Sprintf("has the scheme %q, want http or https", u.Scheme)
	case u.Hostname() == "":
		return "names no host"
	}
	if port, err := strconv.Atoi(u.Port()); u.Port() != "" && (err != nil || port < 1 || port > 65535) {
		return fmt.Sprintf("has the port %.20s, want 1 to 65535", u.Port())
	}
	return ""
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

// redirectRule returns the rule by which redirects are followed: the given one, or
// sameOrigin. The response of one that is not followed is never the SDK's to see, which
// would give the connection up over it.
func redirectRule(given func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	if given == nil {
		return sameOrigin
	}
	return func(req *http.Request, via []*http.Request) error {
		err := given(req, via)
		if errors.Is(err, http.ErrUseLastResponse) {
			return errors.New("a redirect is not followed")
		}
		return err
	}
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

// replayHeaders are those with which net/http takes a POST for one that it may send
// again when a connection breaks.
var replayHeaders = []string{"Idempotency-Key", "X-Idempotency-Key"}

func orDefault(t http.RoundTripper) http.RoundTripper {
	if t == nil {
		return http.DefaultTransport
	}
	return t
}

// tapClient returns a copy of client whose requests are tapped.
func tapClient(life context.Context, client *http.Client, answers bool, limit int64) *http.Client {
	out := &http.Client{}
	if client != nil {
		*out = *client
	}
	out.CheckRedirect = redirectRule(out.CheckRedirect)
	out.Transport = &tapRoundTripper{next: orDefault(out.Transport), answers: answers, limit: limit, life: life}
	return out
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
	})
	return c.client
}

func (c *sharedClient) close() {
	c.once.Do(func() {}) // a connection that did not end may be about to make it
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}
