package handler

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/internal/rude"
)

// progressOf calls a tool that does not end and returns what it reports first.
func progressOf(t *testing.T, s *service, n int, tool string, params object) []mcp.ProgressNotificationParams {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	reports := make(chan mcp.ProgressNotificationParams, n)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c, err := s.pool.acquire(ctx, nil, quiet())
		if err != nil {
			return
		}
		reported := withProgress(ctx, "the handler's", func(p mcp.ProgressNotificationParams) { reports <- p })
		_, _, err = c.call(reported, "tools/call", params.with("name", encode(tool)))
		c.progress.mu.Lock()
		defer c.progress.mu.Unlock()
		if len(c.progress.waiting) > 0 {
			t.Error("a request that is over still waits for progress")
		}
		c.release(err)
	}()
	var out []mcp.ProgressNotificationParams
	for len(out) < n {
		select {
		case p := <-reports:
			out = append(out, p)
		case <-ctx.Done():
			t.Fatalf("%d of %d reports", len(out), n)
		}
	}
	cancel()
	<-ended
	return out
}

func TestProgressIsReportedInItsOrder(t *testing.T) {
	eachWay(t, rude.Options{}, func(t *testing.T, server Server) {
		s := askable(t, server)
		for i, p := range progressOf(t, s, 100, "slow", object{"arguments": json.RawMessage(`{"ms":60000,"n":100}`)}) {
			require.Equal(t, mcp.ProgressNotificationParams{ProgressToken: "the handler's", Progress: float64(i + 1), Total: 100, Message: "working"}, p)
		}
	})
}

func TestProgressOfTheSDKsServersIsReported(t *testing.T) {
	eachSDKServer(t, func(t *testing.T, _ *mcp.Server, published Server) {
		for i, p := range progressOf(t, askable(t, published), 3, "wait", object{}) {
			require.Equal(t, "the handler's", p.ProgressToken)
			require.EqualValues(t, i+1, p.Progress)
		}
	})
}

func TestACallersOwnProgressTokenIsKeptAndReported(t *testing.T) {
	for token, want := range map[string]any{`"mine"`: "mine", `7`: 7.0, `9007199254740993`: 9007199254740992.0} {
		t.Run(token, func(t *testing.T) {
			server, transport := httpServer(t, rude.Options{})
			got := progressOf(t, askable(t, Server{Transport: transport}), 1, "slow", object{
				"_meta":     json.RawMessage(`{"progressToken":` + token + `}`),
				"arguments": json.RawMessage(`{"ms":60000}`),
			})
			require.Equal(t, want, got[0].ProgressToken)
			require.Contains(t, string(server.Stats().Meta), `"progressToken":`+token)
		})
	}
}

func TestWhatCannotBeAProgressTokenIsLeftToTheServer(t *testing.T) {
	server, transport := httpServer(t, rude.Options{})
	s := askable(t, Server{Transport: transport})
	for _, token := range []string{`{"a":1}`, `[1]`, `true`, `null`} {
		use(t, s, func(c *conn) error {
			_, _, err := c.call(withProgress(t.Context(), "t", func(mcp.ProgressNotificationParams) {}), "tools/call", object{
				"name": encode("noise"), "arguments": json.RawMessage(`{"n":3}`), "_meta": json.RawMessage(`{"progressToken":` + token + `}`),
			})
			return err
		})
		require.Contains(t, string(server.Stats().Meta), `"progressToken":`+token)
	}
}

func TestARequestWhoseProgressNobodyWantsHasNoToken(t *testing.T) {
	server, transport := httpServer(t, rude.Options{})
	callTool(t, askable(t, Server{Transport: transport}), "noise", `{"n":3}`)
	require.NotContains(t, string(server.Stats().Meta), "progressToken")
	require.Equal(t, map[string]int{"noise": 1}, server.Stats().Calls)

	var r progressReports
	meta, ctx := object{}, t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() { r.follow(ctx, meta)() }))
}

func TestAReportThatPanicsCostsNeitherTheCallNorTheConnection(t *testing.T) {
	eachWay(t, rude.Options{}, func(t *testing.T, server Server) {
		s := askable(t, server)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		panicked := make(chan struct{}, 1)
		use(t, s, func(c *conn) error {
			// The answer comes when the report has panicked, or the test fails.
			answered := make(chan error, 1)
			call, end := context.WithCancel(ctx)
			defer end()
			go func() {
				_, _, err := c.call(withProgress(call, "t", func(mcp.ProgressNotificationParams) {
					panicked <- struct{}{}
					panic("report")
				}), "tools/call", object{"name": encode("slow"), "arguments": json.RawMessage(`{"ms":60000}`)})
				answered <- err
			}()
			select {
			case <-panicked:
			case <-ctx.Done():
				t.Fatal("nothing was reported")
			}
			end()
			require.ErrorIs(t, <-answered, context.Canceled)
			_, _, err := c.call(ctx, "tools/call", object{"name": encode("echo")})
			return err
		})
	})
}

func TestNobodyHearsTheProgressOfTwoRequestsWithOneToken(t *testing.T) {
	var r progressReports
	var heard []float64
	notify := func(progress float64) {
		r.notified(t.Context(), &mcp.ProgressNotificationClientRequest{Params: &mcp.ProgressNotificationParams{ProgressToken: "t", Progress: progress}})
	}
	ctx := withProgress(t.Context(), "t", func(p mcp.ProgressNotificationParams) { heard = append(heard, p.Progress) })
	notify(1)
	first := r.follow(ctx, object{})
	notify(2)
	second := r.follow(ctx, object{"progressToken": encode("t")})
	notify(3)
	first()
	notify(4)
	second()
	notify(5)
	require.Equal(t, []float64{2, 4}, heard)
	require.Empty(t, r.waiting)
}

func TestNothingIsReportedOfARequestThatIsOver(t *testing.T) {
	var r progressReports
	reporting, release := make(chan struct{}), make(chan struct{})
	over := false
	stop := r.follow(withProgress(t.Context(), "t", func(mcp.ProgressNotificationParams) {
		close(reporting)
		<-release
		if over {
			t.Error("the request was over")
		}
	}), object{})
	go r.notified(t.Context(), &mcp.ProgressNotificationClientRequest{Params: &mcp.ProgressNotificationParams{ProgressToken: "t"}})
	<-reporting
	go close(release)
	stop() // waits for the report
	over = true
}
