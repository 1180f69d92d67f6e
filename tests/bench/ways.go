package main

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A way is a way for a workflow to call a tool.
type way struct {
	name string
	// nexus says that it needs an endpoint.
	nexus bool
	// every is how many rounds there are for each in which the way takes part. Zero
	// means one.
	every int
	// open is called once in each workflow run.
	open func(endpoint string) calls
}

// calls are what a way does in one workflow run.
type calls struct {
	// one makes a call and waits for its result.
	one func(workflow.Context, *mcp.CallToolParams) (*mcp.CallToolResult, error)
	// many makes calls at the same time and waits for all results.
	many func(workflow.Context, []*mcp.CallToolParams) ([]*mcp.CallToolResult, error)
}

// Names of the ways.
const (
	rawSession       = "MCP session"
	handWritten      = "hand-written"
	handWrittenAgain = "hand-written, again"
	libraryInline    = "library, inline"
	libraryAuto      = "library, auto"
	libraryDurable   = "library, durable"
	libraryBatch     = "library, batched"
	activityWay      = "activity"
)

// raw calls the MCP session from where the workflow's code runs. Code of a real
// workflow must not; here it is what lets the session take its turn among the
// others.
func (b *bed) raw() way {
	call := func(params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
		return b.tool.session.CallTool(context.Background(), params)
	}
	return way{name: rawSession, open: func(string) calls {
		return calls{
			one: func(_ workflow.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) { return call(params) },
			many: together(func(_ workflow.Context, params *mcp.CallToolParams) getter {
				type outcome struct {
					result *mcp.CallToolResult
					err    error
				}
				done := make(chan outcome, 1)
				go func() {
					result, err := call(params)
					done <- outcome{result, err}
				}()
				return func(workflow.Context) (*mcp.CallToolResult, error) {
					o := <-done
					return o.result, o.err
				}
			}),
		}
	}}
}

// handWritten calls the operation that was written by hand. So that a workflow
// task with more than the server's limit of open operations does not fail, many
// calls have to wait their turn, which somebody would write by hand too.
func (b *bed) handWritten(name string) way {
	return way{name: name, nexus: true, open: func(endpoint string) calls {
		client := workflow.NewNexusClient(endpoint, handWrittenService)
		one := func(ctx workflow.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
			var result *mcp.CallToolResult
			err := client.ExecuteOperation(ctx, mcpnexus.OperationCallTool, params, workflow.NexusOperationOptions{}).Get(ctx, &result)
			return result, err
		}
		return calls{one: one, many: func(ctx workflow.Context, all []*mcp.CallToolParams) ([]*mcp.CallToolResult, error) {
			turns := workflow.NewSemaphore(ctx, caller.DefaultLimit)
			return together(func(ctx workflow.Context, params *mcp.CallToolParams) getter {
				future, settable := workflow.NewFuture(ctx)
				workflow.Go(ctx, func(ctx workflow.Context) {
					if err := turns.Acquire(ctx, 1); err != nil {
						settable.SetError(err)
						return
					}
					defer turns.Release(1)
					settable.Set(one(ctx, params))
				})
				return func(ctx workflow.Context) (*mcp.CallToolResult, error) {
					var result *mcp.CallToolResult
					err := future.Get(ctx, &result)
					return result, err
				}
			})(ctx, all)
		}}
	}}
}

// library calls a service of this library's.
func (b *bed) library(name, service string, execution mcpnexus.Execution) way {
	return way{name: name, nexus: true, open: func(endpoint string) calls {
		client := caller.NewClient(endpoint, service, caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}})
		return calls{one: client.CallTool, many: together(func(ctx workflow.Context, params *mcp.CallToolParams) getter {
			return client.CallToolAsync(ctx, params).Get
		})}
	}}
}

// durable is the library with execution durable. It takes so much longer than the
// others that it takes part in few rounds.
func (b *bed) durable() way {
	w := b.library(libraryDurable, libraryService, mcpnexus.ExecutionDurable)
	w.every = 8
	return w
}

// batched is the library with many calls in one operation.
func (b *bed) batched() way {
	return way{name: libraryBatch, nexus: true, open: func(endpoint string) calls {
		client := caller.NewClient(endpoint, libraryService, caller.Options{})
		return calls{one: client.CallTool, many: func(ctx workflow.Context, all []*mcp.CallToolParams) ([]*mcp.CallToolResult, error) {
			results := make([]*mcp.CallToolResult, len(all))
			for i, outcome := range client.CallTools(ctx, all) {
				if outcome.Err != nil {
					return nil, outcome.Err
				}
				results[i] = outcome.Result
			}
			return results, nil
		}}
	}}
}

// activity runs the call as an activity of the workflow's own worker.
func (b *bed) activity() way {
	execute := func(ctx workflow.Context, params *mcp.CallToolParams) workflow.Future {
		return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
			StartToCloseTimeout:   time.Minute,
			DisableEagerExecution: true,
		}), activityName, params)
	}
	get := func(ctx workflow.Context, future workflow.Future) (*mcp.CallToolResult, error) {
		var result *mcp.CallToolResult
		err := future.Get(ctx, &result)
		return result, err
	}
	return way{name: activityWay, open: func(string) calls {
		return calls{
			one: func(ctx workflow.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
				return get(ctx, execute(ctx, params))
			},
			many: together(func(ctx workflow.Context, params *mcp.CallToolParams) getter {
				future := execute(ctx, params)
				return func(ctx workflow.Context) (*mcp.CallToolResult, error) { return get(ctx, future) }
			}),
		}
	}}
}

// A getter waits for the result of a call that was begun.
type getter func(workflow.Context) (*mcp.CallToolResult, error)

// together begins all calls and then waits for each.
func together(begin func(workflow.Context, *mcp.CallToolParams) getter) func(workflow.Context, []*mcp.CallToolParams) ([]*mcp.CallToolResult, error) {
	return func(ctx workflow.Context, all []*mcp.CallToolParams) ([]*mcp.CallToolResult, error) {
		getters := make([]getter, len(all))
		for i, params := range all {
			getters[i] = begin(ctx, params)
		}
		results := make([]*mcp.CallToolResult, len(all))
		for i, get := range getters {
			result, err := get(ctx)
			if err != nil {
				return nil, err
			}
			results[i] = result
		}
		return results, nil
	}
}
