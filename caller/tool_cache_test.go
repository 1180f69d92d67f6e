package caller_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
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

// numberedTools answers list-tools with another tool each time.
func numberedTools() func(string, string, json.RawMessage) (string, error) {
	var n atomic.Int32
	return func(string, string, json.RawMessage) (string, error) {
		return fmt.Sprintf(`{"tools":[{"name":"tool%d","inputSchema":{"type":"object"}}]}`, n.Add(1)), nil
	}
}

// toolName is the name of the only tool that c lists.
func toolName(ctx workflow.Context, t *testing.T, c *caller.Client, params *mcp.ListToolsParams) string {
	result, err := c.ListTools(ctx, params)
	if !assert.NoError(t, err) || !assert.Len(t, result.Tools, 1) {
		return ""
	}
	return result.Tools[0].Name
}

func TestListingToolsAgainSchedulesNothing(t *testing.T) {
	h := newHarness(t, numberedTools())
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		for range 3 {
			assert.Equal(t, "tool1", toolName(ctx, t, c, nil))
		}
		assert.Equal(t, "tool1", toolName(ctx, t, c, &mcp.ListToolsParams{}), "nil params are empty params")
		assert.Equal(t, "tool1", toolName(ctx, t, c.With(mcpnexus.RequestOptions{}), nil), "a derived client shares what it would ask the same way")
		assert.True(t, c.ListToolsAsync(ctx, nil).IsReady())
		return nil
	})
	assert.Len(t, h.calls, 1)
}

func TestAnotherRequestForToolsIsAnsweredByTheServer(t *testing.T) {
	h := newHarness(t, numberedTools())
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		tenant := c.With(mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`"acme"`)})
		for range 2 {
			assert.Equal(t, "tool1", toolName(ctx, t, c, nil))
			assert.Equal(t, "tool2", toolName(ctx, t, c, &mcp.ListToolsParams{Cursor: "2"}))
			assert.Equal(t, "tool3", toolName(ctx, t, c, &mcp.ListToolsParams{Meta: mcp.Meta{"a": 1}}))
			assert.Equal(t, "tool4", toolName(ctx, t, tenant, nil))
			assert.Equal(t, "tool5", toolName(ctx, t, c.With(mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`"other"`)}), nil))
		}
		assert.Equal(t, "tool6", toolName(ctx, t, caller.NewClient(endpoint, weather, caller.Options{}), nil), "clients made apart share nothing")
		return nil
	})
	assert.Len(t, h.calls, 6)
}

func TestForgottenToolsAreAskedForAgain(t *testing.T) {
	newHarness(t, numberedTools()).mustRun(func(ctx workflow.Context) error {
		// One at a time, so that the server answers in order.
		c := caller.NewClient(endpoint, weather, caller.Options{Limit: caller.NewLimit(1)})
		assert.Equal(t, "tool1", toolName(ctx, t, c, nil))
		c.With(mcpnexus.RequestOptions{}).ForgetTools()
		assert.Equal(t, "tool2", toolName(ctx, t, c, nil))
		assert.Equal(t, "tool2", toolName(ctx, t, c, nil))

		c.ForgetTools()
		underWay := c.ListToolsAsync(ctx, nil)
		c.ForgetTools()
		assert.Equal(t, "tool4", toolName(ctx, t, c, nil))
		result, err := underWay.Get(ctx)
		assert.Equal(t, "tool3", result.Tools[0].Name)
		assert.Equal(t, "tool4", toolName(ctx, t, c, nil))
		return err
	})
}

func TestWithoutTheCacheEveryListingAsksTheServer(t *testing.T) {
	newHarness(t, numberedTools()).mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{DisableToolCache: true})
		assert.Equal(t, "tool1", toolName(ctx, t, c, nil))
		assert.Equal(t, "tool2", toolName(ctx, t, c.With(mcpnexus.RequestOptions{}), nil))
		return nil
	})
}

func TestWhatIsDoneToAToolListDoesNotChangeTheNext(t *testing.T) {
	newHarness(t, numberedTools()).mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		result, err := c.ListTools(ctx, nil)
		if err != nil {
			return err
		}
		result.Tools[0].Name = "changed"
		result.Tools[0].InputSchema.(map[string]any)["type"] = "changed"
		result, err = c.ListTools(ctx, nil)
		assert.Equal(t, "tool1", result.Tools[0].Name)
		assert.Equal(t, map[string]any{"type": "object"}, result.Tools[0].InputSchema)
		return err
	})
}

func TestAFailedListingIsNotRemembered(t *testing.T) {
	n := 0
	h := newHarness(t, func(string, string, json.RawMessage) (string, error) {
		switch n++; n {
		case 1:
			return "", &nexus.OperationError{State: nexus.OperationStateFailed, Cause: errors.New("not now")}
		case 2:
			return `{"tools":"none"}`, nil
		}
		return `{"tools":[{"name":"tool3","inputSchema":{}}]}`, nil
	})
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		one, two := c.ListToolsAsync(ctx, nil), c.ListToolsAsync(ctx, nil)
		_, err := one.Get(ctx)
		assert.ErrorContains(t, err, "not now")
		_, err = two.Get(ctx)
		assert.ErrorContains(t, err, "not now", "who joined shares the error")
		_, err = c.ListTools(ctx, nil)
		assert.ErrorContains(t, err, "the result cannot be read")
		assert.Equal(t, "tool3", toolName(ctx, t, c, nil))
		assert.Equal(t, "tool3", toolName(ctx, t, c, nil))
		return nil
	})
	assert.Len(t, h.calls, 3)
}

func TestListingsAtTheSameTimeJoinOneOperation(t *testing.T) {
	h := newHarness(t, numberedTools())
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		wg := workflow.NewWaitGroup(ctx)
		for range 5 {
			wg.Add(1)
			scope, _ := workflow.WithCancel(ctx)
			workflow.Go(scope, func(ctx workflow.Context) {
				defer wg.Done()
				assert.Equal(t, "tool1", toolName(ctx, t, c, nil))
			})
		}
		wg.Wait(ctx)
		return nil
	})
	assert.Len(t, h.calls, 1)
}

// mockListings makes list-tools take an hour, as often as tokens are given.
func mockListings(t *testing.T, h *harness, tokens ...string) {
	for _, token := range tokens {
		h.OnNexusOperation(weather, mcpnexus.ListTools, mock.Anything, mock.Anything).Return(
			&nexus.HandlerStartOperationResultAsync{OperationToken: token}, nil).Once()
		require.NoError(t, h.RegisterNexusAsyncOperationCompletion(weather, mcpnexus.OperationListTools, token,
			&mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: token}}}, nil, time.Hour))
	}
}

func TestCancellingWhoJoinedLeavesTheOthersAlone(t *testing.T) {
	h := newMockHarness(t)
	mockListings(t, h, "one")
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		scope, cancel := workflow.WithCancel(ctx)
		first, joined := c.ListToolsAsync(ctx, nil), c.ListToolsAsync(scope, nil)
		start := workflow.Now(ctx)
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return err
		}
		cancel()
		_, err := joined.Get(ctx)
		assert.True(t, temporal.IsCanceledError(err))
		assert.Equal(t, time.Minute, workflow.Now(ctx).Sub(start))
		result, err := first.Get(ctx)
		assert.Equal(t, "one", result.Tools[0].Name)
		return err
	})
	assert.Len(t, h.calls, 1)
}

func TestWhoJoinedACancelledListingAsksAgain(t *testing.T) {
	h := newMockHarness(t)
	mockListings(t, h, "one", "two")
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Operation: caller.OperationOptions{
			CancellationType: workflow.NexusOperationCancellationTypeTryCancel,
		}})
		scope, cancel := workflow.WithCancel(ctx)
		other, _ := workflow.WithCancel(ctx)
		first := c.ListToolsAsync(scope, nil)
		joined := []*caller.Future[*mcp.ListToolsResult]{c.ListToolsAsync(ctx, nil), c.ListToolsAsync(other, nil)}
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return err
		}
		cancel()
		_, err := first.Get(ctx)
		assert.True(t, temporal.IsCanceledError(err))
		for _, future := range joined {
			result, err := future.Get(ctx)
			if assert.NoError(t, err) {
				assert.Equal(t, "two", result.Tools[0].Name)
			}
		}
		return nil
	})
	assert.Len(t, h.calls, 2)
}
