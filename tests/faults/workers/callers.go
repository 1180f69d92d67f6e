package workers

import (
	"context"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A Call is one tool call of a workflow.
type Call struct {
	Endpoint string `json:"endpoint"`
	Service  string `json:"service"`
	// Tool is the name of one of the tools of the suite's MCP server.
	Tool         string                                  `json:"tool,omitempty"`
	Arguments    effects.Arguments                       `json:"arguments"`
	Options      mcpnexus.RequestOptions                 `json:"options"`
	Cancellation workflow.NexusOperationCancellationType `json:"cancellation,omitempty"`
	// Stay is how long the workflow goes on after the call. What it has asked for
	// and does not wait for is lost when it ends.
	Stay time.Duration `json:"stay,omitempty"`
}

// An Outcome is what workflow code gets from a call.
type Outcome struct {
	// Text is the text of the result.
	Text string `json:"text,omitempty"`
	// Error is the error in words, empty if there is none.
	Error string `json:"error,omitempty"`
	// Failure is the error in the contract's terms, nil if it is none of those.
	Failure *mcpnexus.Error `json:"failure,omitempty"`
	// Canceled is true when the error is a CanceledError.
	Canceled bool `json:"canceled,omitempty"`
}

// Workflow types. Each takes a slice of [Call] and returns one of [Outcome].
const (
	// Calls makes the calls one after the other, whatever comes of them.
	Calls = "calls"
	// Batch makes the calls in one operation. The first says where, and with which
	// options.
	Batch = "batch"
)

func makeCalls(ctx workflow.Context, calls []Call) ([]Outcome, error) {
	outcomes := make([]Outcome, len(calls))
	limit := caller.NewLimit(caller.DefaultLimit)
	for i, c := range calls {
		client := caller.NewClient(c.Endpoint, c.Service, caller.Options{
			Request: c.Options, Limit: limit, Operation: caller.OperationOptions{CancellationType: c.Cancellation},
		})
		result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: c.Tool, Arguments: c.Arguments})
		if c.Stay > 0 {
			stay, _ := workflow.NewDisconnectedContext(ctx)
			if err := workflow.Sleep(stay, c.Stay); err != nil {
				return nil, err
			}
		}
		outcomes[i] = outcomeOf(result, err)
	}
	return outcomes, nil
}

func outcomeOf(result *mcp.CallToolResult, err error) (o Outcome) {
	if err != nil {
		o.Error = err.Error()
		o.Failure, _ = mcpnexus.ErrorFrom(err)
		_, o.Canceled = errors.AsType[*temporal.CanceledError](err)
		return o
	}
	for _, content := range result.Content {
		if text, ok := content.(*mcp.TextContent); ok {
			o.Text += text.Text
		}
	}
	return o
}

func makeBatch(ctx workflow.Context, calls []Call) ([]Outcome, error) {
	client := caller.NewClient(calls[0].Endpoint, calls[0].Service, caller.Options{Request: calls[0].Options})
	var params []*mcp.CallToolParams
	for _, c := range calls {
		params = append(params, &mcp.CallToolParams{Name: c.Tool, Arguments: c.Arguments})
	}
	var outcomes []Outcome
	for _, o := range client.CallTools(ctx, params) {
		outcomes = append(outcomes, outcomeOf(o.Result, o.Err))
	}
	return outcomes, nil
}

// NewCallers returns a worker for the callers' workflows.
func NewCallers(c client.Client, queue string) worker.Worker {
	// A workflow task may take its time on a busy machine under the race detector.
	w := worker.New(c, queue, worker.Options{DeadlockDetectionTimeout: 5 * time.Minute})
	w.RegisterWorkflowWithOptions(makeCalls, workflow.RegisterOptions{Name: Calls})
	w.RegisterWorkflowWithOptions(makeBatch, workflow.RegisterOptions{Name: Batch})
	return w
}

// A Callers is the configuration of a worker for the callers' workflows.
type Callers struct {
	HostPort  string `json:"hostPort"`
	Namespace string `json:"namespace"`
	Queue     string `json:"queue"`
}

func (c Callers) run(terminated context.Context) error {
	connection, err := dial(client.Options{HostPort: c.HostPort, Namespace: c.Namespace})
	if err != nil {
		return err
	}
	defer connection.Close()
	return serve(terminated, NewCallers(connection, c.Queue))
}
