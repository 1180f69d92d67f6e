package handler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/temporalnexus"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// What operators see in the handler's namespace.
const (
	// WorkflowType is the type of the workflow that sees an operation to its end
	// when the Nexus request does not. Its ID is nexusmcp/<service>/<operation>/
	// and the request ID of the Nexus operation, escaped as in a URL's path. A part
	// that is too long is cut and ends in a hash. Its task queue is the worker's.
	WorkflowType = "MCPRequest"
	// AttemptActivityType and the server's name, with a slash between them, are the
	// type of the activity that sends a request to an MCP server. An attempt of the
	// activity makes one of the request, at most: one that follows on an attempt that
	// had sent a request which may be sent only once fails and sends nothing. It runs
	// on the worker's task queue.
	AttemptActivityType = "MCPAttempt"
	// BatchWorkflowType is the type of the workflow that does the same for a
	// call-tools operation. It sees each of the calls to its end as a workflow of
	// the call's own would, with the same activities.
	BatchWorkflowType = "MCPRequests"
	// RunningAttemptActivityType is that of the activity, at most the first of a
	// workflow, that waits for a call that runs already. It runs on the task queue
	// of the process that has the call: nexusmcp/<host>/<process ID>/ and a random
	// part.
	RunningAttemptActivityType = "MCPRunningAttempt"
	// CancelAttemptActivityType is that of the activity, on the same task queue, that
	// ends such a call when the workflow was cancelled before the process was asked
	// for it.
	CancelAttemptActivityType = "MCPCancelAttempt"
)

func attemptType(service string) string       { return AttemptActivityType + "/" + service }
func runningType(service string) string       { return RunningAttemptActivityType + "/" + service }
func cancelAttemptType(service string) string { return CancelAttemptActivityType + "/" + service }

const (
	// heartbeatTimeout is how long the process that makes an attempt may be silent
	// before it is taken for dead.
	heartbeatTimeout = 10 * time.Second
	// heartbeatInterval is how often it says that it lives. With the answer comes
	// a cancellation.
	heartbeatInterval = 2 * time.Second
	// scheduleToStartTimeout is how long a process may take to be asked for a call
	// that it runs. One that is dead is noticed as soon as by its heartbeats; one
	// that is only busy has the call made again elsewhere, unless it makes the next
	// attempt too, which then joins the call (see [durableRequest.Former]).
	scheduleToStartTimeout = heartbeatTimeout
	// cancelTime is how long a process may take to be told that nobody wants a call that
	// it runs. It is longer: there is no other way to end a call that it has not been
	// asked for, which would go on for all of claimWithin.
	cancelTime = 30 * time.Second
	// reportTime is how long the end of an attempt may take to be reported: the
	// activity's own timeout is longer by that than the attempt's.
	reportTime = 5 * time.Second
	// askTime is how long a process that stops waits to be asked for a call that it has
	// handed off. The workflow's first task may have gone to a worker that stops too,
	// this one for example: it is made again after ten seconds.
	askTime = 12 * time.Second
	// declareTime is how long an attempt may take to find out whether the tool is to
	// be called at most once.
	declareTime = 5 * time.Second
)

// A durableRequest is the first argument of [requestWorkflow]. The second are
// the params for the MCP server.
type durableRequest struct {
	Service   string `json:"service"`
	Operation string `json:"operation"`
	// Subject is what messages and summaries say of the request's subject.
	Subject   string `json:"subject,omitempty"`
	RequestID string `json:"requestId"`
	// Options are those of the contract. A worker of an older version may not know
	// all of them, see [readOptions].
	Options json.RawMessage `json:"options,omitempty"`
	// Caller is the workflow whose end makes the request pointless.
	Caller *callerRun `json:"caller,omitempty"`
	// MaxResultBytes is the most bytes that the result may have here, zero means no
	// limit but the handler's.
	MaxResultBytes int `json:"maxResultBytes,omitempty"`
	// Reserve is for the server's limit alone, see [reserve].
	Reserve string `json:"reserve,omitempty"`
	// Former is the key of the call that was asked for in vain, if there is one. It
	// may still run in the process that makes the next attempt.
	Former string `json:"former,omitempty"`
	durableState
}

// A durableState is how far a request has come. The zero value is its beginning.
type durableState struct {
	// Running is the attempt that is being made.
	Running *runningCall `json:"running,omitempty"`
	// Attempts have been made and have failed. The next is made after Delay.
	Attempts int32         `json:"attempts,omitempty"`
	Delay    time.Duration `json:"delayNanoseconds,omitempty"`
	// Left is what is left of the ScheduleToCloseTimeout, if there is one.
	Left time.Duration `json:"leftNanoseconds,omitempty"`
}

// A runningCall is a call that runs in a process.
type runningCall struct {
	TaskQueue string `json:"taskQueue"`
	Key       string `json:"key"`
	// Left is the time that the attempt has left.
	Left time.Duration `json:"leftNanoseconds"`
}

// durable starts the request's workflow, or finds it started by an earlier start
// of the operation: the server knows it by the request ID.
func (st *start) durable(ctx context.Context, state durableState) (reply, error) {
	if state.Left == 0 {
		state.Left, _ = remaining(st.req.options, st.lookup)
	}
	in := durableRequest{
		Service: st.name, Operation: st.op.name, Subject: summarize(st.req.subject), RequestID: st.options.RequestID,
		Options: writeOptions(st.req.options), Caller: callerOf(st.options.Links), durableState: state,
	}
	params := encode(st.req.params)
	in.Reserve = reserve(params)
	answer, err := startWorkflow(ctx, *st.temporal, client.StartWorkflowOptions{
		ID:                       workflowID(st.name, st.op.name, st.options.RequestID),
		WorkflowExecutionTimeout: operationTimeout(st.options.Header),
		StaticSummary:            st.title(st.op, st.req),
	}, WorkflowType, plainjson.Payload(encode(in)), plainjson.Payload(params))
	if startTooLarge(err) {
		err = st.refuse(nexus.HandlerErrorTypeBadRequest, st.op, st.req, tooLarge(err))
	}
	return answer, err
}

// reserve is what goes into a workflow's input beside what is large. With a codec nobody
// knows how much is too much, but it must be the start that the server refuses: an
// activity's input can be a little larger than the workflow's, and a workflow task that asks
// for too much is repeated without end.
func reserve(large []byte) string {
	if len(large) < 256<<10 {
		return ""
	}
	return strings.Repeat("-", 1<<10)
}

// tooLarge says why a request cannot be durable.
func tooLarge(err error) string {
	return "with what a durable workflow adds, and a codec may, the request is larger than the Temporal server takes: " + err.Error()
}

// startTooLarge reports whether the Temporal server did not take a workflow because of
// its size. The words for an input are the server's, those for a whole message are gRPC's.
func startTooLarge(err error) bool {
	if err == nil {
		return false
	}
	e, ok := errors.AsType[*serviceerror.InvalidArgument](err)
	return ok && strings.Contains(e.Message, "size exceeds limit") || strings.Contains(err.Error(), "larger than max")
}

// resultTooLarge reports whether an activity has failed because the Temporal server does
// not take its result: as the server says or, before it is asked, the SDK. What went
// before an activity's timeout is not its end.
func resultTooLarge(err error) bool {
	if _, timeout := errors.AsType[*temporal.TimeoutError](err); timeout {
		return false
	}
	if e, ok := errors.AsType[*temporal.ServerError](err); ok {
		return e.Message() == "Complete result exceeds size limit."
	}
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && app.Type() == errorTypePayloadSize
}

// errorTypePayloadSize is the type of the SDK's error of an activity whose result has
// too many bytes once it is encoded.
const errorTypePayloadSize = "payloadSizeError"

// writeOptions writes valid options.
func writeOptions(options mcpnexus.RequestOptions) json.RawMessage {
	if options.IsZero() {
		return nil
	}
	return encode(options)
}

// readOptions reads what a worker has written: this one, or one of another
// version, whose options this one must not ignore.
func readOptions(written json.RawMessage) (options mcpnexus.RequestOptions, err error) {
	if len(written) == 0 {
		return options, nil
	}
	return options, json.Unmarshal(written, &options)
}

// newerVersion ends a workflow task over what a worker of a newer version must have
// written. The Temporal server repeats the task until a worker that understands it
// takes it.
func newerVersion(what string, err error) {
	panic(fmt.Sprintf("nexusmcp handler %s does not understand %s: %v", Version, what, err))
}

// startWorkflow answers a start request with a workflow. What the options do not
// say is the same for all.
func startWorkflow(ctx context.Context, temporal temporalnexus.NexusClient, options client.StartWorkflowOptions, workflowType string, args ...any) (reply, error) {
	options.TaskQueue = temporalnexus.GetOperationInfo(ctx).TaskQueue
	options.WorkflowIDReusePolicy = enumspb.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
	options.WorkflowIDConflictPolicy = enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING
	options.StaticSummary = truncate(options.StaticSummary, maxSummary)
	within, cancel := context.WithTimeout(ctx, leftOf(ctx))
	defer cancel()
	answer, err := temporalnexus.StartUntypedWorkflow[converter.RawValue](within, temporal, options, workflowType, args...)
	if err != nil {
		// As it is: the SDK knows its own errors, and which a retry can fix.
		return reply{}, err
	}
	return reply{durable: &answer}, nil
}

// maxSummary is what a Temporal server takes for a summary, in bytes.
const maxSummary = 400

// workflowID is within what a Temporal server takes, 1000 bytes, and within what a
// gRPC header takes, printable ASCII: the SDK puts it into one.
func workflowID(service, operation, requestID string) string {
	return fmt.Sprintf("nexusmcp/%s/%s/%s", idPart(service, 500), operation, idPart(requestID, 400))
}

// idPart escapes a part of an ID, as in a URL's path. What is too long is told apart
// by a hash.
func idPart(part string, longest int) string {
	escaped := strings.ReplaceAll(url.PathEscape(part), "~", "%7E")
	if len(escaped) <= longest {
		return escaped
	}
	hash := sha256.Sum256([]byte(part))
	end := "~" + hex.EncodeToString(hash[:16])
	return escaped[:longest-len(end)] + end
}

// operationTimeout is what the caller's operation has left, zero when it has no
// timeout. Nobody waits for a request that takes longer.
func operationTimeout(header nexus.Header) time.Duration {
	timeout, err := time.ParseDuration(header.Get(nexus.HeaderOperationTimeout))
	if err != nil || timeout <= 0 {
		return 0
	}
	return max(timeout, time.Second)
}

// requestWorkflow sees one request to its end. It returns the result as the MCP
// server sent it, or fails with an error of the contract.
func requestWorkflow(ctx workflow.Context, in durableRequest, params converter.RawValue) (converter.RawValue, error) {
	options, err := readOptions(in.Options)
	if err != nil {
		newerVersion("the request's options", err)
	}
	r := &durableRun{durableRequest: in, options: options, began: workflow.Now(ctx)}
	return r.settle(ctx, params)
}

// settle sees the request to its end.
func (r *durableRun) settle(ctx workflow.Context, params converter.RawValue) (converter.RawValue, error) {
	if r.Running != nil {
		result, err := r.await(ctx)
		if err == nil {
			return result, nil
		}
		if err := r.failed(ctx, err); err != nil {
			return converter.RawValue{}, err
		}
	}
	for {
		if r.Delay > 0 {
			if err := workflow.NewTimerWithOptions(ctx, r.Delay, workflow.TimerOptions{Summary: "until the next attempt"}).Get(ctx, nil); err != nil {
				return converter.RawValue{}, err
			}
			r.Delay = 0
		}
		result, err := r.attempt(ctx, params)
		if err == nil {
			return result, nil
		}
		if ctx.Err() != nil {
			return converter.RawValue{}, ctx.Err()
		}
		if isGivenBack(err) {
			// Another worker makes the attempt: at once, unless that one gave it back too.
			r.Attempts = attemptsBefore(err)
			if r.givenBack > 0 {
				r.Delay = backoff(policyOf(mcpnexus.RequestOptions{}), r.givenBack)
				if left, _ := r.left(ctx); left > 0 {
					r.Delay = min(r.Delay, left) // to say in time that it is over
				}
			}
			r.givenBack++
			continue
		}
		return converter.RawValue{}, r.final(err)
	}
}

// A durableRun is a request on its way through [requestWorkflow].
type durableRun struct {
	durableRequest
	options   mcpnexus.RequestOptions
	began     time.Time
	givenBack int32 // how often
}

// left returns what is left of the ScheduleToCloseTimeout, and whether that is
// over. Zero when there is none.
func (r *durableRun) left(ctx workflow.Context) (left time.Duration, over bool) {
	if r.Left == 0 {
		return 0, false
	}
	left = r.Left - workflow.Now(ctx).Sub(r.began)
	return max(left, 1), left <= 0
}

// await waits for the attempt that runs.
func (r *durableRun) await(ctx workflow.Context) (converter.RawValue, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              r.Running.TaskQueue,
		ScheduleToStartTimeout: scheduleToStartTimeout,
		StartToCloseTimeout:    r.Running.Left + reportTime,
		HeartbeatTimeout:       heartbeatTimeout,
		WaitForCancellation:    true,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                r.Subject,
	})
	var result converter.RawValue
	err := workflow.ExecuteActivity(ctx, runningType(r.Service), runningRequest{
		Key: r.Running.Key, Operation: r.Operation, Subject: r.Subject, Caller: r.Caller, MaxResultBytes: r.MaxResultBytes,
	}).Get(ctx, &result)
	mustBeActivitys(err)
	if _, canceled := errors.AsType[*temporal.CanceledError](err); canceled && !byAttempt(err) {
		// Nobody had fetched the activity: the process knows nothing of it.
		r.cancelAttempt(ctx)
	}
	return result, err
}

// cancelAttempt ends the attempt that runs.
func (r *durableRun) cancelAttempt(ctx workflow.Context) {
	ctx, _ = workflow.NewDisconnectedContext(ctx)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              r.Running.TaskQueue,
		ScheduleToStartTimeout: cancelTime,
		StartToCloseTimeout:    reportTime,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 1},
		Summary:                r.Subject,
	})
	// If it fails the process has vanished, and the attempt with it.
	_ = workflow.ExecuteActivity(ctx, cancelAttemptType(r.Service), r.Running.Key).Get(ctx, nil)
}

// attempt makes all attempts that are left, until one of them succeeds.
func (r *durableRun) attempt(ctx workflow.Context, params converter.RawValue) (converter.RawValue, error) {
	left, over := r.left(ctx)
	if over {
		return converter.RawValue{}, r.timedOut()
	}
	policy := rest(policyOf(r.options), r.Attempts)
	policy.NonRetryableErrorTypes = append(slices.Clone(policy.NonRetryableErrorTypes), errorTypePayloadSize)
	if once(r.options) {
		// The activity sees to it itself. An attempt whose worker vanished before it
		// began is not one, and only the next can tell.
		policy.MaximumAttempts = 0
	}
	options := workflow.ActivityOptions{
		StartToCloseTimeout: limitAttempt(r.options, 0).within + declareTime + reportTime,
		HeartbeatTimeout:    heartbeatTimeout,
		WaitForCancellation: true,
		RetryPolicy:         &policy,
		Summary:             r.Subject,
	}
	if left > 0 {
		// The activity keeps to what is left, and has the time to say so.
		options.ScheduleToCloseTimeout = left + reportTime
	}
	ctx = workflow.WithActivityOptions(ctx, options)
	var result converter.RawValue
	in := r.durableRequest
	in.durableState, in.Reserve = durableState{Attempts: r.Attempts, Left: left}, ""
	if r.Running != nil {
		in.Former = r.Running.Key
	}
	err := workflow.ExecuteActivity(ctx, attemptType(r.Service), plainjson.Payload(encode(in)), params).Get(ctx, &result)
	mustBeActivitys(err)
	return result, err
}

// mustBeActivitys panics over an error that is not the end of an activity: a codec can
// make nothing of the result or of the input just now. It says nothing of the attempt,
// which may have succeeded; to make another one would run the request twice, and a
// replay, for which the codec is back, would not find it. The Temporal server repeats the
// workflow task until the codec can.
func mustBeActivitys(err error) {
	if err == nil {
		return
	}
	_, activitys := errors.AsType[*temporal.ActivityError](err)
	_, canceled := errors.AsType[*temporal.CanceledError](err)
	if !activitys && !canceled {
		panic(fmt.Sprintf("nexusmcp handler: an attempt's input or result cannot be encoded or decoded: %v", err))
	}
}

// failed is told of the end of the attempt that ran. It returns the request's end
// when there is to be no other attempt.
func (r *durableRun) failed(ctx workflow.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if isGivenBack(err) {
		return nil
	}
	r.Attempts++
	e := r.contractError(err)
	left, over := r.left(ctx)
	delay, again := retryDelay(r.options, r.Attempts, e, left)
	if !again || over {
		return e.ApplicationError()
	}
	r.Delay = delay
	return nil
}

// final returns the request's end when all attempts have been made.
func (r *durableRun) final(err error) error {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	if !ok || resultTooLarge(err) {
		return r.contractError(err).ApplicationError()
	}
	if last := errors.Unwrap(app); app.Type() == errorTypeLast && last != nil {
		return last
	}
	if _, timeout := errors.AsType[*temporal.TimeoutError](err); timeout {
		return r.contractError(err).ApplicationError() // app is what went before
	}
	if _, contracts := mcpnexus.ErrorFrom(app); contracts || app.Type() == errorTypeCallerGone || app.Type() == errorTypeCancelled {
		return app
	}
	return r.contractError(err).ApplicationError()
}

// contractError gives the end of an activity the contract's form.
func (r *durableRun) contractError(err error) *mcpnexus.Error {
	if resultTooLarge(err) {
		return r.error(mcpnexus.Error{
			Type:    mcpnexus.ErrorTypeResultTooLarge,
			Message: "encoded by the worker's data converter, the result is larger than the Temporal server takes: lower Options.MaxResultBytes by what a codec adds",
		})
	}
	timeout, ok := errors.AsType[*temporal.TimeoutError](err)
	if !ok {
		if e, ok := mcpnexus.ErrorFrom(err); ok {
			return e
		}
		// Not with what an ActivityError says, the worker's host among it.
		if made, ok := errors.AsType[*temporal.ActivityError](err); ok && errors.Unwrap(made) != nil {
			err = errors.Unwrap(made)
		}
		app, ok := errors.AsType[*temporal.ApplicationError](err)
		if !ok {
			return r.error(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: err.Error()})
		}
		e := r.error(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: app.Message()})
		// A call that was handed off may have been cancelled for a run of the workflow
		// that was reset.
		e.NonRetryable = e.NonRetryable || app.NonRetryable() && app.Type() != errorTypeCancelled
		return e
	}
	var beat heartbeat
	// Only an attempt that is the only one says so, and none that was handed off. What
	// cannot be read may say so.
	made, ok := errors.AsType[*temporal.ActivityError](err)
	handedOff := ok && made.ActivityType().GetName() == runningType(r.Service)
	if !handedOff && timeout.HasLastHeartbeatDetails() && ((timeout.LastHeartbeatDetails(&beat) != nil || beat.Unread) && mayBeOnly(r.Operation, r.options) || beat.Sent) {
		return r.error(mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: outcomeUnknown})
	}
	switch timeout.TimeoutType() {
	case enumspb.TIMEOUT_TYPE_HEARTBEAT, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START:
		e := r.error(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "the worker that made the attempt has vanished"})
		// To the caller it is one and the same, also where nobody was there to be asked
		// for a call that was handed off.
		e.NonRetryable = e.NonRetryable || unwantedTimeout(r.options, enumspb.TIMEOUT_TYPE_HEARTBEAT)
		return e
	case enumspb.TIMEOUT_TYPE_START_TO_CLOSE:
		t := limitAttempt(r.options, 0).cause
		return r.error(mcpnexus.Error{Type: mcpnexus.ErrorTypeTimeout, Timeout: t.timeout, Message: t.Error()})
	}
	e := r.timedOut()
	if last, ok := mcpnexus.ErrorFrom(errors.Unwrap(timeout)); ok {
		e.Message += "; the last attempt failed with " + last.Message
	}
	return e
}

const outcomeUnknown = "the worker that made the only attempt has vanished: the request may have been carried out"

func (r *durableRun) timedOut() *mcpnexus.Error { return r.error(timedOut(r.options)) }

// timedOut is the error of a request without time for an attempt.
func timedOut(options mcpnexus.RequestOptions) mcpnexus.Error {
	t := timeoutError{what: "no attempt has succeeded", timeout: options.ScheduleToCloseTimeout}
	return mcpnexus.Error{Type: mcpnexus.ErrorTypeTimeout, Timeout: t.timeout, Message: t.Error()}
}

func (r *durableRun) error(e mcpnexus.Error) *mcpnexus.Error {
	out := mcpnexus.NewError(e)
	heed(r.options, out)
	out.Message = message(title(r.Service, r.Operation, r.Subject) + ": " + out.Message)
	return out
}

// summarize makes a summary of what a request is about.
func summarize(subject string) string {
	return truncate(strings.ToValidUTF8(subject, ""), maxSummary)
}

// errorTypeLast is the type of an activity's error around that of the last
// attempt, after which the server is to make no other whatever the error says.
const errorTypeLast = "MCPLastAttempt"

// errorTypeGivenBack is that of an activity that cannot make the attempt, mostly because
// its worker stops; another activity can. Its detail is how many attempts were made before.
const errorTypeGivenBack = "MCPGivenBack"

func givenBack(attemptsBefore int32) error {
	return temporal.NewApplicationErrorWithOptions("the attempt was not made here, and is to be made elsewhere or later", errorTypeGivenBack, temporal.ApplicationErrorOptions{
		NonRetryable: true, Details: []any{attemptsBefore},
	})
}

func isGivenBack(err error) bool {
	app, ok := errors.AsType[*temporal.ApplicationError](err)
	return ok && app.Type() == errorTypeGivenBack
}

// attemptsBefore is how many attempts were made before the one that was given back. To
// count anew if it cannot be read would make more than are allowed: the Temporal server
// repeats the workflow task until a codec can read it.
func attemptsBefore(err error) (n int32) {
	app, _ := errors.AsType[*temporal.ApplicationError](err)
	if err := app.Details(&n); err != nil {
		panic(fmt.Sprintf("nexusmcp handler: how many attempts were made cannot be read: %v", err))
	}
	return n
}
