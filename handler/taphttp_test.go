package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A posted is what a server got of a call.
type posted struct {
	header http.Header
	body   struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params"`
	}
}

func TestARequestOverHTTPCarriesItsParamsAndTheHeadersThatRepeatThem(t *testing.T) {
	for version, modern := range map[string]bool{"": true, "2025-11-25": false} {
		for _, c := range []struct{ operation, input, method, name string }{
			{mcpnexus.OperationCallTool, `{"name":"echo","arguments":{"big":9007199254740993,"text":"<&> \u2028 } {","spaced": [ 1 , 2 ]}}`, "tools/call", "echo"},
			{mcpnexus.OperationCallTool, `{"name":"g\u0072\u00fc\u00df","arguments":{}}`, "tools/call", "grüß"},
			{mcpnexus.OperationGetPrompt, `{"name":"hello","arguments":{"a":"b"}}`, "prompts/get", "hello"},
			{mcpnexus.OperationReadResource, `{"uri":"rude://x?a=b&c"}`, "resources/read", "rude://x?a=b&c"},
			{mcpnexus.OperationListPrompts, `{}`, "prompts/list", ""},
			{mcpnexus.OperationComplete, `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"}}`, "completion/complete", ""},
		} {
			t.Run(fmt.Sprintf("%s %s %s", version, c.method, c.name), func(t *testing.T) {
				requests := make(chan posted, 20)
				server := rude.New(rude.Options{})
				listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					got := posted{header: r.Header.Clone()}
					body, err := io.ReadAll(r.Body)
					if err == nil && json.Unmarshal(body, &got.body) == nil && got.body.Method == c.method {
						requests <- got
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					server.ServeHTTP(w, r)
				}))
				t.Cleanup(listener.Close)
				p := publish(t, handler.Server{Name: "wire", Transport: handler.HTTP{Endpoint: listener.URL}, ProtocolVersion: version})
				_, _ = p.do(t.Context(), "wire", c.operation, c.input) // the server need not have it
				require.NotEmpty(t, requests)
				got := <-requests

				assert.Equal(t, "2.0", got.body.JSONRPC)
				assert.NotEmpty(t, got.body.ID)
				assert.Equal(t, "application/json", got.header.Get("Content-Type"))
				if modern {
					assert.Equal(t, "2026-07-28", got.header.Get("Mcp-Protocol-Version"))
					assert.Equal(t, c.method, got.header.Get("Mcp-Method"))
					assert.Equal(t, c.name, got.header.Get("Mcp-Name"))
				} else {
					assert.Equal(t, version, got.header.Get("Mcp-Protocol-Version"))
					assert.NotContains(t, got.header, "Mcp-Method")
					assert.NotContains(t, got.header, "Mcp-Name")
				}
				var sent, given map[string]json.RawMessage
				require.NoError(t, json.Unmarshal(got.body.Params, &sent))
				require.NoError(t, json.Unmarshal([]byte(c.input), &given))
				var meta map[string]any
				require.NoError(t, json.Unmarshal(sent["_meta"], &meta))
				assert.Equal(t, modern, meta[mcp.MetaKeyProtocolVersion] == "2026-07-28")
				delete(sent, "_meta")
				for name, value := range given {
					assert.Equal(t, string(value), string(sent[name]), "to the letter")
				}
				assert.Len(t, sent, len(given))
			})
		}
	}
}

// answersThenEnds is a rude server whose event streams go on for a while after the
// answer. The connections' states are counted.
func answersThenEnds(t *testing.T, tail func(r *http.Request)) (handler.HTTP, chan http.ConnState) {
	t.Helper()
	server := rude.New(rude.Options{EventStream: true})
	listener := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		if r.Header.Get("Mcp-Name") == "echo" {
			_ = http.NewResponseController(w).Flush()
			tail(r)
		}
	}))
	states := make(chan http.ConnState, 1000)
	listener.Config.ConnState = func(_ net.Conn, state http.ConnState) { states <- state }
	listener.Start()
	t.Cleanup(listener.Close)
	return handler.HTTP{Endpoint: listener.URL}, states
}

func TestACallLeavesItsTCPConnectionToTheNext(t *testing.T) {
	returned, cut := make(chan struct{}), make(chan time.Duration, 1)
	transport, states := answersThenEnds(t, func(r *http.Request) {
		began := time.Now()
		select {
		case <-returned:
		case <-r.Context().Done():
			cut <- time.Since(began)
		}
	})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	// await waits until a connection is in the state, and fails if one was closed.
	await := func(want http.ConnState) {
		for deadline := time.After(20 * time.Second); ; {
			select {
			case state := <-states:
				if state == want {
					return
				}
				require.NotEqual(t, http.StateClosed, state)
			case <-deadline:
				t.Fatal("the connection never became", want)
			}
		}
	}
	// call makes a call and lets the server end its response.
	call := func() {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","arguments":{}}`)
		require.NoError(t, err)
		select {
		case returned <- struct{}{}:
			await(http.StateIdle)
		case after := <-cut:
			// This goroutine was held up for too long. The response was given up, but not
			// as soon as the call had returned.
			require.Greater(t, after, 100*time.Millisecond)
			await(http.StateClosed)
		}
	}
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, `{}`)
	require.NoError(t, err)
	await(http.StateIdle) // after the handshake
	await(http.StateIdle) // after the list
	for range 10 {
		call()
	}
}

// The clock is synctest's, and so there is no network.
func TestAResponseThatDoesNotEndAfterTheAnswerIsGivenUpAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Duration, 1)
		server := rude.New(rude.Options{EventStream: true})
		listener := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
		overPipes := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			server.ServeHTTP(w, r)
			if r.Header.Get("Mcp-Name") == "echo" {
				began := time.Now()
				<-r.Context().Done()
				ended <- time.Since(began)
			}
		})}
		go func() { assert.ErrorIs(t, overPipes.Serve(listener), http.ErrServerClosed) }()
		transport := &http.Transport{DialContext: listener.dial}
		t.Cleanup(func() {
			transport.CloseIdleConnections()
			assert.NoError(t, overPipes.Close())
		})
		p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: "http://pipe", Client: &http.Client{Transport: transport}}})
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","arguments":{}}`)
		require.NoError(t, err)
		assert.Equal(t, handler.EndTimeout, <-ended)
	})
}

// pipes is a listener in memory.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.accepted <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept implements [net.Listener].
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements [net.Listener].
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func TestATransportThatEndsTheGoroutineFailsTheCall(t *testing.T) {
	for _, execution := range []string{"auto", "inline"} {
		t.Run(execution, func(t *testing.T) {
			server, c := rudeHTTP(t, rude.Options{})
			c.Client = &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("Mcp-Name") == "echo" {
					runtime.Goexit()
				}
				return http.DefaultTransport.RoundTrip(r)
			})}
			p := publish(t, handler.Server{Name: "rude", Transport: c})
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"execution":"`+execution+`","retryPolicy":{"maximumAttempts":0,"nonRetryableErrorTypes":["MCPTransportError"]}}}}`)
			assert.Equal(t, mcpnexus.ErrorTypeTransport, contractError(t, err).Type)
			assert.Zero(t, server.Stats().Calls["echo"])
		})
	}
}

func TestAnInputOfNullMayHaveSpaceAround(t *testing.T) {
	_, c := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: c})
	for _, input := range []string{"null", " null\n"} {
		_, err := p.do(t.Context(), "rude", mcpnexus.OperationListTools, input)
		assert.NoError(t, err)
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestARedirectedRequestKeepsItsParams(t *testing.T) {
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for _, version := range []string{"", "2025-11-25"} {
			t.Run(fmt.Sprint(status, " ", version), func(t *testing.T) {
				server := rude.New(rude.Options{})
				listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/here" {
						http.Redirect(w, r, "/here", status)
						return
					}
					server.ServeHTTP(w, r)
				}))
				t.Cleanup(listener.Close)
				p := publish(t, handler.Server{Name: "moved", Transport: handler.HTTP{Endpoint: listener.URL}, ProtocolVersion: version})
				out, err := p.do(t.Context(), "moved", mcpnexus.OperationCallTool, `{"name":"echo","arguments":{"a":[1]}}`)
				require.NoError(t, err)
				assert.Contains(t, out, `{"a":[1]}`)
			})
		}
	}
}

func TestAPublishersRoundTripperSeesTheDeadlineAndMayAnswerWithoutABody(t *testing.T) {
	_, c := rudeHTTP(t, rude.Options{})
	deadlines := make(chan time.Duration, 1)
	c.Client = &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Mcp-Name") != "echo" {
			return http.DefaultTransport.RoundTrip(r)
		}
		deadline, _ := r.Context().Deadline()
		deadlines <- time.Until(deadline)
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}, nil
	})}
	p := publish(t, handler.Server{Name: "rude", Transport: c})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo","_meta":{"nexusmcp/options":{"startToCloseTimeout":"1000s"}}}`)
	e := contractError(t, err)
	assert.Equal(t, mcpnexus.ErrorTypeProtocol, e.Type, e.Message)
	assert.InDelta(t, 1000, (<-deadlines).Seconds(), 100)
}

// What is read of it, and up to where: see TestWhatFollowsAnAnswerIsDiscardedUpToALimit.
func TestAServerThatSendsOnAndOnAfterTheAnswerIsReadNoFurther(t *testing.T) {
	ended := make(chan error, 1)
	server := rude.New(rude.Options{EventStream: true})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server.ServeHTTP(w, r)
		if r.Header.Get("Mcp-Name") != "echo" {
			return
		}
		for {
			if _, err := io.WriteString(w, strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n", 100)); err != nil {
				ended <- err
				return
			}
		}
	}))
	t.Cleanup(listener.Close)
	p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
	require.NoError(t, err)
	select {
	case err := <-ended:
		assert.Error(t, err)
	case <-time.After(20 * time.Second):
		t.Fatal("the response is still being read")
	}
	_, err = p.do(t.Context(), "rude", mcpnexus.OperationListTools, "")
	assert.NoError(t, err, "the session goes on")
}

func TestAPublishersRoundTripperMayFailOverWordOfACancellation(t *testing.T) {
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"an answer without a body": func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusAccepted, Header: http.Header{}, Request: r}, nil
		},
		"an error": func(*http.Request) (*http.Response, error) { return nil, errors.New("no") },
		"a panic":  func(*http.Request) (*http.Response, error) { panic("no") },
	} {
		for _, version := range []string{"", "2025-11-25"} {
			t.Run(name+" "+version, func(t *testing.T) {
				_, c := rudeHTTP(t, rude.Options{})
				told := make(chan struct{}, 10)
				c.Client = &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
					body, err := r.GetBody()
					if err != nil {
						return nil, err
					}
					text, err := io.ReadAll(body)
					if err != nil || !bytes.Contains(text, []byte("notifications/cancelled")) {
						return http.DefaultTransport.RoundTrip(r)
					}
					defer func() { told <- struct{}{} }()
					return answer(r)
				})}
				p := publish(t, handler.Server{Name: "rude", Transport: c, ProtocolVersion: version})
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"silent","_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.3s"}}}`)
				assert.Equal(t, mcpnexus.ErrorTypeTimeout, contractError(t, err).Type)
				select {
				case <-told:
				case <-time.After(20 * time.Second):
					t.Fatal("the server was not told")
				}
				_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
				assert.NoError(t, err)
			})
		}
	}
}

func TestARedirectThatIsNotFollowedFailsItsCallAlone(t *testing.T) {
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	lastResponse := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	follows := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return nil }}
	refused := mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: http.StatusMethodNotAllowed, NonRetryable: true}
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for _, c := range []struct {
			name      string
			to        string
			transport func(endpoint string) handler.Transport
			followed  mcpnexus.Error // what comes of one that keeps the method; empty if it is not followed either
		}{
			{"a client that follows none", "/elsewhere", func(endpoint string) handler.Transport {
				return handler.HTTP{Endpoint: endpoint, Client: lastResponse}
			}, mcpnexus.Error{}},
			{"a client that follows all, to what takes none", "/elsewhere", func(endpoint string) handler.Transport {
				return handler.HTTP{Endpoint: endpoint, Client: follows}
			}, refused},
			{"a factory's, to what takes none", "/elsewhere", factoryOf, refused},
			{"a factory's, to another origin", other.URL, factoryOf, mcpnexus.Error{}},
			{"a factory's, to a page", "/page", factoryOf, mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, NonRetryable: true}},
		} {
			t.Run(fmt.Sprint(status, " ", c.name), func(t *testing.T) {
				server, arrived, release := rude.New(rude.Options{}), make(chan struct{}), make(chan struct{})
				before := elsewhere.Load()
				listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Header.Get("Mcp-Name") == "slow":
						close(arrived)
						<-release
						server.ServeHTTP(w, r)
					case r.URL.Path == "/page":
						_, _ = io.WriteString(w, "<html>")
					case r.URL.Path == "/elsewhere":
						w.WriteHeader(http.StatusMethodNotAllowed)
					case r.Header.Get("Mcp-Name") == "echo":
						http.Redirect(w, r, c.to, status)
					default:
						server.ServeHTTP(w, r)
					}
				}))
				t.Cleanup(listener.Close)
				p := publish(t, handler.Server{Name: "rude", Transport: c.transport(listener.URL)})
				neighbour := make(chan error, 1)
				go func() {
					_, err := p.do(context.Background(), "rude", mcpnexus.OperationCallTool, `{"name":"slow","arguments":{"ms":1}}`)
					neighbour <- err
				}()
				<-arrived
				_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"echo"}`)
				close(release)
				e, want := contractError(t, err), c.followed
				if keepsMethod := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect; !keepsMethod || want.Type == "" {
					want = mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: status}
					assert.Contains(t, e.Message, "is not followed")
				}
				assert.Equal(t, want, mcpnexus.Error{Type: e.Type, HTTPStatus: e.HTTPStatus, NonRetryable: e.NonRetryable}, e.Message)
				assert.NoError(t, <-neighbour)
				assert.Equal(t, before, elsewhere.Load())
			})
		}
	}
}

// factoryOf is a factory's transport with the SDK's defaults.
func factoryOf(endpoint string) handler.Transport {
	return handler.Factory(func(context.Context) (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: endpoint, DisableStandaloneSSE: true}, nil
	})
}
