// Package workers has the workers of both sides that the fault suite starts as
// processes of their own, with cmd/worker. It must not link a Temporal server: a
// process that does takes most of a second of CPU to start.
package workers

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/nexusmcp/nexusmcp/internal/asprocess"
)

// Environment variables that say which worker the process is, with its
// configuration in JSON: a [Handlers] or a [Callers].
const (
	HandlersEnv = "FAULTS_HANDLERS"
	CallersEnv  = "FAULTS_CALLERS"
)

// MainIfAsked runs the worker that the environment asks for until SIGTERM, or until
// stdin ends, and exits; without one it returns. The first line on stdout says that
// the worker is ready.
func MainIfAsked() {
	asprocess.ServeIfAsked(HandlersEnv, func(ctx context.Context, config Handlers) error { return config.run(ctx) })
	asprocess.ServeIfAsked(CallersEnv, func(ctx context.Context, config Callers) error { return config.run(ctx) })
}

func dial(options client.Options) (client.Client, error) {
	options.Logger = log.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	return client.Dial(options)
}

func serve(terminated context.Context, w worker.Worker) error {
	if err := w.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	<-terminated.Done()
	w.Stop()
	return nil
}
