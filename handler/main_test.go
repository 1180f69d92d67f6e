package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestMain(m *testing.M) {
	rude.MainIfAsked()
	if os.Getenv(patientMain) != "" {
		if err := newPatient(context.Background(), func() { fmt.Fprintln(os.Stderr, "the tool began") }, func() { fmt.Fprintln(os.Stderr, "the tool was cancelled") }).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	os.Exit(m.Run())
}

// patientMain makes the test binary a patient server over stdio.
const patientMain = "NEXUSMCP_TEST_PATIENT"

// newPatient returns a server whose tool waits until it is cancelled, or until
// life ends.
func newPatient(life context.Context, began, cancelled func()) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "patient", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "wait", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		began()
		select {
		case <-ctx.Done():
			cancelled()
		case <-life.Done():
		}
		return nil, ctx.Err()
	})
	return server
}

// published is a handler under test, called as a Nexus server calls it.
type published struct {
	nexus.Handler
	handler *handler.Handler
	log     *lines
}

func publish(t *testing.T, servers ...handler.Server) *published {
	t.Helper()
	return publishWith(t, handler.Options{Servers: servers})
}

func publishWith(t *testing.T, options handler.Options) *published {
	t.Helper()
	logged := &lines{}
	options.Logger = logged
	h, err := handler.New(options)
	require.NoError(t, err)
	out := serve(t, h)
	out.log = logged
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(t, out.handler.Close(ctx))
	})
	return out
}

func serve(t *testing.T, h *handler.Handler) *published {
	t.Helper()
	registry := plainRegistry{nexus.NewServiceRegistry()}
	h.Register(registry)
	nexusHandler, err := registry.NewHandler()
	require.NoError(t, err)
	return &published{Handler: nexusHandler, handler: h}
}

// plainRegistry is a host of Nexus services without workflows and activities.
type plainRegistry struct{ *nexus.ServiceRegistry }

func (r plainRegistry) RegisterNexusService(s *nexus.Service)                   { r.MustRegister(s) }
func (plainRegistry) RegisterWorkflowWithOptions(any, workflow.RegisterOptions) {}
func (plainRegistry) RegisterActivityWithOptions(any, activity.RegisterOptions) {}

var requests atomic.Int64

// do runs an operation. The result is JSON.
func (p *published) do(ctx context.Context, service, operation, input string) (string, error) {
	return p.doWith(ctx, service, operation, input, nexus.StartOperationOptions{RequestID: fmt.Sprintf("request-%d", requests.Add(1))})
}

func (p *published) doWith(ctx context.Context, service, operation, input string, options nexus.StartOperationOptions) (string, error) {
	if options.Header == nil {
		options.Header = nexus.Header{}
	}
	ctx = nexus.WithHandlerContext(ctx, nexus.HandlerInfo{Service: service, Operation: operation, Header: options.Header})
	result, err := p.StartOperation(ctx, service, operation, nexus.NewLazyValue(rawSerializer(input), &nexus.Reader{ReadCloser: noBody{}}), options)
	if err != nil {
		return "", err
	}
	raw := result.(*nexus.HandlerStartOperationResultSync[converter.RawValue]).Value
	return string(raw.Payload().GetData()), nil
}

// testEnvironment returns a TestWorkflowEnvironment that publishes a server. Its clock
// jumps over timers and backoff.
func testEnvironment(t *testing.T, server handler.Server, window time.Duration) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	h, err := handler.New(handler.Options{Servers: []handler.Server{server}, InlineWindow: window, Logger: &lines{}})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		assert.NoError(t, h.Close(ctx))
	})
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(&lines{})
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	// Megabytes take their time on a busy machine under the race detector.
	env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: 10 * time.Second})
	h.Register(env)
	return env
}

// workerContext returns a context in which an operation believes that a Temporal
// worker runs it, as it does in production. Only the SDK can make one; it is taken
// out of an operation that the SDK's test environment ran.
func workerContext(t testing.TB) (taken context.Context) {
	t.Helper()
	service := nexus.NewService("context")
	service.MustRegister(nexus.NewSyncOperation("take", func(ctx context.Context, _ nexus.NoValue, _ nexus.StartOperationOptions) (nexus.NoValue, error) {
		taken = context.WithoutCancel(ctx)
		return nil, nil
	}))
	suite := testsuite.WorkflowTestSuite{}
	suite.SetLogger(&lines{})
	environment := suite.NewTestWorkflowEnvironment()
	environment.RegisterNexusService(service)
	environment.ExecuteWorkflow(func(ctx workflow.Context) error {
		return workflow.NewNexusClient("mcp", "context").ExecuteOperation(ctx, "take", nil, workflow.NexusOperationOptions{}).Get(ctx, nil)
	})
	require.NoError(t, environment.GetWorkflowError())
	return taken
}

// rawSerializer hands the input out as Temporal's would.
type rawSerializer string

func (s rawSerializer) Deserialize(_ *nexus.Content, v any) error {
	if s == "" {
		return nil
	}
	*v.(*json.RawMessage) = json.RawMessage(s)
	return nil
}

func (rawSerializer) Serialize(any) (*nexus.Content, error) { return nil, errors.New("not used") }

type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }

// contractError returns the error that a caller's ErrorFrom would.
func contractError(t *testing.T, err error) *mcpnexus.Error {
	t.Helper()
	require.Error(t, err)
	var failed *nexus.OperationError
	require.ErrorAs(t, err, &failed, "an upstream failure is never a handler error")
	require.Equal(t, nexus.OperationStateFailed, failed.State)
	e, ok := mcpnexus.ErrorFrom(failed.Cause)
	require.True(t, ok, err)
	return e
}

// rudeHTTP and rudeStdio are the two ways to reach a rude server.
func rudeHTTP(t *testing.T, options rude.Options) (*rude.Server, handler.HTTP) {
	t.Helper()
	server := rude.New(options)
	listener := httptest.NewServer(server)
	t.Cleanup(listener.Close)
	return server, handler.HTTP{Endpoint: listener.URL}
}

// rudeBut is a rude server over HTTP in whose place another answers what is about
// a tool or has a method.
func rudeBut(t *testing.T, toolOrMethod string, answer http.HandlerFunc) (*rude.Server, handler.HTTP) {
	t.Helper()
	server := rude.New(rude.Options{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if toolOrMethod == r.Header.Get("Mcp-Name") || toolOrMethod == r.Header.Get("Mcp-Method") {
			answer(w, r)
			return
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	return server, handler.HTTP{Endpoint: listener.URL}
}

func rudeStdio(t *testing.T, options rude.Options) handler.Command {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return handler.Command{Path: self, Env: options.Environ()}
}

// eachTransport runs a test against a rude server over HTTP, over HTTP with
// event streams, and over stdio.
func eachTransport(t *testing.T, options rude.Options, test func(t *testing.T, transport handler.Transport)) {
	t.Helper()
	t.Run("over HTTP", func(t *testing.T) {
		_, transport := rudeHTTP(t, options)
		test(t, transport)
	})
	t.Run("over HTTP with event streams", func(t *testing.T) {
		options := options
		options.EventStream = true
		_, transport := rudeHTTP(t, options)
		test(t, transport)
	})
	t.Run("over stdio", func(t *testing.T) { test(t, rudeStdio(t, options)) })
}

// lines is a logger that remembers.
type lines struct {
	mu   sync.Mutex
	text []string
	more chan struct{}
}

func (l *lines) add(msg string, keyvals []any) {
	keyvals = slices.Clone(keyvals)
	for i, v := range keyvals {
		if err, ok := v.(error); ok {
			keyvals[i] = err.Error()
		}
	}
	out, _ := json.Marshal(keyvals)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, msg+" "+string(out))
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
}

func (l *lines) Debug(msg string, keyvals ...any) { l.add(msg, keyvals) }
func (l *lines) Info(msg string, keyvals ...any)  { l.add(msg, keyvals) }
func (l *lines) Warn(msg string, keyvals ...any)  { l.add(msg, keyvals) }
func (l *lines) Error(msg string, keyvals ...any) { l.add(msg, keyvals) }

var _ log.Logger = (*lines)(nil)

// count returns how many lines contain a text.
func (l *lines) count(text string) (n int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// wait returns the first line that satisfies want.
func (l *lines) wait(t *testing.T, want func(string) bool) string {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		for _, line := range l.text {
			if want(line) {
				l.mu.Unlock()
				return line
			}
		}
		if l.more == nil {
			l.more = make(chan struct{})
		}
		more := l.more
		l.mu.Unlock()
		select {
		case <-more:
		case <-deadline:
			t.Fatalf("never logged; logged were: %q", l.text)
		}
	}
}

// command is how the MCP SDK itself would start the server.
func command(c handler.Command) *exec.Cmd {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = os.Environ()
	for name, value := range c.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd
}
