package handler

import (
	"context"
	"errors"
	"sync/atomic"

	"go.temporal.io/sdk/worker"
)

// A Plugin publishes MCP servers on a worker: put it into
// worker.Options.Plugins. It registers the Nexus services when the worker
// starts, and drains and closes the connections when it stops (see
// [Handler.Close]). A plugin serves one worker, once.
type Plugin struct {
	worker.PluginBase
	handler *Handler
	started atomic.Bool
}

var _ worker.Plugin = (*Plugin)(nil)

// NewPlugin checks the options as [New] does and returns the plugin.
func NewPlugin(options Options) (*Plugin, error) {
	h, err := New(options)
	if err != nil {
		return nil, err
	}
	return &Plugin{handler: h}, nil
}

// Name implements [worker.Plugin].
func (p *Plugin) Name() string { return "github.com/nexusmcp/nexusmcp/handler" }

// ConfigureWorker implements [worker.Plugin]. It lets a stopping worker wait for
// running requests, and send their answers, for the handler's drain timeout.
func (p *Plugin) ConfigureWorker(_ context.Context, options worker.PluginConfigureWorkerOptions) error {
	o := options.WorkerOptions
	if o.DisableWorkflowWorker || o.LocalActivityWorkerOnly {
		return errors.New("nexusmcp handler: the worker has DisableWorkflowWorker or LocalActivityWorkerOnly set: it must run workflows and activities, which is how requests become durable")
	}
	o.WorkerStopTimeout = max(o.WorkerStopTimeout, p.handler.options.DrainTimeout+reportTime)
	return nil
}

// StartWorker implements [worker.Plugin].
func (p *Plugin) StartWorker(ctx context.Context, options worker.PluginStartWorkerOptions, next func(context.Context, worker.PluginStartWorkerOptions) error) error {
	if p.started.Swap(true) {
		return errors.New("nexusmcp handler: the plugin has served a worker already: make one for each, it closes its connections with its worker")
	}
	p.handler.Register(options.WorkerRegistry)
	return next(ctx, options)
}

// StopWorker implements [worker.Plugin].
func (p *Plugin) StopWorker(ctx context.Context, options worker.PluginStopWorkerOptions, next func(context.Context, worker.PluginStopWorkerOptions)) {
	p.handler.drain()
	next(ctx, options)
	if err := p.handler.Close(ctx); err != nil {
		p.handler.logger(ctx).Error("Stopping the MCP servers", "error", err)
	}
}
