//go:build unix && !linux

package faults

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// reservePort returns an address of the loopback interface with a port that is
// free now. It stays so with luck: only on Linux can a port be kept for another
// process.
func reservePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}
