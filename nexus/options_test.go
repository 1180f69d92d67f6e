package nexus_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestRequestOptionsHaveTheJSONFormOfTheContract(t *testing.T) {
	options := mcpnexus.RequestOptions{
		FactoryArgument:        json.RawMessage(`{"tenant":"acme"}`),
		StartToCloseTimeout:    1500 * time.Millisecond,
		ScheduleToCloseTimeout: 10 * time.Minute,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 1.5, MaximumInterval: time.Minute,
			MaximumAttempts: 3, NonRetryableErrorTypes: []string{"MCPTransportError"},
		},
		Execution: mcpnexus.ExecutionInline,
	}
	data, err := json.Marshal(options)
	require.NoError(t, err)
	assert.JSONEq(t, `{
		"factoryArgument": {"tenant": "acme"},
		"startToCloseTimeout": "1.500s",
		"scheduleToCloseTimeout": "600s",
		"retryPolicy": {"initialInterval": "1s", "backoffCoefficient": 1.5, "maximumInterval": "60s",
			"maximumAttempts": 3, "nonRetryableErrorTypes": ["MCPTransportError"]},
		"execution": "inline"
	}`, string(data))

	var back mcpnexus.RequestOptions
	require.NoError(t, json.Unmarshal(data, &back))
	assert.Equal(t, options, back)
}

func TestOptionsThatAreNotSetAreNotWritten(t *testing.T) {
	data, err := json.Marshal(mcpnexus.RequestOptions{})
	require.NoError(t, err)
	assert.Equal(t, "{}", string(data))
	assert.True(t, mcpnexus.RequestOptions{}.IsZero())

	var options mcpnexus.RequestOptions
	require.NoError(t, json.Unmarshal([]byte(`{"factoryArgument":null,"retryPolicy":null,"startToCloseTimeout":null}`), &options))
	assert.True(t, options.IsZero())
}

func TestABadOptionIsRefusedByName(t *testing.T) {
	for _, c := range []struct{ name, options, want string }{
		{"not an object", `"60s"`, "options: want a JSON object"},
		{"an unknown field", `{"timeout":"60s"}`, "timeout: unknown field, want one of execution, factoryArgument, retryPolicy, scheduleToCloseTimeout, startToCloseTimeout"},
		{"another case", `{"StartToCloseTimeout":"60s"}`, "StartToCloseTimeout: unknown field"},
		{"a field given twice", `{"execution":"auto","execution":"inline"}`, "execution: given twice"},
		{"a number for a duration", `{"startToCloseTimeout":60}`, `startToCloseTimeout: 60 is not a duration in seconds such as "1.5s"`},
		{"another unit", `{"startToCloseTimeout":"1m"}`, `startToCloseTimeout: "1m" is not a duration`},
		{"a negative duration", `{"scheduleToCloseTimeout":"-1s"}`, "scheduleToCloseTimeout: -1s is negative"},
		{"a duration beyond the longest", `{"startToCloseTimeout":"300000000000s"}`, "startToCloseTimeout: "},
		{"an execution that does not exist", `{"execution":"Inline"}`, `execution: "Inline" is none of auto, inline, durable`},
		{"an execution of another type", `{"execution":1}`, "execution: 1 is not a valid string"},
		{"a retry policy of another type", `{"retryPolicy":[]}`, "retryPolicy: want a JSON object"},
		{"an unknown field of the retry policy", `{"retryPolicy":{"attempts":3}}`, "retryPolicy.attempts: unknown field, want one of backoffCoefficient, "},
		{"a fraction of an attempt", `{"retryPolicy":{"maximumAttempts":1.5}}`, "retryPolicy.maximumAttempts: 1.5 is not a valid int32"},
		{"negative attempts", `{"retryPolicy":{"maximumAttempts":-1}}`, "retryPolicy.maximumAttempts: -1 is negative"},
		{"a shrinking backoff", `{"retryPolicy":{"backoffCoefficient":0.5}}`, "retryPolicy.backoffCoefficient: 0.5 is not a number of at least 1"},
		{"a maximum under the initial interval", `{"retryPolicy":{"initialInterval":"10s","maximumInterval":"1s"}}`, "retryPolicy.maximumInterval: 1s is less than initialInterval 10s"},
		{"a timeout that there is not", `{"retryPolicy":{"nonRetryableErrorTypes":["MCPTimeoutError","TemporalTimeout:StartToFinish"]}}`, `retryPolicy.nonRetryableErrorTypes: "TemporalTimeout:StartToFinish" names none of the timeouts StartToClose, ScheduleToStart`},
		{"no particular timeout", `{"retryPolicy":{"nonRetryableErrorTypes":["TemporalTimeout:"]}}`, `"TemporalTimeout:" names none`},
		{"an unspecified timeout", `{"retryPolicy":{"nonRetryableErrorTypes":["TemporalTimeout:Unspecified"]}}`, `"TemporalTimeout:Unspecified" names none`},
		{"the long name of a timeout", `{"retryPolicy":{"nonRetryableErrorTypes":["TemporalTimeout:TIMEOUT_TYPE_HEARTBEAT"]}}`, `"TemporalTimeout:TIMEOUT_TYPE_HEARTBEAT" names none`},
		{"an empty error type", `{"retryPolicy":{"nonRetryableErrorTypes":[""]}}`, "retryPolicy.nonRetryableErrorTypes: an error type is empty"},
		{"error types of another type", `{"retryPolicy":{"nonRetryableErrorTypes":"a"}}`, "retryPolicy.nonRetryableErrorTypes: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionAuto}
			options := before
			err := json.Unmarshal([]byte(c.options), &options)
			require.ErrorContains(t, err, c.want)
			assert.Equal(t, before, options, "a refused value changes nothing")
		})
	}
}

func TestOptionsThatWouldBeRefusedAreNotWritten(t *testing.T) {
	for _, options := range []mcpnexus.RequestOptions{
		{StartToCloseTimeout: -1},
		{FactoryArgument: json.RawMessage(`{`)},
		{RetryPolicy: &temporal.RetryPolicy{BackoffCoefficient: math.NaN()}},
		{RetryPolicy: &temporal.RetryPolicy{BackoffCoefficient: math.Inf(1)}},
		{Execution: "sometimes"},
	} {
		_, err := json.Marshal(options)
		assert.Error(t, err)
	}
}

func FuzzReadingOptionsNeverPanicsAndWhatItReadsItWrites(f *testing.F) {
	f.Add(`{"startToCloseTimeout":"1.5s","retryPolicy":{"maximumAttempts":1},"factoryArgument":[1]}`)
	f.Fuzz(func(t *testing.T, data string) {
		var options mcpnexus.RequestOptions
		if json.Unmarshal([]byte(data), &options) != nil {
			return
		}
		out, err := json.Marshal(options)
		require.NoError(t, err)
		var back mcpnexus.RequestOptions
		require.NoError(t, json.Unmarshal(out, &back))
	})
}
