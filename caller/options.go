package caller

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Options are what a [Client] does unless told otherwise. The zero value is
// ready to use.
type Options struct {
	// Request is sent with every request. The zero value sends nothing, which
	// leaves everything to the handler's defaults. [Client.With] varies it.
	Request mcpnexus.RequestOptions
	// Operation limits and cancels the Nexus operation that carries a request.
	Operation OperationOptions
	// Limit is where the client waits its turn. Give all clients of a workflow
	// the same one: the server counts the workflow's operations, not a client's.
	// Nil means one of the client's own, of [DefaultLimit] operations, which is
	// right for a workflow with a single client.
	Limit *Limit
	// DisableToolCache makes every [Client.ListTools] ask the server. By default
	// the answer to a request is remembered, see there.
	DisableToolCache bool
}

// OperationOptions are the part of workflow.NexusOperationOptions that is the
// caller's business. Times count from when the operation is scheduled, which is
// after its turn under the [Limit] has come. Zero means no limit of its own; the
// server applies its maximum and the workflow's run timeout.
type OperationOptions struct {
	// ScheduleToCloseTimeout limits the whole operation. Zero means the request's
	// own ScheduleToCloseTimeout and 2.5 seconds, if that is set: as for an
	// activity, time in queues counts. The server wants more than 1.5 seconds.
	ScheduleToCloseTimeout time.Duration
	// ScheduleToStartTimeout limits the time until a handler has answered or has
	// accepted the request. Needs Temporal Server 1.31 or later.
	ScheduleToStartTimeout time.Duration
	// StartToCloseTimeout limits the time from there to the answer, when the
	// handler accepted the request to answer it later. It is not the request
	// option of the same name, which limits one attempt of the handler's. Needs
	// Temporal Server 1.31 or later.
	StartToCloseTimeout time.Duration
	// CancellationType is what happens to the operation when the context of its
	// call is cancelled. Zero means to request cancellation, once the operation has
	// started, and to wait for its end, which may be a result. A request that the
	// handler runs inline starts when it is handed off, after two seconds by
	// default, and ends first if it is quicker. After TryCancel and Abandon the call
	// returns at once, but an operation that is still open keeps its place under the
	// [Limit] until it has really ended. WaitRequested is refused: the SDK never tells when such an
	// operation ends, so its place could not be given to another.
	CancellationType workflow.NexusOperationCancellationType
}

func (o OperationOptions) validate() error {
	for _, timeout := range []struct {
		name  string
		value time.Duration
	}{
		{"ScheduleToCloseTimeout", o.ScheduleToCloseTimeout},
		{"ScheduleToStartTimeout", o.ScheduleToStartTimeout},
		{"StartToCloseTimeout", o.StartToCloseTimeout},
	} {
		// The server would fail the workflow task over it, again and again.
		if timeout.value < 0 {
			return fmt.Errorf("operation options: %s: %v is negative", timeout.name, timeout.value)
		}
	}
	switch o.CancellationType {
	case workflow.NexusOperationCancellationTypeUnspecified,
		workflow.NexusOperationCancellationTypeWaitCompleted,
		workflow.NexusOperationCancellationTypeTryCancel,
		workflow.NexusOperationCancellationTypeAbandon:
		return nil
	case workflow.NexusOperationCancellationTypeWaitRequested:
		return fmt.Errorf("operation options: CancellationType: WaitRequested does not tell when the operation ends, want WaitCompleted, TryCancel or Abandon")
	default:
		return fmt.Errorf("operation options: CancellationType: %d is unknown, want WaitCompleted, TryCancel or Abandon", o.CancellationType)
	}
}

// override returns base with the options that are set in over. A factory
// argument of JSON null takes away base's.
func override(base, over mcpnexus.RequestOptions) mcpnexus.RequestOptions {
	if len(over.FactoryArgument) > 0 {
		base.FactoryArgument = over.FactoryArgument
		if string(bytes.TrimSpace(over.FactoryArgument)) == "null" {
			base.FactoryArgument = nil
		}
	}
	if over.StartToCloseTimeout != 0 {
		base.StartToCloseTimeout = over.StartToCloseTimeout
	}
	if over.ScheduleToCloseTimeout != 0 {
		base.ScheduleToCloseTimeout = over.ScheduleToCloseTimeout
	}
	if over.RetryPolicy != nil {
		base.RetryPolicy = over.RetryPolicy
	}
	if over.Execution != "" {
		base.Execution = over.Execution
	}
	return snapshot(base)
}

// snapshot returns a copy that shares no memory with o, so that what a workflow
// does with its own value later does not reach a client.
func snapshot(o mcpnexus.RequestOptions) mcpnexus.RequestOptions {
	o.FactoryArgument = bytes.Clone(o.FactoryArgument)
	if o.RetryPolicy != nil {
		policy := *o.RetryPolicy
		policy.NonRetryableErrorTypes = slices.Clone(policy.NonRetryableErrorTypes)
		o.RetryPolicy = &policy
	}
	return o
}
