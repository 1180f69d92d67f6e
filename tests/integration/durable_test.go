package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestACallThatOutlivesTheNexusRequestSucceedsAndRunsOnce(t *testing.T) {
	t.Parallel()
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			server, transport := rudeHTTP(t, rude.Options{})
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			var took time.Duration
			p.run(t, func(ctx workflow.Context) error {
				began := workflow.Now(ctx)
				result, err := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: execution}}).CallTool(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 15_000}})
				if err != nil {
					return err
				}
				took = workflow.Now(ctx).Sub(began)
				if text := result.Content[0].(*mcp.TextContent).Text; text != "at last" {
					return fmt.Errorf("got %q", text)
				}
				return nil
			})
			t.Log(took)
			assert.Equal(t, 1, server.Stats().Calls["slow"])
		})
	}
}
