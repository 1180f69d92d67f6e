package devserver_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/examples/devserver"
)

// greet waits for a name and returns a greeting.
func greet(ctx workflow.Context, greeting string) (string, error) {
	var name string
	workflow.NewSelector(ctx).
		AddReceive(workflow.GetSignalChannel(ctx, "name"), func(c workflow.ReceiveChannel, _ bool) { c.Receive(ctx, &name) }).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).
		Select(ctx)
	return greeting + ", " + name, ctx.Err()
}

func TestFileKeepsWorkflowsAndTakesNewNamespacesAcrossRestarts(t *testing.T) {
	// A name with what a URI would take for syntax.
	file := filepath.Join(t.TempDir(), "dev?50%#1.db")

	first, err := devserver.Start(testContext(t), devserver.Options{DatabaseFile: file, Namespaces: []string{"first"}})
	require.NoError(t, err)
	options := client.StartWorkflowOptions{ID: "greeting", TaskQueue: t.Name()}
	c, err := client.DialContext(testContext(t), first.ClientOptions("first"))
	require.NoError(t, err)
	_, err = c.ExecuteWorkflow(testContext(t), options, greet, "Hello")
	require.NoError(t, err)
	c.Close()
	require.NoError(t, first.Stop())
	require.FileExists(t, file)

	second := startServer(t, devserver.Options{DatabaseFile: file, Namespaces: []string{"second"}})
	old, added := dial(t, second, "first"), dial(t, second, "second")
	startWorker(t, old, func(r worker.Registry) { r.RegisterWorkflow(greet) })
	require.NoError(t, old.SignalWorkflow(testContext(t), "greeting", "", "name", "Ada"))
	var greeting string
	require.NoError(t, old.GetWorkflow(testContext(t), "greeting", "").Get(testContext(t), &greeting))
	require.Equal(t, "Hello, Ada", greeting)

	_, err = added.ExecuteWorkflow(testContext(t), options, greet, "Hello")
	require.NoError(t, err, "a namespace added to an existing file works")
}

func TestStoppedServersFileAloneHoldsEverything(t *testing.T) {
	original := filepath.Join(t.TempDir(), "dev.db")
	server, err := devserver.Start(testContext(t), devserver.Options{DatabaseFile: original, Namespaces: []string{"kept"}})
	require.NoError(t, err)
	require.NoError(t, server.Stop())

	content, err := os.ReadFile(original)
	require.NoError(t, err)
	copied := filepath.Join(t.TempDir(), "copy.db")
	require.NoError(t, os.WriteFile(copied, content, 0o600))

	server = startServer(t, devserver.Options{DatabaseFile: copied})
	_, err = dial(t, server, "kept").WorkflowService().DescribeNamespace(testContext(t), &workflowservice.DescribeNamespaceRequest{Namespace: "kept"})
	require.NoError(t, err)
}

func TestDeletedFileIsStartedAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dev.db")
	server, err := devserver.Start(testContext(t), devserver.Options{DatabaseFile: file, Namespaces: []string{"old"}})
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	for _, suffix := range []string{"", "-wal", "-shm"} {
		require.NoError(t, os.RemoveAll(file+suffix))
	}

	server = startServer(t, devserver.Options{DatabaseFile: file})
	_, err = dial(t, server, "default").WorkflowService().DescribeNamespace(testContext(t), &workflowservice.DescribeNamespaceRequest{Namespace: "old"})
	require.ErrorAs(t, err, new(*serviceerror.NamespaceNotFound))
}
