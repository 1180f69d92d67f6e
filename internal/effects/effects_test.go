package effects_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/internal/effects"
)

func TestMain(m *testing.M) {
	effects.MainIfAsked()
	os.Exit(m.Run())
}

// forEachWay runs a test over both transports and in both protocol versions.
func forEachWay(t *testing.T, test func(t *testing.T, ledger effects.Ledger, connect func() *mcp.ClientSession)) {
	for _, transport := range []string{"stdio", "http"} {
		for _, legacy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, legacy %v", transport, legacy), func(t *testing.T) {
				t.Parallel()
				options := effects.Options{Ledger: effects.Ledger(filepath.Join(t.TempDir(), "ledger")), Legacy: legacy}
				open := func() mcp.Transport {
					cmd := exec.Command(os.Args[0])
					for name, value := range options.Environ() {
						cmd.Env = append(cmd.Env, name+"="+value)
					}
					return &mcp.CommandTransport{Command: cmd}
				}
				if transport == "http" {
					server := effects.New(options)
					listener := httptest.NewServer(server)
					t.Cleanup(listener.Close)
					t.Cleanup(server.Close)
					open = func() mcp.Transport {
						return &mcp.StreamableClientTransport{Endpoint: listener.URL, DisableStandaloneSSE: true}
					}
				}
				test(t, options.Ledger, func() *mcp.ClientSession {
					session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), open(), nil)
					require.NoError(t, err)
					t.Cleanup(func() { _ = session.Close() })
					version := "2026-07-28"
					if legacy {
						version = "2025-11-25"
					}
					assert.Equal(t, version, session.InitializeResult().ProtocolVersion)
					return session
				})
			})
		}
	}
}

func work(key string, arguments effects.Arguments) *mcp.CallToolParams {
	return &mcp.CallToolParams{Meta: mcp.Meta{"nexusmcp/idempotencyKey": key}, Name: effects.Work, Arguments: arguments}
}

func count(t *testing.T, ledger effects.Ledger, event effects.Event) int {
	t.Helper()
	entries, err := ledger.Entries(func(e effects.Entry) bool { return e.Event == event })
	require.NoError(t, err)
	return len(entries)
}

func TestRunsWithOneIdempotencyKeyHaveOneEffect(t *testing.T) {
	forEachWay(t, func(t *testing.T, ledger effects.Ledger, connect func() *mcp.ClientSession) {
		for range 2 { // over stdio these are two processes
			session := connect()
			for _, key := range []string{"a", "a", "b"} {
				result, err := session.CallTool(t.Context(), work(key, effects.Arguments{Call: "one"}))
				require.NoError(t, err)
				assert.Equal(t, "done: one", result.Content[0].(*mcp.TextContent).Text)
			}
		}
		assert.Equal(t, 6, count(t, ledger, effects.Began))
		assert.Equal(t, 6, count(t, ledger, effects.Finished))
		assert.Equal(t, 2, count(t, ledger, effects.Effected))
	})
}

func TestRunsHangAndFailAsOftenAsTheyAreAskedTo(t *testing.T) {
	forEachWay(t, func(t *testing.T, ledger effects.Ledger, connect func() *mcp.ClientSession) {
		session := connect()
		_, err := session.CallTool(t.Context(), work("a", effects.Arguments{Call: "fails", Fail: 1, Code: -32099}))
		require.ErrorContains(t, err, "failed as wished")
		_, err = session.CallTool(t.Context(), work("a", effects.Arguments{Call: "fails", Fail: 1, Code: -32099}))
		require.NoError(t, err)

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer cancel()
			assert.Eventually(t, func() bool { return count(t, ledger, effects.Began) == 3 }, 10*time.Second, time.Millisecond)
		}()
		_, err = session.CallTool(ctx, work("b", effects.Arguments{Call: "hangs", Hang: 1}))
		require.ErrorIs(t, err, context.Canceled)
		require.Eventually(t, func() bool { return count(t, ledger, effects.Cancelled) == 1 }, 10*time.Second, time.Millisecond)
		_, err = session.CallTool(t.Context(), work("b", effects.Arguments{Call: "hangs", Hang: 1}))
		require.NoError(t, err)
	})
}

func TestACallIsRefusedWithAnHTTPStatusAsOftenAsItAsks(t *testing.T) {
	ledger := effects.Ledger(filepath.Join(t.TempDir(), "ledger"))
	server := httptest.NewServer(effects.New(effects.Options{Ledger: ledger}))
	t.Cleanup(server.Close)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: server.URL, DisableStandaloneSSE: true}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	arguments := effects.Arguments{Call: "one", Refuse: 1, Status: http.StatusTooManyRequests}
	_, err = session.CallTool(t.Context(), work("a", arguments))
	require.ErrorContains(t, err, http.StatusText(http.StatusTooManyRequests))
	assert.Zero(t, count(t, ledger, effects.Began))
	_, err = session.CallTool(t.Context(), work("a", arguments))
	require.NoError(t, err)
	assert.Equal(t, 1, count(t, ledger, effects.Refused))
	assert.Equal(t, 1, count(t, ledger, effects.Began))
}
