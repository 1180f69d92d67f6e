package caller_test

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/internal/recorded"
)

const histories = "testdata/histories"

// A history that is missing is a failure: a workflow without one is a workflow
// whose commands may change unseen.
func TestEveryRecordedHistoryReplays(t *testing.T) {
	workflows := recorded.Workflows()
	files := map[string]bool{}
	found, err := filepath.Glob(filepath.Join(histories, "*.json"))
	require.NoError(t, err)
	for _, file := range found {
		files[strings.TrimSuffix(filepath.Base(file), ".json")] = true
	}

	for _, w := range workflows {
		t.Run(w.Name, func(t *testing.T) {
			file := filepath.Join(histories, w.Name+".json")
			if !files[w.Name] {
				t.Fatalf("%s is missing: run the workflow %s of package internal/recorded on a server and save its history there", file, w.Name)
			}
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true}) // see busy
			require.NoError(t, err)
			replayer.RegisterWorkflowWithOptions(w.Run, workflow.RegisterOptions{Name: w.Name})
			require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(quiet{}, file))
		})
		delete(files, w.Name)
	}
	assert.Empty(t, files, "histories of workflows that do not exist")
}

func TestEveryMethodOfAClientHasARecordedWorkflow(t *testing.T) {
	names := map[string]bool{}
	for _, w := range recorded.Workflows() {
		require.False(t, names[w.Name], "%s is there twice", w.Name)
		names[w.Name] = true
	}
	client := reflect.TypeFor[*caller.Client]()
	for i := range client.NumMethod() {
		method := client.Method(i).Name
		assert.True(t, names[strings.TrimSuffix(method, "Async")], "no recorded workflow uses %s", method)
	}
}

// Recording needs a server. That the workflows do what they should does not.
func TestEveryRecordedWorkflowSucceedsInTheTestEnvironment(t *testing.T) {
	for _, w := range recorded.Workflows() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			suite := testsuite.WorkflowTestSuite{}
			suite.SetLogger(quiet{})
			env := suite.NewTestWorkflowEnvironment()
			env.SetWorkerOptions(worker.Options{DeadlockDetectionTimeout: busy})
			env.SetTestTimeout(busy)
			env.RegisterWorkflowWithOptions(w.Run, workflow.RegisterOptions{Name: w.Name})
			for _, name := range recorded.Services {
				env.RegisterNexusService(recorded.NewService(name))
			}
			env.ExecuteWorkflow(w.Name)
			require.True(t, env.IsWorkflowCompleted())
			require.NoError(t, env.GetWorkflowError())
		})
	}
}

// quiet logs nothing.
type quiet struct{}

var _ log.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
