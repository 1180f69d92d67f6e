package caller_test

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestARequestThatWouldNotFitFailsAtOnceAndSchedulesNothing(t *testing.T) {
	h := newHarness(t, nil)
	var errs []error
	h.run(func(ctx workflow.Context) error {
		client := caller.NewClient(endpoint, weather, caller.Options{})
		// The second is as long only once it is JSON.
		for _, text := range []string{strings.Repeat("x", mcpnexus.MaxRequestBytes), strings.Repeat("<", mcpnexus.MaxRequestBytes/5)} {
			_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"text": text}})
			errs = append(errs, err)
		}
		return nil
	})
	for _, err := range errs {
		assert.ErrorContains(t, err, `call-tool "get_weather" on service "weather": the request has 2`)
		assert.ErrorContains(t, err, "the limit is 2031616")
	}
	assert.Empty(t, h.calls)
}
