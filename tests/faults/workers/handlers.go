package workers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"google.golang.org/grpc"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/effects"
)

// A Handlers is the configuration of a worker that publishes MCP servers, and one
// whose tool says what the process holds, see [SelfService].
type Handlers struct {
	HostPort  string   `json:"hostPort"`
	Namespace string   `json:"namespace"`
	Queue     string   `json:"queue"`
	Servers   []Server `json:"servers"`
	// DrainTimeout and InlineWindow are those of handler.Options.
	DrainTimeout time.Duration `json:"drainTimeout,omitempty"`
	InlineWindow time.Duration `json:"inlineWindow,omitempty"`
	// LoseAnswers is how many answers to start requests never reach the Temporal
	// server, the first ones. The worker prints [AnswerLost] for each.
	LoseAnswers int64 `json:"loseAnswers,omitempty"`
}

// A Server is an MCP server: at a URL, or a command over stdio.
type Server struct {
	Name           string            `json:"name"`
	URL            string            `json:"url,omitempty"`
	Path           string            `json:"path,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	ConnectTimeout time.Duration     `json:"connectTimeout,omitempty"`
}

// AnswerLost is the line that a worker prints when it loses an answer.
const AnswerLost = "an answer is lost"

func (c Handlers) run(terminated context.Context) error {
	connection, err := dial(client.Options{
		HostPort: c.HostPort, Namespace: c.Namespace,
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(loseAnswers(c.LoseAnswers))}},
	})
	if err != nil {
		return err
	}
	defer connection.Close()
	plugin, err := handler.NewPlugin(c.options())
	if err != nil {
		return err
	}
	return serve(terminated, worker.New(connection, c.Queue, worker.Options{Plugins: []worker.Plugin{plugin}}))
}

func (c Handlers) options() handler.Options {
	options := handler.Options{
		DrainTimeout: c.DrainTimeout, InlineWindow: c.InlineWindow,
		Servers: []handler.Server{{Name: SelfService, Transport: handler.InProcess{Server: selfServer()}}},
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
			fmt.Println(AnswerLost)
			return nil
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}
