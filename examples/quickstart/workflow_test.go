package main

import (
	"context"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"

	"github.com/nexusmcp/nexusmcp/handler"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func TestTheWorkflowAgainstTheRealServersInMemory(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	servers, err := handler.New(handler.Options{Servers: []handler.Server{
		{Name: "weather", Transport: handler.InProcess{Server: newWeatherServer()}},
		{Name: "library", Transport: handler.InProcess{Server: newLibraryServer()}},
	}})
	require.NoError(t, err)
	defer servers.Close(t.Context())
	servers.Register(env)
	env.ExecuteWorkflow(PlanTrip, "Oslo")
	require.NoError(t, env.GetWorkflowError())
}

func TestTheWorkflowAgainstAFake(t *testing.T) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	fake := nexus.NewService("weather")
	require.NoError(t, fake.Register(
		nexus.NewSyncOperation(mcpnexus.ListTools.Name(), func(context.Context, *mcp.ListToolsParams, nexus.StartOperationOptions) (*mcp.ListToolsResult, error) {
			failure := mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "the server is away", HTTPStatus: 503})
			return nil, &nexus.OperationError{State: nexus.OperationStateFailed, Cause: failure.ApplicationError()}
		}),
	))
	env.RegisterNexusService(fake)
	env.ExecuteWorkflow(PlanTrip, "Oslo")
	failure, ok := mcpnexus.ErrorFrom(env.GetWorkflowError())
	require.True(t, ok)
	require.Equal(t, 503, failure.HTTPStatus)
}
