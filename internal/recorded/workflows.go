// Package recorded has the workflows whose histories are recorded and then
// replayed in the tests of package caller: between them they use every method
// of caller.Client. A replay that fails says that a change of caller alters the
// commands of workflows that run in production.
//
// A history is made by running one of [Workflows] on a server that has the Nexus
// endpoint [Endpoint], whose worker serves [NewService] under each of [Services].
package recorded

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Endpoint is the Nexus endpoint that the workflows use.
const Endpoint = "recorded"

// Services are the MCP servers that the workflows use.
var Services = []string{"first", "second"}

// Workflow is a workflow whose history is recorded. It takes no input, and
// fails if caller did not do what it should.
type Workflow struct {
	// Name is the workflow's type and the name of its history's file. For a
	// method of caller.Client it is the method's name.
	Name string
	// Run is the workflow function.
	Run func(workflow.Context) error
}

// Workflows returns every recorded workflow.
func Workflows() []Workflow {
	return []Workflow{
		method("ListPrompts", (*caller.Client).ListPrompts, (*caller.Client).ListPromptsAsync, nil),
		method("GetPrompt", (*caller.Client).GetPrompt, (*caller.Client).GetPromptAsync,
			&mcp.GetPromptParams{Name: "greeting", Arguments: map[string]string{"name": "Ada"}}),
		method("ListResources", (*caller.Client).ListResources, (*caller.Client).ListResourcesAsync, nil),
		method("ListResourceTemplates", (*caller.Client).ListResourceTemplates, (*caller.Client).ListResourceTemplatesAsync, nil),
		method("ReadResource", (*caller.Client).ReadResource, (*caller.Client).ReadResourceAsync,
			&mcp.ReadResourceParams{URI: "file:///readme"}),
		method("Complete", (*caller.Client).Complete, (*caller.Client).CompleteAsync, &mcp.CompleteParams{
			Ref:      &mcp.CompleteReference{Type: "ref/prompt", Name: "greeting"},
			Argument: mcp.CompleteParamsArgument{Name: "name", Value: "A"},
		}),
		method("Discover", (*caller.Client).Discover, (*caller.Client).DiscoverAsync, nil),
		{"ListTools", listTools},
		{"ForgetTools", forgetTools},
		{"CallTool", callTool},
		{"CallTools", callTools},
		{"With", with},
		{"Tools", tools},
		{"Prompts", prompts},
		{"Resources", resources},
		{"ResourceTemplates", resourceTemplates},
		{"FanOut", fanOut},
		{"LargeRequests", largeRequests},
		{"CancelWhileWaiting", cancelWhileWaiting},
		{"CancelWaitCompleted", cancelOpen(workflow.NexusOperationCancellationTypeWaitCompleted)},
		{"CancelTryCancel", cancelOpen(workflow.NexusOperationCancellationTypeTryCancel)},
		{"CancelAbandon", cancelOpen(workflow.NexusOperationCancellationTypeAbandon)},
		{"CancelBeforeScheduled", cancelBeforeScheduled},
		{"CancelAsScheduled", cancelAsScheduled},
		{"CancelJoinedListTools", cancelJoinedListTools},
	}
}

// method is the workflow that uses a method, and its twin twice at a time.
func method[Params, Result any](
	name string,
	call func(*caller.Client, workflow.Context, Params) (Result, error),
	async func(*caller.Client, workflow.Context, Params) *caller.Future[Result],
	params Params,
) Workflow {
	return Workflow{name, func(ctx workflow.Context) error {
		client := newClient(caller.Options{})
		if _, err := call(client, ctx, params); err != nil {
			return err
		}
		one, two := async(client, ctx, params), async(client, ctx, params)
		_, err1 := one.Get(ctx)
		_, err2 := two.Get(ctx)
		return errors.Join(err1, err2)
	}}
}

func newClient(options caller.Options) *caller.Client {
	return caller.NewClient(Endpoint, Services[0], options)
}

// listTools schedules four operations: one answered from the cache, one that
// joins another, one without a cache and one for another factory argument.
func listTools(ctx workflow.Context) error {
	client := newClient(caller.Options{})
	for range 2 {
		if _, err := client.ListTools(ctx, nil); err != nil {
			return err
		}
	}
	params := &mcp.ListToolsParams{Meta: mcp.Meta{"example.com/audience": "model"}}
	scope, _ := workflow.WithCancel(ctx)
	one, two := client.ListToolsAsync(ctx, params), client.ListToolsAsync(scope, params)
	_, err1 := one.Get(ctx)
	_, err2 := two.Get(ctx)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if _, err := newClient(caller.Options{DisableToolCache: true}).ListTools(ctx, nil); err != nil {
		return err
	}
	_, err := client.With(mcpnexus.RequestOptions{FactoryArgument: json.RawMessage(`"tenant"`)}).ListTools(ctx, nil)
	return err
}

func forgetTools(ctx workflow.Context) error {
	client := newClient(caller.Options{})
	for range 2 {
		if _, err := client.ListTools(ctx, nil); err != nil {
			return err
		}
		client.ForgetTools()
	}
	return nil
}

func callTool(ctx workflow.Context) error {
	client := newClient(caller.Options{})
	result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: ToolEcho, Arguments: map[string]any{"n": 1 << 60}})
	if err != nil {
		return err
	}
	echoed, _ := result.StructuredContent.(map[string]any)
	if echoed["n"] != json.Number("1152921504606846976") {
		return fmt.Errorf("a large integer came back as %T %v", echoed["n"], echoed["n"])
	}
	_, err = client.CallTool(ctx, &mcp.CallToolParams{Name: ToolFail})
	if e, ok := mcpnexus.ErrorFrom(err); !ok || e.Code != -32602 {
		return fmt.Errorf("want JSON-RPC error -32602, got %w", err)
	}
	_, err = client.CallToolAsync(ctx, &mcp.CallToolParams{Name: ToolEcho}).Get(ctx)
	return err
}

// callTools makes three batches at a time and then one.
func callTools(ctx workflow.Context) error {
	client := newClient(caller.Options{Limit: caller.NewLimit(2)})
	var calls []*mcp.CallToolParams
	for n := range 2*caller.BatchSize + 5 {
		calls = append(calls, &mcp.CallToolParams{Name: ToolEcho, Arguments: map[string]any{"n": n}})
	}
	calls[7].Name = ToolFail
	for n, outcome := range client.CallTools(ctx, calls) {
		if n == 7 {
			if e, ok := mcpnexus.ErrorFrom(outcome.Err); !ok || e.Code != -32602 {
				return fmt.Errorf("want JSON-RPC error -32602, got %w", outcome.Err)
			}
			continue
		}
		if outcome.Err != nil {
			return outcome.Err
		}
		if echoed, _ := outcome.Result.StructuredContent.(map[string]any); echoed["n"] != float64(n) {
			return fmt.Errorf("got the answer to another call: %v", outcome.Result.StructuredContent)
		}
	}
	with := client.With(mcpnexus.RequestOptions{StartToCloseTimeout: time.Minute})
	for _, future := range with.CallToolsAsync(ctx, calls[:2]) {
		if _, err := future.Get(ctx); err != nil {
			return err
		}
	}
	return nil
}

func with(ctx workflow.Context) error {
	client := newClient(caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: time.Minute}})
	durable := client.With(mcpnexus.RequestOptions{
		ScheduleToCloseTimeout: time.Hour,
		Execution:              mcpnexus.ExecutionDurable,
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 3},
	})
	if _, err := client.CallTool(ctx, &mcp.CallToolParams{Name: ToolEcho}); err != nil {
		return err
	}
	_, err := durable.CallTool(ctx, &mcp.CallToolParams{Name: ToolEcho})
	return err
}

func tools(ctx workflow.Context) error {
	for _, err := range newClient(caller.Options{}).Tools(ctx, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

func prompts(ctx workflow.Context) error {
	for _, err := range newClient(caller.Options{}).Prompts(ctx, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

func resources(ctx workflow.Context) error {
	for _, err := range newClient(caller.Options{}).Resources(ctx, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

func resourceTemplates(ctx workflow.Context) error {
	for _, err := range newClient(caller.Options{}).ResourceTemplates(ctx, nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

// fanOut makes more calls than the server lets be open, over two clients.
func fanOut(ctx workflow.Context) error {
	const calls = 35
	limit := caller.NewLimit(caller.DefaultLimit)
	var futures []*caller.Future[*mcp.CallToolResult]
	clients := make([]*caller.Client, len(Services))
	for i, service := range Services {
		clients[i] = caller.NewClient(Endpoint, service, caller.Options{Limit: limit})
	}
	for n := range calls {
		for _, client := range clients {
			futures = append(futures, client.CallToolAsync(ctx, &mcp.CallToolParams{Name: ToolEcho, Arguments: map[string]any{"n": n}}))
		}
	}
	for _, future := range futures {
		if _, err := future.Get(ctx); err != nil {
			return err
		}
	}
	return nil
}

// largeRequests sends more than one workflow task may schedule.
func largeRequests(ctx workflow.Context) error {
	client := newClient(caller.Options{})
	var futures []*caller.Future[*mcp.GetPromptResult]
	for _, kib := range []int{1500, 1500, 100, 1500, 10} {
		params := &mcp.GetPromptParams{Name: "greeting", Arguments: map[string]string{"name": strings.Repeat("A", kib<<10)}}
		futures = append(futures, client.GetPromptAsync(ctx, params))
	}
	for _, future := range futures {
		if _, err := future.Get(ctx); err != nil {
			return err
		}
	}
	return nil
}

// otherTask returns in another workflow task, so that what was scheduled before
// has been sent.
func otherTask(ctx workflow.Context) error {
	_, err := newClient(caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: ToolEcho})
	return err
}

// slowly are the params of the execution's slow call.
func slowly(ctx workflow.Context) *mcp.CallToolParams {
	info := workflow.GetInfo(ctx)
	// In test environments all runs have the same ID.
	return &mcp.CallToolParams{Name: ToolSlow, Arguments: map[string]any{"run": info.WorkflowExecution.RunID, "started": info.WorkflowStartTime.UnixNano()}}
}

// letAnswer lets the slow call answer.
func letAnswer(ctx workflow.Context) error {
	params := slowly(ctx)
	params.Name = ToolRelease
	_, err := newClient(caller.Options{}).CallTool(ctx, params)
	return err
}

// cancelWhileWaiting cancels one of two calls that wait behind a third.
func cancelWhileWaiting(ctx workflow.Context) error {
	client := newClient(caller.Options{Limit: caller.NewLimit(1)})
	scope, cancel := workflow.WithCancel(ctx)
	slow := client.CallToolAsync(ctx, slowly(ctx))
	canceled := client.CallToolAsync(scope, &mcp.CallToolParams{Name: ToolEcho})
	after := client.CallToolAsync(ctx, &mcp.CallToolParams{Name: ToolEcho})
	if err := otherTask(ctx); err != nil {
		return err
	}
	cancel()
	if _, err := canceled.Get(ctx); !temporal.IsCanceledError(err) {
		return fmt.Errorf("want a CanceledError, got %w", err)
	}
	err := letAnswer(ctx)
	_, err1 := slow.Get(ctx)
	_, err2 := after.Get(ctx)
	return errors.Join(err, err1, err2)
}

// cancelOpen cancels a call that is open, and then makes one that needs its
// place under the limit.
func cancelOpen(cancellation workflow.NexusOperationCancellationType) func(workflow.Context) error {
	return func(ctx workflow.Context) error {
		client := newClient(caller.Options{
			Limit:     caller.NewLimit(1),
			Operation: caller.OperationOptions{CancellationType: cancellation},
		})
		scope, cancel := workflow.WithCancel(ctx)
		slow := client.CallToolAsync(scope, slowly(ctx))
		if err := otherTask(ctx); err != nil {
			return err
		}
		cancel()
		waits := cancellation == workflow.NexusOperationCancellationTypeWaitCompleted
		if !waits {
			if _, err := slow.Get(ctx); !temporal.IsCanceledError(err) {
				return fmt.Errorf("want a CanceledError, got %w", err)
			}
		}
		if err := letAnswer(ctx); err != nil {
			return err
		}
		_, err := slow.Get(ctx)
		// Who waits for the end may find that the answer was faster.
		if err == nil && !waits || err != nil && !temporal.IsCanceledError(err) {
			return fmt.Errorf("want a CanceledError, got %w", err)
		}
		_, err = client.CallTool(ctx, &mcp.CallToolParams{Name: ToolEcho})
		return err
	}
}

// cancelBeforeScheduled cancels a call in the same breath.
func cancelBeforeScheduled(ctx workflow.Context) error {
	client := newClient(caller.Options{Limit: caller.NewLimit(1)})
	scope, cancel := workflow.WithCancel(ctx)
	slow := client.CallToolAsync(scope, slowly(ctx))
	cancel()
	if _, err := slow.Get(ctx); !temporal.IsCanceledError(err) {
		return fmt.Errorf("want a CanceledError, got %w", err)
	}
	_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: ToolEcho})
	return err
}

// cancelAsScheduled cancels a call whose command is in the same workflow task,
// but not yet on its way, and then makes one whose events must not be taken for
// the first one's.
func cancelAsScheduled(ctx workflow.Context) error {
	client := newClient(caller.Options{Operation: caller.OperationOptions{
		CancellationType: workflow.NexusOperationCancellationTypeTryCancel,
	}})
	scope, cancel := workflow.WithCancel(ctx)
	slow := client.CallToolAsync(scope, slowly(ctx))
	workflow.Go(ctx, func(workflow.Context) { cancel() })
	if _, err := slow.Get(ctx); !temporal.IsCanceledError(err) {
		return fmt.Errorf("want a CanceledError, got %w", err)
	}
	result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: ToolEcho, Arguments: map[string]any{"n": 2}})
	if err != nil {
		return err
	}
	if echoed, _ := result.StructuredContent.(map[string]any); echoed["n"] != 2.0 {
		return fmt.Errorf("got the answer to another call: %v", result.StructuredContent)
	}
	return letAnswer(ctx)
}

// cancelJoinedListTools cancels a call that another has joined, while it waits
// for its turn. The other asks again.
func cancelJoinedListTools(ctx workflow.Context) error {
	client := newClient(caller.Options{Limit: caller.NewLimit(1)})
	scope, cancel := workflow.WithCancel(ctx)
	slow := client.CallToolAsync(ctx, slowly(ctx))
	canceled := client.ListToolsAsync(scope, nil)
	joined := client.ListToolsAsync(ctx, nil)
	if err := otherTask(ctx); err != nil {
		return err
	}
	cancel()
	if _, err := canceled.Get(ctx); !temporal.IsCanceledError(err) {
		return fmt.Errorf("want a CanceledError, got %w", err)
	}
	err := letAnswer(ctx)
	_, err1 := slow.Get(ctx)
	_, err2 := joined.Get(ctx)
	return errors.Join(err, err1, err2)
}
