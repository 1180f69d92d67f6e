// Command stdioserver is the benchmark's MCP server over stdio. It is a program of
// its own because a process of the benchmark's, which links a Temporal server, takes
// ten times as long to start as an MCP server does.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/nexusmcp/nexusmcp/tests/bench/tools"
)

func main() {
	if err := tools.NewServer().Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, "stdioserver:", err)
		os.Exit(1)
	}
}
