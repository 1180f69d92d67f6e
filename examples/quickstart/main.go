// Command quickstart shows the whole path on one machine: it starts a Temporal
// server with two namespaces, publishes two MCP servers from one of them, calls
// them from a workflow in the other, and prints what happened.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart --ui
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/nexusmcp/nexusmcp/endpoints"
	"github.com/nexusmcp/nexusmcp/examples/devserver"
	"github.com/nexusmcp/nexusmcp/handler"
)

const (
	// The platform team's side.
	platformNamespace = "platform"
	mcpTaskQueue      = "mcp"
	endpointName      = "mcp"
	// The workflow authors' side.
	appNamespace = "app"
	appTaskQueue = "app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs the program and returns its exit code. What went wrong is one
// line.
func execute(ctx context.Context, arguments []string, out, errOut io.Writer) int {
	err := run(ctx, arguments, out)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case ctx.Err() != nil:
		err = errors.New("interrupted")
	}
	fmt.Fprintln(errOut, "quickstart:", err)
	return 1
}

func run(ctx context.Context, arguments []string, out io.Writer) error {
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // a mistake is one line, which execute writes
	ui := flags.Bool("ui", false, "keep running afterwards, with the Temporal Web UI, until Ctrl-C")
	uiPort := flags.Int("ui-port", 8233, "`port` of the Web UI with --ui; -1 for a free one")
	port := flags.Int("port", devserver.FreePort, "`port` of the Temporal server; -1 for a free one")
	err := flags.Parse(arguments)
	switch {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(out)
		flags.Usage()
		return err
	case err != nil:
		return fmt.Errorf("%w (--help shows the flags)", err)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: there are flags only (--help shows them)", flags.Arg(0))
	case *ui && *uiPort == 0:
		return fmt.Errorf("--ui-port 0: want 1 to 65535, or %d for a free port", devserver.FreePort)
	}
	options := devserver.Options{Namespaces: []string{platformNamespace, appNamespace}, Port: *port}
	if *ui {
		options.UIPort = *uiPort
	}
	temporal, err := devserver.Start(ctx, options)
	if err != nil {
		return err
	}
	defer temporal.Stop()
	fmt.Fprintf(out, "Temporal server    %s, in memory, namespaces %q and %q\n", temporal.HostPort(), platformNamespace, appNamespace)

	// The platform team: a worker that holds the MCP servers, and an endpoint.
	weather, err := listen(newWeatherServer())
	if err != nil {
		return err
	}
	defer weather.Close()
	platform, err := dial(ctx, temporal, platformNamespace)
	if err != nil {
		return err
	}
	defer platform.Close()
	publisher, err := newPublisher(platform, "http://"+weather.Addr().String())
	if err != nil {
		return err
	}
	if err := publisher.Start(); err != nil {
		return err
	}
	defer publisher.Stop()
	applied, err := endpoints.Apply(ctx, platform.OperatorService(), endpoint(), endpoints.Options{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Nexus endpoint     %s\n", applied)
	fmt.Fprintf(out, "Published          weather   streamable HTTP at http://%s\n                   library   in the worker's own process\n\n", weather.Addr())

	// A workflow author in another namespace: knows the endpoint and two names.
	app, err := dial(ctx, temporal, appNamespace)
	if err != nil {
		return err
	}
	defer app.Close()
	caller := worker.New(app, appTaskQueue, worker.Options{})
	caller.RegisterWorkflow(PlanTrip)
	if err := caller.Start(); err != nil {
		return err
	}
	defer caller.Stop()
	started, err := app.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "plan-trip", TaskQueue: appTaskQueue, WorkflowExecutionTimeout: time.Minute}, PlanTrip, "Oslo")
	if err != nil {
		return err
	}
	var steps []Step
	if err := started.Get(ctx, &steps); err != nil {
		return fmt.Errorf("workflow %s: %w", started.GetID(), err)
	}
	if err := report(ctx, out, app, started, steps); err != nil {
		return err
	}
	if *ui {
		fmt.Fprintf(out, "\nWeb UI             %s/namespaces/%s/workflows/%s\nCtrl-C ends it.\n", temporal.UIURL(), appNamespace, started.GetID())
		<-ctx.Done()
		fmt.Fprintln(out, "Stopped.")
	}
	return nil
}

// newPublisher returns the worker that publishes both servers.
func newPublisher(c client.Client, weatherURL string) (worker.Worker, error) {
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{
		{Name: "weather", Transport: handler.HTTP{Endpoint: weatherURL}},
		{Name: "library", Transport: handler.InProcess{Server: newLibraryServer()}},
	}})
	if err != nil {
		return nil, err
	}
	return worker.New(c, "mcp", worker.Options{Plugins: []worker.Plugin{plugin}}), nil
}

func endpoint() endpoints.Spec {
	description := "The weather and the library, for all workflows."
	return endpoints.Spec{
		Name:            endpointName,
		Description:     &description,
		TargetNamespace: platformNamespace,
		TaskQueue:       mcpTaskQueue,
	}
}

func dial(ctx context.Context, temporal *devserver.Server, namespace string) (client.Client, error) {
	options := temporal.ClientOptions(namespace)
	// The report tells the story; what the workers log would drown it. An error
	// that an operation fails with is part of the story.
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	return client.DialContext(ctx, options)
}
