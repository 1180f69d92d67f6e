package caller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// numbered is the n-th call of a test.
func numbered(n int) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: fmt.Sprint("call", n)}
}

// summaries are the scheduled calls in order.
func (h *harness) summaries() (summaries []string) {
	for _, c := range h.calls {
		summaries = append(summaries, c.options.Summary)
	}
	return summaries
}

func names(numbers ...int) (names []string) {
	for _, n := range numbers {
		names = append(names, numbered(n).Name)
	}
	return names
}

// mockCalls makes each numbered call take the time.
func mockCalls(t *testing.T, h *harness, durations ...time.Duration) {
	for n, duration := range durations {
		params := numbered(n)
		h.OnNexusOperation(weather, mcpnexus.CallTool, params, mock.Anything).Return(
			&nexus.HandlerStartOperationResultAsync{OperationToken: params.Name}, nil).Maybe()
		require.NoError(t, h.RegisterNexusAsyncOperationCompletion(weather, mcpnexus.OperationCallTool, params.Name,
			&mcp.CallToolResult{}, nil, duration))
	}
}

func TestALargeFanOutOverTwoClientsStaysUnderTheirLimitAndInOrder(t *testing.T) {
	for _, calls := range []int{500, 1000} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			h := newHarness(t, nil, weather, "maps")
			h.mustRun(func(ctx workflow.Context) error {
				limit := caller.NewLimit(caller.DefaultLimit)
				clients := []*caller.Client{
					caller.NewClient(endpoint, weather, caller.Options{Limit: limit}),
					caller.NewClient(endpoint, "maps", caller.Options{Limit: limit}),
				}
				var futures []*caller.Future[*mcp.CallToolResult]
				for n := range calls {
					futures = append(futures, clients[n%2].CallToolAsync(ctx, numbered(n)))
				}
				for _, f := range futures {
					if _, err := f.Get(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			assert.Equal(t, caller.DefaultLimit, h.maxOpen)
			var want []string
			for n := range calls {
				want = append(want, numbered(n).Name)
			}
			assert.Equal(t, want, h.summaries())
		})
	}
}

func TestCoroutinesThatCallAtTheSameTimeTakeTurns(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(3)})
		wg := workflow.NewWaitGroup(ctx)
		for i := range 20 {
			wg.Add(1)
			workflow.Go(ctx, func(ctx workflow.Context) {
				defer wg.Done()
				for j := range 3 {
					_, err := c.CallTool(ctx, numbered(3*i+j))
					assert.NoError(t, err)
				}
			})
		}
		wg.Wait(ctx)
		return nil
	})
	assert.Equal(t, 3, h.maxOpen)
	assert.Len(t, h.calls, 60)
	assert.Equal(t, names(0, 3, 6, 9), h.summaries()[:4], "first come, first served")
}

func TestAClientWithoutALimitHasTheServersDefault(t *testing.T) {
	for name, limit := range map[string]*caller.Limit{"none": nil, "the zero value": {}, "zero": caller.NewLimit(0)} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.mustRun(func(ctx workflow.Context) error {
				c := caller.NewClient(endpoint, weather, caller.Options{Limit: limit})
				derived := c.With(mcpnexus.RequestOptions{StartToCloseTimeout: time.Second})
				var futures []*caller.Future[*mcp.CallToolResult]
				for n := range 40 {
					futures = append(futures, c.CallToolAsync(ctx, numbered(n)), derived.CallToolAsync(ctx, numbered(n)))
				}
				for _, f := range futures {
					if _, err := f.Get(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			assert.Equal(t, 30, h.maxOpen)
		})
	}
}

func TestAFutureThatNobodyReadsGivesItsPlaceBack(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		for n := range 5 {
			c.CallToolAsync(ctx, numbered(n))
		}
		_, err := c.CallTool(ctx, numbered(5))
		return err
	})
	assert.Equal(t, names(0, 1, 2, 3, 4, 5), h.summaries())
}

func TestACallThatFailsGivesItsPlaceBack(t *testing.T) {
	h := newHarness(t, func(_, operation string, input json.RawMessage) (string, error) {
		if operation == mcpnexus.OperationCallTool {
			return "", &nexus.OperationError{State: nexus.OperationStateFailed, Cause: fmt.Errorf("failed")}
		}
		return `null`, nil
	})
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		for n := range 5 {
			_, err := c.CallTool(ctx, numbered(n))
			assert.ErrorContains(t, err, "failed")
			_, err = c.Discover(ctx, nil)
			assert.ErrorContains(t, err, "the result cannot be read")
			_, err = c.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: make(chan int)})
			assert.ErrorContains(t, err, "unsupported type")
		}
		return nil
	})
	assert.Len(t, h.calls, 10)
}

func TestCancellingAWaitingCallEndsItAtOnceAndSchedulesNothing(t *testing.T) {
	h := newMockHarness(t)
	mockCalls(t, h, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour)
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		start := workflow.Now(ctx)
		scope, cancel := workflow.WithCancel(ctx)
		scopes := []workflow.Context{ctx, scope, ctx, scope, ctx}
		var futures []*caller.Future[*mcp.CallToolResult]
		for n, scope := range scopes {
			futures = append(futures, c.CallToolAsync(scope, numbered(n)))
		}
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return err
		}
		cancel()
		for _, n := range []int{1, 3} {
			_, err := futures[n].Get(ctx)
			assert.True(t, temporal.IsCanceledError(err))
		}
		assert.Equal(t, time.Minute, workflow.Now(ctx).Sub(start))
		for _, n := range []int{0, 2, 4} {
			_, err := futures[n].Get(ctx)
			assert.NoError(t, err)
		}
		assert.Equal(t, 3*time.Hour, workflow.Now(ctx).Sub(start), "one after another")
		return nil
	})
	assert.Equal(t, names(0, 2, 4), h.summaries())
}

func TestCancellingTheWorkflowEndsItsWaitingCalls(t *testing.T) {
	h := newMockHarness(t)
	mockCalls(t, h, time.Hour, time.Hour, time.Hour)
	h.RegisterDelayedCallback(h.CancelWorkflow, time.Minute)
	err := h.run(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		c.CallToolAsync(ctx, numbered(0))
		c.CallToolAsync(ctx, numbered(1))
		_, err := c.CallTool(ctx, numbered(2))
		return err
	})
	assert.ErrorContains(t, err, "canceled")
	assert.Equal(t, names(0), h.summaries())
}

// The place becomes free, and the next call has its turn, in the workflow task
// that cancels it.
func TestACallThatIsCancelledAsItsTurnComesLosesNoPlace(t *testing.T) {
	h := newMockHarness(t)
	mockCalls(t, h, time.Hour, time.Hour, time.Hour)
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		scope, cancel := workflow.WithCancel(ctx)
		first := c.CallToolAsync(ctx, numbered(0))
		workflow.Go(ctx, func(ctx workflow.Context) {
			_, err := first.Get(ctx)
			assert.NoError(t, err)
			cancel()
		})
		second := c.CallToolAsync(scope, numbered(1))
		third := c.CallToolAsync(ctx, numbered(2))
		_, err := second.Get(ctx)
		assert.True(t, temporal.IsCanceledError(err))
		_, err = third.Get(ctx)
		return err
	})
	assert.Equal(t, names(0, 2), h.summaries())
}

func TestACallThatIsCancelledInTheSameBreathIsNotScheduled(t *testing.T) {
	h := newMockHarness(t)
	mockCalls(t, h, time.Hour, time.Hour)
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		scope, cancel := workflow.WithCancel(ctx)
		first := c.CallToolAsync(scope, numbered(0))
		cancel()
		_, err := first.Get(ctx)
		assert.True(t, temporal.IsCanceledError(err))
		_, err = c.CallTool(ctx, numbered(1))
		return err
	})
	assert.Equal(t, names(1), h.summaries())
}

// An operation that its caller gave up is open on the server until it ends.
func TestAnOperationThatIsGivenUpKeepsItsPlaceUntilItEnds(t *testing.T) {
	for name, c := range map[string]struct {
		cancellation workflow.NexusOperationCancellationType
		returnsAfter time.Duration
		requests     int
	}{
		"WaitCompleted": {workflow.NexusOperationCancellationTypeWaitCompleted, time.Hour, 1},
		"TryCancel":     {workflow.NexusOperationCancellationTypeTryCancel, time.Minute, 1},
		"Abandon":       {workflow.NexusOperationCancellationTypeAbandon, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMockHarness(t)
			requests := 0
			h.SetOnNexusOperationCanceledListener(func(string, string) { requests++ })
			mockCalls(t, h, time.Hour, time.Hour)
			h.mustRun(func(ctx workflow.Context) error {
				client := caller.NewClient(endpoint, weather, caller.Options{
					Limit:     caller.NewLimit(1),
					Operation: caller.OperationOptions{CancellationType: c.cancellation},
				})
				start := workflow.Now(ctx)
				scope, cancel := workflow.WithCancel(ctx)
				first := client.CallToolAsync(scope, numbered(0))
				if err := workflow.Sleep(ctx, time.Minute); err != nil {
					return err
				}
				cancel()
				_, err := first.Get(ctx)
				assert.Equal(t, c.returnsAfter < time.Hour, temporal.IsCanceledError(err), "%v", err)
				assert.Equal(t, c.returnsAfter, workflow.Now(ctx).Sub(start))
				_, err = client.CallTool(ctx, numbered(1))
				assert.Equal(t, 2*time.Hour, workflow.Now(ctx).Sub(start))
				return err
			})
			assert.Equal(t, 1, h.maxOpen)
			assert.Equal(t, c.requests, requests)
		})
	}
}

func TestTheOrderOfCallsIsTheSameInEveryRun(t *testing.T) {
	var first []string
	for range 5 {
		h := newMockHarness(t)
		var durations []time.Duration
		for n := range 60 {
			durations = append(durations, time.Duration(1+n*7%11)*time.Minute)
		}
		mockCalls(t, h, durations...)
		h.mustRun(func(ctx workflow.Context) error {
			c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(4)})
			var futures []*caller.Future[*mcp.CallToolResult]
			scope, cancel := workflow.WithCancel(ctx)
			for n := range durations {
				if n%3 == 0 {
					futures = append(futures, c.CallToolAsync(scope, numbered(n)))
				} else {
					futures = append(futures, c.CallToolAsync(ctx, numbered(n)))
				}
			}
			_ = workflow.Sleep(ctx, 30*time.Minute)
			cancel()
			for _, f := range futures {
				_, _ = f.Get(ctx)
			}
			return nil
		})
		assert.LessOrEqual(t, h.maxOpen, 4)
		if first == nil {
			first = h.summaries()
		}
		require.Equal(t, first, h.summaries())
	}
	assert.True(t, slices.Contains(first, "call59"))
}

func TestRequestsThatAreTooMuchForOneWorkflowTaskWaitForTheNext(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		sizes []int
		first int // how many are scheduled at once
	}{
		"small ones":                   {[]int{10, 10, 10}, 3},
		"three of one MiB":             {[]int{mib - 1000, mib - 1000, mib - 1000, 10}, 4},
		"four of one MiB":              {[]int{mib, mib, mib, mib}, 2},
		"a small one behind a big one": {[]int{mib, mib, mib, 10}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			h := newMockHarness(t)
			h.SetCurrentHistoryLength(3)
			calls := make([]*mcp.CallToolParams, len(c.sizes))
			for n, size := range c.sizes {
				calls[n] = numbered(n)
				calls[n].Arguments = map[string]any{"x": strings.Repeat("x", size)}
				h.OnNexusOperation(weather, mcpnexus.CallTool, calls[n], mock.Anything).Return(
					&nexus.HandlerStartOperationResultAsync{OperationToken: calls[n].Name}, nil)
				require.NoError(t, h.RegisterNexusAsyncOperationCompletion(weather, mcpnexus.OperationCallTool, numbered(n).Name, &mcp.CallToolResult{}, nil, time.Minute))
			}
			var first int
			h.mustRun(func(ctx workflow.Context) error {
				client := caller.NewClient(endpoint, weather, caller.Options{})
				var futures []*caller.Future[*mcp.CallToolResult]
				for _, params := range calls {
					futures = append(futures, client.CallToolAsync(ctx, params))
				}
				if err := workflow.Sleep(ctx, time.Microsecond); err != nil {
					return err
				}
				first = len(h.calls)
				// The test environment has no workflow tasks; the timer stands for the next.
				if err := workflow.Sleep(ctx, time.Second); err != nil {
					return err
				}
				assert.Len(t, h.calls, len(c.sizes), "none waits for the end of another")
				for _, future := range futures {
					if _, err := future.Get(ctx); err != nil {
						return err
					}
				}
				return nil
			})
			assert.Equal(t, c.first, first)
			assert.Equal(t, names(0, 1, 2, 3)[:len(c.sizes)], h.summaries())
		})
	}
}

func TestACancelledRequestThatDidNotFitMakesWay(t *testing.T) {
	h := newHarness(t, nil)
	h.SetCurrentHistoryLength(3)
	h.mustRun(func(ctx workflow.Context) error {
		client := caller.NewClient(endpoint, weather, caller.Options{})
		call := func(ctx workflow.Context, n, size int) *caller.Future[*mcp.CallToolResult] {
			params := numbered(n)
			params.Arguments = map[string]any{"x": strings.Repeat("x", size)}
			return client.CallToolAsync(ctx, params)
		}
		scope, cancel := workflow.WithCancel(ctx)
		first, second, third := call(ctx, 0, 1800<<10), call(scope, 1, 1800<<10), call(ctx, 2, 10)
		cancel()
		if err := workflow.Sleep(ctx, time.Microsecond); err != nil {
			return err
		}
		assert.Equal(t, names(0, 2), h.summaries())
		_, err := second.Get(ctx)
		assert.True(t, temporal.IsCanceledError(err), err)
		_, err1 := first.Get(ctx)
		_, err3 := third.Get(ctx)
		return errors.Join(err1, err3)
	})
	assert.Len(t, h.calls, 2)
}
