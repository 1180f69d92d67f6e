// Package integration tests the whole path over a real Temporal server: a
// workflow in one namespace calls MCP servers that a worker in another
// publishes, under the server's default limits.
package integration

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/endpoints"
	"github.com/nexusmcp/nexusmcp/examples/devserver"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Namespaces of the two sides.
const (
	platformNamespace = "platform"
	appNamespace      = "app"
)

// One server for the whole package; each test has its own endpoint and task
// queues.
var (
	temporalServer *devserver.Server
	platformClient client.Client
	appClient      client.Client
)

func TestMain(m *testing.M) {
	rude.MainIfAsked()
	almanacMainIfAsked()
	flag.Parse()
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	var err error
	temporalServer, err = devserver.Start(ctx, devserver.Options{Namespaces: []string{platformNamespace, appNamespace}})
	if err != nil {
		return fail(err)
	}
	defer temporalServer.Stop()
	if platformClient, err = dial(ctx, platformNamespace); err != nil {
		return fail(err)
	}
	defer platformClient.Close()
	if appClient, err = dial(ctx, appNamespace); err != nil {
		return fail(err)
	}
	defer appClient.Close()
	return m.Run()
}

func dial(ctx context.Context, namespace string, adapt ...func(*client.Options)) (client.Client, error) {
	options := temporalServer.ClientOptions(namespace)
	options.Logger = newLogger()
	for _, f := range adapt {
		f(&options)
	}
	return client.DialContext(ctx, options)
}

// dialFor returns a test's own client.
func dialFor(t *testing.T, namespace string, adapt ...func(*client.Options)) client.Client {
	t.Helper()
	c, err := dial(t.Context(), namespace, adapt...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// withInterceptor has all of a client's requests go through the interceptor.
func withInterceptor(interceptor grpc.UnaryClientInterceptor) func(*client.Options) {
	return func(o *client.Options) {
		o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithChainUnaryInterceptor(interceptor))
	}
}

// asRecorder gives a client an identity that is the same wherever a history is recorded.
func asRecorder(o *client.Options) { o.Identity = "recorder" }

// withCodec has a client's payloads encoded.
func withCodec(codec converter.PayloadCodec) func(*client.Options) {
	return func(o *client.Options) {
		o.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
	}
}

func newLogger() log.Logger {
	level := slog.LevelError + 4 // failing operations are what the tests are about
	if testing.Verbose() {
		level = slog.LevelWarn
	}
	return log.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
}

// busy is how long a workflow task with many megabytes may take on a busy machine
// under the race detector.
const busy = 10 * time.Second

var unique atomic.Int64

// path is one test's way from a workflow to its published servers.
type path struct {
	endpoint  string
	app       client.Client // of the workflows
	queue     string        // of the publisher
	appQueue  string
	publisher worker.Worker
}

// publish starts a worker that publishes the servers, an endpoint to it, and a
// worker for the test's workflows.
func publish(t *testing.T, servers ...handler.Server) *path {
	t.Helper()
	return publishWith(t, handler.Options{Servers: servers})
}

func publishWith(t *testing.T, options handler.Options) *path {
	t.Helper()
	plugin, err := handler.NewPlugin(options)
	require.NoError(t, err)
	return publishOn(t, worker.Options{Plugins: []worker.Plugin{plugin}}, func(worker.Worker) {})
}

// publishOn publishes what register registers on the worker.
func publishOn(t *testing.T, options worker.Options, register func(worker.Worker)) *path {
	t.Helper()
	return publishFor(t, platformClient, options, register)
}

func publishFor(t *testing.T, platform client.Client, options worker.Options, register func(worker.Worker)) *path {
	t.Helper()
	return publishBetween(t, platform, appClient, options, register)
}

func publishBetween(t *testing.T, platform, app client.Client, options worker.Options, register func(worker.Worker)) *path {
	t.Helper()
	n := unique.Add(1)
	p := &path{app: app, endpoint: fmt.Sprintf("mcp-%d", n), queue: fmt.Sprintf("mcp-%d", n), appQueue: fmt.Sprintf("app-%d", n)}

	p.publisher = worker.New(platform, p.queue, options)
	register(p.publisher)
	require.NoError(t, p.publisher.Start())
	t.Cleanup(p.publisher.Stop)

	_, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), endpoints.Spec{Name: p.endpoint, TargetNamespace: platformNamespace, TaskQueue: p.queue}, endpoints.Options{})
	require.NoError(t, err)

	callers := worker.New(app, p.appQueue, worker.Options{DeadlockDetectionTimeout: busy})
	callers.RegisterWorkflowWithOptions(runBody, workflow.RegisterOptions{Name: "test"})
	require.NoError(t, callers.Start())
	t.Cleanup(callers.Stop)
	return p
}

// client returns a caller's client, for use in a workflow body.
func (p *path) client(service string, options caller.Options) *caller.Client {
	return caller.NewClient(p.endpoint, service, options)
}

// bodies are the workflow functions of running tests, by workflow ID.
var bodies sync.Map

func runBody(ctx workflow.Context) error {
	body, ok := bodies.Load(workflow.GetInfo(ctx).WorkflowExecution.ID)
	if !ok {
		return fmt.Errorf("the test has ended")
	}
	return body.(func(workflow.Context) error)(ctx)
}

// callUntilSignal calls a tool until the signal "cancel" comes, and returns the call's
// error.
func (p *path) callUntilSignal(ctx workflow.Context, request mcpnexus.RequestOptions, tool string) error {
	within, cancel := workflow.WithCancel(ctx)
	future := p.client("rude", caller.Options{Request: request}).CallToolAsync(within, &mcp.CallToolParams{Name: tool})
	workflow.GetSignalChannel(ctx, "cancel").Receive(ctx, nil)
	cancel()
	_, err := future.Get(ctx)
	return err
}

// start runs body as a workflow in the callers' namespace.
func (p *path) start(t *testing.T, body func(ctx workflow.Context) error) client.WorkflowRun {
	t.Helper()
	return p.startWithin(t, 5*time.Minute, body)
}

// startWithin runs body as a workflow that times out.
func (p *path) startWithin(t *testing.T, timeout time.Duration, body func(ctx workflow.Context) error) client.WorkflowRun {
	t.Helper()
	id := fmt.Sprintf("test-%d", unique.Add(1))
	bodies.Store(id, body)
	t.Cleanup(func() { bodies.Delete(id) })
	run, err := p.app.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: p.appQueue, WorkflowExecutionTimeout: timeout}, "test")
	require.NoError(t, err)
	t.Cleanup(func() { explain(t, p.app, run.GetID()) })
	return run
}

// explain logs what became of a workflow, and of the handler's workflows for its
// operations, if the test has failed.
func explain(t *testing.T, c client.Client, id string) {
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var log strings.Builder
	fmt.Fprintf(&log, "%s\n", id)
	var durable []string
	iterator := c.GetWorkflowHistory(ctx, id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		if err != nil {
			fmt.Fprintf(&log, "\t%v\n", err)
			break
		}
		fmt.Fprintf(&log, "\t%s %s\n", event.GetEventTime().AsTime().Format("15:04:05.000"), event.GetEventType())
		for _, link := range event.GetLinks() {
			if started := link.GetWorkflowEvent(); started != nil && event.GetEventType() == enumspb.EVENT_TYPE_NEXUS_OPERATION_STARTED {
				durable = append(durable, started.GetWorkflowId())
			}
		}
	}
	if described, err := c.DescribeWorkflowExecution(ctx, id, ""); err == nil {
		for _, a := range described.GetPendingActivities() {
			fmt.Fprintf(&log, "\tpending: %s %s, attempt %d, last heartbeat %v, %s\n", a.GetActivityType().GetName(), a.GetState(), a.GetAttempt(), a.GetLastHeartbeatTime().AsTime(), a.GetLastFailure().GetMessage())
		}
		for _, o := range described.GetPendingNexusOperations() {
			fmt.Fprintf(&log, "\tpending: %s %s, attempt %d, cancellation %s, %s %s\n", o.GetOperation(), o.GetState(), o.GetAttempt(), o.GetCancellationInfo().GetState(), o.GetBlockedReason(), o.GetLastAttemptFailure().GetMessage())
		}
	}
	t.Log(log.String())
	for _, id := range durable {
		explain(t, platformClient, id)
	}
}

// run runs body as a workflow and waits for its end. What body captures may be
// read afterwards.
func (p *path) run(t *testing.T, body func(ctx workflow.Context) error) client.WorkflowRun {
	t.Helper()
	var mu sync.Mutex // what the workflow wrote is seen here
	run := p.start(t, func(ctx workflow.Context) error {
		err := body(ctx)
		mu.Lock()
		defer mu.Unlock()
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	err := run.Get(ctx, nil)
	mu.Lock()
	defer mu.Unlock()
	require.NoError(t, err)
	return run
}

// history returns the events of a workflow.
func history(t *testing.T, run client.WorkflowRun) []*historypb.HistoryEvent {
	t.Helper()
	var events []*historypb.HistoryEvent
	iterator := appClient.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for iterator.HasNext() {
		event, err := iterator.Next()
		require.NoError(t, err)
		events = append(events, event)
	}
	return events
}

// replay runs the workflow again from its history.
func replay(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true}) // see busy
	require.NoError(t, err)
	replayer.RegisterWorkflowWithOptions(runBody, workflow.RegisterOptions{Name: "test"})
	require.NoError(t, replayer.ReplayWorkflowHistoryWithOptions(newLogger(), &historypb.History{Events: history(t, run)}, worker.ReplayWorkflowHistoryOptions{
		OriginalExecution: workflow.Execution{ID: run.GetID(), RunID: run.GetRunID()},
	}))
}

// complaints collects what assertions have to say inside a workflow, where a
// testing.T may not be failed: the workflow returns them as its error.
type complaints struct{ found []error }

// Errorf implements assert.TestingT.
func (c *complaints) Errorf(format string, args ...any) {
	c.found = append(c.found, fmt.Errorf(format, args...))
}

func (c *complaints) err() error { return errors.Join(c.found...) }

// within asks again and again, for a minute at most, until the answer is yes.
// Asking takes its time: nothing waits in between.
func within(t *testing.T, yes func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !yes() {
		require.NoError(t, ctx.Err())
	}
}
