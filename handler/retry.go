package handler

import (
	"cmp"
	"math"
	"slices"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Temporal's defaults for a retry policy.
// Source: https://docs.temporal.io/encyclopedia/retry-policies#default-values-for-retry-policy
const (
	defaultInitialInterval    = time.Second
	defaultBackoffCoefficient = 2.0
	// defaultMaximumFactor times the initial interval is the maximum interval.
	defaultMaximumFactor = 100
)

// policyOf returns the caller's retry policy with Temporal's defaults filled in.
func policyOf(o mcpnexus.RequestOptions) temporal.RetryPolicy {
	var p temporal.RetryPolicy
	if o.RetryPolicy != nil {
		p = *o.RetryPolicy
	}
	p.InitialInterval = cmp.Or(p.InitialInterval, defaultInitialInterval)
	p.BackoffCoefficient = cmp.Or(p.BackoffCoefficient, defaultBackoffCoefficient)
	if p.MaximumInterval == 0 {
		p.MaximumInterval = scaled(p.InitialInterval, defaultMaximumFactor, math.MaxInt64)
	}
	return p
}

// scaled returns d times factor, at most longest.
func scaled(d time.Duration, factor float64, longest time.Duration) time.Duration {
	// Written so that what overflows, to infinity or not a number, is the longest.
	if f := float64(d) * factor; f < float64(longest) {
		return time.Duration(f)
	}
	return longest
}

// backoff is the time to wait after the given number of attempts have failed.
func backoff(p temporal.RetryPolicy, attempts int32) time.Duration {
	return scaled(p.InitialInterval, math.Pow(p.BackoffCoefficient, float64(attempts-1)), p.MaximumInterval)
}

// exhausted reports whether the policy allows no attempt after the given number.
func exhausted(p temporal.RetryPolicy, attempts int32) bool {
	return p.MaximumAttempts > 0 && attempts >= p.MaximumAttempts
}

// rest is the policy of the attempts that are left after the given number, for
// an activity: it counts its own from one.
func rest(p temporal.RetryPolicy, attempts int32) temporal.RetryPolicy {
	p.InitialInterval = backoff(p, attempts+1)
	if p.MaximumAttempts > 0 {
		p.MaximumAttempts -= attempts
	}
	return p
}

// once reports whether the caller allows a single attempt.
func once(o mcpnexus.RequestOptions) bool {
	return o.RetryPolicy != nil && o.RetryPolicy.MaximumAttempts == 1
}

// retryDelay returns how long to wait until the next attempt of a request that
// has failed the given number of times, the last time with e. It returns false
// when there is no next attempt: as for an activity, one that would begin after
// the end of the time that is left is not made. Zero left means no limit.
func retryDelay(o mcpnexus.RequestOptions, attempts int32, e *mcpnexus.Error, left time.Duration) (time.Duration, bool) {
	p := policyOf(o)
	if e.NonRetryable || exhausted(p, attempts) {
		return 0, false
	}
	delay := cmp.Or(e.NextRetryDelay, backoff(p, attempts))
	return delay, left == 0 || delay < left
}

// heed marks an error that the caller's policy does not want retried.
func heed(o mcpnexus.RequestOptions, e *mcpnexus.Error) {
	if o.RetryPolicy == nil {
		return
	}
	if slices.Contains(o.RetryPolicy.NonRetryableErrorTypes, string(e.Type)) || e.Type == mcpnexus.ErrorTypeTimeout && unwantedTimeout(o, enumspb.TIMEOUT_TYPE_START_TO_CLOSE) {
		e.NonRetryable = true
	}
}

// unwantedTimeout reports whether the caller's policy does not want an attempt retried
// that ended with a timeout of the kind, which it names as an activity's does.
func unwantedTimeout(o mcpnexus.RequestOptions, kind enumspb.TimeoutType) bool {
	return o.RetryPolicy != nil && slices.Contains(o.RetryPolicy.NonRetryableErrorTypes, mcpnexus.TimeoutTypePrefix+kind.String())
}
