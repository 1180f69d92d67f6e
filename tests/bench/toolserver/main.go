// Command toolserver is the benchmark's MCP server: over stdio, or with the argument
// http over streamable HTTP on loopback, whose address it prints, until its stdin
// ends. It is a program of its own so that what the benchmark's process spends is
// not the server's, and because a process that links a Temporal server takes ten
// times as long to start as an MCP server does.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nexusmcp/nexusmcp/tests/bench/tools"
)

func main() {
	serve := serveStdio
	if len(os.Args) == 2 && os.Args[1] == "http" {
		serve = serveHTTP
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "toolserver:", err)
		os.Exit(1)
	}
}

func serveStdio() error {
	return tools.NewServer().Run(context.Background(), &mcp.StdioTransport{})
}

func serveHTTP() error {
	server := tools.NewServer()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	failed := make(chan error, 1)
	go func() { failed <- http.Serve(listener, handler) }()
	fmt.Printf("http://%s\n", listener.Addr())
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	select {
	case err := <-failed:
		return err
	case <-ended:
		return nil
	}
}
