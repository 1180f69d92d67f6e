package devserver

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatTheServerThinksFatalIsAnErrorAndNotTheEndOfTheProcess(t *testing.T) {
	taken, err := net.Listen("tcp", address(0))
	require.NoError(t, err)
	defer taken.Close()

	database, err := openDatabase("", []string{"default"})
	require.NoError(t, err)
	ports, err := claimPorts(FreePort)
	require.NoError(t, err)
	// Someone else was faster with a port that the server is to bind itself.
	ports.history = taken.Addr().(*net.TCPAddr).Port

	logger, connections := newServerLogger(nil), newConnections()
	defer connections.close()
	_, err = startTemporal(serverOptions(database, ports, logger, connections), logger)
	require.ErrorContains(t, err, "Failed to start gRPC listener")
	require.ErrorContains(t, err, "service: history")
	require.ErrorContains(t, err, "address: "+taken.Addr().String())
}
