package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nexusmcp/nexusmcp/tests/bench/tools"
)

// A toolServer is the MCP server that everything here calls, over streamable HTTP
// on loopback, and the session with it that all but the library use. The library
// opens its own.
type toolServer struct {
	url     string
	http    *http.Server
	session *mcp.ClientSession
}

func startTool(ctx context.Context) (*toolServer, error) {
	server := tools.NewServer()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &toolServer{url: "http://" + listener.Addr().String()}
	s.http = &http.Server{Handler: mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})}
	go func() { _ = s.http.Serve(listener) }() // until close
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	s.session, err = client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: s.url}, nil)
	if err != nil {
		_ = s.http.Close()
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
	_ = s.http.Close()
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
