//go:build unix

package faults

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/nexusmcp/nexusmcp/examples/devserver"
	"github.com/nexusmcp/nexusmcp/internal/asprocess"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// A temporalServer is a Temporal server as the test process sees it, and the
// worker for its callers' workflows.
type temporalServer struct {
	hostPort      string
	app, platform client.Client
	callers       worker.Worker
}

// callersQueue is the task queue of the callers' workflows.
const callersQueue = "callers"

func connect(ctx context.Context, hostPort string) (_ *temporalServer, err error) {
	s := &temporalServer{hostPort: hostPort}
	if s.platform, err = dial(ctx, hostPort, platformNamespace); err != nil {
		return nil, err
	}
	if s.app, err = dial(ctx, hostPort, appNamespace); err != nil {
		return nil, err
	}
	s.callers = workers.NewCallers(s.app, callersQueue)
	return s, s.callers.Start()
}

func (s *temporalServer) close() {
	s.callers.Stop()
	s.app.Close()
	s.platform.Close()
}

func dial(ctx context.Context, hostPort, namespace string) (client.Client, error) {
	return client.DialContext(ctx, client.Options{HostPort: hostPort, Namespace: namespace, Logger: newLogger()})
}

// temporalEnv makes the test binary a Temporal server.
const temporalEnv = "FAULTS_TEMPORAL"

type temporalConfig struct {
	Port         int    `json:"port"`
	DatabaseFile string `json:"databaseFile"`
}

func temporalMainIfAsked() {
	asprocess.ServeIfAsked(temporalEnv, func(terminated context.Context, config temporalConfig) error {
		server, err := devserver.Start(context.Background(), devserver.Options{
			Namespaces: []string{platformNamespace, appNamespace}, Port: config.Port, DatabaseFile: config.DatabaseFile,
		})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		<-terminated.Done()
		return server.Stop()
	})
}

// A breakableServer is a Temporal server of a test's own, in a process that can be
// killed, and that finds its state in a file when it is started again.
type breakableServer struct {
	*temporalServer
	config  temporalConfig
	process *process
}

func launchTemporal(t *testing.T) *breakableServer {
	t.Helper()
	_, port, err := net.SplitHostPort(reservePort(t))
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	s := &breakableServer{config: temporalConfig{Port: number, DatabaseFile: filepath.Join(t.TempDir(), "temporal.db")}}
	s.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.temporalServer, err = connect(ctx, net.JoinHostPort("127.0.0.1", port))
	require.NoError(t, err)
	t.Cleanup(s.temporalServer.close)
	return s
}

func (s *breakableServer) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	s.process = launch(t, self, "the Temporal server", temporalEnv, s.config)
}
