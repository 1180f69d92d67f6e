package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/endpoints"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// What the README says about calls is shown here; its Go code is the
// quickstart's, whose tests check that.

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	return string(text)
}

func TestTheReadmesRequestIsAnswered(t *testing.T) {
	t.Parallel()
	blocks := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(readme(t), -1)
	require.NotEmpty(t, blocks)
	arguments := make(chan string, len(blocks)+1)
	p := publish(t, handler.Server{Name: "weather", Transport: handler.ArgumentFactory(func(ctx context.Context, argument json.RawMessage) (mcp.Transport, error) {
		arguments <- string(argument)
		inside, outside := mcp.NewInMemoryTransports()
		_, err := weatherServer().Connect(context.WithoutCancel(ctx), inside, nil)
		return outside, err
	})})
	require.Empty(t, <-arguments, "the handler tries the factory")
	for _, block := range blocks {
		p.run(t, func(ctx workflow.Context) error {
			raw, err := execute(ctx, p, "weather", mcpnexus.OperationCallTool, json.RawMessage(block[1]))
			if err != nil {
				return err
			}
			c := &complaints{}
			assert.Contains(c, string(raw), `"asked":{"city":"Oslo"}`)
			return c.err()
		})
		assert.Equal(t, `"acme"`, <-arguments)
	}
}

// saysWhere checks that the README's table on calls that hang has the text.
func saysWhere(t *testing.T, text string) {
	t.Helper()
	_, section, found := strings.Cut(readme(t), "### When a call hangs")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	assert.Contains(t, section, text)
}

// failedTask waits until a workflow's task has failed, and returns why.
func failedTask(t *testing.T, run interface {
	GetID() string
	GetRunID() string
}) (message string) {
	t.Helper()
	within(t, func() bool {
		described, err := appClient.DescribeWorkflow(t.Context(), run.GetID(), run.GetRunID())
		require.NoError(t, err)
		require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, described.Status)
		iterator := appClient.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for iterator.HasNext() {
			event, err := iterator.Next()
			require.NoError(t, err)
			if failed := event.GetWorkflowTaskFailedEventAttributes(); failed != nil {
				message = failed.GetFailure().GetMessage()
			}
		}
		return message != ""
	})
	return message
}

func TestACallThatHangsIsSeenWhereTheReadmeSays(t *testing.T) {
	t.Parallel()
	call := func(p *path) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			// A timeout of the call's does not end what is not scheduled.
			request := mcpnexus.RequestOptions{ScheduleToCloseTimeout: 100 * time.Millisecond}
			_, err := p.client("almanac", caller.Options{Request: request}).Discover(ctx, nil)
			return err
		}
	}
	t.Run("without an endpoint", func(t *testing.T) {
		t.Parallel()
		p := publish(t, handler.Server{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("")}})
		p.endpoint = "no-such-endpoint"
		run := p.start(t, call(p))
		message := failedTask(t, run)
		assert.Contains(t, message, `BadScheduleNexusOperationAttributes: endpoint "no-such-endpoint" not found`)
		saysWhere(t, `BadScheduleNexusOperationAttributes: endpoint "…" not found`)
		require.NoError(t, appClient.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "seen"))
	})
	t.Run("without a worker", func(t *testing.T) {
		t.Parallel()
		p := publish(t, handler.Server{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("")}})
		apply(t, endpoints.Spec{Name: p.endpoint, TargetNamespace: platformNamespace, TaskQueue: "nobody-polls-this"})
		run := p.start(t, func(ctx workflow.Context) error {
			_, err := p.client("almanac", caller.Options{}).Discover(ctx, nil)
			return err
		})
		saysWhere(t, "`Scheduled` to `BackingOff`")
		saysWhere(t, "`upstream timeout`")
		within(t, func() bool {
			described, err := appClient.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
			require.NoError(t, err)
			for _, operation := range described.GetPendingNexusOperations() {
				if failure := operation.GetLastAttemptFailure(); failure != nil {
					return strings.Contains(failure.GetMessage()+failure.GetCause().GetMessage(), "upstream timeout")
				}
			}
			return false
		})
		require.NoError(t, appClient.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "seen"))
	})
	t.Run("with a server that does not answer what it does not know", func(t *testing.T) {
		t.Parallel()
		mute := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}))
		t.Cleanup(mute.Close)
		p := publish(t, handler.Server{Name: "mute", Transport: handler.HTTP{Endpoint: mute.URL}, ConnectTimeout: time.Second})
		p.run(t, func(ctx workflow.Context) error {
			_, err := p.client("mute", caller.Options{Request: single}).Discover(ctx, nil)
			e, ok := mcpnexus.ErrorFrom(err)
			if !ok || e.Type != mcpnexus.ErrorTypeTimeout || !strings.Contains(e.Message, "no connection to the server") || !strings.Contains(e.Message, "Server.ProtocolVersion") {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
		saysWhere(t, "`no connection to the server`")
		saysWhere(t, "`Server.ProtocolVersion`")
	})
	t.Run("with two limits", func(t *testing.T) {
		t.Parallel()
		_, transport := rudeHTTP(t, rude.Options{})
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		p.run(t, func(ctx workflow.Context) error { // which waits until the endpoint is known
			c := &complaints{}
			assertEcho(ctx, c, p.client("rude", caller.Options{}))
			return c.err()
		})
		run := p.start(t, func(ctx workflow.Context) error {
			return fanOut(ctx, 60, p.client("rude", caller.Options{}), p.client("rude", caller.Options{}))
		})
		assert.Contains(t, failedTask(t, run), "PendingNexusOperationsLimitExceeded")
		saysWhere(t, "`PendingNexusOperationsLimitExceeded`")
		require.NoError(t, appClient.TerminateWorkflow(t.Context(), run.GetID(), run.GetRunID(), "seen"))
	})
}

func TestTheOtherErrorsOfTheReadmeArriveAsItSays(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	nobody := publish(t, handler.Server{Name: "rude", Transport: transport})
	apply(t, endpoints.Spec{Name: nobody.endpoint, TargetNamespace: platformNamespace, TaskQueue: "nobody-polls-this"})
	with := func(p *path, service string, options caller.Options) func(workflow.Context) error {
		return func(ctx workflow.Context) error {
			_, err := p.client(service, options).CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
			return err
		}
	}
	refused := func(kind nexus.HandlerErrorType) func(assert.TestingT, error) {
		return func(t assert.TestingT, err error) {
			var refused *nexus.HandlerError
			if assert.ErrorAs(t, err, &refused) {
				assert.Equal(t, kind, refused.Type)
			}
		}
	}
	for name, c := range map[string]struct {
		call  func(workflow.Context) error
		check func(assert.TestingT, error)
		says  string
	}{
		"a bad option":        {with(p, "rude", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: -1}}), refused(nexus.HandlerErrorTypeBadRequest), "`BAD_REQUEST`"},
		"an argument to none": {with(p, "rude", caller.Options{Request: mcpnexus.RequestOptions{FactoryArgument: json.RawMessage("1")}}), refused(nexus.HandlerErrorTypeBadRequest), "`BAD_REQUEST`"},
		"no such service":     {with(p, "polite", caller.Options{}), refused(nexus.HandlerErrorTypeNotFound), "`NOT_FOUND`"},
		"one attempt inline":  {with(p, "rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionInline, RetryPolicy: single.RetryPolicy}}), refused(nexus.HandlerErrorTypeBadRequest), "`execution: inline`"},
		"nobody polls": {with(nobody, "rude", caller.Options{Request: mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Second}}), func(t assert.TestingT, err error) {
			var timeout *temporal.TimeoutError
			if assert.ErrorAs(t, err, &timeout) {
				assert.Equal(t, enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, timeout.TimeoutType())
			}
		}, "`*temporal.TimeoutError`"},
		"cancelled at once": {func(ctx workflow.Context) error {
			ctx, cancel := workflow.WithCancel(ctx)
			future := p.client("rude", caller.Options{Operation: caller.OperationOptions{CancellationType: workflow.NexusOperationCancellationTypeTryCancel}}).
				CallToolAsync(ctx, &mcp.CallToolParams{Name: "silent"})
			// In another workflow task the call is on its way.
			if err := with(p, "rude", caller.Options{})(ctx); err != nil {
				return err
			}
			cancel()
			_, err := future.Get(ctx)
			return err
		}, func(t assert.TestingT, err error) {
			var cancelled *temporal.CanceledError
			assert.ErrorAs(t, err, &cancelled)
		}, "`*temporal.CanceledError`"},
		"cancelled, and answered after all": {func(ctx workflow.Context) error {
			ctx, cancel := workflow.WithCancel(ctx)
			future := p.client("rude", caller.Options{}).CallToolAsync(ctx, &mcp.CallToolParams{Name: "slow", Arguments: map[string]any{"ms": 1000}})
			if err := with(p, "rude", caller.Options{})(ctx); err != nil {
				return err
			}
			cancel()
			_, err := future.Get(ctx)
			return err
		}, func(t assert.TestingT, err error) { assert.NoError(t, err) }, "or its result if it has one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Contains(t, readme(t), c.says)
			p.run(t, func(ctx workflow.Context) error {
				complaints := &complaints{}
				err := c.call(ctx)
				c.check(complaints, err)
				_, ours := mcpnexus.ErrorFrom(err)
				assert.False(complaints, ours, "%v", err)
				return complaints.err()
			})
		})
	}
}
