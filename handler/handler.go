package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporalnexus"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"
)

// Version is the version of this library, which the MCP servers see as the
// client's.
const Version = "0.1.0"

var (
	clientInfo     = &mcp.Implementation{Name: "nexusmcp", Title: "nexusmcp", Version: Version}
	clientInfoJSON = encode(clientInfo)
)

// DefaultMaxResultBytes is a little less than the 2 MiB that a Temporal server
// takes in one payload by default: the rest is for what goes around the result.
const DefaultMaxResultBytes = 2<<20 - 64<<10

// DefaultDrainTimeout is how long stopping waits for running requests by default.
const DefaultDrainTimeout = 10 * time.Second

// DefaultInlineWindow is how long a call runs inline by default.
const DefaultInlineWindow = 2 * time.Second

// maxErrorData is the most bytes of a JSON-RPC error's data that are passed on. A
// failure is kept in the caller's history, and once more in that of whoever
// passes it on; there one of more than 2 MiB never arrives.
const maxErrorData = 256 << 10

// Options configure a [Plugin] or a [Handler].
type Options struct {
	// Servers are the MCP servers to publish, at least one.
	Servers []Server
	// MaxResultBytes is the most bytes of JSON that a result may have. A larger
	// one fails once, with MCPResultTooLarge. Zero means
	// [DefaultMaxResultBytes]; more is of use only if the Temporal server's
	// limit.blobSize.error was raised. If the client has a codec that makes payloads
	// larger, it has to be as much less.
	MaxResultBytes int
	// DrainTimeout is how long stopping waits for requests that are running
	// before it cancels them. Zero means [DefaultDrainTimeout].
	DrainTimeout time.Duration
	// InlineWindow is how long a call may take inside the Nexus request that
	// started it before it is handed off to a durable workflow, if the request's
	// execution is auto. Zero means [DefaultInlineWindow]. When it is not known yet
	// what the tool declares, as before a server's first call, finding out may take
	// as long before that. Both end when the Nexus request has no more time left than
	// handing off takes: about six seconds after it began, by the Temporal server's
	// default. What a call takes of a Nexus request is not available to others: the
	// Temporal server keeps about a hundred open for each endpoint and calling
	// namespace. It cannot be cancelled within that time either.
	InlineWindow time.Duration
	// Logger gets what MCP servers write to stderr, and what is odd about them.
	// Nil means the worker's logger, whose lines about a connection then name the
	// operation that opened it.
	Logger log.Logger
}

// A Handler holds the published servers and their connections. Most users want
// a [Plugin], which registers and closes one with its worker; a Handler by
// itself is for test environments and for workers made by other code. It is
// safe for concurrent use.
type Handler struct {
	services map[string]*service
	order    []string
	options  Options

	running *calls
	queues  processQueues
	watches callerWatches
	// mocked is true in a TestWorkflowEnvironment. Behind its client is a mock of a
	// Temporal server, which ends the process when it is asked what the SDK itself
	// does not ask; there are no workers, and it runs the activities of every task
	// queue.
	mocked bool

	mu      sync.Mutex
	stopped bool
	calls   sync.WaitGroup
	// draining is closed, once, when the drain timeout begins.
	draining  chan struct{}
	drainOnce sync.Once
	// stop cancels the requests that are running.
	life context.Context
	stop context.CancelCauseFunc
}

// New checks the options and returns a handler that has not connected to any
// server yet. The error lists every mistake, each with the server's name and
// the field. New calls each factory once, all at the same time, and takes at
// most 5 seconds.
func New(options Options) (*Handler, error) {
	var mistakes []error
	mistake := func(format string, args ...any) { mistakes = append(mistakes, fmt.Errorf(format, args...)) }
	if len(options.Servers) == 0 {
		mistake("Options.Servers is empty, want at least one server")
	}
	if options.MaxResultBytes < 0 {
		mistake("Options.MaxResultBytes is %d, want a positive number", options.MaxResultBytes)
	}
	if options.DrainTimeout < 0 {
		mistake("Options.DrainTimeout is %v, want a positive duration", options.DrainTimeout)
	}
	if options.MaxResultBytes == 0 {
		options.MaxResultBytes = DefaultMaxResultBytes
	}
	if options.InlineWindow < 0 {
		mistake("Options.InlineWindow is %v, want a positive duration", options.InlineWindow)
	}
	if options.InlineWindow == 0 {
		options.InlineWindow = DefaultInlineWindow
	}
	if options.DrainTimeout == 0 {
		options.DrainTimeout = DefaultDrainTimeout
	}
	h := &Handler{services: make(map[string]*service), options: options, draining: make(chan struct{})}
	h.running = newCalls(&h.calls)
	h.life, h.stop = context.WithCancelCause(context.Background())
	found := make([][]fieldError, len(options.Servers))
	var wg sync.WaitGroup
	for i := range options.Servers {
		wg.Go(func() { found[i] = options.Servers[i].validate() }) // a factory may take its time
	}
	wg.Wait()
	names := make(map[string]bool)
	for i, server := range options.Servers {
		name := strconv.Quote(server.Name)
		if server.Name == "" {
			name = "number " + strconv.Itoa(i+1)
		}
		for _, f := range found[i] {
			mistake("server %s: %s %s", name, f.field, f.reason)
		}
		if server.Name != "" && names[server.Name] {
			mistake("server %s: Name is used twice", name)
		}
		names[server.Name] = true
		if len(mistakes) == 0 {
			h.services[server.Name] = &service{handler: h, name: server.Name, pool: newPool(server, messageLimit(options.MaxResultBytes)), takesArgument: server.Transport.takesArgument()}
			h.order = append(h.order, server.Name)
		}
	}
	if len(mistakes) > 0 {
		return nil, fmt.Errorf("nexusmcp handler: %w", errors.Join(mistakes...))
	}
	return h, nil
}

// messageLimit is the most bytes of one message from an MCP server that are
// read. A message is larger than the result in it, and a page of a list than
// what is left of it; what is far larger is not worth the memory.
func messageLimit(maxResultBytes int) int64 { return max(16<<20, 2*int64(maxResultBytes)) }

// Register registers every server's Nexus service with a worker or with a
// TestWorkflowEnvironment, and the workflow and activities that make its
// operations durable. A worker must have them all; one with two handlers is fine
// if no server's name is in both.
func (h *Handler) Register(registry interface {
	RegisterNexusService(*nexus.Service)
	RegisterWorkflowWithOptions(any, workflow.RegisterOptions)
	RegisterActivityWithOptions(any, activity.RegisterOptions)
}) {
	registry.RegisterWorkflowWithOptions(requestWorkflow, workflow.RegisterOptions{
		Name: WorkflowType,
		// Another handler on the worker registers the same function.
		DisableAlreadyRegisteredCheck: true,
		VersioningBehavior:            workflow.VersioningBehaviorAutoUpgrade,
	})
	registry.RegisterWorkflowWithOptions(batchWorkflow, workflow.RegisterOptions{
		Name:                          BatchWorkflowType,
		DisableAlreadyRegisteredCheck: true,
		VersioningBehavior:            workflow.VersioningBehaviorAutoUpgrade,
	})
	_, h.mocked = registry.(*testsuite.TestWorkflowEnvironment)
	for _, name := range h.order {
		service := h.services[name]
		registry.RegisterNexusService(service.nexusService())
		registry.RegisterActivityWithOptions(service.attemptActivity, activity.RegisterOptions{Name: attemptType(name)})
		if h.mocked {
			service.registerRunning(registry)
		}
	}
}

// Close stops the handler: it answers new requests with a retryable handler
// error, so that Temporal asks another worker, gives the running ones
// [Options.DrainTimeout], then cancels them, gives the durable ones back, so that
// another worker makes the attempt, and ends every connection and process. If a
// workflow has taken a call over and not asked for it yet, that takes up to twelve
// seconds more. The worker of the process's own task queue then has five seconds to end,
// and the connections and processes have ten. It returns when all is gone, or with an
// error that says what is left when ctx is done or something does not end. A closed
// handler stays closed.
func (h *Handler) Close(ctx context.Context) error {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()

	drained := make(chan struct{})
	go func() {
		h.calls.Wait()
		close(drained)
	}()
	select {
	case <-drained:
	case <-h.drain().Done():
	case <-ctx.Done():
	}
	h.stop(errStopping)
	// A workflow that has just taken a call over may not have asked for it yet, and
	// would miss this process only after a while.
	asked := time.NewTimer(askTime)
	defer asked.Stop()
	select {
	case <-drained:
	case <-asked.C:
	case <-ctx.Done():
	}
	// They report what they were waiting for.
	h.queues.close()
	h.running.clear()

	errs := make([]error, len(h.order))
	var wg sync.WaitGroup
	for i, name := range h.order {
		wg.Go(func() { errs[i] = h.services[name].pool.close(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// drain begins to stop: requests that run have the drain timeout from now on, or
// from when it was called first. Life ends then.
func (h *Handler) drain() context.Context {
	h.drainOnce.Do(func() {
		close(h.draining)
		timer := time.AfterFunc(h.options.DrainTimeout, func() { h.stop(errStopping) })
		context.AfterFunc(h.life, func() { timer.Stop() })
	})
	return h.life
}

func (h *Handler) isDraining() bool { return isClosed(h.draining) }

// begin counts a request; it returns false when the handler is stopping.
func (h *Handler) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.calls.Add(1)
	return true
}

func (h *Handler) logger(ctx context.Context) log.Logger {
	if h.options.Logger != nil {
		return h.options.Logger
	}
	switch {
	case temporalnexus.IsNexusOperation(ctx):
		return temporalnexus.GetLogger(ctx)
	case activity.IsActivity(ctx):
		return activity.GetLogger(ctx)
	}
	return log.NewStructuredLogger(slog.Default())
}
