package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/internal/plainjson"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The moments that these tests are about (a worker that stops during an attempt, a
// workflow that is cancelled before anybody fetches its activity, a worker of
// another version) are made by activities that stand in for the handler's.

type attempts func(ctx context.Context, in durableRequest, n int32) (converter.RawValue, error)

// runRequest runs the workflow of a request with the given attempts.
func runRequest(t *testing.T, in durableRequest, options mcpnexus.RequestOptions, make attempts, prepare ...func(*testsuite.TestWorkflowEnvironment)) (made int32, err error) {
	t.Helper()
	env := quietSuite().NewTestWorkflowEnvironment()
	env.RegisterWorkflowWithOptions(requestWorkflow, workflow.RegisterOptions{Name: WorkflowType})
	var n atomic.Int32
	env.RegisterActivityWithOptions(func(ctx context.Context, in durableRequest, _ converter.RawValue) (converter.RawValue, error) {
		return make(ctx, in, n.Add(1))
	}, activity.RegisterOptions{Name: attemptType("s")})
	for _, p := range prepare {
		p(env)
	}
	in.Service, in.Operation, in.Subject, in.RequestID = "s", mcpnexus.OperationCallTool, "tool", "id"
	if in.Options == nil {
		in.Options = writeOptions(options)
	}
	env.ExecuteWorkflow(WorkflowType, in, plainjson.Payload(json.RawMessage(`{}`)))
	require.True(t, env.IsWorkflowCompleted())
	return n.Load(), env.GetWorkflowError()
}

func quietSuite() *testsuite.WorkflowTestSuite {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	return &suite
}

func away() error {
	return mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "away"}).ApplicationError()
}

func TestAnAttemptThatWasGivenBackIsMadeAgainAndNotCounted(t *testing.T) {
	for name, before := range map[string]int32{"the first one": 0, "after one that has failed": 1, "after two": 2} {
		t.Run(name, func(t *testing.T) {
			const givenBackTwice, allowed = 2, 3
			policy := &temporal.RetryPolicy{MaximumAttempts: allowed}
			counted := before
			made, err := runRequest(t, durableRequest{durableState: durableState{Attempts: before}}, mcpnexus.RequestOptions{RetryPolicy: policy},
				func(ctx context.Context, in durableRequest, n int32) (converter.RawValue, error) {
					assert.Equal(t, counted, in.Attempts+activity.GetInfo(ctx).Attempt-1, "attempts that were made")
					if n <= givenBackTwice {
						return converter.RawValue{}, givenBack(in.Attempts + activity.GetInfo(ctx).Attempt - 1)
					}
					counted++
					return converter.RawValue{}, away()
				})
			failure, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, mcpnexus.ErrorTypeTransport, failure.Type)
			assert.Equal(t, givenBackTwice+allowed-before, made)
		})
	}
}

func TestAnAttemptThatEveryWorkerGivesBackIsNotOfferedAllTheTime(t *testing.T) {
	var began time.Time
	var took time.Duration
	made, err := runRequest(t, durableRequest{durableState: durableState{Left: time.Hour}}, mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Hour},
		func(ctx context.Context, in durableRequest, n int32) (converter.RawValue, error) {
			scheduled := activity.GetInfo(ctx).ScheduledTime
			if n == 1 {
				began = scheduled
			}
			took = scheduled.Sub(began)
			return converter.RawValue{}, givenBack(in.Attempts)
		})
	failure, ok := mcpnexus.ErrorFrom(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, mcpnexus.ErrorTypeTimeout, failure.Type)
	assert.Less(t, took, time.Hour)
	// 1 s, 2 s, 4 s, up to 100 s.
	assert.Less(t, made, int32(60))
	assert.Greater(t, made, int32(30))
}

func TestARequestThatIsGivenBackEndsInTimeToTellItsCaller(t *testing.T) {
	// By the backoff alone it would end after 15 s, 127 s and more than ten minutes.
	for _, limit := range []time.Duration{10 * time.Second, 70 * time.Second, 10 * time.Minute} {
		t.Run(limit.String(), func(t *testing.T) {
			var env *testsuite.TestWorkflowEnvironment
			var began time.Time
			_, err := runRequest(t, durableRequest{durableState: durableState{Left: limit}}, mcpnexus.RequestOptions{ScheduleToCloseTimeout: limit},
				func(_ context.Context, in durableRequest, _ int32) (converter.RawValue, error) {
					return converter.RawValue{}, givenBack(in.Attempts)
				},
				func(e *testsuite.TestWorkflowEnvironment) { env, began = e, e.Now() })
			failure, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, mcpnexus.ErrorTypeTimeout, failure.Type)
			assert.WithinRange(t, env.Now(), began.Add(limit), began.Add(limit+time.Second))
		})
	}
}

// The Temporal server was away, or no worker took the workflow's task, for a minute; or
// a run of the workflow had the call cancelled, and was reset.
func TestACallThatHasEndedWithoutAnOutcomeIsMadeAgain(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  string
	}{
		"nobody had asked for it": {errUnclaimed, `s: call-tool "tool": nobody asked for the outcome`},
		"it was cancelled":        {errCancelled, `s: call-tool "tool": the request was cancelled`},
	} {
		for _, attempts := range []int32{0, 1} {
			t.Run(fmt.Sprintf("%s, %d attempts allowed", name, attempts), func(t *testing.T) {
				h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}}}})
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
				h.mocked = true
				s := h.services["s"]
				require.True(t, h.begin())
				ended, known := h.running.begin(context.Background(), "key", noLimit)
				require.False(t, known)
				h.running.owe(ended)
				ended.cancel(c.cause)
				h.running.pay(ended)
				h.running.end(ended, s.ending(callToolOperation, &request{subject: "tool"}, nil, context.Cause(ended.ctx)))
				h.calls.Done()

				made, err := runRequest(t, durableRequest{durableState: durableState{Running: &runningCall{TaskQueue: "process", Key: "key", Left: time.Minute}}},
					mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: attempts}},
					func(_ context.Context, in durableRequest, _ int32) (converter.RawValue, error) {
						assert.EqualValues(t, 1, in.Attempts)
						return plainjson.Payload(json.RawMessage(`{}`)), nil
					},
					func(env *testsuite.TestWorkflowEnvironment) {
						env.RegisterActivityWithOptions(s.runningActivity, activity.RegisterOptions{Name: runningType("s")})
					})
				if attempts == 0 {
					require.NoError(t, err)
					assert.EqualValues(t, 1, made)
					return
				}
				failure, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: c.want}, *failure)
				assert.Zero(t, made)
			})
		}
	}
}

// In which of the two ways it is noticed is the handler's affair.
func TestACallWhoseWorkerVanishesIsNotMadeAgainIfItsPolicySaysSo(t *testing.T) {
	for name, vanished := range map[string]error{
		"silent":                temporal.NewHeartbeatTimeoutError(),
		"not there to be asked": temporal.NewTimeoutError(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_START, nil),
	} {
		for _, unwanted := range []string{"TemporalTimeout:Heartbeat", "MCPTransportError", "TemporalTimeout:StartToClose"} {
			t.Run(name+", "+unwanted, func(t *testing.T) {
				policy := &temporal.RetryPolicy{MaximumAttempts: 3, NonRetryableErrorTypes: []string{unwanted}}
				made, err := runRequest(t, durableRequest{durableState: durableState{Running: &runningCall{TaskQueue: "process", Key: "key", Left: time.Minute}}}, mcpnexus.RequestOptions{RetryPolicy: policy},
					func(context.Context, durableRequest, int32) (converter.RawValue, error) {
						return plainjson.Payload(json.RawMessage(`{}`)), nil
					},
					func(env *testsuite.TestWorkflowEnvironment) {
						env.RegisterActivityWithOptions(func(context.Context, runningRequest) (converter.RawValue, error) {
							return converter.RawValue{}, vanished
						}, activity.RegisterOptions{Name: runningType("s")})
					})
				if unwanted == "TemporalTimeout:StartToClose" {
					require.NoError(t, err)
					assert.EqualValues(t, 1, made)
					return
				}
				failure, ok := mcpnexus.ErrorFrom(err)
				require.True(t, ok, "%v", err)
				assert.Equal(t, mcpnexus.ErrorTypeTransport, failure.Type)
				assert.True(t, failure.NonRetryable)
				assert.Zero(t, made)
			})
		}
	}
}

// One of which the process was asked is cancelled by its activity, which a test
// environment does not wait for: see tests/integration.
func TestACallThatNobodyHadAskedForIsCancelledWithItsWorkflow(t *testing.T) {
	var told []string
	made, err := runRequest(t, durableRequest{durableState: durableState{Running: &runningCall{TaskQueue: "process", Key: "key", Left: time.Minute}}}, mcpnexus.RequestOptions{},
		func(context.Context, durableRequest, int32) (converter.RawValue, error) {
			return converter.RawValue{}, away()
		},
		func(env *testsuite.TestWorkflowEnvironment) {
			env.RegisterActivityWithOptions(func(ctx context.Context, _ runningRequest) (converter.RawValue, error) {
				<-ctx.Done()
				return converter.RawValue{}, temporal.NewCanceledError("ACTIVITY_ID_NOT_STARTED") // as the Temporal server does
			}, activity.RegisterOptions{Name: runningType("s")})
			env.RegisterActivityWithOptions(func(ctx context.Context, key string) error {
				assert.Equal(t, "process", activity.GetInfo(ctx).TaskQueue)
				told = append(told, key)
				return nil
			}, activity.RegisterOptions{Name: cancelAttemptType("s")})
			env.RegisterDelayedCallback(env.CancelWorkflow, time.Millisecond)
		})
	var canceled *temporal.CanceledError
	require.ErrorAs(t, err, &canceled)
	assert.Zero(t, made)
	assert.Equal(t, []string{"key"}, told)
}

func TestWhatANewerVersionHasWrittenIsLeftToItsWorkers(t *testing.T) {
	future := json.RawMessage(`{"startToCloseTimeout":"5s","urgency":"high"}`)
	t.Run("a workflow", func(t *testing.T) {
		_, err := runRequest(t, durableRequest{Options: future}, mcpnexus.RequestOptions{}, nil)
		// The panic fails the workflow task, which a Temporal server repeats.
		var panicked *temporal.PanicError
		require.ErrorAs(t, err, &panicked)
		assert.Contains(t, panicked.Error(), "does not understand the request's options: urgency: unknown field")
	})
	h, err := New(Options{Servers: []Server{{Name: "s", Transport: HTTP{Endpoint: "http://127.0.0.1:1"}}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	for name, in := range map[string]durableRequest{
		"an activity with an option":     {Operation: mcpnexus.OperationCallTool, Options: future, durableState: durableState{Attempts: 2}},
		"an activity of a new operation": {Operation: "levitate", durableState: durableState{Attempts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			env := quietSuite().NewTestActivityEnvironment()
			env.RegisterActivity(h.services["s"].attemptActivity)
			_, err := env.ExecuteActivity(h.services["s"].attemptActivity, in, plainjson.Payload(json.RawMessage(`{}`)))
			require.True(t, isGivenBack(err), "%v", err)
			assert.Equal(t, int32(2), attemptsBefore(err))
		})
	}
}

func TestWhatAServerSaysOfItsProgressIsKeptSmall(t *testing.T) {
	var last atomic.Pointer[progressDetails]
	report := remember(&last)
	report(mcp.ProgressNotificationParams{ProgressToken: strings.Repeat("t", 1<<20), Progress: 1, Total: 2, Message: "half"})
	assert.Equal(t, progressDetails{Progress: 1, Total: 2, Message: "half"}, *last.Load())
	report(mcp.ProgressNotificationParams{Progress: 2, Message: "\xff" + strings.Repeat("é", 3<<20)})
	encoded, err := json.Marshal(heartbeat{Progress: last.Load()})
	require.NoError(t, err)
	assert.Less(t, len(encoded), 2*maxProgressMessage)
}

// The failures of a batch's calls are in the history of its workflow, as results are.
func TestAnAttemptsErrorHasNoMoreDataThanThereIsRoomForInTheHistory(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	data, err := json.Marshal(strings.Repeat("x", 5000))
	require.NoError(t, err)
	server.AddTool(&mcp.Tool{Name: "fail", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32602, Message: "no", Data: data}
	})
	h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: server}}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	for limit, want := range map[int]string{0: string(data), 100_000: string(data), 4000: ""} {
		env := quietSuite().NewTestActivityEnvironment()
		h.mocked = true
		env.RegisterActivity(h.services["s"].attemptActivity)
		in := durableRequest{Service: "s", Operation: mcpnexus.OperationCallTool, Subject: "fail", RequestID: "id", MaxResultBytes: limit}
		_, err := env.ExecuteActivity(h.services["s"].attemptActivity, in, plainjson.Payload(json.RawMessage(`{"name":"fail"}`)))
		failure, ok := mcpnexus.ErrorFrom(err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, int64(-32602), failure.Code)
		assert.Equal(t, want, string(failure.Data))
		assert.Equal(t, want == "", strings.Contains(failure.Message, "its data of 5002 bytes was left out, the limit is 4000"), failure.Message)
	}
}

func TestWhatCameOfACallThatWasHandedOffIsReportedInTheNameOfTheRequest(t *testing.T) {
	data := json.RawMessage(strings.Repeat("7", maxHandedOffData+1))
	refused := mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32602, Message: "no", Data: data})
	for name, c := range map[string]struct {
		ending  ending
		stops   bool
		limit   int
		message string
		want    func(*testing.T, *mcpnexus.Error)
	}{
		"a result that is too large": {ending: ending{result: data}, limit: 4000, message: "s: read-resource \"file:///a\": the result has", want: func(t *testing.T, e *mcpnexus.Error) {
			assert.Equal(t, mcpnexus.ErrorTypeResultTooLarge, e.Type)
			assert.EqualValues(t, 4000, e.Limit)
		}},
		"an error, whole": {ending: ending{failure: refused}, message: "no", want: func(t *testing.T, e *mcpnexus.Error) {
			assert.Equal(t, data, e.Data)
		}},
		"an error of a batch, cut": {ending: ending{failure: refused}, limit: 1 << 20, message: "its data of", want: func(t *testing.T, e *mcpnexus.Error) {
			assert.Empty(t, e.Data)
		}},
		"an error that came before its worker stopped": {ending: ending{failure: refused}, stops: true, message: "no", want: func(t *testing.T, e *mcpnexus.Error) {
			assert.EqualValues(t, -32602, e.Code)
		}},
		"none": {message: "s: read-resource \"file:///a\": the process does not know the call any more", want: func(t *testing.T, e *mcpnexus.Error) {
			assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}}}})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
			h.mocked = true
			if c.ending.result != nil || c.ending.failure != nil {
				call, _ := h.running.begin(t.Context(), "key", maxRunning)
				h.running.owe(call)
				h.running.end(call, c.ending)
			}
			env := quietSuite().NewTestActivityEnvironment()
			report := func(ctx context.Context, in runningRequest) (any, error) {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				if c.stops {
					cancel(worker.ErrWorkerShutdown)
				}
				return h.services["s"].runningActivity(ctx, in)
			}
			env.RegisterActivity(report)
			_, err = env.ExecuteActivity(report, runningRequest{Key: "key", Operation: mcpnexus.OperationReadResource, Subject: "file:///a", MaxResultBytes: c.limit})
			failure, ok := mcpnexus.ErrorFrom(err)
			require.True(t, ok, "%v", err)
			assert.Contains(t, failure.Message, c.message)
			c.want(t, failure)
		})
	}
}

func TestWhatTheServerSaidIsAnAnswerAndWhatBrokeIsNone(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32602}), true},
		{mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeResultTooLarge}), true},
		{mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: 403}), true},
		{mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport}), false},
		{errStopping, false},
		{worker.ErrWorkerShutdown, false},
	} {
		assert.Equal(t, c.want, isAnswer(c.err), c.err)
	}
}

func TestARequestThatMayBeSentOnceIsNotSentAfterHeartbeatsThatCannotBeRead(t *testing.T) {
	var calls atomic.Int32
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "count", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		calls.Add(1)
		return &mcp.CallToolResult{}, nil
	})
	h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: server}}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	h.mocked = true
	for _, c := range []struct {
		allowed int32 // attempts
		stops   bool  // the worker
		details any   // of the heartbeats before
		sent    int32
		want    func(error) bool
	}{
		{1, false, "of an older key", 0, isUnknownOutcome},
		{1, false, heartbeat{Unread: true}, 0, isUnknownOutcome},
		{1, true, "of an older key", 0, isUnknownOutcome},
		{2, false, "of an older key", 1, func(err error) bool { return err == nil }},
		{2, false, heartbeat{Unread: true}, 1, func(err error) bool { return err == nil }},
		{2, true, "of an older key", 0, isGivenBack},
	} {
		t.Run(fmt.Sprintf("%+v", c.details)+fmt.Sprintf(", %d attempts, stops: %v", c.allowed, c.stops), func(t *testing.T) {
			calls.Store(0)
			env := quietSuite().NewTestActivityEnvironment()
			attempt := func(ctx context.Context, in durableRequest, params converter.RawValue) (any, error) {
				ctx, cancel := context.WithCancelCause(ctx)
				defer cancel(nil)
				if c.stops {
					cancel(worker.ErrWorkerShutdown)
				}
				return h.services["s"].attemptActivity(ctx, in, params)
			}
			env.RegisterActivity(attempt)
			env.SetHeartbeatDetails(c.details)
			in := durableRequest{
				Service: "s", Operation: mcpnexus.OperationCallTool, RequestID: "id",
				Options: writeOptions(mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: c.allowed}}),
			}
			_, err := env.ExecuteActivity(attempt, in, plainjson.Payload(json.RawMessage(`{"name":"count"}`)))
			assert.True(t, c.want(err), "%v", err)
			assert.Equal(t, c.sent, calls.Load())
		})
	}
}

// The activity that follows on one that was given back has no heartbeats.
func TestAWorkerThatCannotMakeAnAttemptDoesNotForgetThatTheRequestMayHaveBeenSent(t *testing.T) {
	once := writeOptions(mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
	often := writeOptions(mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 5}})
	future := json.RawMessage(`{"retryPolicy":{"maximumAttempts":1},"urgency":"high"}`)
	for _, c := range []struct {
		name    string
		options json.RawMessage
		closed  bool
		details any
		want    func(error) bool
	}{
		{"sent, and the worker stops", once, true, heartbeat{Sent: true}, isUnknownOutcome},
		{"sent, and the options are newer", future, false, heartbeat{Sent: true}, isUnknownOutcome},
		{"perhaps sent, and the worker stops", once, true, "of an older key", isUnknownOutcome},
		{"perhaps sent, by a tool that may be destructive", nil, true, "of an older key", isUnknownOutcome},
		{"perhaps sent, and the options are newer", future, false, heartbeat{Unread: true}, isUnknownOutcome},
		{"perhaps sent, and to be sent again", often, true, "of an older key", isGivenBack},
		{"not sent", once, true, heartbeat{}, isGivenBack},
		{"not sent, and the options are newer", future, false, heartbeat{}, isGivenBack},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}}}})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
			h.mocked = true
			if c.closed {
				require.NoError(t, h.Close(t.Context()))
			}
			env := quietSuite().NewTestActivityEnvironment()
			env.RegisterActivity(h.services["s"].attemptActivity)
			env.SetHeartbeatDetails(c.details)
			in := durableRequest{Service: "s", Operation: mcpnexus.OperationCallTool, RequestID: "id", Options: c.options}
			_, err = env.ExecuteActivity(h.services["s"].attemptActivity, in, plainjson.Payload(json.RawMessage(`{"name":"count"}`)))
			assert.True(t, c.want(err), "%v", err)
		})
	}
}

// A lostKeyCodec panics over heartbeats that say that the request was sent.
type lostKeyCodec struct{}

func (lostKeyCodec) Encode(in []*commonpb.Payload) ([]*commonpb.Payload, error) { return in, nil }

func (lostKeyCodec) Decode(in []*commonpb.Payload) ([]*commonpb.Payload, error) {
	for _, p := range in {
		if bytes.HasPrefix(p.GetData(), []byte(`{"sent":`)) {
			panic("no such key")
		}
	}
	return in, nil
}

func TestHeartbeatsThatACodecPanicsOverAreHeartbeatsThatCannotBeRead(t *testing.T) {
	h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	h.mocked = true
	env := quietSuite().NewTestActivityEnvironment()
	env.SetDataConverter(converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), lostKeyCodec{}))
	env.RegisterActivity(h.services["s"].attemptActivity)
	env.SetHeartbeatDetails(heartbeat{Sent: true})
	in := durableRequest{
		Service: "s", Operation: mcpnexus.OperationCallTool, RequestID: "id",
		Options: writeOptions(mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}),
	}
	_, err = env.ExecuteActivity(h.services["s"].attemptActivity, in, plainjson.Payload(json.RawMessage(`{"name":"count"}`)))
	assert.True(t, isUnknownOutcome(err), "%v", err)
}

// Its tool may be destructive. The activity takes them so too.
func TestWhatTheWorkflowCannotReadMayHaveBeenSentUnlessThePolicyAllowsMoreAttempts(t *testing.T) {
	unreadable := &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}}}}
	unread, err := converter.GetDefaultDataConverter().ToPayloads(heartbeat{Unread: true})
	require.NoError(t, err)
	for _, c := range []struct {
		activity, operation string
		policy              *temporal.RetryPolicy
		want                mcpnexus.ErrorType
	}{
		{attemptType(""), mcpnexus.OperationCallTool, &temporal.RetryPolicy{MaximumAttempts: 1}, mcpnexus.ErrorTypeOutcomeUnknown},
		{attemptType(""), mcpnexus.OperationCallTool, nil, mcpnexus.ErrorTypeOutcomeUnknown},
		{attemptType(""), mcpnexus.OperationCallTool, &temporal.RetryPolicy{MaximumAttempts: 2}, mcpnexus.ErrorTypeTransport},
		{attemptType(""), mcpnexus.OperationReadResource, nil, mcpnexus.ErrorTypeTransport},
		{runningType(""), mcpnexus.OperationCallTool, nil, mcpnexus.ErrorTypeTransport}, // handed off, so not destructive
	} {
		for _, details := range []*commonpb.Payloads{unreadable, unread} {
			r := &durableRun{options: mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Minute, RetryPolicy: c.policy}}
			r.Operation = c.operation
			e := r.contractError(temporal.GetDefaultFailureConverter().FailureToError(&failurepb.Failure{
				FailureInfo: &failurepb.Failure_ActivityFailureInfo{ActivityFailureInfo: &failurepb.ActivityFailureInfo{ActivityType: &commonpb.ActivityType{Name: c.activity}}},
				Cause: &failurepb.Failure{FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{
					TimeoutType: enumspb.TIMEOUT_TYPE_HEARTBEAT, LastHeartbeatDetails: details,
				}}},
			}))
			assert.Equal(t, c.want, e.Type, "%s, %s, %+v: %s", c.activity, c.operation, c.policy, e.Message)
		}
	}
}

func TestAnEndThatIsNoneOfTheContractsTellsCallersNothingOfTheWorker(t *testing.T) {
	for _, permanent := range []bool{false, true} {
		r := &durableRun{}
		r.Service, r.Operation, r.Subject = "s", mcpnexus.OperationCallTool, "t"
		err := r.final(temporal.GetDefaultFailureConverter().FailureToError(&failurepb.Failure{
			FailureInfo: &failurepb.Failure_ActivityFailureInfo{ActivityFailureInfo: &failurepb.ActivityFailureInfo{Identity: "1@secret-host"}},
			Cause: &failurepb.Failure{Message: "unable to decode", FailureInfo: &failurepb.Failure_ApplicationFailureInfo{
				ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: "Codec", NonRetryable: permanent},
			}},
		}))
		e, ok := mcpnexus.ErrorFrom(err)
		require.True(t, ok, "%v", err)
		assert.Equal(t, mcpnexus.ErrorTypeTransport, e.Type)
		assert.Equal(t, permanent, e.NonRetryable)
		assert.Contains(t, e.Message, `s: call-tool "t": unable to decode`)
		assert.NotContains(t, e.Message, "host")
	}
}

// An attempt in between, on another worker, may have sent it.
func TestWhoFollowsACallThatIsGivenBackDoesNotForgetThatTheRequestMayHaveBeenSent(t *testing.T) {
	for _, c := range []struct {
		allowed int32 // attempts
		details any
		want    func(error) bool
	}{
		{1, "of an older key", isUnknownOutcome},
		{1, heartbeat{}, isGivenBack},
		{5, "of an older key", isGivenBack},
	} {
		t.Run(fmt.Sprintf("%d attempts, %v", c.allowed, c.details), func(t *testing.T) {
			h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}}}})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
			h.mocked = true
			call, _ := h.running.begin(t.Context(), "key", maxRunning)
			h.running.owe(call)
			env := quietSuite().NewTestActivityEnvironment()
			env.RegisterActivity(h.services["s"].attemptActivity)
			env.SetHeartbeatDetails(c.details)
			in := durableRequest{
				Service: "s", Operation: mcpnexus.OperationCallTool, RequestID: "id", Former: "key",
				Options: writeOptions(mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: c.allowed}}),
			}
			ends := make(chan error, 1)
			go func() {
				_, err := env.ExecuteActivity(h.services["s"].attemptActivity, in, plainjson.Payload(json.RawMessage(`{"name":"count"}`)))
				ends <- err
			}()
			require.Eventually(t, func() bool {
				h.running.mu.Lock()
				defer h.running.mu.Unlock()
				return call.claims == 1
			}, 20*time.Second, time.Millisecond)
			h.running.end(call, ending{failure: stopping(), stopped: true})
			err = <-ends
			assert.True(t, c.want(err), "%v", err)
		})
	}
}

// Its answer can be lost: it is given when the time of the Nexus request is nearly over.
func TestAStartThatIsRepeatedAfterItsCallWasCutOffHearsTheSame(t *testing.T) {
	h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)}}}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, h.Close(context.Background())) })
	for name, policy := range map[string]*temporal.RetryPolicy{"the default policy": nil, "one attempt": {MaximumAttempts: 1}} {
		t.Run(name, func(t *testing.T) {
			st := &start{service: h.services["s"], op: callToolOperation, req: &request{options: mcpnexus.RequestOptions{RetryPolicy: policy}}}
			c, _ := h.running.begin(t.Context(), name, maxRunning)
			c.cancel(&cutOffError{why: "it is too large"})
			h.running.end(c, st.ending(st.op, st.req, nil, context.Cause(c.ctx)))
			assert.True(t, c.cancelled, "which says nothing of the connection")
			_, again := st.after(c)
			assert.False(t, again)
			_, err := st.settle(t.Context(), c)
			assert.True(t, isUnknownOutcome(err), "%v", err)
			assert.ErrorContains(t, c.outcome().Error.ApplicationError(), "it is too large")
		})
	}
}

func isUnknownOutcome(err error) bool {
	failure, ok := mcpnexus.ErrorFrom(err)
	return ok && failure.Type == mcpnexus.ErrorTypeOutcomeUnknown
}

// The Temporal server keeps a failure of more than 4 KB, after which an activity is tried
// again, in words of its own, and puts it under the timeout that ends the activity.
func TestAFailureThatIsTooLargeToBeKeptIsNotAResultThatIsTooLarge(t *testing.T) {
	beats, err := converter.GetDefaultDataConverter().ToPayloads(heartbeat{Sent: true})
	require.NoError(t, err)
	server := func(words string) *failurepb.Failure {
		return &failurepb.Failure{Message: words, FailureInfo: &failurepb.Failure_ServerFailureInfo{ServerFailureInfo: &failurepb.ServerFailureInfo{NonRetryable: true}}}
	}
	timeout := func(kind enumspb.TimeoutType, details *commonpb.Payloads) *failurepb.Failure {
		return &failurepb.Failure{
			Message: "activity timeout", Cause: server("Failure exceeds size limit."),
			FailureInfo: &failurepb.Failure_TimeoutFailureInfo{TimeoutFailureInfo: &failurepb.TimeoutFailureInfo{TimeoutType: kind, LastHeartbeatDetails: details}},
		}
	}
	for name, c := range map[string]struct {
		failure *failurepb.Failure
		want    mcpnexus.ErrorType
	}{
		"no time left":                {timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, nil), mcpnexus.ErrorTypeTimeout},
		"an attempt without time":     {timeout(enumspb.TIMEOUT_TYPE_START_TO_CLOSE, nil), mcpnexus.ErrorTypeTimeout},
		"a worker that vanished":      {timeout(enumspb.TIMEOUT_TYPE_HEARTBEAT, nil), mcpnexus.ErrorTypeTransport},
		"one that had sent":           {timeout(enumspb.TIMEOUT_TYPE_SCHEDULE_TO_CLOSE, beats), mcpnexus.ErrorTypeOutcomeUnknown},
		"a failure that is too large": {server("Failure exceeds size limit."), mcpnexus.ErrorTypeTransport},
		"a result that is too large":  {server("Complete result exceeds size limit."), mcpnexus.ErrorTypeResultTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			failure := &failurepb.Failure{
				Message: "activity error", Cause: c.failure,
				FailureInfo: &failurepb.Failure_ActivityFailureInfo{ActivityFailureInfo: &failurepb.ActivityFailureInfo{ActivityType: &commonpb.ActivityType{Name: attemptType("s")}}},
			}
			r := &durableRun{options: mcpnexus.RequestOptions{ScheduleToCloseTimeout: time.Minute}}
			assert.Equal(t, c.want, r.contractError(temporal.GetDefaultFailureConverter().FailureToError(failure)).Type)
		})
	}
}

func TestAWorkflowIDIsPrintableShortAndTheRequestsOwn(t *testing.T) {
	long := strings.Repeat("a", 990)
	ids := map[string]string{}
	for _, c := range []struct{ service, request, want string }{
		{"weather", "0b5b6f5c-1a5b-4a52-8f2e-6f0f8f0e7a11", "nexusmcp/weather/call-tool/0b5b6f5c-1a5b-4a52-8f2e-6f0f8f0e7a11"},
		{"größe", "1", "nexusmcp/gr%C3%B6%C3%9Fe/call-tool/1"},
		{"gr%C3%B6%C3%9Fe", "1", "nexusmcp/gr%25C3%25B6%25C3%259Fe/call-tool/1"},
		{"with space", "1/2\n", "nexusmcp/with%20space/call-tool/1%2F2%0A"},
		{"s", "~", "nexusmcp/s/call-tool/%7E"},
		{long, "1", ""},
		{long + "b", "1", ""},
		{"s", long, ""},
		{"s", long + "b", ""},
		{strings.Repeat("ö", 990), "1", ""},
	} {
		id := workflowID(c.service, "call-tool", c.request)
		if c.want != "" {
			assert.Equal(t, c.want, id)
		}
		assert.LessOrEqual(t, len(id), 1000)
		assert.NotRegexp(t, "[^ -~]", id)
		assert.NotContains(t, ids, id)
		ids[id] = c.service
	}
}
