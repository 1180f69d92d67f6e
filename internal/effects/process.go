package effects

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/nexusmcp/nexusmcp/internal/asprocess"
)

// Env is the environment variable that makes [MainIfAsked] be the server. Its
// value is an [Options] in JSON.
const Env = "EFFECTS_MCP_SERVER"

// MainIfAsked serves and exits if [Env] is set. A test binary calls it first
// thing in TestMain, and then starts itself as the server. Over stdio it serves
// until its stdin ends; over HTTP too, after a line with its URL on stdout.
func MainIfAsked() {
	asprocess.MainIfAsked(Env, func(o Options) error { return New(o).serve() })
}

// Environ returns the environment for a process that is to be the server.
func (o Options) Environ() map[string]string { return asprocess.Environ(Env, o) }

func (s *Server) serve() error {
	process := &stdioConnection{out: os.Stdout, parent: os.Getppid()}
	s.note(process, Started)
	if s.options.Listen == "" {
		s.serveStdio(process, os.Stdin)
		return nil
	}
	listener, err := net.Listen("tcp", s.options.Listen)
	if err != nil {
		return err
	}
	process.send("http://" + listener.Addr().String())
	go func() { _ = http.Serve(listener, s) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// serveStdio serves until the client has left.
func (s *Server) serveStdio(c *stdioConnection, in io.Reader) {
	var requests sync.WaitGroup
	defer requests.Wait() // until they are written down
	defer s.Close()
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line, &m) != nil {
			continue
		}
		if m.ID == nil {
			s.handle(c, m)
		} else {
			requests.Go(func() { s.handle(c, m) })
		}
	}
}

type stdioConnection struct {
	mu     sync.Mutex
	out    io.Writer
	parent int
}

func (c *stdioConnection) send(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, message)
}

func (c *stdioConnection) session() string { return "" }

func (c *stdioConnection) client() int { return c.parent }

// gone is never closed: a request has no stream of its own, and the server is
// closed when its client has left.
func (c *stdioConnection) gone() <-chan struct{} { return nil }
