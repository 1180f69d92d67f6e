package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The reasons for which a call ends that is not over.
var (
	errCancelled  = errors.New("the request was cancelled")
	errUnclaimed  = errors.New("nobody asked for the outcome")
	errUnmarked   = errors.New("the request could not be marked as sent")
	errCallerGone = errors.New("the workflow that made the request has ended")
)

// attemptActivity makes one attempt.
func (s *service) attemptActivity(ctx context.Context, in durableRequest, params converter.RawValue) (converter.RawValue, error) {
	info := activity.GetInfo(ctx)
	before := in.Attempts + info.Attempt - 1 // attempts that were made
	if !s.handler.begin() {
		return converter.RawValue{}, givenBack(before)
	}
	defer s.handler.calls.Done()
	i := slices.IndexFunc(operations, func(op operation) bool { return op.name == in.Operation })
	if i < 0 {
		// A worker of another version started it, and there may be others like it.
		return converter.RawValue{}, fmt.Errorf("the worker does not know the operation %q", in.Operation)
	}
	op := operations[i]
	req := &request{subject: in.Subject, options: in.Options, id: in.RequestID}
	if err := json.Unmarshal(params.Payload().GetData(), &req.params); err != nil {
		return converter.RawValue{}, temporal.NewNonRetryableApplicationError("the params are not an object", "", err)
	}

	if in.Former != "" {
		// It was taken for lost, perhaps because this process was busy. What is lost
		// with one that has failed is known: this attempt follows on it.
		if c := s.handler.running.claim(in.Former); c != nil && !(c.hasEnded() && c.failure != nil) {
			return s.follow(ctx, c, in.Caller, in.MaxResultBytes)
		}
	}

	var last heartbeat
	if activity.HasHeartbeatDetails(ctx) && activity.GetHeartbeatDetails(ctx, &last) == nil && last.Sent {
		return converter.RawValue{}, s.only(mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: message(s.title(op, req) + ": " + outcomeUnknown)}))
	}
	single := once(req.options)
	if !single {
		// A server that does not tell gets the benefit of the doubt.
		asking, cancel := context.WithTimeout(ctx, heartbeatTimeout/2)
		declared, known := s.declared(asking, op, req, s.handler.logger(ctx))
		cancel()
		single = declared || !known
	}
	var progress atomic.Pointer[mcp.ProgressNotificationParams]
	running, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pulse := beat(ctx, &progress, func(error) { cancel(errCancelled) })
	defer pulse.end()
	if single {
		req.beforeSending = pulse.mark
	}
	defer s.handler.watches.watch(ctx, in.Caller, func() { cancel(errCallerGone) })()

	result, err := s.try(withProgress(running, in.RequestID, func(p mcp.ProgressNotificationParams) { progress.Store(&p) }), attemptTimeout(req.options, 0), op, req)
	if err == nil {
		err = checkSize(result, in.MaxResultBytes)
	}
	if err == nil {
		return rawValue(result), nil
	}
	_, notSent := errors.AsType[*unsent](err)
	switch {
	case errors.Is(err, errUnmarked):
		// Whether the server has the mark or not, nothing was sent. An activity of its
		// own finds none.
		return converter.RawValue{}, givenBack(before)
	case errors.Is(err, errStopping) || ctx.Err() != nil && errors.Is(context.Cause(ctx), worker.ErrWorkerShutdown):
		if single && !notSent {
			return converter.RawValue{}, s.only(mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: message(s.title(op, req) + ": the worker stopped during the only attempt: the request may have been carried out")}))
		}
		return converter.RawValue{}, givenBack(before)
	case errors.Is(err, errCallerGone):
		return converter.RawValue{}, gone()
	case errors.Is(err, errCancelled), ctx.Err() != nil:
		pulse.end()
		return converter.RawValue{}, cancelled(ctx)
	}
	e := s.contractError(op, req, err)
	if once(req.options) || single && !notSent {
		return converter.RawValue{}, s.only(e)
	}
	return converter.RawValue{}, e.ApplicationError()
}

// checkSize refuses a result that is too large for where it goes. Zero means no
// limit.
func checkSize(result json.RawMessage, limit int) error {
	if limit == 0 || len(result) <= limit {
		return nil
	}
	return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeResultTooLarge, Size: int64(len(result)), Limit: int64(limit)})
}

// cancelled is the end of an attempt that is not wanted any more.
func cancelled(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err // which the SDK knows how to report
	}
	return temporal.NewNonRetryableApplicationError(errCancelled.Error(), errorTypeCancelled, nil)
}

// only marks an error as the end of the only attempt.
func (s *service) only(e *mcpnexus.Error) error {
	return temporal.NewApplicationErrorWithOptions("the only attempt has failed", errorTypeOnce, temporal.ApplicationErrorOptions{
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

// runningActivity waits for a call that runs in this process.
func (s *service) runningActivity(ctx context.Context, key string, caller *callerRun, maxResultBytes int) (converter.RawValue, error) {
	c := s.handler.running.claim(key)
	if c == nil {
		return converter.RawValue{}, mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: s.name + ": the process does not know the call any more"}).ApplicationError()
	}
	return s.follow(ctx, c, caller, maxResultBytes)
}

// follow waits for a call that was claimed and returns its outcome.
func (s *service) follow(ctx context.Context, c *call, caller *callerRun, maxResultBytes int) (converter.RawValue, error) {
	defer s.handler.running.pay(c)
	pulse := beat(ctx, &c.progress, func(error) { c.cancel(errCancelled) })
	defer pulse.end()
	defer s.handler.watches.watch(ctx, caller, func() { c.cancel(errCallerGone) })()
	select {
	case <-c.ended:
	case <-ctx.Done():
		c.cancel(errCancelled)
		<-c.ended // an attempt heeds it, or is left behind
	}
	switch {
	case c.failure == nil:
		if err := checkSize(c.result, maxResultBytes); err != nil {
			return converter.RawValue{}, s.contractError(callToolOperation, &request{}, err).ApplicationError()
		}
		return rawValue(c.result), nil
	case c.stopped, ctx.Err() != nil && errors.Is(context.Cause(ctx), worker.ErrWorkerShutdown):
		return converter.RawValue{}, givenBack(0)
	case c.cancelled, ctx.Err() != nil:
		pulse.end()
		return converter.RawValue{}, cancelled(ctx)
	}
	return converter.RawValue{}, c.failure.ApplicationError()
}
