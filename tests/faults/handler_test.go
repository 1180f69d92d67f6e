//go:build unix

package faults

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/effects"
)

// handlerEnv makes the test binary a worker that publishes MCP servers.
const handlerEnv = "FAULTS_HANDLER"

type handlerConfig struct {
	HostPort string         `json:"hostPort"`
	Queue    string         `json:"queue"`
	Servers  []serverConfig `json:"servers"`
	// DrainTimeout and InlineWindow are those of handler.Options.
	DrainTimeout time.Duration `json:"drainTimeout,omitempty"`
	InlineWindow time.Duration `json:"inlineWindow,omitempty"`
	// LoseAnswers is how many answers to start requests never reach the Temporal
	// server, the first ones. The worker prints a line for each.
	LoseAnswers int64 `json:"loseAnswers,omitempty"`
}

// A serverConfig is an MCP server: at a URL, or a command over stdio.
type serverConfig struct {
	Name           string            `json:"name"`
	URL            string            `json:"url,omitempty"`
	Path           string            `json:"path,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	ConnectTimeout time.Duration     `json:"connectTimeout,omitempty"`
}

const answerLost = "an answer is lost"

func handlerMainIfAsked() {
	processMain(handlerEnv, func(config handlerConfig, terminated <-chan struct{}) error {
		options := client.Options{
			HostPort: config.HostPort, Namespace: platformNamespace,
			Logger: log.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))),
		}
		options.ConnectionOptions.DialOptions = []grpc.DialOption{grpc.WithChainUnaryInterceptor(loseAnswers(config.LoseAnswers))}
		c, err := client.Dial(options)
		if err != nil {
			return err
		}
		defer c.Close()
		plugin, err := handler.NewPlugin(config.options())
		if err != nil {
			return err
		}
		w := worker.New(c, config.Queue, worker.Options{Plugins: []worker.Plugin{plugin}})
		if err := w.Start(); err != nil {
			return err
		}
		fmt.Println("ready")
		<-terminated
		w.Stop()
		return nil
	})
}

func (c handlerConfig) options() handler.Options {
	options := handler.Options{
		DrainTimeout: c.DrainTimeout, InlineWindow: c.InlineWindow,
		Servers: []handler.Server{{Name: selfService, Transport: handler.InProcess{Server: selfServer()}}},
	}
	for _, s := range c.Servers {
		server := handler.Server{Name: s.Name, ConnectTimeout: s.ConnectTimeout}
		if s.URL != "" {
			// Which worker it was, for the ledger.
			server.Transport = handler.HTTP{Endpoint: s.URL, Header: http.Header{effects.ClientHeader: {strconv.Itoa(os.Getpid())}}}
		} else {
			server.Transport = handler.Command{Path: s.Path, Env: s.Env}
		}
		options.Servers = append(options.Servers, server)
	}
	return options
}

// loseAnswers keeps the first answers to start requests from the Temporal server.
// To the worker they have been sent.
func loseAnswers(n int64) grpc.UnaryClientInterceptor {
	var left atomic.Int64
	left.Store(n)
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if answer, ok := req.(*workflowservice.RespondNexusTaskCompletedRequest); ok && answer.GetResponse().GetStartOperation() != nil && left.Add(-1) >= 0 {
			fmt.Println(answerLost)
			return nil
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// lostAnswers counts the answers that a worker has lost.
func (p *process) lostAnswers() int {
	return strings.Count(strings.Join(p.said(), "\n"), answerLost)
}

// terminated returns a channel that is closed by SIGTERM.
func terminated() <-chan struct{} {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM) // until the process ends
	return ctx.Done()
}
