package caller_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func everyOption() mcpnexus.RequestOptions {
	return mcpnexus.RequestOptions{
		FactoryArgument:        json.RawMessage(`{ "tenant": "acme" }`),
		StartToCloseTimeout:    90 * time.Second,
		ScheduleToCloseTimeout: 10 * time.Minute,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 3, NonRetryableErrorTypes: []string{"MCPTimeoutError"}},
		Execution:              mcpnexus.ExecutionInline,
	}
}

const everyOptionJSON = `{"factoryArgument":{"tenant":"acme"},"startToCloseTimeout":"90s","scheduleToCloseTimeout":"600s",` +
	`"retryPolicy":{"maximumAttempts":3,"nonRetryableErrorTypes":["MCPTimeoutError"]},"execution":"inline"}`

func TestRequestOptionsTravelInTheMetaOfTheParams(t *testing.T) {
	h := newHarness(t, nil)
	meta := mcp.Meta{"z": 1, "a": map[string]any{"b": true}}
	params := &mcp.CallToolParams{Meta: meta, Name: "get_weather"}
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{Request: everyOption()})
		_, err1 := c.CallTool(ctx, params)
		_, err2 := c.Discover(ctx, nil)
		return errors.Join(err1, err2)
	})
	assert.Equal(t, []string{
		`{"_meta":{"a":{"b":true},"nexusmcp/options":` + everyOptionJSON + `,"z":1},"name":"get_weather"}`,
		`{"_meta":{"nexusmcp/options":` + everyOptionJSON + `}}`,
	}, h.inputs())
	assert.Equal(t, &mcp.CallToolParams{Meta: mcp.Meta{"z": 1, "a": map[string]any{"b": true}}, Name: "get_weather"}, params,
		"the caller's params and their _meta are not written to")
}

func TestOptionsThatAreChangedLaterDoNotReachTheClient(t *testing.T) {
	h := newHarness(t, nil)
	h.mustRun(func(ctx workflow.Context) error {
		options := everyOption()
		c := caller.NewClient(endpoint, weather, caller.Options{Request: options})
		copy(options.FactoryArgument, `{"tenant":"other" }`)
		options.RetryPolicy.MaximumAttempts = 1
		options.RetryPolicy.NonRetryableErrorTypes[0] = "MCPDenied"
		_, err := c.With(mcpnexus.RequestOptions{}).Discover(ctx, nil)
		return err
	})
	assert.Equal(t, []string{`{"_meta":{"nexusmcp/options":` + everyOptionJSON + `}}`}, h.inputs())
}

func TestADerivedClientReplacesTheOptionsThatAreSet(t *testing.T) {
	for _, c := range []struct {
		name string
		over mcpnexus.RequestOptions
		want string
	}{
		{"none", mcpnexus.RequestOptions{}, everyOptionJSON},
		{"the attempt's timeout", mcpnexus.RequestOptions{StartToCloseTimeout: time.Second},
			`{"factoryArgument":{"tenant":"acme"},"startToCloseTimeout":"1s","scheduleToCloseTimeout":"600s","retryPolicy":{"maximumAttempts":3,"nonRetryableErrorTypes":["MCPTimeoutError"]},"execution":"inline"}`},
		{"all", mcpnexus.RequestOptions{
			FactoryArgument: json.RawMessage(`1`), StartToCloseTimeout: 1e9, ScheduleToCloseTimeout: 2e9,
			RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}, Execution: mcpnexus.ExecutionDurable},
			`{"factoryArgument":1,"startToCloseTimeout":"1s","scheduleToCloseTimeout":"2s","retryPolicy":{"maximumAttempts":1},"execution":"durable"}`},
		{"no factory argument", mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(` null `)},
			`{"startToCloseTimeout":"90s","scheduleToCloseTimeout":"600s","retryPolicy":{"maximumAttempts":3,"nonRetryableErrorTypes":["MCPTimeoutError"]},"execution":"inline"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.mustRun(func(ctx workflow.Context) error {
				base := caller.NewClient(endpoint, weather, caller.Options{Request: everyOption()})
				_, err1 := base.With(c.over).Discover(ctx, nil)
				_, err2 := base.Discover(ctx, nil)
				return errors.Join(err1, err2)
			})
			assert.Equal(t, []string{
				`{"_meta":{"nexusmcp/options":` + c.want + `}}`,
				`{"_meta":{"nexusmcp/options":` + everyOptionJSON + `}}`,
			}, h.inputs())
		})
	}
}

func TestADerivedClientWithoutTheBadOptionWorks(t *testing.T) {
	newHarness(t, nil).mustRun(func(ctx workflow.Context) error {
		bad := caller.NewClient(endpoint, weather, caller.Options{Request: mcpnexus.RequestOptions{Execution: "later"}})
		_, err := bad.Discover(ctx, nil)
		assert.ErrorContains(t, err, `discover on service "weather": request options: execution: "later" is none of auto, inline, durable`)
		_, err = bad.With(mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionAuto}).Discover(ctx, nil)
		return err
	})
}

func TestOptionsWrittenIntoMetaByHandAreRefused(t *testing.T) {
	h := newHarness(t, nil)
	var err error
	h.mustRun(func(ctx workflow.Context) error {
		c := caller.NewClient(endpoint, weather, caller.Options{})
		_, err = c.Discover(ctx, &mcp.DiscoverParams{Meta: mcp.Meta{mcpnexus.MetaKeyOptions: map[string]any{"execution": "inline"}}})
		return nil
	})
	require.ErrorContains(t, err, `discover on service "weather": _meta has the key "nexusmcp/options", which belongs to the request options: set them with Client.With or Options.Request`)
	assert.Empty(t, h.calls)
}

func TestOperationOptionsReachTheOperation(t *testing.T) {
	for _, c := range []struct {
		name      string
		request   mcpnexus.RequestOptions
		operation caller.OperationOptions
		want      workflow.NexusOperationOptions
	}{
		{"none", mcpnexus.RequestOptions{}, caller.OperationOptions{}, workflow.NexusOperationOptions{}},
		{"all", mcpnexus.RequestOptions{}, caller.OperationOptions{
			ScheduleToCloseTimeout: 3 * time.Hour, ScheduleToStartTimeout: time.Hour, StartToCloseTimeout: 2 * time.Hour,
			CancellationType: workflow.NexusOperationCancellationTypeAbandon,
		}, workflow.NexusOperationOptions{
			ScheduleToCloseTimeout: 3 * time.Hour, ScheduleToStartTimeout: time.Hour, StartToCloseTimeout: 2 * time.Hour,
			CancellationType: workflow.NexusOperationCancellationTypeAbandon,
		}},
		{"the request's schedule-to-close timeout", mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Hour}, caller.OperationOptions{},
			workflow.NexusOperationOptions{ScheduleToCloseTimeout: time.Hour + 2500*time.Millisecond}},
		{"both", mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Hour}, caller.OperationOptions{ScheduleToCloseTimeout: 2 * time.Hour},
			workflow.NexusOperationOptions{ScheduleToCloseTimeout: 2 * time.Hour}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHarness(t, nil)
			h.mustRun(func(ctx workflow.Context) error {
				_, err := caller.NewClient(endpoint, weather, caller.Options{Request: c.request, Operation: c.operation}).Discover(ctx, nil)
				return err
			})
			require.Len(t, h.calls, 1)
			assert.Equal(t, c.want, h.calls[0].options)
		})
	}
}
