package devserver

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// loopback is the only address that anything here listens on.
const loopback = "127.0.0.1"

// serverPorts are the ports that the Temporal server binds by number: it takes no listeners.
type serverPorts struct {
	frontend     int // gRPC, for clients
	frontendHTTP int // completions of asynchronous Nexus operations
	history      int
	matching     int
	worker       int
}

// claimPorts finds ports for a server, with frontend as its gRPC port, or a free one for zero and [FreePort].
//
// Between here and the server's own bind the ports belong to nobody. Each free port is therefore left in
// TIME_WAIT (see spoil), in which the kernel gives it to nobody who asks for any port, be it another server
// in this process or in another one, while a bind by number, which sets SO_REUSEADDR as Go does, succeeds.
func claimPorts(frontend int) (serverPorts, error) {
	wanted := [...]int{frontend, 0, 0, 0, 0}
	var got [len(wanted)]int
	for i, port := range wanted {
		listener, err := listen(port)
		if err != nil {
			return serverPorts{}, err
		}
		// Closed at the end, so that no port is found twice.
		defer listener.Close()
		got[i] = listener.Addr().(*net.TCPAddr).Port
		if port <= 0 {
			if err := spoil(listener); err != nil {
				return serverPorts{}, fmt.Errorf("claim port %d on %s: %w", got[i], loopback, err)
			}
		}
	}
	return serverPorts{frontend: got[0], frontendHTTP: got[1], history: got[2], matching: got[3], worker: got[4]}, nil
}

// listen opens a port of the loopback address: the given one, or a free one for zero and [FreePort].
func listen(port int) (net.Listener, error) {
	if port > 65535 || port < FreePort {
		return nil, fmt.Errorf("port %d does not exist: use 1 to 65535, or %d for a free port", port, FreePort)
	}
	listener, err := net.Listen("tcp4", address(max(port, 0)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d on %s is in use: stop what listens there, or choose another port (%d for a free one): %w", port, loopback, FreePort, syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on port %d of %s: %w", port, loopback, err)
	}
	return listener, nil
}

// spoil connects to the listener and closes the connection from the listener's side first, which is the side
// that then stays in TIME_WAIT and holds the port back for about a minute.
func spoil(listener net.Listener) error {
	dialed, err := net.Dial("tcp4", listener.Addr().String())
	if err != nil {
		return err
	}
	defer dialed.Close()
	accepted, err := listener.Accept()
	if err != nil {
		return err
	}
	return accepted.Close()
}
