package integration

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
)

// rudeHTTP starts a rude server over HTTP.
func rudeHTTP(t *testing.T, options rude.Options) (*rude.Server, handler.Transport) {
	t.Helper()
	server := rude.New(options)
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	return server, handler.HTTP{Endpoint: listener.URL}
}

// rudeListingAfter is a rude server that does not list its tools before the channel is
// closed.
func rudeListingAfter(t *testing.T, listed <-chan struct{}) (*rude.Server, handler.Transport) {
	t.Helper()
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			<-listed
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	return server, handler.HTTP{Endpoint: listener.URL}
}

// rudeStdio is a rude server as a process of its own.
func rudeStdio(t *testing.T, options rude.Options) handler.Transport {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return handler.Command{Path: self, Env: options.Environ()}
}

// serveHTTP serves an SDK server over streamable HTTP: stateless servers speak
// the newest protocol version, those with sessions an older one.
func serveHTTP(t *testing.T, server *mcp.Server, stateless bool) handler.Transport {
	t.Helper()
	listener := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless}))
	t.Cleanup(listener.Close)
	return handler.HTTP{Endpoint: listener.URL}
}

// serveSSE serves an SDK server over the legacy SSE transport.
func serveSSE(t *testing.T, server *mcp.Server) handler.Transport {
	t.Helper()
	listener := httptest.NewServer(mcp.NewSSEHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(listener.Close)
	return handler.SSE{Endpoint: listener.URL}
}
