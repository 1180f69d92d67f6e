//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
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

// A call is one tool call of a workflow.
type call struct {
	Endpoint string `json:"endpoint"`
	Service  string `json:"service"`
	// Tool is the tool. Empty means effects.Work.
	Tool         string                                  `json:"tool,omitempty"`
	Arguments    effects.Arguments                       `json:"arguments"`
	Options      mcpnexus.RequestOptions                 `json:"options"`
	Cancellation workflow.NexusOperationCancellationType `json:"cancellation,omitempty"`
	// Stay is how long the workflow goes on after the call. What it has asked for
	// and does not wait for is lost when it ends.
	Stay time.Duration `json:"stay,omitempty"`
}

// An outcome is what workflow code gets from a call.
type outcome struct {
	// Text is the text of the result.
	Text string `json:"text,omitempty"`
	// Error is the error in words, empty if there is none.
	Error string `json:"error,omitempty"`
	// Failure is the error in the contract's terms, nil if it is none of those.
	Failure *mcpnexus.Error `json:"failure,omitempty"`
	// Canceled is true when the error is a CanceledError.
	Canceled bool `json:"canceled,omitempty"`
}

// callsWorkflow makes calls one after the other, whatever comes of them.
const callsWorkflow = "calls"

func makeCalls(ctx workflow.Context, calls []call) ([]outcome, error) {
	outcomes := make([]outcome, len(calls))
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

func outcomeOf(result *mcp.CallToolResult, err error) (o outcome) {
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

// batchWorkflow makes calls in one operation. The first says where, and with which
// options.
const batchWorkflow = "batch"

func makeBatch(ctx workflow.Context, calls []call) ([]outcome, error) {
	client := caller.NewClient(calls[0].Endpoint, calls[0].Service, caller.Options{Request: calls[0].Options})
	var params []*mcp.CallToolParams
	for _, c := range calls {
		params = append(params, &mcp.CallToolParams{Name: c.Tool, Arguments: c.Arguments})
	}
	var outcomes []outcome
	for _, o := range client.CallTools(ctx, params) {
		outcomes = append(outcomes, outcomeOf(o.Result, o.Err))
	}
	return outcomes, nil
}

// newCallers returns a worker for the callers' workflows.
func newCallers(c client.Client, queue string) worker.Worker {
	// A workflow task may take its time on a busy machine under the race detector.
	w := worker.New(c, queue, worker.Options{DeadlockDetectionTimeout: patience})
	w.RegisterWorkflowWithOptions(makeCalls, workflow.RegisterOptions{Name: callsWorkflow})
	w.RegisterWorkflowWithOptions(makeBatch, workflow.RegisterOptions{Name: batchWorkflow})
	return w
}

// callerEnv makes the test binary a worker for callers' workflows.
const callerEnv = "FAULTS_CALLER"

type callerConfig struct {
	HostPort string `json:"hostPort"`
	Queue    string `json:"queue"`
}

func callerMainIfAsked() {
	processMain(callerEnv, func(config callerConfig, terminated <-chan struct{}) error {
		c, err := dial(context.Background(), config.HostPort, appNamespace)
		if err != nil {
			return err
		}
		defer c.Close()
		w := newCallers(c, config.Queue)
		if err := w.Start(); err != nil {
			return err
		}
		fmt.Println("ready")
		<-terminated
		w.Stop()
		return nil
	})
}
