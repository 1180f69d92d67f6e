package integration

import (
	"context"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
)

func TestACallThatRunsWhenTheWorkerStopsIsAnsweredAndNotRunAgain(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	var text string
	answered := make(chan struct{})
	run := p.start(t, func(ctx workflow.Context) error {
		result, err := p.client("rude", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 2000}})
		if err != nil {
			return err
		}
		text = result.Content[0].(*mcp.TextContent).Text
		close(answered)
		return nil
	})
	require.Eventually(t, func() bool { return server.Stats().Calls["slow"] == 1 }, 30*time.Second, time.Millisecond)
	p.publisher.Stop()

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, run.Get(ctx, nil))
	<-answered
	assert.Equal(t, "at last", text)
	assert.Equal(t, 1, server.Stats().Calls["slow"])
}
