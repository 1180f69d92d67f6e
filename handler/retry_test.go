package handler

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/temporal"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestBackoffIsThatOfATemporalActivity(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy *temporal.RetryPolicy
		want   []time.Duration
	}{
		{"the default", nil, []time.Duration{1, 2, 4, 8, 16, 32, 64, 100, 100}},
		{"an interval of its own", &temporal.RetryPolicy{InitialInterval: 3 * time.Second}, []time.Duration{3, 6, 12, 24, 48, 96, 192, 300, 300}},
		{"a maximum", &temporal.RetryPolicy{BackoffCoefficient: 3, MaximumInterval: 10 * time.Second}, []time.Duration{1, 3, 9, 10, 10}},
		{"always the same", &temporal.RetryPolicy{BackoffCoefficient: 1, InitialInterval: 5 * time.Second}, []time.Duration{5, 5, 5}},
		{"beyond any number", &temporal.RetryPolicy{BackoffCoefficient: math.MaxFloat64}, []time.Duration{1, 100, 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := policyOf(mcpnexus.RequestOptions{RetryPolicy: c.policy})
			for i, want := range c.want {
				assert.Equal(t, want*time.Second, backoff(policy, int32(i+1)), "after attempt %d", i+1)
			}
			// However many attempts were made elsewhere, the rest goes on as if here.
			for made := range c.want {
				left := rest(policy, int32(made))
				for i, want := range c.want[made:] {
					assert.Equal(t, want*time.Second, backoff(left, int32(i+1)), "after attempt %d of which %d were made before", made+i+1, made)
				}
			}
		})
	}
}

func TestTheRestOfAPolicyHasTheAttemptsThatAreLeft(t *testing.T) {
	policy := policyOf(mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 3, NonRetryableErrorTypes: []string{"MCPTimeoutError"}}})
	assert.Equal(t, int32(3), rest(policy, 0).MaximumAttempts)
	assert.Equal(t, int32(1), rest(policy, 2).MaximumAttempts)
	assert.Equal(t, []string{"MCPTimeoutError"}, rest(policy, 2).NonRetryableErrorTypes)
	assert.Zero(t, rest(policyOf(mcpnexus.RequestOptions{}), 7).MaximumAttempts, "no limit")
}

func TestARetryIsMadeWhenTheErrorThePolicyAndTheTimeAllowIt(t *testing.T) {
	away := mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport}
	patient := mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, NextRetryDelay: 7 * time.Second}
	three := mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 3}}
	for _, c := range []struct {
		name     string
		options  mcpnexus.RequestOptions
		attempts int32
		err      mcpnexus.Error
		left     time.Duration
		delay    time.Duration
		again    bool
	}{
		{"after the first", mcpnexus.RequestOptions{}, 1, away, 0, time.Second, true},
		{"after the third of any number", mcpnexus.RequestOptions{}, 3, away, 0, 4 * time.Second, true},
		{"after the second of three", three, 2, away, 0, 2 * time.Second, true},
		{"after the third of three", three, 3, away, 0, 0, false},
		{"an error that a retry cannot fix", mcpnexus.RequestOptions{}, 1, mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, NonRetryable: true}, 0, 0, false},
		{"as the server asks", mcpnexus.RequestOptions{}, 1, patient, 0, 7 * time.Second, true},
		{"as the server asks, but no more than three times", three, 3, patient, 0, 0, false},
		{"just in time", mcpnexus.RequestOptions{}, 1, away, time.Second + 1, time.Second, true},
		{"too late", mcpnexus.RequestOptions{}, 1, away, time.Second, time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			delay, again := retryDelay(c.options, c.attempts, &c.err, c.left)
			assert.Equal(t, c.again, again)
			if c.again {
				assert.Equal(t, c.delay, delay)
			}
		})
	}
}

func TestTheCallersPolicyNamesErrorsThatAreNotRetried(t *testing.T) {
	for _, c := range []struct {
		types []string
		kind  mcpnexus.ErrorType
		want  bool
	}{
		{[]string{"MCPTransportError"}, mcpnexus.ErrorTypeTransport, true},
		{[]string{"MCPTransportError"}, mcpnexus.ErrorTypeTimeout, false},
		{[]string{"TemporalTimeout:StartToClose"}, mcpnexus.ErrorTypeTimeout, true},
		{[]string{"TemporalTimeout:StartToClose"}, mcpnexus.ErrorTypeTransport, false},
		{nil, mcpnexus.ErrorTypeTimeout, false},
	} {
		e := &mcpnexus.Error{Type: c.kind}
		heed(mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{NonRetryableErrorTypes: c.types}}, e)
		assert.Equal(t, c.want, e.NonRetryable, "%v %v", c.types, c.kind)
	}
}
