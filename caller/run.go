package caller

import (
	"fmt"
	"sync/atomic"
	"time"

	"go.temporal.io/sdk/workflow"
)

// run is the execution to which a value belongs: the one that used it first.
// It is the only state here that another execution, on another goroutine, may
// touch.
type run struct {
	owner atomic.Pointer[execution]
}

// execution is a workflow run as one worker executes it from its beginning. A
// run that fell out of the worker's cache is executed again, and must not find
// what the first time left in a package variable.
type execution struct {
	// info is one value for as long as the execution lives, and only compared:
	// its fields belong to the execution's goroutine.
	info          *workflow.Info
	workflow, run string
	started       time.Time
}

// claim makes the execution of ctx the owner of what, or reports that another is.
func (r *run) claim(ctx workflow.Context, what string) error {
	info := workflow.GetInfo(ctx)
	owner := r.owner.Load()
	if owner == nil {
		mine := &execution{info: info, workflow: info.WorkflowExecution.ID, run: info.WorkflowExecution.RunID, started: info.WorkflowStartTime}
		if r.owner.CompareAndSwap(nil, mine) {
			return nil
		}
		owner = r.owner.Load()
	}
	if owner.info != info {
		return fmt.Errorf("the %s belongs to another execution, of run %s of workflow %q, which started at %s: make one in each workflow function, not in a package variable",
			what, owner.run, owner.workflow, owner.started.UTC().Format(time.RFC3339Nano))
	}
	return nil
}
