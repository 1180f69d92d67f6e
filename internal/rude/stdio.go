package rude

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/nexusmcp/nexusmcp/internal/asprocess"
)

// Env is the environment variable that makes [MainIfAsked] be the server. Its
// value is an [Options] in JSON.
const Env = "RUDE_MCP_SERVER"

// MainIfAsked serves stdio and exits if [Env] is set. A test binary calls it
// first thing in TestMain, and then starts itself as the server.
func MainIfAsked() {
	asprocess.MainIfAsked(Env, func(o Options) error {
		New(o).serve(os.Stdin, os.Stdout)
		return nil
	})
}

// Environ returns the environment for a process that is to be the server.
func (o Options) Environ() map[string]string { return asprocess.Environ(Env, o) }

func (s *Server) serve(in io.Reader, out io.Writer) {
	c := &stdioConnection{out: out, left: make(chan struct{})}
	defer close(c.left)
	if s.options.Banner != "" {
		fmt.Fprintln(out, s.options.Banner)
	}
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
			go s.handle(c, m)
		}
	}
}

type stdioConnection struct {
	mu   sync.Mutex
	out  io.Writer
	left chan struct{}
}

func (c *stdioConnection) send(message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintln(c.out, message)
}

func (c *stdioConnection) cut(half string) {
	c.mu.Lock()
	fmt.Fprint(c.out, half)
	os.Exit(1)
}

func (c *stdioConnection) session() string { return "" }

func (c *stdioConnection) gone() <-chan struct{} { return c.left }

func (c *stdioConnection) flood(bytes int) {
	line := strings.Repeat("e", 99) + "\n"
	for written := 0; written < bytes; written += len(line) {
		_, _ = io.WriteString(os.Stderr, line)
	}
}

func (c *stdioConnection) status(int, string) {}
