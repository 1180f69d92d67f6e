package integration

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/nexusmcp/nexusmcp/endpoints"
	"github.com/nexusmcp/nexusmcp/internal/recorded"
)

// To record: go test ./tests/integration -run Recorded -record
var record = flag.Bool("record", false, "write the histories that packages caller and handler replay in their tests")

// histories is where package caller has them, durableHistories where package
// handler has those of its own workflows.
var (
	histories        = filepath.Join("..", "..", "caller", "testdata", "histories")
	durableHistories = filepath.Join("..", "..", "handler", "testdata", "histories")
)

func TestEveryRecordedWorkflowSucceedsOnAServerAndReplays(t *testing.T) {
	t.Parallel()
	const queue = "recorded"
	publisher := worker.New(platformClient, queue, worker.Options{})
	for _, name := range recorded.Services {
		publisher.RegisterNexusService(recorded.NewService(name))
	}
	require.NoError(t, publisher.Start())
	t.Cleanup(publisher.Stop)
	_, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), endpoints.Spec{Name: recorded.Endpoint, TargetNamespace: platformNamespace, TaskQueue: queue}, endpoints.Options{})
	require.NoError(t, err)

	recorder := dialFor(t, appNamespace, asRecorder)
	app := worker.New(recorder, queue, worker.Options{DeadlockDetectionTimeout: busy})
	for _, w := range recorded.Workflows() {
		app.RegisterWorkflowWithOptions(w.Run, workflow.RegisterOptions{Name: w.Name})
	}
	require.NoError(t, app.Start())
	t.Cleanup(app.Stop)

	for _, w := range recorded.Workflows() {
		t.Run(w.Name, func(t *testing.T) {
			t.Parallel()
			run, err := recorder.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: w.Name, TaskQueue: queue, WorkflowRunTimeout: 3 * time.Minute}, w.Name)
			require.NoError(t, err)
			require.NoError(t, outcome(t, run))

			fresh := &historypb.History{Events: history(t, run)}
			for _, event := range fresh.Events {
				require.Nil(t, event.GetWorkflowTaskFailedEventAttributes())
				// Which machine recorded it is nobody's business.
				if queue := event.GetWorkflowTaskScheduledEventAttributes().GetTaskQueue(); queue.GetKind() == enumspb.TASK_QUEUE_KIND_STICKY {
					queue.Name = "recorder"
				}
			}
			replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{DisableDeadlockDetection: true}) // see busy
			require.NoError(t, err)
			replayer.RegisterWorkflowWithOptions(w.Run, workflow.RegisterOptions{Name: w.Name})
			require.NoError(t, replayer.ReplayWorkflowHistory(newLogger(), fresh))
			if !*record {
				return
			}
			for _, event := range fresh.Events {
				// A replay does not look at it.
				if input := event.GetNexusOperationScheduledEventAttributes().GetInput(); len(input.GetData()) > 64<<10 {
					input.Data = []byte(`"left out"`)
				}
			}
			save(t, filepath.Join(histories, w.Name+".json"), fresh)
		})
	}
}

func save(t *testing.T, file string, h *historypb.History) {
	t.Helper()
	compact, err := protojson.Marshal(h)
	require.NoError(t, err)
	// protojson's own indentation varies from build to build.
	var out bytes.Buffer
	require.NoError(t, json.Indent(&out, compact, "", " "))
	out.WriteByte('\n')
	require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
}
