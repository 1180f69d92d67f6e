package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/plainjson"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Over other transports, at other idle timeouts and with sessions: see package handler.
func TestCallsOfSeveralWorkflowsUseOneConnectionAndFiveEventsEach(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	// One workflow may have 30 calls open.
	half := func(ctx workflow.Context) error { return fanOut(ctx, 25, p.client("rude", caller.Options{})) }
	first, second := p.start(t, half), p.start(t, half)
	require.NoError(t, outcome(t, first))
	require.NoError(t, outcome(t, second))
	assert.Equal(t, 1, server.Stats().Handshakes)
	assert.Equal(t, 50, server.Stats().Calls["echo"])
	inARow := p.run(t, func(ctx workflow.Context) error {
		client := p.client("rude", caller.Options{})
		for range 500 {
			if _, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "echo"}); err != nil {
				return err
			}
		}
		return nil
	})
	assert.Equal(t, 1, server.Stats().Handshakes)
	assert.Equal(t, 50+500, server.Stats().Calls["echo"])
	assert.Equal(t, 4+5*500+1, len(history(t, inARow)), "start and first task, then 5 events a call, and the end")
}

func TestAFanOutOfFiveHundredOverTwoClientsKeepsToTheServersLimit(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	run := p.run(t, func(ctx workflow.Context) error {
		limit := caller.NewLimit(caller.DefaultLimit)
		return fanOut(ctx, 500, p.client("rude", caller.Options{Limit: limit}), p.client("rude", caller.Options{Limit: limit}))
	})
	assert.Equal(t, 500, server.Stats().Calls["echo"])
	open, most := 0, 0
	for _, event := range history(t, run) {
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED:
			open++
			most = max(most, open)
		case enumspb.EVENT_TYPE_NEXUS_OPERATION_COMPLETED:
			open--
		case enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED:
			t.Errorf("a workflow task failed: %v", event)
		}
	}
	assert.Equal(t, 30, most, "the limit is used")
	replay(t, run)
}

// A Temporal server terminates a workflow whose task it cannot be sent.
func TestAFanOutOfLargeRequestsIsSpreadOverWorkflowTasks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ calls, bytes int }{
		"forty of 145 KiB":          {40, 145 << 10},
		"three of nearly the limit": {3, mcpnexus.MaxRequestBytes - 1000},
	} {
		t.Run(name, func(t *testing.T) {
			server, transport := rudeHTTP(t, rude.Options{})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			run := p.run(t, func(ctx workflow.Context) error {
				client := p.client("rude", caller.Options{})
				var futures []*caller.Future[*mcp.CallToolResult]
				for range c.calls {
					futures = append(futures, client.CallToolAsync(ctx, &mcp.CallToolParams{Name: "stats", Arguments: map[string]any{"x": strings.Repeat("x", c.bytes)}}))
				}
				for _, future := range futures {
					if _, err := future.Get(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			assert.Equal(t, c.calls, server.Stats().Calls["stats"])
			for _, event := range history(t, run) {
				assert.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, event.GetEventType(), event)
			}
			replay(t, run)
		})
	}
}

func TestAFanOutOfLargeResultsArrives(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	const calls, size = 3, 1900 << 10
	p.run(t, func(ctx workflow.Context) error {
		client := p.client("rude", caller.Options{})
		var futures []*caller.Future[*mcp.CallToolResult]
		for range calls {
			futures = append(futures, client.CallToolAsync(ctx, &mcp.CallToolParams{Name: "huge", Arguments: map[string]any{"bytes": size}}))
		}
		for _, future := range futures {
			result, err := future.Get(ctx)
			if err != nil {
				return err
			}
			if got := len(result.Content[0].(*mcp.TextContent).Text); got != size {
				return fmt.Errorf("%d bytes arrived", got)
			}
		}
		return nil
	})
}

// fanOut calls a tool n times at once, the clients taking turns.
func fanOut(ctx workflow.Context, n int, clients ...*caller.Client) error {
	futures := make([]*caller.Future[*mcp.CallToolResult], n)
	for i := range futures {
		futures[i] = clients[i%len(clients)].CallToolAsync(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"i": i}})
	}
	for i, future := range futures {
		result, err := future.Get(ctx)
		if err != nil {
			return err
		}
		if got := result.StructuredContent.(map[string]any)["i"]; got != float64(i) {
			return fmt.Errorf("call %d was answered with %v", i, got)
		}
	}
	return nil
}

func TestTheLargestResultThatTheHandlerAllowsArrives(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	const around = len(`{"resultType":"complete","content":[{"type":"text","text":""}]}`)
	for _, size := range []int{1 << 20, handler.DefaultMaxResultBytes - around} {
		var got int
		p.run(t, func(ctx workflow.Context) error {
			result, err := p.client("rude", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "huge", Arguments: map[string]any{"bytes": size}})
			if err != nil {
				return err
			}
			got = len(result.Content[0].(*mcp.TextContent).Text)
			return nil
		})
		assert.Equal(t, size, got)
	}
}

func TestALargerResultFailsOnceAndClearlyWhicheverWayTheCallTakes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		execution          mcpnexus.Execution
		durable, handedOff bool
	}{
		"in the Nexus request":    {execution: mcpnexus.ExecutionAuto},
		"inline":                  {execution: mcpnexus.ExecutionInline},
		"durable":                 {execution: mcpnexus.ExecutionDurable, durable: true},
		"after it was handed off": {execution: mcpnexus.ExecutionAuto, durable: true, handedOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, answer := rude.New(rude.Options{}), make(chan struct{})
			listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.handedOff && r.Header.Get("Mcp-Name") == "huge" {
					<-answer
				}
				server.ServeHTTP(w, r)
			}))
			t.Cleanup(listener.Close)
			options := handler.Options{Servers: []handler.Server{{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}}}, InlineWindow: 5 * time.Second}
			if c.handedOff {
				options.InlineWindow = 100 * time.Millisecond
			}
			p := publishWith(t, options)
			// With a policy nobody has to find out within the window what the tool declares.
			request := mcpnexus.RequestOptions{Execution: c.execution, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 3}}
			run := p.start(t, func(ctx workflow.Context) error {
				_, err := p.client("rude", caller.Options{Request: request}).CallTool(ctx, &mcp.CallToolParams{Name: "huge", Arguments: map[string]any{"bytes": handler.DefaultMaxResultBytes}})
				return err
			})
			release := sync.OnceFunc(func() { close(answer) })
			t.Cleanup(release)
			if c.handedOff {
				within(t, func() bool {
					_, started := durableRun(history(t, run))
					return started
				})
			}
			release()
			failure, ok := mcpnexus.ErrorFrom(outcome(t, run))
			require.True(t, ok)
			assert.Equal(t, mcpnexus.ErrorTypeResultTooLarge, failure.Type)
			assert.Equal(t, int64(handler.DefaultMaxResultBytes), failure.Limit)
			assert.Greater(t, failure.Size, failure.Limit)
			assert.True(t, failure.NonRetryable)
			assert.Equal(t, 1, server.Stats().Calls["huge"])
			_, durable := durableRun(history(t, run))
			assert.Equal(t, c.durable, durable)
		})
	}
}

func TestAServerThatIsDeadForAMinuteDoesNotDelayItsNeighbour(t *testing.T) {
	t.Parallel()
	_, healthy := rudeHTTP(t, rude.Options{})
	_, silent := rudeHTTP(t, rude.Options{})
	for name, dead := range map[string]handler.Transport{
		"it refuses connections":               handler.HTTP{Endpoint: "http://127.0.0.1:1/mcp"},
		"it accepts requests and says nothing": silent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "dead", Transport: dead}, handler.Server{Name: "healthy", Transport: healthy})
			deadline := time.Now().Add(time.Minute)

			// Calls fail all the time, more of them than open a circuit breaker: each is a
			// durable workflow, which on a small machine is work for the Temporal server.
			failing := p.start(t, func(ctx workflow.Context) error {
				client := p.client("dead", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: 8 * time.Second, RetryPolicy: single.RetryPolicy}})
				for range 4 {
					next := workflow.Now(ctx).Add(15 * time.Second)
					futures := make([]*caller.Future[*mcp.CallToolResult], 8)
					for i := range futures {
						futures[i] = client.CallToolAsync(ctx, &mcp.CallToolParams{Name: "silent"})
					}
					for _, future := range futures {
						_, err := future.Get(ctx)
						if !mcpnexus.Retryable(err) {
							return fmt.Errorf("a call of the dead server ended with: %w", err)
						}
					}
					if err := workflow.Sleep(ctx, next.Sub(workflow.Now(ctx))); err != nil {
						return err
					}
				}
				return nil
			})
			var took []time.Duration
			for time.Now().Before(deadline) {
				run := p.start(t, func(ctx workflow.Context) error {
					client := p.client("healthy", caller.Options{})
					for range 20 {
						if _, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "echo"}); err != nil {
							return err
						}
					}
					return nil
				})
				require.NoError(t, outcome(t, run))
				took = append(took, durations(history(t, run))...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			require.NoError(t, failing.Get(ctx, nil))
			slices.Sort(took)
			slowest, usual := took[len(took)-1], took[len(took)*9/10]
			t.Logf("%d calls of the healthy server, nine of ten took at most %v, the slowest %v", len(took), usual, slowest)
			// A full worker would hold most of them up for the eight seconds of a Nexus
			// handler, a circuit breaker those of a minute. One whose task gets lost on a
			// busy machine comes again after ten seconds and a backoff of one.
			assert.Less(t, usual, 5*time.Second)
			assert.Less(t, slowest, 45*time.Second)
			for _, event := range history(t, failing) {
				assert.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, event.GetEventType())
			}
			assert.False(t, strings.Contains(fmt.Sprint(history(t, failing)), "circuit breaker"))
		})
	}
}

func TestACallWithLittleTimeIsMadeAllTheSame(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	p.run(t, func(ctx workflow.Context) error {
		client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{ScheduleToCloseTimeout: 500 * time.Millisecond}})
		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
		if err == nil {
			_, err = client.CallTool(ctx, &mcp.CallToolParams{Name: "silent"})
			if e, ok := mcpnexus.ErrorFrom(err); ok && e.Type == mcpnexus.ErrorTypeTimeout && e.Timeout == 500*time.Millisecond {
				return nil
			}
		}
		return fmt.Errorf("want one answer and one timeout of half a second, got %w", err)
	})
	assert.Equal(t, 1, server.Stats().Calls["echo"])
	assert.Equal(t, 1, server.Stats().Calls["silent"])
}

func TestTheTimeInTotalHoldsWhileTheToolsCannotBeListed(t *testing.T) {
	t.Parallel()
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Method") == "tools/list" {
			_, _ = io.Copy(io.Discard, r.Body) // the server notices the end of who asks once it has read
			<-r.Context().Done()
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	for _, limit := range []time.Duration{4 * time.Second, 8 * time.Second} {
		t.Run(limit.String(), func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "rude", Transport: handler.HTTP{Endpoint: listener.URL}})
			run := p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{ScheduleToCloseTimeout: limit}})
				_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
				assert.NoError(c, err, "finding out what it declares leaves the call a part of the time")
				_, err = client.CallTool(ctx, &mcp.CallToolParams{Name: "silent"})
				e, ok := mcpnexus.ErrorFrom(err)
				if assert.True(c, ok, err) {
					assert.Equal(c, mcpnexus.ErrorTypeTimeout, e.Type)
				}
				return c.err()
			})
			// The time of finding out is not on top of it: two seconds in the Nexus request,
			// and then five.
			for _, took := range durations(history(t, run)) {
				assert.Less(t, took, limit+2*time.Second)
			}
		})
	}
}

// durations returns how long each Nexus operation of a history took, without the
// workflow tasks around it.
func durations(events []*historypb.HistoryEvent) []time.Duration {
	scheduled := make(map[int64]time.Time)
	var took []time.Duration
	for _, event := range events {
		at := event.GetEventTime().AsTime()
		if event.GetNexusOperationScheduledEventAttributes() != nil {
			scheduled[event.GetEventId()] = at
		}
		if end := event.GetNexusOperationCompletedEventAttributes(); end != nil {
			took = append(took, at.Sub(scheduled[end.GetScheduledEventId()]))
		}
	}
	return took
}

// SDKs of other languages write <, > and & as they are, of which Go's encoder makes six
// bytes each.
func TestWhatFitsIntoAnOperationFitsIntoADurableOneToo(t *testing.T) {
	t.Parallel()
	markup := strings.Repeat("<", 200_000) // of which two are too much when each takes six bytes
	for name, c := range map[string]struct{ operation, input string }{
		"a long URI":              {mcpnexus.OperationReadResource, `{"uri":"rude://` + strings.Repeat("x", 1_800_000) + `"$META}`},
		"a long name":             {mcpnexus.OperationCallTool, `{"name":"` + markup + markup + `"$META}`},
		"a long factory argument": {mcpnexus.OperationCallTool, `{"name":"echo"$META}`},
		"a batch of long names":   {mcpnexus.OperationCallTools, `{"calls":[{"name":"echo"},{"name":"` + markup + `1"},{"name":"` + markup + `2"}]$META}`},
	} {
		t.Run(name, func(t *testing.T) { // one after the other: inline has eight seconds
			p := publish(t, handler.Server{Name: "rude", Transport: handler.ArgumentFactory(func(context.Context, json.RawMessage) (mcp.Transport, error) {
				command := rudeStdio(t, rude.Options{}).(handler.Command)
				process := exec.Command(command.Path)
				process.Env = os.Environ()
				for name, value := range command.Env {
					process.Env = append(process.Env, name+"="+value)
				}
				return &mcp.CommandTransport{Command: process}, nil
			})})
			argument := `"a"`
			if name == "a long factory argument" {
				argument = `"` + markup + markup + `"`
			}
			p.run(t, func(ctx workflow.Context) error {
				found := &complaints{}
				var answers [2]string
				for i, execution := range []mcpnexus.Execution{mcpnexus.ExecutionInline, mcpnexus.ExecutionDurable} {
					input := strings.Replace(c.input, "$META", `,"_meta":{"nexusmcp/options":{"execution":"`+string(execution)+`","factoryArgument":`+argument+`,"retryPolicy":{"maximumAttempts":2}}}`, 1)
					var result json.RawMessage
					err := workflow.NewNexusClient(p.endpoint, "rude").ExecuteOperation(ctx, c.operation, plainjson.Payload(json.RawMessage(input)), workflow.NexusOperationOptions{ScheduleToCloseTimeout: time.Minute}).Get(ctx, &result)
					e, ok := mcpnexus.ErrorFrom(err)
					if ok {
						answers[i] = e.Message
					} else if assert.NoError(found, err, execution) {
						answers[i] = string(result)
					}
				}
				assert.Equal(found, answers[0], answers[1])
				return found.err()
			})
		})
	}
}
