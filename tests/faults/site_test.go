//go:build unix

package faults

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/nexusmcp/nexusmcp/endpoints"
	"github.com/nexusmcp/nexusmcp/internal/effects"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// Services of a site: the same MCP server, reached in different ways.
const (
	overStdio       = "stdio"
	overStdioLegacy = "stdio with sessions"
	overHTTP        = "http"
	overHTTPLegacy  = "http with sessions"
)

// A site is one test's own: an endpoint, a task queue, MCP servers with a ledger
// in common, and the workers that the test starts. When the test ends its workers
// are stopped, and no process may be left behind.
type site struct {
	temporal *temporalServer
	endpoint string
	queue    string
	ledger   effects.Ledger
	options  siteOptions
	services []*service
}

// turns are the sites that may be there at the same time, but for long ones. Each
// has two to four workers and MCP servers, and a worker that gets no time of the
// machine for ten seconds is taken for dead.
var turns = make(chan struct{}, 3*runtime.NumCPU()/slowdown)

type siteOptions struct {
	// Long says that the test takes long and little of the machine, so that it
	// begins at once.
	Long bool
	// Temporal is the server. Nil means the shared one.
	Temporal *temporalServer
	// Services are those to publish. None means all four.
	Services []string
	// Processes runs MCP servers over HTTP in processes of their own, which can be
	// killed.
	Processes bool
	// Absent leaves the MCP servers away until they are brought.
	Absent bool
	// Mute and ConnectTimeout are the servers' and the handler's options of these
	// names.
	Mute           int
	ConnectTimeout time.Duration
	// Worker is the configuration of workers, of which the site knows the rest.
	Worker workers.Handlers
}

// A service is a published MCP server.
type service struct {
	effects.Options
	config workers.Server
	// process is the server over HTTP, if it is a process, and listener if it is not.
	process  *process
	listener *httptest.Server
}

func (s *service) http() bool { return s.config.URL != "" }

func newSite(t *testing.T, options siteOptions) *site {
	t.Helper()
	if options.Temporal == nil {
		options.Temporal = shared
	}
	if options.Services == nil {
		options.Services = []string{overStdio, overStdioLegacy, overHTTP, overHTTPLegacy}
	}
	if !options.Long {
		turns <- struct{}{}
		t.Cleanup(func() { <-turns })
	}
	dir := t.TempDir()
	name := fmt.Sprintf("mcp-%d", unique.Add(1))
	s := &site{temporal: options.Temporal, endpoint: name, queue: name, ledger: effects.Ledger(filepath.Join(dir, "ledger")), options: options}
	_, err := endpoints.Apply(t.Context(), s.temporal.platform.OperatorService(),
		endpoints.Spec{Name: s.endpoint, TargetNamespace: platformNamespace, TaskQueue: s.queue}, endpoints.Options{})
	require.NoError(t, err)
	for _, name := range options.Services {
		service := &service{
			Options: effects.Options{Ledger: s.ledger, Service: name, Legacy: name == overStdioLegacy || name == overHTTPLegacy, Mute: options.Mute},
			config:  workers.Server{Name: name, ConnectTimeout: options.ConnectTimeout},
		}
		switch {
		case name == overStdio || name == overStdioLegacy:
			service.config.Path = filepath.Join(dir, "server")
			service.config.Env = service.Environ()
		case options.Processes || options.Absent:
			service.Listen = reservePort(t)
			service.config.URL = "http://" + service.Listen
		default:
			mcpServer := effects.New(service.Options)
			service.listener = httptest.NewServer(mcpServer)
			t.Cleanup(service.listener.Close) // which waits for all runs
			t.Cleanup(mcpServer.Close)
			service.config.URL = service.listener.URL
		}
		s.services = append(s.services, service)
	}
	if !options.Absent {
		s.bring(t)
	}
	t.Cleanup(func() { s.end(t) })
	return s
}

// bring puts the MCP servers where the handler looks for them.
func (s *site) bring(t *testing.T) {
	t.Helper()
	for _, service := range s.services {
		switch {
		case service.Listen != "":
			service.start(t)
		case !service.http():
			if err := os.Symlink(serverProgram, service.config.Path); err != nil {
				require.ErrorIs(t, err, os.ErrExist) // the other service's is the same
			}
		}
	}
}

func (s *service) start(t *testing.T) {
	t.Helper()
	s.process = launch(t, serverProgram, "the server of "+s.Service, effects.Env, s.Options)
}

// startWorker starts a worker that publishes the site's servers.
func (s *site) startWorker(t *testing.T) *process {
	t.Helper()
	config := s.options.Worker
	config.HostPort, config.Namespace, config.Queue = s.temporal.hostPort, platformNamespace, s.queue
	for _, service := range s.services {
		config.Servers = append(config.Servers, service.config)
	}
	w := launch(t, workerProgram, "a worker of "+s.endpoint, workers.HandlersEnv, config)
	t.Cleanup(func() { w.stop(t) })
	return w
}

// end comes after the workers have ended, with which every process that they
// started must end.
func (s *site) end(t *testing.T) {
	t.Helper()
	within(t, patience, "the end of all processes of MCP servers", func() bool {
		return !slices.ContainsFunc(s.entries(t, "", effects.Started), func(e effects.Entry) bool {
			return slices.ContainsFunc(s.services, func(service *service) bool { return service.Service == e.Service && !service.http() }) && alive(e.Server)
		})
	})
}

// entries returns what the ledger has of an event, of one call if it is named.
func (s *site) entries(t *testing.T, call string, event effects.Event) []effects.Entry {
	t.Helper()
	entries, err := s.ledger.Entries(func(e effects.Entry) bool { return e.Event == event && (call == "" || e.Call == call) })
	require.NoError(t, err)
	return entries
}

// openRequests returns how many durable workflows of the site have not ended.
func (s *site) openRequests(t *testing.T) int64 {
	t.Helper()
	found, err := s.temporal.platform.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: s.openQuery()})
	require.NoError(t, err)
	return found.GetCount()
}

func (s *site) openQuery() string {
	return fmt.Sprintf("(WorkflowType = 'MCPRequest' OR WorkflowType = 'MCPRequests') AND TaskQueue = '%s' AND ExecutionStatus = 'Running'", s.queue)
}

// allBeat reports whether each of the site's durable workflows that have not ended
// has heard from the worker that makes its attempt.
func (s *site) allBeat(t *testing.T) bool {
	t.Helper()
	found, err := s.temporal.platform.ListWorkflow(t.Context(), &workflowservice.ListWorkflowExecutionsRequest{Query: s.openQuery(), PageSize: 1000})
	require.NoError(t, err)
	for _, execution := range found.GetExecutions() {
		description, err := s.temporal.platform.DescribeWorkflowExecution(t.Context(), execution.GetExecution().GetWorkflowId(), execution.GetExecution().GetRunId())
		require.NoError(t, err)
		running := description.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING
		beats := slices.ContainsFunc(description.GetPendingActivities(), func(a *workflowpb.PendingActivityInfo) bool { return a.GetLastHeartbeatTime() != nil })
		if running && !beats {
			return false
		}
	}
	return len(found.GetExecutions()) > 0
}

// A running is a call of a workflow of its own.
type running struct {
	site    *site
	service *service
	call    workers.Call
	run     client.WorkflowRun
}

// name names the call, in the ledger too.
func (r *running) name() string { return r.call.Arguments.Call }

// start starts a workflow that makes a call of a service.
func (s *site) start(t *testing.T, service *service, c workers.Call, options client.StartWorkflowOptions) *running {
	t.Helper()
	r := &running{site: s, service: service, call: s.complete(service.Service, c)}
	r.run = s.execute(t, workers.Calls, options, r.call)
	return r
}

// complete returns the call with what the site knows of it.
func (s *site) complete(service string, c workers.Call) workers.Call {
	c.Endpoint, c.Service = s.endpoint, service
	if c.Tool == "" {
		c.Tool = effects.Work
	}
	c.Arguments.Call = fmt.Sprintf("%s %d", c.Arguments.Call+service, unique.Add(1))
	return c
}

// execute starts a workflow of the type, which makes the calls.
func (s *site) execute(t *testing.T, workflowType string, options client.StartWorkflowOptions, calls ...workers.Call) client.WorkflowRun {
	t.Helper()
	options.ID = fmt.Sprintf("calls-%d", unique.Add(1))
	if options.TaskQueue == "" {
		options.TaskQueue = callersQueue
	}
	if options.WorkflowExecutionTimeout == 0 {
		options.WorkflowExecutionTimeout = 10 * time.Minute
	}
	run, err := s.temporal.app.ExecuteWorkflow(t.Context(), options, workflowType, calls)
	require.NoError(t, err)
	return run
}

// startEach starts a call of each of the site's services, in workflows of their own.
func (s *site) startEach(t *testing.T, c workers.Call) []*running {
	t.Helper()
	var all []*running
	for _, service := range s.services {
		all = append(all, s.start(t, service, c, client.StartWorkflowOptions{}))
	}
	return all
}

// each runs a subtest for every call.
func each(t *testing.T, calls []*running, test func(t *testing.T, r *running)) {
	for _, r := range calls {
		t.Run(r.name(), func(t *testing.T) { test(t, r) })
	}
}

// await waits until the call has had an event so many times.
func (r *running) await(t *testing.T, event effects.Event, times int) {
	t.Helper()
	within(t, patience, fmt.Sprintf("%s: %s %d times", r.name(), event, times), func() bool { return len(r.entries(t, event)) >= times })
}

func (r *running) entries(t *testing.T, event effects.Event) []effects.Entry {
	t.Helper()
	return r.site.entries(t, r.name(), event)
}

// state is that of the call's operation, as the caller's workflow has it;
// unspecified when it is not open.
func (r *running) state(t *testing.T) enumspb.PendingNexusOperationState {
	t.Helper()
	found, err := r.site.temporal.app.DescribeWorkflowExecution(t.Context(), r.run.GetID(), r.run.GetRunID())
	require.NoError(t, err)
	for _, operation := range found.GetPendingNexusOperations() {
		return operation.GetState()
	}
	return enumspb.PENDING_NEXUS_OPERATION_STATE_UNSPECIFIED
}

// awaitStarted waits until the handler has accepted the call, to answer it later.
func (r *running) awaitStarted(t *testing.T) {
	t.Helper()
	within(t, patience, r.name()+": the operation is started", func() bool {
		return r.state(t) == enumspb.PENDING_NEXUS_OPERATION_STATE_STARTED
	})
}

// events is the length of the caller's history, and done whether the last event
// is a workflow task that was completed, so that nothing is on its way.
func (r *running) events(t *testing.T) (events int, done bool) {
	t.Helper()
	last := enumspb.EVENT_TYPE_UNSPECIFIED
	iterator := r.site.temporal.app.GetWorkflowHistory(t.Context(), r.run.GetID(), r.run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for ; iterator.HasNext(); events++ {
		event, err := iterator.Next()
		require.NoError(t, err)
		last = event.GetEventType()
	}
	return events, last == enumspb.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
}

// outcome waits for what the workflow gets.
func (r *running) outcome(t *testing.T) workers.Outcome {
	t.Helper()
	outcomes := outcomesOf(t, r.run)
	require.Len(t, outcomes, 1)
	return outcomes[0]
}

func outcomesOf(t *testing.T, run client.WorkflowRun) []workers.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var outcomes []workers.Outcome
	require.NoError(t, run.Get(ctx, &outcomes))
	return outcomes
}

// requireSuccess waits for the call's end, which must be its result, after so many
// runs of the tool with one effect together.
func (r *running) requireSuccess(t *testing.T, runs int) {
	t.Helper()
	assert.Equal(t, workers.Outcome{Text: r.call.Arguments.Text()}, r.outcome(t))
	r.requireRuns(t, runs)
}

// requireFailure waits for the call's end, which must be an error of the contract,
// and returns it.
func (r *running) requireFailure(t *testing.T, kind mcpnexus.ErrorType, runs int) *mcpnexus.Error {
	t.Helper()
	o := r.outcome(t)
	require.NotNil(t, o.Failure, "%+v", o)
	assert.Equal(t, kind, o.Failure.Type, o.Error)
	r.requireRuns(t, runs)
	return o.Failure
}

// requireRuns checks how often the tool ran until now. All runs of a call have one
// idempotency key, and so one effect.
func (r *running) requireRuns(t *testing.T, runs int) {
	t.Helper()
	began := r.entries(t, effects.Began)
	assert.Len(t, began, runs, "runs")
	assert.Len(t, r.entries(t, effects.Effected), min(runs, 1), "effects")
	for _, run := range began {
		assert.NotEmpty(t, run.Key)
		assert.Equal(t, began[0].Key, run.Key)
	}
}
