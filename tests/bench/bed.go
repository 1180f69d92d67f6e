package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/endpoints"
	"github.com/nexusmcp/nexusmcp/examples/devserver"
	"github.com/nexusmcp/nexusmcp/handler"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

const (
	// The publisher's side.
	platformNamespace = "platform"
	publisherQueue    = "publisher"
	// The workflows' side.
	appNamespace = "app"
	appQueue     = "app"

	// The published services.
	handWrittenService = "hand-written"
	libraryService     = "library"
	// The same legacy stdio server twice.
	exclusiveService = "process-per-call"
	sharedService    = "process-shared"

	activityName = "call-tool"
	workflowName = "bench"
)

// A bed is the Temporal server with both sides' workers.
type bed struct {
	tool     *toolServer
	platform client.Client
	app      client.Client
	closers  []func()
	number   atomic.Int64 // of the next endpoint or workflow
}

func newBed(ctx context.Context, tool *toolServer) (_ *bed, err error) {
	b := &bed{tool: tool}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	server, err := devserver.Start(ctx, devserver.Options{Namespaces: []string{platformNamespace, appNamespace}})
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, func() { _ = server.Stop() })
	if b.platform, err = b.dial(ctx, server, platformNamespace); err != nil {
		return nil, err
	}
	if b.app, err = b.dial(ctx, server, appNamespace); err != nil {
		return nil, err
	}

	plugin, err := handler.NewPlugin(handler.Options{Servers: b.servers()})
	if err != nil {
		return nil, err
	}
	// One worker for both, so that the library and what is written by hand have the
	// same pollers.
	publisher := worker.New(b.platform, publisherQueue, worker.Options{Plugins: []worker.Plugin{plugin}})
	publisher.RegisterNexusService(handWrittenOperations(tool.session))
	if err := b.start(publisher); err != nil {
		return nil, err
	}
	// Workflow code here waits for calls that are none of Temporal's, and sleeps.
	app := worker.New(b.app, appQueue, worker.Options{DeadlockDetectionTimeout: 30 * time.Second})
	app.RegisterWorkflowWithOptions(runBody, workflow.RegisterOptions{Name: workflowName})
	app.RegisterActivityWithOptions(func(ctx context.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
		return tool.session.CallTool(ctx, params)
	}, activity.RegisterOptions{Name: activityName})
	if err := b.start(app); err != nil {
		return nil, err
	}
	return b, nil
}

// handWrittenOperations are what somebody would write in a day.
func handWrittenOperations(session *mcp.ClientSession) *nexus.Service {
	service := nexus.NewService(handWrittenService)
	service.MustRegister(nexus.NewSyncOperation(mcpnexus.OperationCallTool, func(ctx context.Context, params *mcp.CallToolParams, _ nexus.StartOperationOptions) (*mcp.CallToolResult, error) {
		return session.CallTool(ctx, params)
	}))
	return service
}

// servers are what the library publishes.
func (b *bed) servers() []handler.Server {
	legacy := handler.Server{Transport: handler.Command{Path: b.tool.program}, ProtocolVersion: legacyVersion}
	exclusive, shared := legacy, legacy
	exclusive.Name = exclusiveService
	shared.Name, shared.Stateless = sharedService, true
	return []handler.Server{{Name: libraryService, Transport: handler.HTTP{Endpoint: b.tool.url}}, exclusive, shared}
}

func (b *bed) dial(ctx context.Context, server *devserver.Server, namespace string) (client.Client, error) {
	options := server.ClientOptions(namespace)
	options.Logger = quiet
	c, err := client.DialContext(ctx, options)
	if err == nil {
		b.closers = append(b.closers, c.Close)
	}
	return c, err
}

// quiet is a logger: what fails is in the tables.
var quiet log.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

func (b *bed) start(w worker.Worker) error {
	if err := w.Start(); err != nil {
		return err
	}
	b.closers = append(b.closers, w.Stop)
	return nil
}

func (b *bed) close() {
	for i := len(b.closers) - 1; i >= 0; i-- {
		b.closers[i]()
	}
}

// newEndpoint makes an endpoint to the publisher. The server's limit on
// operations is one for each endpoint.
func (b *bed) newEndpoint(ctx context.Context) (string, error) {
	name := fmt.Sprintf("bench-%d", b.number.Add(1))
	_, err := endpoints.Apply(ctx, b.platform.OperatorService(), endpoints.Spec{Name: name, TargetNamespace: platformNamespace, TaskQueue: publisherQueue}, endpoints.Options{})
	return name, err
}

// bodies are the workflow functions of workflows that run, by workflow ID.
var bodies sync.Map

func runBody(ctx workflow.Context) error {
	id := workflow.GetInfo(ctx).WorkflowExecution.ID
	body, ok := bodies.Load(id)
	if !ok {
		return fmt.Errorf("workflow %s has no body any more", id)
	}
	return body.(func(workflow.Context) error)(ctx)
}

// run runs body as a workflow in the callers' namespace. What body captured may
// be read afterwards.
func (b *bed) run(ctx context.Context, body func(workflow.Context) error) (client.WorkflowRun, error) {
	id := fmt.Sprintf("bench-%d", b.number.Add(1))
	var mu sync.Mutex // what the workflow wrote is seen here
	bodies.Store(id, func(ctx workflow.Context) error {
		err := body(ctx)
		mu.Lock()
		defer mu.Unlock()
		return err
	})
	defer bodies.Delete(id)
	run, err := b.app.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: id, TaskQueue: appQueue, WorkflowExecutionTimeout: 5 * time.Minute}, workflowName)
	if err != nil {
		return nil, err
	}
	err = run.Get(ctx, nil)
	mu.Lock()
	defer mu.Unlock()
	return run, err
}

func (b *bed) history(ctx context.Context, run client.WorkflowRun) ([]*historypb.HistoryEvent, error) {
	var events []*historypb.HistoryEvent
	iterator := b.app.GetWorkflowHistory(ctx, run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	return events, nil
}
