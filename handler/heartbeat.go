package handler

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// A heartbeat is what an activity tells the server while it runs. Operators see
// it.
type heartbeat struct {
	// Sent is set before a request is sent that must not be sent again.
	Sent bool `json:"sent,omitempty"`
	// Unread is set when the heartbeats of an earlier attempt could not be read, which
	// may have said that.
	Unread bool `json:"unread,omitempty"`
	// Progress is what the MCP server reported last.
	Progress *progressDetails `json:"progress,omitempty"`
}

// A pulse sends an activity's heartbeats.
//
// The SDK's own RecordHeartbeat sends them when the worker's options say, which
// may be once a minute, does not say whether one has arrived, and ends the
// activity's context when the Temporal server is away for longer than that. A
// request to an MCP server can outlive that well.
type pulse struct {
	ctx      context.Context // the activity's
	handler  *Handler
	progress *atomic.Pointer[progressDetails]
	// unread is what heartbeats say of those of an earlier attempt.
	unread atomic.Bool
	// lost is called, once, when the attempt is not wanted any more.
	lost func(error)
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex // a heartbeat must not be overtaken by one that says less
	sent   bool
	marked bool // ever
	// doubtful is true when a mark has failed, which the server may have all the same.
	doubtful bool
	sealed   bool
}

// beat begins to send heartbeats, until end is called. They say so if those of an
// earlier attempt could not be read.
func (h *Handler) beat(ctx context.Context, unread bool, progress *atomic.Pointer[progressDetails], lost func(error)) *pulse {
	p := &pulse{ctx: ctx, handler: h, progress: progress, lost: lost, done: make(chan struct{})}
	p.unread.Store(unread)
	// Also when the activity's context has ended: the call takes a moment longer.
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx))
	go p.run(ctx)
	return p
}

func (p *pulse) end() {
	p.stop()
	<-p.done
}

func (p *pulse) run(ctx context.Context) {
	defer close(p.done)
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for {
		if err := p.record(ctx); unwanted(err) {
			p.lost(err)
			p.mu.Lock()
			p.recordBySDK(p.latest())
			p.mu.Unlock()
			return
		}
		ticker.Reset(heartbeatInterval) // after a slow one, whoever waits comes first
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// recordBySDK sends a heartbeat as any activity would: of a cancellation only the SDK may
// tell the server that it was heeded, and it must hear of it itself.
func (p *pulse) recordBySDK(details heartbeat) {
	var err error
	func() {
		defer recovered(&err, "%v") // the SDK panics over a codec that fails
		activity.RecordHeartbeat(p.ctx, details)
	}()
	if err != nil {
		warn(p.handler.logger(p.ctx), "The end of an attempt that nobody wants is reported as a failure", "error", err)
	}
}

// latest is what there is to tell. The caller holds p.mu.
func (p *pulse) latest() heartbeat {
	return heartbeat{Sent: p.sent, Unread: p.unread.Load(), Progress: p.progress.Load()}
}

func (p *pulse) record(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handler.record(ctx, p.latest())
}

// mark lets the server know, before it returns, that the request is about to be
// sent.
func (p *pulse) mark(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed {
		return errUnmarked
	}
	p.sent = true
	err := p.handler.record(ctx, p.latest())
	if err == nil {
		p.marked = true
		return nil
	}
	p.sent, p.doubtful = false, true
	if cause := context.Cause(ctx); cause != nil {
		if over, ok := errors.AsType[*timeoutError](cause); ok { // the attempt's own end, which counts
			return &timeoutError{what: "not sent", timeout: over.timeout, why: ", the Temporal server did not answer the attempt's heartbeat"}
		}
		return errors.Join(errUnmarked, cause)
	}
	if unwanted(err) {
		p.recordBySDK(p.latest())
		return errors.Join(errCancelled, err)
	}
	return errors.Join(errUnmarked, err)
}

// dismiss takes no heed any more of what an earlier attempt may have said: the request
// may be sent more than once.
func (p *pulse) dismiss() { p.unread.Store(false) }

// seal ends the heartbeats, lets no mark be made from now on, and reports whether one
// was. Only what was marked can have been sent.
func (p *pulse) seal() (marked bool) {
	p.stop() // one that is on its way holds the lock
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
	return p.marked
}

// unmark ends the heartbeats and takes a mark back, if there is one: the request was not
// sent after all.
func (p *pulse) unmark(ctx context.Context) error {
	p.stop() // one that is on its way holds the lock
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sent && !p.doubtful {
		return nil
	}
	p.sent = false
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTime/2) // the rest is for the report
	defer cancel()
	return p.handler.record(ctx, p.latest())
}

// record sends a heartbeat and returns the server's word on it.
func (h *Handler) record(ctx context.Context, details heartbeat) (err error) {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	defer recovered(&err, "panic: %v") // of a codec
	if h.mocked {
		// The environment gives the SDK's own heartbeats no more than one in half a
		// minute (v1.50.0), and takes an activity for dead earlier.
		payloads, err := converter.GetDefaultDataConverter().ToPayloads(details)
		if err != nil {
			return err
		}
		_, err = activity.GetClient(ctx).WorkflowService().RecordActivityTaskHeartbeat(ctx, &workflowservice.RecordActivityTaskHeartbeatRequest{
			TaskToken: activity.GetInfo(ctx).TaskToken, Details: payloads,
		})
		return err
	}
	// The SDK gives the request half of the time that its context has left (v1.50.0): a busy
	// server may take five seconds, and may be asked once more before it misses the attempt.
	// Of the time that ctx has left it may take all.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), heartbeatTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	info := activity.GetInfo(ctx)
	return activity.GetClient(ctx).RecordActivityHeartbeatWithOptions(within, client.RecordActivityHeartbeatOptions{
		TaskToken: info.TaskToken, Details: []any{details},
		// What a data converter is told that reads them.
		WorkflowID: info.WorkflowExecution.ID, WorkflowType: info.WorkflowType.Name, ActivityType: info.ActivityType.Name, TaskQueue: info.TaskQueue,
	})
}

// unwanted reports whether the error of a heartbeat says that nobody wants the
// attempt any more: it was cancelled, or paused, or the server has given it up.
// Any other says that the server could not be asked.
func unwanted(err error) bool {
	if temporal.IsCanceledError(err) || errors.Is(err, activity.ErrActivityPaused) || errors.Is(err, activity.ErrActivityReset) {
		return true
	}
	switch err.(type) {
	case *serviceerror.NotFound, *serviceerror.NamespaceNotFound:
		return true
	}
	return false
}
