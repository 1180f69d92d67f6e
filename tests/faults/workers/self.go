package workers

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nexusmcp/nexusmcp/internal/held"
)

// SelfService is a server that every worker publishes beside the others, whose tool
// says what its process holds: [held.Resources] in JSON.
const (
	SelfService = "self"
	SelfTool    = "resources"
)

func selfServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: SelfService, Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: SelfTool, InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		out, err := json.Marshal(held.Now())
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(out)}}}, err
	})
	return server
}
