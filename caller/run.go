package caller

import (
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/workflow"
)

// run is the workflow run to which a value belongs: the one that used it first.
// It is the only state here that another run, on another goroutine, may touch.
type run struct {
	owner atomic.Pointer[runID]
}

// runID is a run as one worker process sees it. The start time tells the runs
// of a test suite apart, which all have the same IDs.
type runID struct {
	namespace, workflow, run string
	started                  int64
}

// claim makes the run of ctx the owner of what, or reports that another run is.
func (r *run) claim(ctx workflow.Context, what string) error {
	info := workflow.GetInfo(ctx)
	id := runID{
		namespace: info.Namespace,
		workflow:  info.WorkflowExecution.ID,
		run:       info.WorkflowExecution.RunID,
		started:   info.WorkflowStartTime.UnixNano(),
	}
	owner := r.owner.Load()
	if owner == nil {
		if r.owner.CompareAndSwap(nil, &id) {
			return nil
		}
		owner = r.owner.Load()
	}
	if *owner != id {
		return fmt.Errorf("the %s belongs to run %s of workflow %q, which started at %s: make one in each workflow function, not in a package variable",
			what, owner.run, owner.workflow, time.Unix(0, owner.started).UTC().Format(time.RFC3339Nano))
	}
	return nil
}
