package npm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// serveTimeout bounds the time from the server's start until it listens, which is
// half a second on an idle machine.
const serveTimeout = time.Minute

// HTTPTransport is a way in which ServerEverything speaks MCP over HTTP. Its value
// is the server's own argument.
type HTTPTransport string

const (
	// StreamableHTTP is the transport of today.
	StreamableHTTP HTTPTransport = "streamableHttp"
	// SSE is the transport of protocol version 2024-11-05, which some servers still
	// have.
	SSE HTTPTransport = "sse"
)

// endpoints are the paths that ServerEverything serves the transports at.
var endpoints = map[HTTPTransport]string{
	StreamableHTTP: "/mcp",
	SSE:            "/sse",
}

// HTTPServer is a running MCP server.
type HTTPServer struct {
	// URL is what a client connects to.
	URL string

	kill func()
	done <-chan struct{}
}

// ServeEverything runs ServerEverything over HTTP on a free port of the loopback
// interface, and returns when it accepts connections. It stops with the test. Its
// environment is empty, because it has a tool that shows it to everyone.
func ServeEverything(tb testing.TB, transport HTTPTransport) *HTTPServer {
	tb.Helper()
	endpoint, ok := endpoints[transport]
	if !ok {
		tb.Fatalf("%s has no HTTP transport %q", ServerEverything, transport)
	}
	node, args := Command(tb, ServerEverything, string(transport))
	cmd := exec.Command(node, append([]string{"--require", filepath.Join(string(here()), "loopback.cjs")}, args...)...)
	cmd.Env = []string{"PORT=0"}

	server, err := serve(cmd, endpoint)
	if err != nil {
		tb.Fatalf("%s over %s: %v", ServerEverything, transport, err)
	}
	tb.Cleanup(server.Kill)
	return server
}

// Kill ends the server's process as a crash would, without a word to its clients,
// and returns when it is gone. A second call does nothing.
func (s *HTTPServer) Kill() {
	s.kill()
	<-s.done
}

// serve starts a server that loads loopback.cjs and waits for the line with the
// port.
func serve(cmd *exec.Cmd, endpoint string) (*HTTPServer, error) {
	// Never written to: that it is open tells the server that we are there.
	if _, err := cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}

	port := make(chan int, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if n, ok := listeningPort(lines.Text()); ok {
				port <- n
				break
			}
		}
		// The server logs each request: unread, the pipe would fill up and halt it.
		io.Copy(io.Discard, stdout)
		cmd.Wait()
	}()
	server := &HTTPServer{
		kill: sync.OnceFunc(func() { cmd.Process.Kill() }),
		done: done,
	}

	timeout := time.NewTimer(serveTimeout)
	defer timeout.Stop()
	select {
	case n := <-port:
		server.URL = fmt.Sprintf("http://127.0.0.1:%d%s", n, endpoint)
		return server, nil
	case <-done:
		err = errors.New("it ended before it listened")
	case <-timeout.C:
		err = fmt.Errorf("it does not listen after %v", serveTimeout)
		server.Kill()
	}
	return nil, fmt.Errorf("%w\n%s", err, stderr.Bytes())
}

// listeningPort reads the line that loopback.cjs writes.
func listeningPort(line string) (int, bool) {
	line, ok := strings.CutPrefix(line, "listening on port ")
	if !ok {
		return 0, false
	}
	line, ok = strings.CutSuffix(line, " of the loopback")
	port, err := strconv.Atoi(line)
	return port, ok && err == nil
}
