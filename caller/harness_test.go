package caller_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

const (
	endpoint = "mcp"
	weather  = "weather"
)

// busy is how long a workflow task with a thousand calls, or with many megabytes,
// may take on a busy machine under the race detector.
const busy = 10 * time.Second

// answers are what the server of a test says, by operation.
var answers = map[string]string{
	mcpnexus.OperationListTools:             `{"cacheScope":"public","nextCursor":"","tools":[{"name":"get_weather","description":"of a city","inputSchema":{"type":"object"}}],"ttlMs":5}`,
	mcpnexus.OperationCallTool:              `{"content":[{"type":"text","text":"sunny"}],"structuredContent":{"celsius":21.5}}`,
	mcpnexus.OperationCallTools:             `{"results":[{"result":{"content":[{"type":"text","text":"sunny"}],"structuredContent":{"celsius":21.5}}}]}`,
	mcpnexus.OperationListPrompts:           `{"cacheScope":"public","prompts":[{"name":"greeting"}],"ttlMs":5}`,
	mcpnexus.OperationGetPrompt:             `{"messages":[{"role":"user","content":{"type":"text","text":"Hello"}}]}`,
	mcpnexus.OperationListResources:         `{"cacheScope":"private","resources":[{"name":"readme","uri":"file:///readme"}],"ttlMs":5}`,
	mcpnexus.OperationListResourceTemplates: `{"cacheScope":"public","resourceTemplates":[{"name":"file","uriTemplate":"file:///{path}"}],"ttlMs":5}`,
	mcpnexus.OperationReadResource:          `{"cacheScope":"public","contents":[{"uri":"file:///readme","text":"Hello"}],"ttlMs":5}`,
	mcpnexus.OperationComplete:              `{"completion":{"values":["Ada","Alan"]}}`,
	mcpnexus.OperationDiscover:              `{"serverInfo":{"name":"weather","version":"1"},"capabilities":{},"protocolVersion":"2026-07-28"}`,
}

// call is an operation that a workflow scheduled.
type call struct {
	service, operation, input string
	options                   workflow.NexusOperationOptions
}

// harness runs workflow code in a test environment in which MCP servers are
// published, and records the operations that it schedules.
type harness struct {
	*testsuite.TestWorkflowEnvironment
	t        *testing.T
	copyInfo bool // GetInfo returns a copy each time

	mu    sync.Mutex
	calls []call
	// open and maxOpen count operations between being scheduled and having ended.
	open, maxOpen int
}

// newHarness publishes the services the way that the handler does: operations
// from raw JSON to a raw payload. With nil, answers are those in answers.
func newHarness(t *testing.T, answer func(service, operation string, input json.RawMessage) (string, error), services ...string) *harness {
	h := newMockHarness(t)
	if answer == nil {
		answer = func(_, operation string, _ json.RawMessage) (string, error) { return answers[operation], nil }
	}
	if len(services) == 0 {
		services = []string{weather}
	}
	for _, name := range services {
		service := nexus.NewService(name)
		for operation := range answers {
			service.MustRegister(nexus.NewSyncOperation(operation,
				func(_ context.Context, input json.RawMessage, _ nexus.StartOperationOptions) (converter.RawValue, error) {
					result, err := answer(name, operation, input)
					return converter.NewRawValue(&commonpb.Payload{
						Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
						Data:     []byte(result),
					}), err
				}))
		}
		h.RegisterNexusService(service)
	}
	return h
}

// newMockHarness publishes nothing, for tests that use OnNexusOperation.
func newMockHarness(t *testing.T) *harness {
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(quiet{})
	h := &harness{TestWorkflowEnvironment: suite.NewTestWorkflowEnvironment(), t: t}
	h.SetTestTimeout(busy)
	h.SetWorkerOptions(worker.Options{
		Interceptors:             []interceptor.WorkerInterceptor{&recorder{harness: h}},
		DeadlockDetectionTimeout: busy,
	})
	h.SetOnNexusOperationCompletedListener(func(string, string, converter.EncodedValue, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.open--
	})
	return h
}

// run runs f as a workflow to its end and returns its error.
func (h *harness) run(f func(workflow.Context) error) error {
	h.t.Helper()
	h.RegisterWorkflowWithOptions(f, workflow.RegisterOptions{Name: "test"})
	h.ExecuteWorkflow("test")
	require.True(h.t, h.IsWorkflowCompleted())
	return h.GetWorkflowError()
}

// mustRun is run for a workflow that succeeds.
func (h *harness) mustRun(f func(workflow.Context) error) {
	h.t.Helper()
	require.NoError(h.t, h.run(f))
}

func (h *harness) inputs() (inputs []string) {
	for _, c := range h.calls {
		inputs = append(inputs, c.input)
	}
	return inputs
}

// GetInfo makes a copy for a harness that asks for it, as an interceptor that
// changes a field must.
func (o *outbound) GetInfo(ctx workflow.Context) *workflow.Info {
	info := o.Next.GetInfo(ctx)
	if o.harness.copyInfo {
		return new(*info)
	}
	return info
}

type recorder struct {
	interceptor.WorkerInterceptorBase
	harness *harness
}

func (r *recorder) InterceptWorkflow(ctx workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &inbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, r.harness}
}

type inbound struct {
	interceptor.WorkflowInboundInterceptorBase
	harness *harness
}

func (i *inbound) Init(out interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&outbound{interceptor.WorkflowOutboundInterceptorBase{Next: out}, i.harness})
}

type outbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	harness *harness
}

func (o *outbound) ExecuteNexusOperation(ctx workflow.Context, input interceptor.ExecuteNexusOperationInput) workflow.NexusOperationFuture {
	data, err := json.Marshal(input.Input)
	if err != nil {
		panic(err)
	}
	h := o.harness
	h.mu.Lock()
	h.calls = append(h.calls, call{input.Client.Service(), fmt.Sprint(input.Operation), string(data), input.Options})
	h.open++
	h.maxOpen = max(h.maxOpen, h.open)
	h.mu.Unlock()
	return o.Next.ExecuteNexusOperation(ctx, input)
}
