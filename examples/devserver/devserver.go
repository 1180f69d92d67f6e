// Package devserver runs a Temporal server inside the calling process, for examples, tests and local work.
//
// It is the real server (frontend, history, matching and worker) on SQLite, tuned so that one workflow step
// takes milliseconds, with Nexus working across namespaces: synchronous operations, operations backed by a
// workflow, and their cancellation. Limits that a program may meet in production are left at the server's
// defaults, among them 30 pending Nexus operations for each workflow, payloads of 2 MiB, and 10 seconds for
// one Nexus request.
//
//	server, err := devserver.Start(ctx, devserver.Options{Namespaces: []string{"callers", "tools"}})
//	if err != nil {
//		return err
//	}
//	defer server.Stop()
//	c, err := client.DialContext(ctx, server.ClientOptions("callers"))
//
// Everything listens on the loopback address only, without TLS or authorization: whoever can connect may do
// anything. It is no production server.
package devserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/server/temporal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const (
	// startTimeout bounds a Start whose context has no nearer deadline. A start takes a fraction of a second;
	// the rest is for the race detector on a machine that is busy with something else.
	startTimeout = 60 * time.Second

	// stopTimeout bounds Stop. The server itself gives calls in flight one second in the frontend and two
	// each in history and matching before it cuts them off.
	stopTimeout = 30 * time.Second
)

// FreePort, as a port in [Options], means any port that nothing else uses.
const FreePort = -1

// Options says what kind of server to start. The zero value is an in-memory server on a free port with one
// namespace, "default", no Web UI, and nothing logged.
type Options struct {
	// Namespaces exist when Start returns. A file-backed server has them besides those already in the
	// file. None means just "default". They keep closed workflows for 24 hours.
	Namespaces []string

	// DatabaseFile is the SQLite file that holds all state; it is created when missing, its directory is
	// not. Empty means in memory: Stop loses everything. One server at a time may use a file. Files of
	// the Temporal CLI's "server start-dev --db-filename" can be opened too.
	DatabaseFile string

	// Port is where clients connect by gRPC. Zero, like [FreePort], means a free port.
	Port int

	// UIPort is the port of the Web UI. Zero means no UI; use [FreePort] for a free port.
	UIPort int

	// Logger gets the server's own log, which is verbose at Info and below; give it a handler with a level.
	// Nil means no log: what keeps the server from starting is in Start's error.
	Logger *slog.Logger
}

// Server is a running Temporal server. Its methods may be called concurrently.
type Server struct {
	hostPort    string
	database    databaseConfig
	temporal    temporal.Server
	connections *connections     // within the server
	frontend    *grpc.ClientConn // ours
	ui          *webUI           // nil without a UI

	stop    sync.Once
	stopErr error
}

// Start starts a server and returns when clients can use it: its namespaces are there, its one shard is
// owned, and Nexus endpoints can be listed.
//
// It gives up when ctx ends, or after a minute, and returns once what it has begun is stopped again, which can
// take a second or two. Its errors name what to change: a port in use (errors.Is with [syscall.EADDRINUSE]), a
// database file that cannot be opened, an empty namespace name. Any number of servers may run at once in a
// process.
func Start(ctx context.Context, options Options) (*Server, error) {
	server, err := start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("devserver: start: %w", err)
	}
	return server, nil
}

func start(ctx context.Context, options Options) (_ *Server, err error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()

	namespaces, err := options.namespaces()
	if err != nil {
		return nil, err
	}
	if options.Port > 0 && options.Port == options.UIPort {
		return nil, fmt.Errorf("Options.Port and Options.UIPort are both %d: give the UI another port (%d for a free one)", options.Port, FreePort)
	}
	ports, err := claimPorts(options.Port)
	if err != nil {
		return nil, err
	}
	logger := newServerLogger(options.Logger)

	// The UI's listener is opened first and kept, so that a taken UI port fails before any work is done.
	var uiListener net.Listener
	if options.UIPort != 0 {
		if uiListener, err = listen(options.UIPort); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				_ = uiListener.Close()
			}
		}()
	}

	database, err := openDatabase(options.DatabaseFile, namespaces)
	if err != nil {
		return nil, err
	}
	server := &Server{hostPort: address(ports.frontend), database: database, connections: newConnections()}
	server.temporal, err = startTemporal(serverOptions(database, ports, logger, server.connections), logger)
	if err != nil {
		server.connections.close()
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = server.Stop()
		}
	}()

	server.frontend, err = grpc.NewClient(
		server.hostPort,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(uiMaxResponseBytes)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to frontend %s: %w", server.hostPort, err)
	}
	if err := awaitReady(ctx, server.frontend, namespaces); err != nil {
		return nil, err
	}
	if uiListener != nil {
		if server.ui, err = startWebUI(uiListener, server.hostPort, server.frontend); err != nil {
			return nil, err
		}
	}
	return server, nil
}

func (o Options) namespaces() ([]string, error) {
	if len(o.Namespaces) == 0 {
		return []string{client.DefaultNamespace}, nil
	}
	for i, name := range o.Namespaces {
		if name == "" {
			return nil, fmt.Errorf("Options.Namespaces[%d] is empty: give every namespace a name, or leave the list empty for %q", i, client.DefaultNamespace)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			// gRPC carries the name in a header. The server would not become ready.
			return nil, fmt.Errorf("Options.Namespaces[%d] is %q: use printable ASCII without spaces", i, name)
		}
	}
	return o.Namespaces, nil
}

// startTemporal builds and starts the server. It runs the server's code in a goroutine of its own because
// what the server thinks fatal ends the goroutine it happens in (see [serverLogger]); here it becomes an
// error.
func startTemporal(options []temporal.ServerOption, logger *serverLogger) (temporal.Server, error) {
	type outcome struct {
		server temporal.Server
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		result := outcome{err: errors.New("the Temporal server gave up without a reason")}
		defer func() {
			// Where the server is inside a sync.OnceValue, ending the goroutine panics.
			if p := recover(); p != nil && logger.fatal() == nil {
				panic(p)
			}
			done <- result
		}()
		server, err := temporal.NewServer(options...)
		if err != nil {
			result.err = fmt.Errorf("build Temporal server: %w", err)
			return
		}
		if err := server.Start(); err != nil {
			// What did start must not outlive the failure.
			_ = server.Stop()
			result.err = fmt.Errorf("start Temporal server: %w", err)
			return
		}
		result = outcome{server: server}
	}()
	result := <-done
	if result.err != nil {
		if fatal := logger.fatal(); fatal != nil {
			return nil, fatal
		}
		return nil, result.err
	}
	return result.server, nil
}

// HostPort is the address for gRPC clients, such as "127.0.0.1:7233".
func (s *Server) HostPort() string { return s.hostPort }

// UIURL is where a browser finds the Web UI, such as "http://127.0.0.1:8233"; empty without a UI.
func (s *Server) UIURL() string {
	if s.ui == nil {
		return ""
	}
	return s.ui.url
}

// ClientOptions returns what an SDK client needs to reach a namespace of this server. Add to it, a logger or
// interceptors for instance, before dialing. Clients and workers should be closed before Stop.
func (s *Server) ClientOptions(namespace string) client.Options {
	return client.Options{HostPort: s.hostPort, Namespace: namespace}
}

// Stop stops the server, and the Web UI with it, and returns when their ports are free again. Calls in
// flight get about a second; a poll that an open worker still holds is such a call. Only the first Stop does
// anything; later ones wait for it and return what it returned. The error says that the server was still not
// down after half a minute.
//
// Five goroutines stay until the process ends, because nothing outside the server can end them: one keeps the
// SQLite connection, and with it an in-memory database, four the connection of the server's own SDK client.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		if err := s.shutdown(); err != nil {
			s.stopErr = fmt.Errorf("devserver: stop: %w", err)
		}
	})
	return s.stopErr
}

func (s *Server) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()

	var errs []error
	if s.ui != nil {
		errs = append(errs, s.ui.stop(ctx))
	}
	if s.frontend != nil {
		errs = append(errs, s.frontend.Close())
	}
	done := make(chan error, 1)
	go func() {
		err := errors.New("the Temporal server gave up without a reason")
		defer func() { done <- err }()
		err = s.temporal.Stop()
	}()
	select {
	case err := <-done:
		s.connections.close()
		errs = append(errs, err, closeDatabase(s.database))
	case <-ctx.Done():
		errs = append(errs, fmt.Errorf("the Temporal server on %s is still not down after %v (%d goroutines)", s.hostPort, stopTimeout, runtime.NumGoroutine()))
	}
	return errors.Join(errs...)
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
