package nexus

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
)

// Keys of a request's _meta that belong to this contract.
const (
	// MetaKeyOptions holds the [RequestOptions] of a request. The handler
	// removes it before anything is sent to the MCP server.
	MetaKeyOptions = "nexusmcp/options"
	// MetaKeyIdempotencyKey is added by the handler to what the MCP server
	// receives: a string that is the same for every attempt of one operation
	// and differs between operations.
	MetaKeyIdempotencyKey = "nexusmcp/idempotencyKey"
)

// DefaultStartToCloseTimeout limits one attempt of a request that sets neither
// StartToCloseTimeout nor ScheduleToCloseTimeout. With [ExecutionInline] an attempt
// has no more than what is left of the Nexus request's time: at most 8.5 seconds,
// by a Temporal server's defaults.
const DefaultStartToCloseTimeout = time.Minute

// Execution says where a request runs.
type Execution string

const (
	// ExecutionAuto, the zero value's meaning, begins within the Nexus start request
	// and becomes durable when the first attempt takes longer than a while or
	// fails in a way that a retry can fix. A request that may be made only once is
	// durable from its first attempt.
	ExecutionAuto Execution = "auto"
	// ExecutionInline makes all attempts within the Nexus start request, or fails
	// with it. It is refused for a request that may be made only once, because a
	// start request is repeated when its answer is lost.
	ExecutionInline Execution = "inline"
	// ExecutionDurable makes all attempts in a workflow of the handler's namespace.
	ExecutionDurable Execution = "durable"
)

var executions = []Execution{ExecutionAuto, ExecutionInline, ExecutionDurable}

// RequestOptions are the caller's wishes for one request. Their JSON form
// travels in the params' _meta under [MetaKeyOptions]; every field is optional
// and left out when zero. Durations are protobuf JSON durations ("1.5s").
type RequestOptions struct {
	// FactoryArgument is any JSON value, handed to the server's factory to
	// choose a tenant or an environment. It is recorded in the caller's history:
	// never a secret. Nil and JSON null both mean that there is none.
	FactoryArgument json.RawMessage
	// StartToCloseTimeout limits one attempt. Zero means
	// [DefaultStartToCloseTimeout] unless ScheduleToCloseTimeout is set.
	StartToCloseTimeout time.Duration
	// ScheduleToCloseTimeout limits all attempts together. Zero means no limit.
	// Package caller gives the Nexus operation 2.5 seconds more.
	ScheduleToCloseTimeout time.Duration
	// RetryPolicy has the meaning of a Temporal activity's. Its
	// NonRetryableErrorTypes are those of [ErrorType], and
	// "TemporalTimeout:StartToClose" for an attempt that timed out, and
	// "TemporalTimeout:Heartbeat" for one whose worker vanished after the Nexus
	// request was answered. With a MaximumAttempts of 1 the request reaches the
	// server at most once. Nil means Temporal's default policy, except for a tool
	// that declares itself destructive and not idempotent: at most once. So is a
	// call while it is not known what its tool declares, but not with
	// [ExecutionInline].
	RetryPolicy *temporal.RetryPolicy
	// Execution is where the request runs. Empty means [ExecutionAuto].
	Execution Execution
}

// IsZero reports whether no option is set.
func (o RequestOptions) IsZero() bool {
	return len(o.FactoryArgument) == 0 && o.StartToCloseTimeout == 0 && o.ScheduleToCloseTimeout == 0 &&
		o.RetryPolicy == nil && o.Execution == ""
}

// Validate reports the first option whose value cannot be honoured. The error
// names the field by its JSON name, the value and what would be right.
func (o RequestOptions) Validate() error {
	if len(o.FactoryArgument) > 0 && !json.Valid(o.FactoryArgument) {
		return fmt.Errorf("factoryArgument: not valid JSON")
	}
	if err := notNegative("startToCloseTimeout", o.StartToCloseTimeout); err != nil {
		return err
	}
	if err := notNegative("scheduleToCloseTimeout", o.ScheduleToCloseTimeout); err != nil {
		return err
	}
	if o.Execution != "" && !slices.Contains(executions, o.Execution) {
		return fmt.Errorf("execution: %q is none of auto, inline, durable", o.Execution)
	}
	if o.RetryPolicy == nil {
		return nil
	}
	// The limits are those that the Temporal server sets on an activity's policy.
	p := o.RetryPolicy
	if err := notNegative("retryPolicy.initialInterval", p.InitialInterval); err != nil {
		return err
	}
	if err := notNegative("retryPolicy.maximumInterval", p.MaximumInterval); err != nil {
		return err
	}
	// Written so that NaN, which compares false with everything, is refused too.
	if p.BackoffCoefficient != 0 && !(p.BackoffCoefficient >= 1 && p.BackoffCoefficient <= math.MaxFloat64) {
		return fmt.Errorf("retryPolicy.backoffCoefficient: %v is not a number of at least 1", p.BackoffCoefficient)
	}
	if p.MaximumInterval != 0 && p.MaximumInterval < p.InitialInterval {
		return fmt.Errorf("retryPolicy.maximumInterval: %v is less than initialInterval %v", p.MaximumInterval, p.InitialInterval)
	}
	if p.MaximumAttempts < 0 {
		return fmt.Errorf("retryPolicy.maximumAttempts: %d is negative", p.MaximumAttempts)
	}
	if slices.Contains(p.NonRetryableErrorTypes, "") {
		return fmt.Errorf("retryPolicy.nonRetryableErrorTypes: an error type is empty")
	}
	for _, name := range p.NonRetryableErrorTypes {
		name, isTimeout := strings.CutPrefix(name, TimeoutTypePrefix)
		// The server compares with the short form alone.
		if kind, err := enumspb.TimeoutTypeFromString(name); isTimeout && (err != nil || kind == enumspb.TIMEOUT_TYPE_UNSPECIFIED || kind.String() != name) {
			return fmt.Errorf("retryPolicy.nonRetryableErrorTypes: %q names none of the timeouts StartToClose, ScheduleToStart, ScheduleToClose, Heartbeat", TimeoutTypePrefix+name)
		}
	}
	return nil
}

// TimeoutTypePrefix is before the kind of a timeout, such as StartToClose, among the
// NonRetryableErrorTypes of a Temporal retry policy (common/retrypolicy/retry_policy.go,
// server v1.32.1).
const TimeoutTypePrefix = "TemporalTimeout:"

func notNegative(field string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s: %v is negative", field, d)
	}
	return nil
}

type optionsJSON struct {
	FactoryArgument        json.RawMessage  `json:"factoryArgument,omitempty"`
	StartToCloseTimeout    *duration        `json:"startToCloseTimeout,omitempty"`
	ScheduleToCloseTimeout *duration        `json:"scheduleToCloseTimeout,omitempty"`
	RetryPolicy            *retryPolicyJSON `json:"retryPolicy,omitempty"`
	Execution              Execution        `json:"execution,omitempty"`
}

type retryPolicyJSON struct {
	InitialInterval        *duration `json:"initialInterval,omitempty"`
	BackoffCoefficient     float64   `json:"backoffCoefficient,omitempty"`
	MaximumInterval        *duration `json:"maximumInterval,omitempty"`
	MaximumAttempts        int32     `json:"maximumAttempts,omitempty"`
	NonRetryableErrorTypes []string  `json:"nonRetryableErrorTypes,omitempty"`
}

// MarshalJSON writes the options' contract form. It fails on options that
// [RequestOptions.Validate] refuses, so that a mistake ends where it was made.
func (o RequestOptions) MarshalJSON() ([]byte, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	out := optionsJSON{
		FactoryArgument:        o.FactoryArgument,
		StartToCloseTimeout:    newDuration(o.StartToCloseTimeout),
		ScheduleToCloseTimeout: newDuration(o.ScheduleToCloseTimeout),
		Execution:              o.Execution,
	}
	if p := o.RetryPolicy; p != nil {
		out.RetryPolicy = &retryPolicyJSON{
			InitialInterval:        newDuration(p.InitialInterval),
			BackoffCoefficient:     p.BackoffCoefficient,
			MaximumInterval:        newDuration(p.MaximumInterval),
			MaximumAttempts:        p.MaximumAttempts,
			NonRetryableErrorTypes: p.NonRetryableErrorTypes,
		}
	}
	return plainjson.Marshal(out)
}

// UnmarshalJSON reads the options' contract form and validates it. A field that
// the contract does not know, also one whose name differs only in case, is an
// error that names it: a misspelt timeout must not run without one.
func (o *RequestOptions) UnmarshalJSON(data []byte) error {
	var in optionsJSON
	err := decodeFields(data, "", map[string]any{
		"factoryArgument":        &in.FactoryArgument,
		"startToCloseTimeout":    &in.StartToCloseTimeout,
		"scheduleToCloseTimeout": &in.ScheduleToCloseTimeout,
		"retryPolicy":            &in.RetryPolicy,
		"execution":              &in.Execution,
	})
	if err != nil {
		return err
	}
	if string(in.FactoryArgument) == "null" {
		in.FactoryArgument = nil
	}
	out := RequestOptions{
		FactoryArgument:        in.FactoryArgument,
		StartToCloseTimeout:    in.StartToCloseTimeout.value(),
		ScheduleToCloseTimeout: in.ScheduleToCloseTimeout.value(),
		Execution:              in.Execution,
	}
	if p := in.RetryPolicy; p != nil {
		out.RetryPolicy = &temporal.RetryPolicy{
			InitialInterval:        p.InitialInterval.value(),
			BackoffCoefficient:     p.BackoffCoefficient,
			MaximumInterval:        p.MaximumInterval.value(),
			MaximumAttempts:        p.MaximumAttempts,
			NonRetryableErrorTypes: p.NonRetryableErrorTypes,
		}
	}
	if err := out.Validate(); err != nil {
		return err
	}
	*o = out
	return nil
}

func (p *retryPolicyJSON) UnmarshalJSON(data []byte) error {
	return decodeFields(data, "retryPolicy.", map[string]any{
		"initialInterval":        &p.InitialInterval,
		"backoffCoefficient":     &p.BackoffCoefficient,
		"maximumInterval":        &p.MaximumInterval,
		"maximumAttempts":        &p.MaximumAttempts,
		"nonRetryableErrorTypes": &p.NonRetryableErrorTypes,
	})
}

// decodeFields decodes a JSON object whose keys must be among fields.
// encoding/json alone would match names regardless of case, keep the last of
// two equal names, and report a mistake without saying where it is.
func decodeFields(data []byte, prefix string, fields map[string]any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return fmt.Errorf("%s: want a JSON object", cmp.Or(strings.TrimSuffix(prefix, "."), "options"))
	}
	seen := make(map[string]bool, len(fields))
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name := key.(string)
		target, ok := fields[name]
		if !ok {
			known := make([]string, 0, len(fields))
			for f := range fields {
				known = append(known, f)
			}
			slices.Sort(known)
			return fmt.Errorf("%s%s: unknown field, want one of %s", prefix, name, strings.Join(known, ", "))
		}
		if seen[name] {
			return fmt.Errorf("%s%s: given twice", prefix, name)
		}
		seen[name] = true
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return fmt.Errorf("%s%s: %w", prefix, name, err)
		}
		if err := json.Unmarshal(raw, target); err != nil {
			// A nested object has already named its own field.
			if _, nested := target.(**retryPolicyJSON); nested {
				return err
			}
			return fmt.Errorf("%s%s: %w", prefix, name, plain(err, raw))
		}
	}
	return nil
}

// plain rewords encoding/json's complaint about a Go type, of which a caller in
// another language knows nothing.
func plain(err error, raw json.RawMessage) error {
	if mismatch, ok := err.(*json.UnmarshalTypeError); ok {
		return fmt.Errorf("%.64s is not a valid %s", raw, mismatch.Type.Kind())
	}
	return err
}

// duration is a protobuf JSON duration: a decimal number of seconds with the
// suffix "s". Source: https://protobuf.dev/programming-guides/json/
type duration time.Duration

func newDuration(d time.Duration) *duration {
	if d == 0 {
		return nil
	}
	return (*duration)(&d)
}

func (d *duration) value() time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(*d)
}

func (d duration) MarshalJSON() ([]byte, error) {
	return protojson.Marshal(durationpb.New(time.Duration(d)))
}

func (d *duration) UnmarshalJSON(data []byte) error {
	var pb durationpb.Duration
	if err := protojson.Unmarshal(data, &pb); err != nil {
		return fmt.Errorf("%.64s is not a duration in seconds such as \"1.5s\"", data)
	}
	v := pb.AsDuration()
	// AsDuration saturates: 292 years and more would silently become another value.
	if !durationEqual(&pb, v) {
		return fmt.Errorf("%.64s is longer than the longest duration, 292 years", data)
	}
	*d = duration(v)
	return nil
}

func durationEqual(pb *durationpb.Duration, v time.Duration) bool {
	back := durationpb.New(v)
	return back.Seconds == pb.Seconds && back.Nanos == pb.Nanos
}
