package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nexusmcp/nexusmcp/tests/bench/tools"
)

// A toolServer is the MCP server that everything here calls, over streamable HTTP
// on loopback, in a process of its own, and the session with it that all but the
// library use. The library opens its own.
type toolServer struct {
	program string // over stdio, without arguments
	url     string
	process *exec.Cmd
	stdin   io.Closer // with which the process ends
	session *mcp.ClientSession
}

// buildToolServer builds the server's program in a directory and returns its path.
func buildToolServer(ctx context.Context, dir string) (string, error) {
	const source = "github.com/nexusmcp/nexusmcp/tests/bench/toolserver"
	program := filepath.Join(dir, path.Base(source))
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", program, source).CombinedOutput()
	if len(out) > 0 && err != nil {
		err = fmt.Errorf("%w: %q", err, bytes.TrimSpace(out))
	}
	if err != nil {
		return "", fmt.Errorf("building the MCP server with the go command: %w", err)
	}
	return program, nil
}

func startTool(ctx context.Context, program string) (_ *toolServer, err error) {
	s := &toolServer{program: program, process: exec.Command(program, "http")}
	s.process.Stderr = os.Stderr
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		s.close()
		return nil, fmt.Errorf("the MCP server did not say where it is: %w", err)
	}
	s.url = strings.TrimSpace(line)
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	s.session, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.url}, nil)
	if err != nil {
		s.close()
		return nil, fmt.Errorf("connecting to the MCP server: %w", err)
	}
	if got := s.session.InitializeResult().ProtocolVersion; got != modern {
		s.close()
		return nil, fmt.Errorf("the MCP session has protocol version %s, want %s", got, modern)
	}
	return s, nil
}

// modern is the protocol version of the comparison: without sessions, so that
// calls share a connection.
const modern = "2026-07-28"

func (s *toolServer) close() {
	if s.session != nil {
		_ = s.session.Close()
	}
	_ = s.stdin.Close()
	_ = s.process.Wait() // how it ended is of no interest
}

// textParams ask for a text of a size.
func textParams(bytes int) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: tools.Text, Arguments: tools.Arguments{Bytes: bytes}}
}

// checkText makes sure that a call did what it was timed for.
func checkText(result *mcp.CallToolResult, err error, bytes int) error {
	if err != nil {
		return err
	}
	if result.IsError || len(result.Content) != 1 {
		return errors.New("the result is not the tool's")
	}
	answer, ok := result.Content[0].(*mcp.TextContent)
	if !ok || len(answer.Text) != bytes {
		return fmt.Errorf("the result has not the %d bytes of text that were asked for", bytes)
	}
	return nil
}
