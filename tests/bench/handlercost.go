package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/handler"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// overheadBlock is how many calls a round of [costs] makes in the handler, about
// as many as fit between two garbage collections. Short rounds are good pairs.
const overheadBlock = 100

// handlerOverhead returns the CPU in µs that a call spends in the handler beyond
// the MCP session's own. The operations are called as a Temporal worker calls
// them.
func handlerOverhead(ctx context.Context, tool *toolServer, rounds int, out io.Writer) (*float64, error) {
	published, err := handler.New(handler.Options{
		Servers: []handler.Server{{Name: libraryService, Transport: handler.HTTP{Endpoint: tool.url}}}, Logger: quiet,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = published.Close(context.WithoutCancel(ctx)) }()
	registry := nexusRegistry{nexus.NewServiceRegistry()}
	published.Register(registry)
	registry.RegisterNexusService(handWrittenOperations(tool.session))
	operations, err := registry.NewHandler()
	if err != nil {
		return nil, err
	}
	worker, err := workerContext()
	if err != nil {
		return nil, err
	}
	params := textParams(kilobyte)
	input, err := json.Marshal(params) // which the caller does
	if err != nil {
		return nil, err
	}
	session := func(n int) error {
		for range n {
			ctx, cancel := context.WithTimeout(ctx, handlerTime)
			result, err := tool.session.CallTool(ctx, params)
			cancel()
			if err := checkText(result, err, kilobyte); err != nil {
				return err
			}
		}
		return nil
	}
	operation := func(service string) func(int) error {
		return func(n int) error {
			for range n {
				if err := callOperation(worker, operations, service, input, kilobyte); err != nil {
					return err
				}
			}
			return nil
		}
	}
	loops := []loop{
		{"MCP session", session},
		{"MCP session, again", session},
		{"hand-written operation", operation(handWrittenService)},
		{"library", operation(libraryService)},
	}
	measured, err := costs(rounds, overheadBlock, loops...)
	if err != nil {
		return nil, err
	}
	writeCosts(out, fmt.Sprintf("A call of 1 KB in the handler, without Temporal: the MCP session's cost and what is added to it (%d rounds of %d calls)", rounds, overheadBlock), loops, measured)
	return new(measured[len(measured)-1].minus(measured[0]).cpu.median()), nil
}

// A nexusRegistry takes the Nexus services of what would be registered with a
// worker.
type nexusRegistry struct{ *nexus.ServiceRegistry }

func (r nexusRegistry) RegisterNexusService(service *nexus.Service)             { r.MustRegister(service) }
func (nexusRegistry) RegisterWorkflowWithOptions(any, workflow.RegisterOptions) {}
func (nexusRegistry) RegisterActivityWithOptions(any, activity.RegisterOptions) {}

// workerContext returns a context in which operations believe that a Temporal
// worker runs them, so that the handler does all that it does there. Only the
// SDK can make one; it is taken out of an operation that the SDK's test
// environment ran.
func workerContext() (context.Context, error) {
	var taken context.Context
	service := nexus.NewService("context")
	service.MustRegister(nexus.NewSyncOperation("take", func(ctx context.Context, _ nexus.NoValue, _ nexus.StartOperationOptions) (nexus.NoValue, error) {
		taken = context.WithoutCancel(ctx)
		return nil, nil
	}))
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(quiet)
	environment := suite.NewTestWorkflowEnvironment()
	environment.RegisterNexusService(service)
	environment.ExecuteWorkflow(func(ctx workflow.Context) error {
		return workflow.NewNexusClient(endpointName, "context").ExecuteOperation(ctx, "take", nil, workflow.NexusOperationOptions{}).Get(ctx, nil)
	})
	return taken, environment.GetWorkflowError()
}

// handlerTime is what a Temporal server gives a handler.
const handlerTime = 9 * time.Second

// requests numbers the operations: one that is repeated could be answered from
// memory.
var requests atomic.Int64

// callOperation calls a tool through a Nexus operation.
func callOperation(ctx context.Context, operations nexus.Handler, service string, input json.RawMessage, bytes int) error {
	ctx, cancel := context.WithTimeout(ctx, handlerTime)
	defer cancel()
	options := nexus.StartOperationOptions{RequestID: strconv.FormatInt(requests.Add(1), 10), Header: nexus.Header{}}
	ctx = nexus.WithHandlerContext(ctx, nexus.HandlerInfo{Service: service, Operation: mcpnexus.OperationCallTool, Header: options.Header})
	started, err := operations.StartOperation(ctx, service, mcpnexus.OperationCallTool, nexus.NewLazyValue(jsonInput(input), &nexus.Reader{ReadCloser: nothing{}}), options)
	if err != nil {
		return err
	}
	var output []byte
	switch started := started.(type) {
	case *nexus.HandlerStartOperationResultSync[converter.RawValue]:
		output = started.Value.Payload().GetData()
	case *nexus.HandlerStartOperationResultSync[*mcp.CallToolResult]:
		// Temporal's converter would do this next.
		if output, err = json.Marshal(started.Value); err != nil {
			return err
		}
	default:
		return fmt.Errorf("the operation was answered with a %T", started)
	}
	if len(output) < bytes || output[0] != '{' {
		return errors.New("the output is not the tool's result")
	}
	return nil
}

// jsonInput hands an operation's input out, as Temporal's converter would.
type jsonInput json.RawMessage

// Deserialize implements [nexus.Serializer].
func (in jsonInput) Deserialize(_ *nexus.Content, v any) error { return json.Unmarshal(in, v) }

// Serialize implements [nexus.Serializer].
func (jsonInput) Serialize(any) (*nexus.Content, error) { return nil, errors.New("not used") }

// nothing is the body of a request whose input is elsewhere.
type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, io.EOF }
func (nothing) Close() error             { return nil }
