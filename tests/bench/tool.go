package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The tools of the MCP server.
const (
	// textTool answers with a text of that many bytes.
	textTool = "text"
	// waitTool answers after that many milliseconds.
	waitTool = "wait"
)

type arguments struct {
	Bytes int `json:"bytes,omitempty"`
	MS    int `json:"ms,omitempty"`
}

// A toolServer is the MCP server that everything here calls, over streamable HTTP
// on loopback, and the session with it that all but the library use. The library
// opens its own.
type toolServer struct {
	url     string
	http    *http.Server
	session *mcp.ClientSession
}

func startTool(ctx context.Context) (*toolServer, error) {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	schema := map[string]any{"type": "object"}
	// Without the SDK's typed tools, whose time is not what is measured.
	server.AddTool(&mcp.Tool{Name: textTool, InputSchema: schema}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in arguments
		if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
			return nil, err
		}
		return text(strings.Repeat("x", in.Bytes)), nil
	})
	server.AddTool(&mcp.Tool{Name: waitTool, InputSchema: schema}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in arguments
		if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
			return text("at last"), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})

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

func text(t string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
}

// textParams ask for a text of a size.
func textParams(bytes int) *mcp.CallToolParams {
	return &mcp.CallToolParams{Name: textTool, Arguments: arguments{Bytes: bytes}}
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
