package handler

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type sentRequests []*http.Request

func (s *sentRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	*s = append(*s, r)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

func TestARequestWhoseCallHasEndedIsNotSent(t *testing.T) {
	for _, c := range []struct {
		name   string
		method string
		resume string
	}{
		{name: "a call", method: http.MethodPost},
		{name: "the rest of an answer", method: http.MethodGet, resume: "event-1"},
	} {
		for _, ended := range []bool{false, true} {
			t.Run(c.name, func(t *testing.T) {
				var sent sentRequests
				tap := tapClient(t.Context(), &http.Client{Transport: &sent}, true, 1000).Transport
				ctx, cancel := context.WithCancelCause(withExchange(t.Context(), newExchange([]byte(`{}`))))
				defer cancel(nil)
				if ended {
					cancel(context.DeadlineExceeded)
				}
				req, err := http.NewRequestWithContext(ctx, c.method, "http://mcp.example", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))
				require.NoError(t, err)
				if c.resume != "" {
					req.Header.Set("Last-Event-ID", c.resume)
				}
				resp, err := tap.RoundTrip(req)
				if ended {
					assert.ErrorIs(t, err, context.DeadlineExceeded)
					assert.Empty(t, sent)
					return
				}
				require.NoError(t, err)
				resp.Body.Close()
				assert.Len(t, sent, 1)
			})
		}
	}
}

// For how long: see TestAResponseThatDoesNotEndAfterTheAnswerIsGivenUpAfterAWhile.
func TestAResponseIsReadOnForAWhileAfterItsCall(t *testing.T) {
	for _, c := range []struct {
		name     string
		answered bool
		end      func(release, life func())
		cause    error
	}{
		{"it ends", true, func(release, life func()) { release() }, context.Canceled},
		{"the session ends", true, func(release, life func()) { life() }, errUnended},
		{"there was no answer", false, func(release, life func()) {}, context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				life, endLife := context.WithCancel(t.Context())
				defer endLife()
				call, endCall := context.WithCancel(t.Context())
				ex := newExchange([]byte(`{}`))
				reading, release := ex.untilRead(call, life)
				defer release()
				if ex.begin("1"); c.answered {
					require.True(t, ex.receive(&answer{id: "1"}))
				}
				began := time.Now()
				ex.close()
				endCall()
				if synctest.Wait(); c.answered {
					assert.NoError(t, reading.Err(), "while there is a reader")
				}
				c.end(release, endLife)
				<-reading.Done()
				assert.Equal(t, c.cause, context.Cause(reading))
				assert.Zero(t, time.Since(began))
			})
		})
	}
}

// endless is a body that nobody reads to its end, and counts what is read of it.
type endless struct {
	chunk string
	read  int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read > 10*maxDiscarded {
		return 0, io.EOF
	}
	n := copy(p, e.chunk)
	e.read += n
	return n, nil
}

func (e *endless) Close() error { return nil }

func TestWhatFollowsAnAnswerIsDiscardedUpToALimit(t *testing.T) {
	const answered = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
	for name, chunk := range map[string]string{
		"nothing that is an event": strings.Repeat("x", 1000),
		"empty lines":              strings.Repeat("\n", 1000),
		"answers":                  "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n",
		"notifications":            "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			ex := newExchange([]byte(`{}`))
			ex.begin("1")
			rest := &endless{chunk: chunk}
			tap := &eventTap{body: rest, in: bufio.NewReader(io.MultiReader(strings.NewReader(answered), rest)), ex: ex, limit: 1 << 30}
			out, err := io.ReadAll(tap)
			require.NoError(t, err)
			assert.Equal(t, answered, string(out))
			assert.InDelta(t, maxDiscarded, rest.read, 8<<10)
		})
	}
}

// A slowServer takes a while to begin an answer, and notes when it hears of a
// cancellation.
type slowServer struct {
	begins time.Duration // zero means never
	heard  time.Time
}

func (s *slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader("")), Request: r}
	if strings.Contains(string(body), "cancelled") {
		s.heard = time.Now()
		return resp, nil
	}
	var begins <-chan time.Time
	if s.begins > 0 {
		begins = time.After(s.begins)
	}
	select {
	case <-begins:
		return resp, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

func TestWordOfACancellationDoesNotOvertakeTheRequest(t *testing.T) {
	for name, c := range map[string]struct{ begins, cancelled, heard time.Duration }{
		"the server has the request":     {begins: 10 * time.Millisecond, cancelled: 20 * time.Millisecond, heard: 20 * time.Millisecond},
		"nobody knows":                   {cancelled: 20 * time.Millisecond, heard: overtakeTime},
		"it has had the time to read it": {cancelled: time.Second, heard: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &slowServer{begins: c.begins}
				tap := tapClient(t.Context(), &http.Client{Transport: server}, true, 1000).Transport
				call, cancel := context.WithCancel(withExchange(t.Context(), newExchange([]byte(`{}`))))
				post := func(ctx context.Context, message string) {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://mcp.example", strings.NewReader(message))
					assert.NoError(t, err)
					if resp, err := tap.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
				}
				began := time.Now()
				go post(call, `{"jsonrpc":"2.0","id":1,"method":"tools/call"}`)
				time.Sleep(c.cancelled) // on the bubble's clock
				cancel()
				post(context.WithoutCancel(call), `{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
				assert.Equal(t, c.heard, server.heard.Sub(began))
			})
		})
	}
}
