package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// stats asks a rude server what it saw.
func stats(t *testing.T, p *published) rude.Stats {
	t.Helper()
	out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"stats"}`)
	require.NoError(t, err)
	var result struct{ StructuredContent rude.Stats }
	require.NoError(t, json.Unmarshal([]byte(out), &result))
	return result.StructuredContent
}

func TestFiveHundredCallsInARowUseOneConnection(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		for range 500 {
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err)
		}
		assert.Equal(t, 1, stats(t, p).Handshakes)
	})
}

func TestFiftyFirstCallsAtOnceOpenOneConnection(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		for _, idle := range []time.Duration{0, handler.KeepOpen, handler.CloseAtOnce} {
			var opened atomic.Int32
			p := publish(t, handler.Server{Name: "rude", IdleTimeout: idle, Transport: counted(transport, &opened)})
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":200}}`)
					assert.NoError(t, err)
				})
			}
			wg.Wait()
			assert.Equal(t, int32(1), opened.Load(), "with IdleTimeout %v", idle)
		}
	})
}

// counted counts the connections that are opened.
func counted(transport handler.Transport, opened *atomic.Int32) handler.Transport {
	if out, ok := transport.(handler.HTTP); ok {
		out.Client = &http.Client{Transport: roundTripper(func(r *http.Request) {
			if r.Header.Get("Mcp-Method") == "server/discover" {
				opened.Add(1)
			}
		})}
		return out
	}
	return handler.Factory(func(ctx context.Context) (mcp.Transport, error) {
		return &countedTransport{Transport: &mcp.CommandTransport{Command: command(transport.(handler.Command))}, opened: opened}, nil
	})
}

// roundTripper sees every request before it is sent.
type roundTripper func(*http.Request)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return http.DefaultTransport.RoundTrip(r)
}

type countedTransport struct {
	mcp.Transport
	opened *atomic.Int32
}

func (c *countedTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	c.opened.Add(1)
	return c.Transport.Connect(ctx)
}

func TestATransportThatHidesStreamableHTTPIsRefused(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	var opened atomic.Int32
	p := publish(t, handler.Server{Name: "rude", Transport: handler.Factory(func(context.Context) (mcp.Transport, error) {
		return &countedTransport{Transport: &mcp.StreamableClientTransport{Endpoint: transport.Endpoint}, opened: &opened}, nil
	})})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
	e := contractError(t, err)
	assert.True(t, e.NonRetryable)
	assert.Contains(t, e.Message, "wraps an mcp.StreamableClientTransport")
}

func TestCallsToAServerWithSessionsDoNotShareAConnection(t *testing.T) {
	t.Run("one after another", func(t *testing.T) {
		server, transport := rudeHTTP(t, rude.Options{Legacy: true})
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		for range 10 {
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err)
		}
		assert.Equal(t, 10, server.Stats().Calls["echo"])
		assert.GreaterOrEqual(t, server.Stats().Handshakes, 10)
		assert.LessOrEqual(t, server.Stats().Handshakes, 10+handler.MaxOpenAhead, "some are ready for the next calls")
	})
	t.Run("at once", func(t *testing.T) {
		server, transport := rudeHTTP(t, rude.Options{Legacy: true})
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
				assert.NoError(t, err)
			})
		}
		wg.Wait()
		assert.Equal(t, 50, server.Stats().Calls["echo"])
		assert.Len(t, server.Stats().Sessions, 50)
		for session, calls := range server.Stats().Sessions {
			assert.Equal(t, 1, calls, "session %s", session)
		}
	})
	t.Run("unless it is declared stateless", func(t *testing.T) {
		server, transport := rudeHTTP(t, rude.Options{Legacy: true})
		p := publish(t, handler.Server{Name: "rude", Transport: transport, Stateless: true})
		for range 10 {
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err)
		}
		assert.Equal(t, 1, server.Stats().Handshakes)
	})
}

func TestTheNextConnectionToAServerWithSessionsIsReadyBeforeItIsNeeded(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{Legacy: true})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return server.Stats().Handshakes == 2 }, 10*time.Second, time.Millisecond)
	_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	// The second was perhaps not quite ready: then there are two more.
	require.Eventually(t, func() bool { return server.Stats().Handshakes >= 3 }, 10*time.Second, time.Millisecond)
}

// A doorkeeper lets connections to a server with sessions open one by one.
type doorkeeper struct {
	server *mcp.Server
	idle   time.Duration
	// open lets one connection open, or fail with an error.
	open chan error
	// Connections that began to open, and those of them that have been let.
	begun, let atomic.Int32
}

func newDoorkeeper() *doorkeeper {
	server := mcp.NewServer(&mcp.Implementation{Name: "guarded", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "nothing", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{}, nil
	})
	return &doorkeeper{server: server, idle: handler.KeepOpen, open: make(chan error)}
}

func (d *doorkeeper) publish(t *testing.T) *published {
	t.Helper()
	return publish(t, handler.Server{Name: "guarded", ProtocolVersion: "2025-11-25", IdleTimeout: d.idle,
		Transport: handler.Factory(func(context.Context) (mcp.Transport, error) { return d, nil })})
}

func (d *doorkeeper) Connect(ctx context.Context) (mcp.Connection, error) {
	d.begun.Add(1)
	select {
	case err := <-d.open:
		d.let.Add(1)
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	here, there := mcp.NewInMemoryTransports()
	if _, err := d.server.Connect(context.Background(), there, nil); err != nil {
		return nil, err
	}
	return here.Connect(ctx)
}

// call begins a call.
func (d *doorkeeper) call(p *published) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := p.do(context.Background(), "guarded", mcpnexus.OperationListTools, "")
		done <- err
	}()
	return done
}

// awaitOpening waits until n connections are being opened.
func (d *doorkeeper) awaitOpening(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return int(d.begun.Load()-d.let.Load()) == n }, 10*time.Second, time.Millisecond, "%d are to be opened at the same time", n)
}

// sessions are the connections that the server has.
func (d *doorkeeper) sessions() (n int) {
	for range d.server.Sessions() {
		n++
	}
	return n
}

func (d *doorkeeper) awaitNoSession(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return d.sessions() == 0 }, 10*time.Second, time.Millisecond)
}

// hurry makes calls that follow each other faster than connections open, until
// n are opened ahead of need. It leaves them before the door.
func (d *doorkeeper) hurry(t *testing.T, p *published, n int) {
	t.Helper()
	for ahead := 1; ahead <= n; ahead++ {
		done := d.call(p)
		d.awaitOpening(t, ahead)
		d.open <- nil
		require.NoError(t, <-done)
		d.awaitOpening(t, ahead)
	}
}

// openUntil lets connections open, or fail, until done is closed.
func (d *doorkeeper) openUntil(done <-chan struct{}, err error) {
	for {
		select {
		case d.open <- err:
		case <-done:
			return
		}
	}
}

func TestCallsThatFollowEachOtherFasterThanConnectionsOpenGetMoreOfThemAhead(t *testing.T) {
	d := newDoorkeeper()
	p := d.publish(t)
	d.hurry(t, p, handler.MaxOpenAhead)
	for range 3 {
		done := d.call(p)
		d.open <- nil
		require.NoError(t, <-done)
		d.awaitOpening(t, handler.MaxOpenAhead)
	}
	require.NoError(t, p.handler.Close(t.Context()))
	assert.Equal(t, handler.MaxOpenAhead+3+handler.MaxOpenAhead, int(d.begun.Load()), "one for each call, and no more ahead than may be")
}

func TestCallsThatComeAtOnceGetNoMoreConnectionsAheadThanTwoDo(t *testing.T) {
	d := newDoorkeeper()
	p := d.publish(t)
	d.hurry(t, p, 1)
	var calls []<-chan error
	for range 6 {
		calls = append(calls, d.call(p))
	}
	d.awaitOpening(t, 6)
	for range calls {
		d.open <- nil
	}
	for _, done := range calls {
		require.NoError(t, <-done)
	}
	d.awaitOpening(t, 2)
	require.NoError(t, p.handler.Close(t.Context()))
	assert.Equal(t, 1+6+2, int(d.begun.Load()))
}

func TestConnectionsThatNobodyNeedsAreClosedAndNotOpenedAheadAgain(t *testing.T) {
	t.Run("when no call comes", func(t *testing.T) {
		d := newDoorkeeper()
		d.idle = 50 * time.Millisecond
		p := d.publish(t)
		d.hurry(t, p, 3)
		for range 3 {
			d.open <- nil
		}
		d.awaitOpening(t, 0)
		d.awaitNoSession(t)
		done := d.call(p)
		d.open <- nil
		require.NoError(t, <-done)
		d.awaitOpening(t, 1)
		require.NoError(t, p.handler.Close(t.Context()))
		assert.Equal(t, 3+3+1+1, int(d.begun.Load()), "one for the call and one ahead")
	})
	t.Run("when few calls come", func(t *testing.T) {
		d := newDoorkeeper()
		d.idle = 200 * time.Millisecond
		p := d.publish(t)
		d.hurry(t, p, 4)
		go d.openUntil(t.Context().Done(), nil)
		require.Eventually(t, func() bool {
			return assert.NoError(t, <-d.call(p)) && d.sessions() <= 1
		}, 20*time.Second, 10*time.Millisecond)
	})
}

func TestAServerThatIsNotThereAnyMoreIsTriedOnceForEachCall(t *testing.T) {
	d := newDoorkeeper()
	p := d.publish(t)
	d.hurry(t, p, 4)
	stop := make(chan struct{})
	go d.openUntil(stop, errors.New("gone"))
	d.awaitOpening(t, 0)
	for range 5 {
		require.Error(t, <-d.call(p))
	}
	close(stop)
	require.NoError(t, p.handler.Close(t.Context()))
	assert.Equal(t, 4+4+5, int(d.begun.Load()))
}

func TestAServerThatHangsIsNotTriedWithEveryCall(t *testing.T) {
	d := newDoorkeeper()
	p := d.publish(t)
	d.hurry(t, p, 1)
	for range 5 {
		_, err := p.do(t.Context(), "guarded", mcpnexus.OperationListTools, `{"_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.02s"}}}`)
		require.Error(t, err)
	}
	d.awaitOpening(t, 2)
	require.NoError(t, p.handler.Close(t.Context()))
	assert.Equal(t, 1+2, int(d.begun.Load()), "the second call saw that one ahead is not enough")
}

func TestACallDoesNotFailWhileMoreConnectionsAreBeingOpenedThanItNeeds(t *testing.T) {
	d := newDoorkeeper()
	p := d.publish(t)
	d.hurry(t, p, 3)
	done := d.call(p)
	d.awaitOpening(t, 4)
	for range 3 {
		d.open <- errors.New("not this one")
	}
	d.open <- nil
	require.NoError(t, <-done)
}

func TestConnectionsThatAreClosedAtOnceAreNotOpenedAhead(t *testing.T) {
	d := newDoorkeeper()
	d.idle = handler.CloseAtOnce
	p := d.publish(t)
	for range 2 { // the first learns that there are sessions
		done := d.call(p)
		d.open <- nil
		require.NoError(t, <-done)
		d.awaitNoSession(t)
	}
	var calls []<-chan error
	for range 5 {
		calls = append(calls, d.call(p))
	}
	d.awaitOpening(t, 5)
	for range calls {
		d.open <- nil
	}
	for _, done := range calls {
		require.NoError(t, <-done)
	}
	d.awaitNoSession(t)
	require.NoError(t, p.handler.Close(t.Context()))
	assert.Equal(t, 2+5, int(d.begun.Load()))
}

func TestAConnectionIsClosedWhenItHasBeenIdle(t *testing.T) {
	for name, idle := range map[string]time.Duration{
		"after the timeout": 50 * time.Millisecond,
		"at once":           handler.CloseAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := publish(t, handler.Server{Name: "rude", Transport: withPidFiles(t, rudeStdio(t, rude.Options{}), dir), IdleTimeout: idle})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(alive(t, dir)) == 0 }, 20*time.Second, 5*time.Millisecond)
			assert.Len(t, pids(t, dir), 2, "a shell and its server")
			_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err, "and a new one is opened for the next call")
		})
	}
}

func TestAConnectionThatIsUsedIsNotIdle(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport, IdleTimeout: 50 * time.Millisecond})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":500}}`)
	require.NoError(t, err)
	assert.Equal(t, 1, server.Stats().Handshakes)
}

func TestAnErrorAnswerLeavesTheConnectionInPlace(t *testing.T) {
	for _, arguments := range []string{`{"code":-32602}`, `{"code":-32603}`, `{"code":-32021}`} {
		server, transport := rudeHTTP(t, rude.Options{})
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		for range 3 {
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, fmt.Sprintf(`{"name":"error","arguments":%s}`, arguments))
			require.Error(t, err)
		}
		assert.Equal(t, 1, server.Stats().Handshakes)
	}
}

func TestWhatMakesAConnectionUselessRetiresIt(t *testing.T) {
	for name, call := range map[string]string{
		"a version mismatch":  `{"name":"error","arguments":{"code":-32022}}`,
		"a timeout":           `{"name":"silent","_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.2s"}}}`,
		"a closed connection": `{"name":"close"}`,
	} {
		t.Run(name, func(t *testing.T) {
			server, transport := rudeHTTP(t, rude.Options{})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			neighbour := make(chan error, 1)
			go func() {
				_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":1000}}`)
				neighbour <- err
			}()
			require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 10*time.Second, time.Millisecond)

			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, call)
			require.Error(t, err)
			_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
			require.NoError(t, err)
			assert.Equal(t, 2, server.Stats().Handshakes, "the next call has a new connection")
			assert.NoError(t, <-neighbour, "a call in flight on the old one finishes")
		})
	}
}

func TestASessionThatATypeScriptServerForgotIsReplaced(t *testing.T) {
	// What @modelcontextprotocol/sdk answers after a restart.
	var forgotten atomic.Bool
	server := rude.New(rude.Options{Legacy: true})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forgotten.Load() && r.Header.Get("Mcp-Session-Id") == "1" {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}, Stateless: true})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	forgotten.Store(true)
	_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err, "the request had not been read, so it was sent again")
	assert.Equal(t, 2, server.Stats().Calls["echo"])
	assert.Equal(t, 2, server.Stats().Handshakes)
}

func TestAConnectionThatTakesLongerToStartThanACallMayTakeIsNotOpenedInVain(t *testing.T) {
	server := rude.New(rude.Options{Legacy: true})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Session-Id") == "" {
			select {
			case <-time.After(400 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", ProtocolVersion: "2025-11-25", Transport: handler.HTTP{Endpoint: listener.URL}})
	succeeded := 0
	for range 20 {
		if _, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.3s"}}}`); err == nil {
			succeeded++
		}
	}
	assert.GreaterOrEqual(t, succeeded, 8, "every other call finds what the one before it opened")
	assert.LessOrEqual(t, server.Stats().Handshakes, succeeded+handler.MaxOpenAhead, "each was used, or is ready")
}

func TestManyCallsThatGiveUpDoNotLeaveManyConnections(t *testing.T) {
	dir := t.TempDir()
	p := publish(t, handler.Server{Name: "rude", ProtocolVersion: "2025-11-25", Transport: withPidFiles(t, rudeStdio(t, rude.Options{Legacy: true}), dir)})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, _ = p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"silent","_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.1s"}}}`)
		})
	}
	wg.Wait()
	assert.Eventually(t, func() bool { return len(alive(t, dir)) <= 2*handler.MaxOpenAhead }, 30*time.Second, 10*time.Millisecond, "shells and their servers are ready")
}

func TestAServerThatIsNotThereIsARetryableTransportError(t *testing.T) {
	unused, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := unused.Addr().String()
	require.NoError(t, unused.Close())
	for name, transport := range map[string]handler.Transport{
		"nothing listens":           handler.HTTP{Endpoint: "http://" + address},
		"nothing listens, over SSE": handler.SSE{Endpoint: "http://" + address},
		"no such program":           handler.Command{Path: "no-such-mcp-server"},
		"no such directory":         handler.Command{Path: "true", Dir: "/no/such/directory"},
		"a program that ends":       handler.Command{Path: "true"},
		"a program that says no":    handler.Command{Path: "sh", Args: []string{"-c", "echo cannot start >&2; exit 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
			e := contractError(t, err)
			assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type, e.Message)
			assert.False(t, e.NonRetryable)
			assert.Contains(t, e.Message, "rude: list-tools: ")
		})
	}
}

func TestAServerThatRefusesTheHandshakeIsReportedAsItAnswered(t *testing.T) {
	for status, retryable := range map[int]bool{401: false, 404: false, 503: true} {
		listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", status) }))
		t.Cleanup(listener.Close)
		p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
		e := contractError(t, err)
		assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type)
		assert.Equal(t, status, e.HTTPStatus)
		assert.Equal(t, retryable, !e.NonRetryable)
	}
}

func TestAServerThatNeverAnswersTheHandshakeTimesOut(t *testing.T) {
	release := make(chan struct{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(listener.Close)
	defer close(release)
	for name, transport := range map[string]handler.Transport{
		"over HTTP":  handler.HTTP{Endpoint: listener.URL},
		"over SSE":   handler.SSE{Endpoint: listener.URL},
		"over stdio": handler.Command{Path: "sleep", Args: []string{"600"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, handler.Server{Name: "rude", Transport: transport, ConnectTimeout: 200 * time.Millisecond})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
			e := contractError(t, err)
			assert.Equal(t, mcpnexus.ErrorTypeTimeout, e.Type, e.Message)
			assert.Equal(t, 200*time.Millisecond, e.Timeout)

			p = publish(t, handler.Server{Name: "rude", Transport: transport})
			_, err = p.do(t.Context(), "rude", mcpnexus.OperationListTools, `{"_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.2s"}}}`)
			assert.Equal(t, mcpnexus.ErrorTypeTimeout, contractError(t, err).Type, "the call does not wait for the connection longer than it may")
		})
	}
}

func TestAServerThatComesBackIsReachedAtOnce(t *testing.T) {
	var up atomic.Bool
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			panic(http.ErrAbortHandler)
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
	for range 5 {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
		require.Error(t, err)
	}
	up.Store(true)
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
	require.NoError(t, err)
}

func TestAFactoryArgumentGetsAConnectionOfItsOwn(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{})
	var arguments sync.Map
	var opened atomic.Int32
	var tried atomic.Bool
	p := publish(t, handler.Server{Name: "rude", Transport: handler.ArgumentFactory(func(ctx context.Context, argument json.RawMessage) (mcp.Transport, error) {
		if !tried.Swap(true) {
			return nil, errors.New("not yet") // New tries it
		}
		opened.Add(1)
		arguments.Store(string(argument), true)
		return &mcp.StreamableClientTransport{Endpoint: transport.Endpoint, DisableStandaloneSSE: true}, nil
	})})
	for range 3 {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"factoryArgument":{"tenant":"acme"}}}}`)
		require.NoError(t, err)
	}
	assert.Equal(t, int32(3), opened.Load())
	for range 3 {
		for _, none := range []string{`{"name":"echo"}`, `{"name":"echo","_meta":{"nexusmcp/options":{"factoryArgument":null}}}`} {
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, none)
			require.NoError(t, err)
		}
	}
	assert.Equal(t, int32(4), opened.Load(), "without an argument the connection is shared")
	_, ok := arguments.Load(`{"tenant":"acme"}`)
	assert.True(t, ok)
	_, ok = arguments.Load("")
	assert.True(t, ok)
	assert.Equal(t, 4, server.Stats().Handshakes)
}

func TestAFactoryThatFailsFailsTheCall(t *testing.T) {
	var nothing *mcp.StreamableClientTransport
	for name, c := range map[string]struct {
		factory   handler.Factory
		retryable bool
		message   string
	}{
		"with an error": {func(context.Context) (mcp.Transport, error) {
			return nil, errors.New("vault is sealed")
		}, true, "vault is sealed"},
		"with a non-retryable error": {func(context.Context) (mcp.Transport, error) {
			return nil, temporal.NewNonRetryableApplicationError("no tenant", "T", nil)
		}, false, "no tenant"},
		"with nothing":                 {func(context.Context) (mcp.Transport, error) { return nil, nil }, false, "returned neither"},
		"with nothing in a pointer":    {func(context.Context) (mcp.Transport, error) { return nothing, nil }, false, "returned neither"},
		"with a panic":                 {func(context.Context) (mcp.Transport, error) { panic("oops") }, true, "panicked: oops"},
		"with a transport that panics": {func(context.Context) (mcp.Transport, error) { return panicking{}, nil }, true, "panic: oops"},
	} {
		t.Run(name, func(t *testing.T) {
			var called atomic.Bool
			p := publish(t, handler.Server{Name: "rude", ConnectTimeout: 300 * time.Millisecond, Transport: handler.Factory(func(ctx context.Context) (mcp.Transport, error) {
				if !called.Swap(true) {
					return nil, errors.New("not yet") // New tries it
				}
				return c.factory(ctx)
			})})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
			e := contractError(t, err)
			assert.Contains(t, e.Message, c.message)
			assert.Equal(t, c.retryable, !e.NonRetryable)
		})
	}
}

func TestATransportThatNeverEndsHoldsNothingUp(t *testing.T) {
	h, err := handler.New(handler.Options{Servers: []handler.Server{{Name: "rude", ConnectTimeout: 300 * time.Millisecond,
		Transport: handler.Factory(func(context.Context) (mcp.Transport, error) { return stuck{}, nil })}}})
	require.NoError(t, err)
	p := serve(t, h)
	for range 2 {
		_, err = p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
		assert.Equal(t, mcpnexus.ErrorTypeTimeout, contractError(t, err).Type)
	}
	assert.ErrorContains(t, h.Close(t.Context()), `server "rude": closing its connections: they did not end within 10s`)
}

type panicking struct{}

func (panicking) Connect(context.Context) (mcp.Connection, error) { panic("oops") }

type stuck struct{}

func (stuck) Connect(context.Context) (mcp.Connection, error) { select {} }

func TestStoppingWaitsForCallsAndTakesNoNewOnes(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
		require.NoError(t, err)
		running := make(chan error, 1)
		began := make(chan struct{})
		go func() {
			close(began)
			_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":700}}`)
			running <- err
		}()
		<-began
		require.Eventually(t, func() bool { return stats(t, p).Calls["slow"] == 1 }, 10*time.Second, time.Millisecond)
		require.NoError(t, p.handler.Close(t.Context()))
		require.NoError(t, <-running, "it was given the time to finish")

		_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
		var refused *nexus.HandlerError
		require.ErrorAs(t, err, &refused)
		assert.Equal(t, nexus.HandlerErrorTypeUnavailable, refused.Type, "Temporal shall ask another worker")
		assert.True(t, refused.Retryable())
		assert.Contains(t, refused.Message, "the worker is stopping")
	})
}

func TestStoppingEndsWhatDoesNotFinishInTime(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		dir := t.TempDir()
		p := publishWith(t, handler.Options{DrainTimeout: 300 * time.Millisecond, Servers: []handler.Server{{
			Name: "patient", ProtocolVersion: version,
			Transport: withPidFiles(t, handler.Command{Path: self, Env: map[string]string{patientMain: "1"}}, dir),
		}}})
		running := make(chan error, 5)
		for range 5 {
			go func() {
				_, err := p.do(context.Background(), "patient", mcpnexus.OperationCallTool, `{"name":"wait"}`)
				running <- err
			}()
		}
		require.Eventually(t, func() bool { return p.log.count("the tool began") == 5 }, 20*time.Second, time.Millisecond)
		require.NotEmpty(t, alive(t, dir))
		require.NoError(t, p.handler.Close(t.Context()))
		for range 5 {
			e := contractError(t, <-running)
			assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type, e.Message)
			assert.False(t, e.NonRetryable)
		}
		assertAllEnd(t, dir)
	}
}

// withPidFiles starts the server through a shell, as npx and scripts do, and
// notes the process IDs of both.
func withPidFiles(t *testing.T, c handler.Command, dir string) handler.Command {
	t.Helper()
	// A background job of sh reads from /dev/null unless its stdin is given.
	const script = `exec 3<&0; echo > "$0/$$"; "$@" <&3 & echo > "$0/$!"; exec 3<&-; wait $!`
	c.Args = append([]string{"-c", script, dir, c.Path}, c.Args...)
	c.Path = "sh"
	return c
}

func pids(t *testing.T, dir string) []int {
	t.Helper()
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	var out []int
	for _, f := range files {
		pid, err := strconv.Atoi(f.Name())
		require.NoError(t, err)
		out = append(out, pid)
	}
	return out
}

// assertAllEnd says that no process is left, or that it is about to end: a process
// that was killed is gone when the kernel next runs it, and only its own parent
// can wait for that.
func assertAllEnd(t *testing.T, dir string) {
	t.Helper()
	assert.Eventually(t, func() bool { return len(alive(t, dir)) == 0 }, 5*time.Second, time.Millisecond, "a process is left")
}

func alive(t *testing.T, dir string) []int {
	t.Helper()
	var out []int
	for _, pid := range pids(t, dir) {
		state, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err == nil && !strings.Contains(string(state), ") Z ") {
			out = append(out, pid)
		}
	}
	return out
}
