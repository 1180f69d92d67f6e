package handler

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporalnexus"
)

// A callerRun is the run of the workflow that made a request.
type callerRun struct {
	Namespace  string `json:"namespace"`
	WorkflowID string `json:"workflowId"`
	RunID      string `json:"runId"`
}

// callerOf finds the caller in the links of a start request. Nil when it is not
// a workflow.
func callerOf(links []nexus.Link) *callerRun {
	for _, link := range links {
		if event, err := temporalnexus.ConvertNexusLinkToLinkWorkflowEvent(link); err == nil && event.GetRunId() != "" {
			return &callerRun{Namespace: event.GetNamespace(), WorkflowID: event.GetWorkflowId(), RunID: event.GetRunId()}
		}
	}
	return nil
}

// callerWatches notice that a workflow has ended while the MCP server works for
// it. Nexus tells the handler's side of a cancellation that the workflow asked for
// and waits for, and of nothing else: not that the workflow was terminated, has
// timed out, or has failed meanwhile. So the handler asks for the last event of
// the caller's history, in one long poll for all requests of a run.
//
// It does what it can: it needs leave to read the caller's namespace, and the
// namespace to be on the same server. Otherwise a request whose caller has gone
// runs until its own timeouts.
type callerWatches struct {
	mu    sync.Mutex
	byRun map[callerRun]*callerWatch
}

type callerWatch struct {
	cancel context.CancelFunc
	gone   map[*watcher]struct{}
}

// A watcher is a request.
type watcher struct {
	workflow activity.Info
	gone     func()
}

// maxWatches is the most runs that are watched at a time. A Temporal server
// allows a namespace some 1200 long polls.
const maxWatches = 200

// watch is [callerWatches.watch], where there is something to watch.
func (h *Handler) watch(ctx context.Context, caller *callerRun, gone func()) (stop func()) {
	if caller == nil || h.mocked {
		return func() {}
	}
	return h.watches.watch(ctx, *caller, gone)
}

// watch has gone called when nobody waits for the request of ctx's activity any
// more, and the activity's workflow cancelled, until stop is called.
func (w *callerWatches) watch(ctx context.Context, caller callerRun, gone func()) (stop func()) {
	me := &watcher{workflow: activity.GetInfo(ctx), gone: gone}
	w.mu.Lock()
	defer w.mu.Unlock()
	watch := w.byRun[caller]
	if watch == nil {
		if len(w.byRun) >= maxWatches {
			return func() {}
		}
		watching, cancel := context.WithCancel(context.WithoutCancel(ctx))
		watch = &callerWatch{cancel: cancel, gone: make(map[*watcher]struct{})}
		if w.byRun == nil {
			w.byRun = make(map[callerRun]*callerWatch)
		}
		w.byRun[caller] = watch
		go w.follow(watching, caller, watch)
	}
	watch.gone[me] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(watch.gone, me); len(watch.gone) == 0 {
			watch.cancel()
			if w.byRun[caller] == watch {
				delete(w.byRun, caller)
			}
		}
	}
}

// follow waits for the end of a run.
func (w *callerWatches) follow(ctx context.Context, run callerRun, watch *callerWatch) {
	defer func() {
		// The next request of the run tries again.
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.byRun[run] == watch {
			delete(w.byRun, run)
		}
	}()
	c := activity.GetClient(ctx)
	patience := time.NewTicker(time.Second)
	defer patience.Stop()
	for {
		end, err := lastEvent(ctx, c, run)
		switch {
		case err == nil && end == enumspb.EVENT_TYPE_UNSPECIFIED:
			continue // not yet
		case err == nil && (end == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED || end == enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW):
			return // the request was left to itself on purpose
		case err == nil:
			err = w.tell(ctx, c, run, watch)
		}
		if err == nil || isHidden(err) {
			return
		}
		select {
		case <-patience.C:
		case <-ctx.Done():
			return
		}
	}
}

// isHidden reports whether an error says that a caller is not ours to see, or not
// there to be seen.
func isHidden(err error) bool {
	switch err.(type) {
	case *serviceerror.NotFound, *serviceerror.NamespaceNotFound, *serviceerror.PermissionDenied, *serviceerror.InvalidArgument, *serviceerror.Unimplemented:
		return true
	}
	return false
}

// lastEvent returns the type of the event that closed the run, or nothing when
// there is none after a while.
func lastEvent(ctx context.Context, c client.Client, run callerRun) (enumspb.EventType, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // three times what the server takes
	defer cancel()
	answer, err := c.WorkflowService().GetWorkflowExecutionHistory(ctx, &workflowservice.GetWorkflowExecutionHistoryRequest{
		Namespace: run.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: run.WorkflowID, RunId: run.RunID},
		WaitNewEvent: true, HistoryEventFilterType: enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT, SkipArchival: true,
	})
	if err != nil {
		return enumspb.EVENT_TYPE_UNSPECIFIED, err
	}
	for _, event := range answer.GetHistory().GetEvents() {
		return event.GetEventType(), nil
	}
	return enumspb.EVENT_TYPE_UNSPECIFIED, nil
}

// tell ends the requests of a run that has ended, but for those that another run
// of the workflow waits for: a workflow that was reset takes its open operations
// along.
func (w *callerWatches) tell(ctx context.Context, c client.Client, run callerRun, watch *callerWatch) error {
	kept, err := openWorkflows(ctx, c, run)
	if err != nil {
		return err
	}
	w.mu.Lock()
	var told []*watcher
	for me := range watch.gone {
		if !kept[me.workflow.WorkflowExecution.ID] {
			told = append(told, me)
		}
	}
	// A request that comes now has a watch of its own, which tells it.
	if w.byRun[run] == watch {
		delete(w.byRun, run)
	}
	w.mu.Unlock()
	var failures []error
	for _, me := range told {
		// First the workflow, which then knows why the activity ends.
		err := c.CancelWorkflow(ctx, me.workflow.WorkflowExecution.ID, me.workflow.WorkflowExecution.RunID)
		if _, ended := err.(*serviceerror.NotFound); err == nil || ended {
			me.gone()
			continue
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

var errUndecided = errors.New("it is not known yet what the caller waits for")

// openWorkflows returns the IDs of the durable workflows for which the current
// run of a workflow waits. It fails with errUndecided while that may change by
// itself.
func openWorkflows(ctx context.Context, c client.Client, run callerRun) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	answer, err := c.WorkflowService().DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
		Namespace: run.Namespace, Execution: &commonpb.WorkflowExecution{WorkflowId: run.WorkflowID},
	})
	if err != nil {
		return nil, err
	}
	open := make(map[string]bool)
	if answer.GetWorkflowExecutionInfo().GetExecution().GetRunId() == run.RunID {
		return open, nil // it has ended
	}
	for _, operation := range answer.GetPendingNexusOperations() {
		if operation.GetOperationToken() == "" {
			// It is being started, and may be joining any of the requests.
			return nil, errUndecided
		}
		// Temporal's token of an operation that is a workflow.
		var token struct {
			WorkflowID string `json:"wid"`
		}
		if raw, err := base64.RawURLEncoding.DecodeString(operation.GetOperationToken()); err == nil && json.Unmarshal(raw, &token) == nil {
			open[token.WorkflowID] = true
		}
	}
	return open, nil
}
