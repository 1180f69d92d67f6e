package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The reasons for which a call ends that is not over.
var (
	errCancelled  = errors.New("the request was cancelled")
	errUnclaimed  = errors.New("nobody asked for the outcome")
	errUnmarked   = errors.New("the request could not be marked as sent")
	errCallerGone = errors.New("the workflow that made the request has ended")
	errAbandoned  = errors.New("whoever made the request does not wait any more")
)

// isCancelled reports whether a call has ended because nobody wants its outcome.
func isCancelled(err error) bool {
	return errors.Is(err, errCancelled) || errors.Is(err, errCallerGone) || errors.Is(err, errUnclaimed) || errors.Is(err, errAbandoned)
}

// An attempt is one of a durable request's, made by an activity.
type attempt struct {
	*service
	durableRequest
	op     operation
	req    *request
	before int32                // attempts that were made
	spent  func() time.Duration // of the ScheduleToCloseTimeout
	pulse  *pulse
	// single says that the request is sent at most once.
	single bool
}

// attemptActivity makes one attempt. Its result is a converter.RawValue, or nil with an
// error: the SDK has a result encoded also beside an error, and a codec that can make
// nothing of an empty one would put its own error in the place of the attempt's.
func (s *service) attemptActivity(ctx context.Context, in durableRequest, params converter.RawValue) (any, error) {
	info := activity.GetInfo(ctx)
	a := &attempt{service: s, durableRequest: in, before: in.Attempts + info.Attempt - 1}
	options, err := readOptions(in.Options)
	earlier := a.inherit(ctx, options, err)
	if earlier.end != nil {
		return nil, earlier.end
	}
	if !s.handler.begin() {
		return nil, earlier.ifNotMade
	}
	defer s.handler.calls.Done()
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == in.Operation })
	if i < 0 || err != nil {
		// A worker of a newer version wrote it, and there may be others like it.
		s.handler.logger(ctx).Warn("A request of a newer version of the handler cannot be understood", "MCPServer", s.name, "operation", in.Operation, "error", err)
		return nil, earlier.ifNotMade
	}
	a.op, a.req = operations[i], &request{options: options, id: in.RequestID}
	if err := json.Unmarshal(params.Payload().GetData(), &a.req.params); err != nil {
		return nil, temporal.NewNonRetryableApplicationError("the params are not an object", "", err)
	}
	if a.op.subject != "" {
		if a.req.subject, err = decodeString(a.req.params[a.op.subject]); err != nil {
			return nil, temporal.NewNonRetryableApplicationError("the params have no "+a.op.subject, "", err)
		}
	}

	if in.Former != "" {
		// It was taken for lost, perhaps because this process was busy.
		if c, ok := s.handler.running.claimAgain(in.Former); ok {
			return s.follow(ctx, c, earlier, runningRequest{Key: in.Former, Operation: in.Operation, Subject: in.Subject, Caller: in.Caller, MaxResultBytes: in.MaxResultBytes})
		}
	}

	a.spent = func() time.Duration { return 0 }
	if in.Left > 0 {
		a.spent = func() time.Duration {
			return max(0, min(options.ScheduleToCloseTimeout, longest)-in.Left+time.Since(info.ScheduledTime))
		}
	}
	var progress atomic.Pointer[progressDetails]
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.pulse = s.handler.beat(ctx, earlier.unread, &progress, func(error) { cancel(errCancelled) })
	defer a.pulse.end()
	defer s.handler.watch(ctx, in.Caller, func() { cancel(errCallerGone) })()

	a.single = once(options)
	if !a.single {
		// When in doubt, the request is sent only once.
		declared, known, _ := s.declaredWithin(running, a.op, a.req, time.Now(), a.spent(), declareTime)
		a.single = declared || !known
	}
	if !a.single {
		a.pulse.dismiss()
	}
	var result json.RawMessage
	_, over := remaining(options, a.spent())
	switch {
	case a.single && earlier.unread: // whatever else: the next attempt would know even less
		return nil, s.last(s.unknownOutcome(a.op, a.req, outcomeUnknown))
	case running.Err() != nil:
		err = &unsent{context.Cause(running)} // it is not wanted any more
	case over:
		return nil, s.last(s.contractError(a.op, a.req, mcpnexus.NewError(timedOut(options))))
	default:
		if a.single {
			a.req.beforeSending = a.pulse.mark
		}
		result, err = s.try(withProgress(running, in.RequestID, remember(&progress)), limitAttempt(options, a.spent()), a.op, a.req)
	}
	if err == nil {
		err = checkSize(result, in.MaxResultBytes)
	}
	if err != nil {
		return nil, a.failed(ctx, err)
	}
	return plainjson.Payload(result), nil
}

// An inheritance is what the heartbeats of an activity's earlier attempts say to the one
// that comes now. The activity that follows on one that is given back finds nothing of them.
type inheritance struct {
	// unread says that they cannot be read: nobody knows whether the request was sent.
	unread bool
	// ifNotMade is the activity's end if it makes no attempt.
	ifNotMade error
	// end is the activity's end whatever it could do. Nil means that there may be an attempt.
	end error
}

// inherit reads what earlier attempts have left. An error of the options leaves open what
// they ask for.
func (a *attempt) inherit(ctx context.Context, options mcpnexus.RequestOptions, optionsErr error) inheritance {
	earlier := inheritance{ifNotMade: givenBack(a.before)}
	if !activity.HasHeartbeatDetails(ctx) {
		return earlier
	}
	var last heartbeat
	read := func() (err error) {
		defer recovered(&err, "panic: %v") // of a codec
		return activity.GetHeartbeatDetails(ctx, &last)
	}
	earlier.unread = read() != nil || last.Unread
	unknown := a.last(a.unknownOutcome(operation{name: a.Operation}, &request{subject: a.Subject}, outcomeUnknown))
	if last.Sent {
		earlier.end = unknown
	}
	if earlier.unread && (optionsErr != nil || mayBeOnly(a.Operation, options)) {
		earlier.ifNotMade = unknown
	}
	return earlier
}

// failed returns the end of the activity when the attempt has failed.
func (a *attempt) failed(ctx context.Context, err error) error {
	_, notSent := errors.AsType[*unsent](err)
	// One that was left behind may not have come to its mark.
	notSent = notSent || a.single && !a.pulse.seal()
	if a.single && notSent && !errors.Is(err, errUnmarked) {
		// One that was marked can still turn out not to have been sent: the session
		// was lost, and there is no other.
		if unmarked := a.pulse.unmark(ctx); unmarked != nil && !unwanted(unmarked) {
			err = errors.Join(err, errUnmarked)
		}
	}
	switch {
	case errors.Is(err, errCallerGone):
		return gone()
	case errors.Is(err, errCancelled), ctx.Err() != nil && !stops(ctx):
		a.pulse.end()
		return cancelled(ctx)
	case errors.Is(err, errUnmarked):
		// Whether the server has the mark or not, nothing was sent. An activity of its
		// own finds none.
		warn(a.handler.logger(ctx), "An attempt is given back: the Temporal server could not be told of it before it was to be made", "MCPServer", a.name, "operation", a.Operation, "error", err)
		return givenBack(a.before)
	case errors.Is(err, errStopping), stops(ctx) && !isAnswer(err):
		if a.single && !notSent {
			return a.last(a.unknownOutcome(a.op, a.req, "the worker stopped during the only attempt: the request may have been carried out"))
		}
		return givenBack(a.before)
	}
	e := cutData(a.contractError(a.op, a.req, err), a.MaxResultBytes)
	if once(a.req.options) || a.single && !notSent {
		return a.last(e)
	}
	// As the server would decide, but for the time in which an attempt may say that
	// it has none left.
	left, over := remaining(a.req.options, a.spent())
	if _, again := retryDelay(a.req.options, a.before+1, e, left); !again || over {
		return a.last(e)
	}
	return e.ApplicationError()
}

// unknownOutcome is the error of a request that may have been carried out.
func (s *service) unknownOutcome(op operation, req *request, why string) *mcpnexus.Error {
	return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: message(s.title(op, req) + ": " + why)})
}

// stops reports whether an activity is to end because its worker does.
func stops(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), worker.ErrWorkerShutdown)
}

// isAnswer reports whether an attempt failed with what the MCP server said.
func isAnswer(err error) bool {
	e, ok := errors.AsType[*mcpnexus.Error](err)
	return ok && (e.Type == mcpnexus.ErrorTypeProtocol || e.Type == mcpnexus.ErrorTypeResultTooLarge || e.HTTPStatus != 0)
}

// checkSize refuses a result that is too large for where it goes. Zero means no
// limit.
func checkSize(result json.RawMessage, limit int) error {
	if limit == 0 || len(result) <= limit {
		return nil
	}
	return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeResultTooLarge, Size: int64(len(result)), Limit: int64(limit)})
}

// cutData leaves the data of an error out that is too large for where it goes, as
// it would be if it were a result. Zero means no limit.
func cutData(e *mcpnexus.Error, limit int) *mcpnexus.Error {
	if limit == 0 || len(e.Data)+len(e.Message) <= limit {
		return e
	}
	out := *e
	out.Data = nil
	out.Message = message(fmt.Sprintf("%s (its data of %d bytes was left out, the limit is %d)", truncate(e.Message, maxErrorMessage/2), len(e.Data), limit))
	return &out
}

// cancelled is the end of an attempt that is not wanted any more. Its details tell
// it from that of an activity that nobody has fetched.
func cancelled(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return temporal.NewCanceledError(cancelledHere)
	}
	return temporal.NewNonRetryableApplicationError(errCancelled.Error(), errorTypeCancelled, nil)
}

// cancelledHere is the detail of an attempt's cancellation.
const cancelledHere = "at the MCP server"

// byAttempt reports whether it is an attempt that has ended as cancelled. The server, with
// a detail of its own, cancels an activity that nobody has fetched. That it has not begun
// needs no codec to be read. A test environment says so of every activity.
func byAttempt(err error) bool {
	if made, ok := errors.AsType[*temporal.ActivityError](err); ok && made.StartedEventID() != 0 {
		return true
	}
	canceled, ok := errors.AsType[*temporal.CanceledError](err)
	var detail string
	return ok && canceled.HasDetails() && canceled.Details(&detail) == nil && detail == cancelledHere
}

// last marks an error as the request's end.
func (s *service) last(e *mcpnexus.Error) error {
	return temporal.NewApplicationErrorWithOptions("the last attempt has failed", errorTypeLast, temporal.ApplicationErrorOptions{
		NonRetryable: true, Cause: e.ApplicationError(),
	})
}

// gone is the end of an attempt for which nobody waits.
func gone() error {
	return temporal.NewNonRetryableApplicationError(errCallerGone.Error(), errorTypeCallerGone, nil)
}

const (
	errorTypeCallerGone = "MCPCallerGone"
	errorTypeCancelled  = "MCPCancelled"
)

// A runningRequest is the argument of [service.runningActivity]: a call that was
// handed off, and what the workflow knows of it.
type runningRequest struct {
	Key       string     `json:"key"`
	Operation string     `json:"operation"`
	Subject   string     `json:"subject,omitempty"`
	Caller    *callerRun `json:"caller,omitempty"`
	// MaxResultBytes is as in a [durableRequest].
	MaxResultBytes int `json:"maxResultBytes,omitempty"`
}

// runningActivity waits for a call that runs in this process.
func (s *service) runningActivity(ctx context.Context, in runningRequest) (any, error) {
	c, ok := s.handler.running.claim(in.Key)
	if !ok {
		return nil, mcpnexus.NewError(mcpnexus.Error{
			Type: mcpnexus.ErrorTypeTransport, Message: message(title(s.name, in.Operation, in.Subject) + ": the process does not know the call any more"),
		}).ApplicationError()
	}
	return s.follow(ctx, c, inheritance{ifNotMade: givenBack(0)}, in)
}

// cancelAttemptActivity ends a call that runs in this process and that nobody has
// asked for.
func (s *service) cancelAttemptActivity(_ context.Context, key string) error {
	if c, ok := s.handler.running.claim(key); ok {
		c.cancel(errCancelled)
		<-c.ended // an attempt heeds it, or is left behind
		c.settle()
	}
	return nil
}

// follow waits for a call that was claimed and returns its outcome.
func (s *service) follow(ctx context.Context, c claim, earlier inheritance, in runningRequest) (any, error) {
	forgotten := make(chan struct{}) // closed before ctx ends for that reason
	pulse := s.handler.beat(ctx, earlier.unread, &c.progress, func(err error) {
		if _, unknown := err.(*serviceerror.NotFound); unknown && s.handler.workflowRuns(ctx) {
			// The server has taken this process for dead, or was away itself for so long.
			// The next attempt claims the call, if it is made here.
			close(forgotten)
			return
		}
		c.cancel(errCancelled)
	})
	defer pulse.end()
	defer s.handler.watch(ctx, in.Caller, func() { c.cancel(errCallerGone) })()
	select {
	case <-c.ended:
	case <-forgotten:
	case <-ctx.Done():
	}
	switch {
	case c.hasEnded():
	case isClosed(forgotten):
		c.leave()
		return nil, errors.New("the Temporal server does not know the activity any more")
	default:
		c.cancel(errCancelled)
		<-c.ended // an attempt heeds it, or is left behind
	}
	defer c.settle()
	switch {
	case c.failure == nil:
		if err := checkSize(c.result, in.MaxResultBytes); err != nil {
			return nil, s.contractError(operation{name: in.Operation}, &request{subject: in.Subject}, err).ApplicationError()
		}
		return plainjson.Payload(c.result), nil
	case c.stopped, c.cancelled && stops(ctx):
		return nil, earlier.ifNotMade
	case c.cancelled && !c.unasked, ctx.Err() != nil && !stops(ctx):
		pulse.end()
		return nil, cancelled(ctx)
	}
	failure := c.failure
	if in.MaxResultBytes > 0 { // one of a batch
		failure = cutData(failure, min(in.MaxResultBytes, maxHandedOffData))
	}
	return nil, failure.ApplicationError()
}

// workflowRuns reports whether the workflow of ctx's activity has not ended, as far
// as can be told. A test environment forgets activities that are cancelled.
func (h *Handler) workflowRuns(ctx context.Context) bool {
	if h.mocked {
		return false
	}
	info := activity.GetInfo(ctx)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeatTimeout)
	defer cancel()
	found, err := activity.GetClient(ctx).DescribeWorkflowExecution(ctx, info.WorkflowExecution.ID, info.WorkflowExecution.RunID)
	if _, unknown := err.(*serviceerror.NotFound); unknown {
		return false
	}
	return err != nil || found.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
}
