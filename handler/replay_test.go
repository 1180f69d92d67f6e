package handler_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
)

// replays registers workflows alone.
type replays struct{ worker.WorkflowReplayer }

func (replays) RegisterNexusService(*nexus.Service)                       {}
func (replays) RegisterActivityWithOptions(any, activity.RegisterOptions) {}

// Workflows that an earlier version of the handler started go on with this one.
// The histories are recorded by tests/integration, with -record; what a version
// that was released has recorded stays.
func TestEveryRecordedHistoryReplays(t *testing.T) {
	files, err := filepath.Glob("testdata/histories/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	_, transport := rudeHTTP(t, rude.Options{})
	h, err := handler.New(handler.Options{Servers: []handler.Server{{Name: "rude", Transport: transport}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			replayer := worker.NewWorkflowReplayer()
			h.Register(replays{replayer})
			require.NoError(t, replayer.ReplayWorkflowHistoryFromJSONFile(&lines{}, file))
		})
	}
}
