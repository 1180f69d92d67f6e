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
	// info is one value for as long as the execution lives, unless an interceptor
	// makes copies. It is only compared: its fields belong to the execution's
	// goroutine.
	info                     *workflow.Info
	namespace, workflow, run string
	started                  time.Time
	// length is that of the history when the execution was seen last.
	length atomic.Int64
}

// claim makes the execution of ctx the owner of what, or reports that another is.
func (r *run) claim(ctx workflow.Context, what string) error {
	info := workflow.GetInfo(ctx)
	owner := r.owner.Load()
	copies := info != workflow.GetInfo(ctx)
	if owner != nil && owner.info == info && !copies {
		return nil // almost always
	}
	mine := &execution{
		info: info, namespace: info.Namespace, workflow: info.WorkflowExecution.ID, run: info.WorkflowExecution.RunID,
		started: info.WorkflowStartTime,
	}
	mine.length.Store(int64(info.GetCurrentHistoryLength()))
	if owner == nil {
		if r.owner.CompareAndSwap(nil, mine) {
			return nil
		}
		owner = r.owner.Load()
	}
	if !copies || !owner.precedes(mine) {
		return fmt.Errorf("the %s belongs to another execution, of run %s of workflow %q, which started at %s: make one in each workflow function, not in a package variable",
			what, owner.run, owner.workflow, owner.started.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// precedes reports whether later, of which only a copy of the info is known, can
// be the same execution: of the same run, and no shorter. One that begins anew is
// shorter, except before it came further than its first workflow task.
func (e *execution) precedes(later *execution) bool {
	if e.namespace != later.namespace || e.workflow != later.workflow || e.run != later.run || !e.started.Equal(later.started) {
		return false
	}
	seen := e.length.Load()
	return seen <= later.length.Load() && e.length.CompareAndSwap(seen, later.length.Load())
}
