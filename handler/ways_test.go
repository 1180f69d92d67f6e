package handler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// everyOperation has an input for each operation, and what its result contains.
var everyOperation = map[string]struct{ input, result string }{
	mcpnexus.OperationListTools:             {`{}`, `"tools":[{"name":"item-0-0","inputSchema":{"type":"object"}},{"name":"item-1-0",`},
	mcpnexus.OperationCallTool:              {`{"name":"raw-result","arguments":{"result":{"structuredContent":{"z":9007199254740993,"a":"ü"},"content":[]}}}`, `{"structuredContent":{"z":9007199254740993,"a":"ü"},"content":[]}`},
	mcpnexus.OperationCallTools:             {`{"calls":[{"name":"raw-result","arguments":{"result":{"content":[],"later":9007199254740993}}}]}`, `{"results":[{"result":{"content":[],"later":9007199254740993}}]`},
	mcpnexus.OperationListPrompts:           {`{}`, `"prompts":[{"name":"item-0-0"},{"name":"item-1-0"}]`},
	mcpnexus.OperationGetPrompt:             {`{"name":"a"}`, `"text":"hello"`},
	mcpnexus.OperationListResources:         {`{}`, `"resources":[{"name":"item-0-0","uri":"rude://item-0-0"},{"name":"item-1-0",`},
	mcpnexus.OperationListResourceTemplates: {`{}`, `"resourceTemplates":[{"name":"item-0-0","uriTemplate":"rude://item-0-0/{id}"},{"name":"item-1-0",`},
	mcpnexus.OperationReadResource:          {`{"uri":"rude://a"}`, `"contents":[{"uri":"rude://a","text":"a"}]`},
	mcpnexus.OperationComplete:              {`{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"x","value":""}}`, `"completion":{"values":["a","b"],"total":2}`},
	mcpnexus.OperationDiscover:              {`{}`, `"serverInfo":{"name":"rude","version":"1"}`},
}

func TestEveryOperationHasTheSameResultWhicheverWayItTakes(t *testing.T) {
	require.ElementsMatch(t, handler.OperationNames(), slices.Collect(maps.Keys(everyOperation)))
	for operation, c := range everyOperation {
		t.Run(operation, func(t *testing.T) {
			results := make(map[string]string)
			for _, way := range []struct {
				name      string
				execution mcpnexus.Execution
				// activities are those that the way leads through.
				activities []string
			}{
				{"inline", mcpnexus.ExecutionInline, nil},
				{"auto", mcpnexus.ExecutionAuto, nil},
				{"handed off", mcpnexus.ExecutionAuto, []string{handler.RunningAttemptActivityType + "/rude"}},
				{"durable", mcpnexus.ExecutionDurable, []string{handler.AttemptActivityType + "/rude"}},
			} {
				window, answer := time.Minute, make(chan struct{})
				open := sync.OnceFunc(func() { close(answer) })
				if way.name == "handed off" {
					window = 50 * time.Millisecond
				} else {
					open()
				}
				var activities []string
				env := testEnvironment(t, handler.Server{Name: "rude", Transport: answersOn(t, answer)}, window)
				env.SetOnActivityStartedListener(func(info *activity.Info, _ context.Context, _ converter.EncodedValues) {
					activities = append(activities, info.ActivityType.Name)
					open()
				})
				env.ExecuteWorkflow(func(ctx workflow.Context) (string, error) {
					var input map[string]json.RawMessage
					if err := json.Unmarshal([]byte(c.input), &input); err != nil {
						return "", err
					}
					// With a policy nobody has to find out within the window what the tool declares.
					input["_meta"] = fmt.Appendf(nil, `{"nexusmcp/options":{"execution":%q,"scheduleToCloseTimeout":"60s","retryPolicy":{"maximumAttempts":2}}}`, way.execution)
					var result json.RawMessage
					err := workflow.NewNexusClient("any", "rude").ExecuteOperation(ctx, operation, input, workflow.NexusOperationOptions{}).Get(ctx, &result)
					return string(result), err
				})
				open()
				require.True(t, env.IsWorkflowCompleted())
				require.NoError(t, env.GetWorkflowError(), way.name)
				var result string
				require.NoError(t, env.GetWorkflowResult(&result))
				assert.Equal(t, way.activities, activities, way.name)
				assert.Contains(t, result, c.result, way.name)
				results[way.name] = result
			}
			for way, result := range results {
				assert.Equal(t, results["inline"], result, way)
			}
		})
	}
}

// answersOn is a rude server that answers what a caller asks for once it may. What
// the handler asks for itself carries no idempotency key.
func answersOn(t *testing.T, answer <-chan struct{}) handler.Transport {
	t.Helper()
	server := rude.New(rude.Options{Pages: []int{1, 1}})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if bytes.Contains(body, []byte(mcpnexus.MetaKeyIdempotencyKey)) {
			select {
			case <-answer:
			case <-r.Context().Done():
				return
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(listener.Close)
	return handler.HTTP{Endpoint: listener.URL}
}
