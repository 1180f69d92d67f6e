// Package tools is the MCP server that the benchmark calls, whichever transport
// it is reached by.
package tools

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// Text is a tool that answers with a text of that many bytes.
	Text = "text"
	// Wait is a tool that answers after that many milliseconds.
	Wait = "wait"
)

// Arguments are those of both tools.
type Arguments struct {
	Bytes int `json:"bytes,omitempty"`
	MS    int `json:"ms,omitempty"`
}

// NewServer returns the server.
func NewServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	schema := map[string]any{"type": "object"}
	// Without the SDK's typed tools, whose time is not what is measured.
	server.AddTool(&mcp.Tool{Name: Text, InputSchema: schema}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in Arguments
		if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
			return nil, err
		}
		return text(strings.Repeat("x", in.Bytes)), nil
	})
	server.AddTool(&mcp.Tool{Name: Wait, InputSchema: schema}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in Arguments
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
	return server
}

func text(t string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: t}}}
}
