package npm_test

import (
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/tests/npm"
)

func TestTheReadmesServerIsPublished(t *testing.T) {
	npm.Install(t) // into this folder

	files := handler.Server{
		Name:      "files",
		Transport: handler.Command{Path: "node", Args: []string{"node_modules/@modelcontextprotocol/server-filesystem/dist/index.js", "."}},
		Stateless: true, // one process for all calls
	}

	servers, err := handler.New(handler.Options{Servers: []handler.Server{files}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, servers.Close(t.Context())) }()
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute) // a process is started
	servers.Register(env)
	env.ExecuteWorkflow(func(ctx workflow.Context) (string, error) {
		result, err := caller.NewClient("mcp", "files", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "read_text_file", Arguments: map[string]any{"path": "package.json"}})
		if err != nil {
			return "", err
		}
		return result.Content[0].(*mcp.TextContent).Text, nil
	})
	require.NoError(t, env.GetWorkflowError())
	var text string
	require.NoError(t, env.GetWorkflowResult(&text))
	assert.Contains(t, text, "nexusmcp-tests")
}
