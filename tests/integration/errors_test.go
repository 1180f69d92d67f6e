package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A mishap is a call of a rude server that fails, and the error that workflow
// code gets for it.
type mishap struct {
	name      string
	service   string // empty means "rude"
	tool      string // empty means that the tools are listed
	arguments string
	options   mcpnexus.RequestOptions
	want      mcpnexus.Error // but for Message and Problem
	problem   string         // what Problem contains
	message   string         // what Message contains
}

// mishaps are those that happen over every transport.
func mishaps() []mishap {
	var all []mishap
	for permanent, codes := range map[bool][]int64{
		true:  {-32700, -32600, -32601, -32602, -32020, -32021, -32022, -32042, -32002},
		false: {-32603, -32000, -32001, 1, 429},
	} {
		for _, code := range codes {
			all = append(all, mishap{
				name: fmt.Sprintf("JSON-RPC error %d", code), tool: "error",
				arguments: fmt.Sprintf(`{"code":%d,"message":"as <you> wished","data":{"id":9007199254740993}}`, code),
				want:      mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: code, Data: json.RawMessage(`{"id":9007199254740993}`), NonRetryable: permanent},
				message:   fmt.Sprintf(`rude: call-tool "error": as <you> wished (JSON-RPC error %d)`, code),
			})
		}
	}
	huge := handler.DefaultMaxResultBytes + 1 - len(`{"resultType":"complete","content":[{"type":"text","text":""}]}`)
	return append(all, []mishap{
		{
			name: "a JSON-RPC error without data", tool: "error", arguments: `{"code":-32603}`,
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32603},
			message: "(JSON-RPC error -32603)",
		},
		{
			name: "an unknown tool", tool: "no such tool", arguments: `{}`,
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32602, NonRetryable: true},
			message: `rude: call-tool "no such tool": unknown tool`,
		},
		{
			name: "a result that breaks the schema", tool: "raw-result", arguments: `{"result":{"content":"text"}}`,
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, NonRetryable: true},
			problem: "content", message: `rude: call-tool "raw-result": the server's answer breaks the protocol: `,
		},
		{
			name: "an answer that is not JSON", tool: "raw-message", arguments: `{"message":"{\"jsonrpc\":\"2.0\",\"id\":$ID,\"result\":{\"content\""}`,
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, NonRetryable: true},
			problem: "not a JSON-RPC message", message: `rude: call-tool "raw-message": `,
		},
		{
			name: "a list that comes back to a cursor", service: "endless",
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, NonRetryable: true},
			problem: `the cursor "page-1" came twice`, message: "endless: list-tools: ",
		},
		{
			name: "nobody there", service: "missing", tool: "echo", arguments: `{}`,
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport},
			message: `missing: call-tool "echo": `,
		},
		{
			name: "a connection that closes in the middle of the answer", service: "closing", tool: "close", arguments: `{}`,
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport},
			message: `closing: call-tool "close": `,
		},
		{
			name: "a process that dies", service: "dying", tool: "exit", arguments: `{}`,
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport},
			message: `dying: call-tool "exit": `,
		},
		{
			name: "a tool that outlives the caller's timeout", tool: "silent", arguments: `{}`,
			// Of which opening the connection takes no more than a part, also on a busy machine.
			options: mcpnexus.RequestOptions{StartToCloseTimeout: 2 * time.Second},
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeTimeout, Timeout: 2 * time.Second},
			message: `rude: call-tool "silent": no answer within 2s`,
		},
		{
			name: "a result that is too large by one byte", tool: "huge", arguments: fmt.Sprintf(`{"bytes":%d}`, huge),
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeResultTooLarge, Size: handler.DefaultMaxResultBytes + 1, Limit: handler.DefaultMaxResultBytes, NonRetryable: true},
			message: fmt.Sprintf("the limit is %d", handler.DefaultMaxResultBytes),
		},
		{
			name: "an error that the caller's policy does not want retried", tool: "error", arguments: `{"code":-32603}`,
			options: mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{NonRetryableErrorTypes: []string{"MCPProtocolError"}}},
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32603, NonRetryable: true},
			message: "(JSON-RPC error -32603)",
		},
	}...)
}

// ways are those in which a call that fails for as long as it is allowed to comes
// to its end.
var ways = map[string]mcpnexus.RequestOptions{
	"in the Nexus request":           {Execution: mcpnexus.ExecutionInline, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2}},
	"in the second attempt, durably": {RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2}},
	alone:                            single,
}

const alone = "in the only attempt"

// single allows one attempt.
var single = mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}

// over adds a mishap's own options to a way's.
func over(way, own mcpnexus.RequestOptions) mcpnexus.RequestOptions {
	way.StartToCloseTimeout = own.StartToCloseTimeout
	if own.RetryPolicy != nil {
		policy := *way.RetryPolicy
		policy.NonRetryableErrorTypes = own.RetryPolicy.NonRetryableErrorTypes
		way.RetryPolicy = &policy
	}
	return way
}

// statuses are the mishaps that only HTTP has.
func statuses() []mishap {
	var all []mishap
	for _, status := range []struct {
		status     int
		retryAfter string
		permanent  bool
		delay      time.Duration
	}{
		{400, "", true, 0}, {401, "", true, 0}, {403, "1", true, 0}, {404, "", true, 0},
		{408, "", false, 0}, {425, "", false, 0}, {429, "", false, 0}, {429, "1", false, time.Second},
		{500, "", false, 0}, {500, "1", false, 0}, {502, "", false, 0},
		{503, "", false, 0}, {503, "1", false, time.Second}, {503, "soon", false, 0},
	} {
		name := fmt.Sprintf("HTTP status %d", status.status)
		if status.retryAfter != "" {
			name += ", Retry-After: " + status.retryAfter
		}
		all = append(all, mishap{
			name: name, tool: "status", arguments: fmt.Sprintf(`{"status":%d,"retryAfter":%q}`, status.status, status.retryAfter),
			want:    mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: status.status, NonRetryable: status.permanent, NextRetryDelay: status.delay},
			message: fmt.Sprintf(`rude: call-tool "status": HTTP status %d`, status.status),
		})
	}
	return all
}

func TestEveryErrorOfTheContractReachesWorkflowCode(t *testing.T) {
	t.Parallel()
	endless := rude.Options{Pages: []int{1, 1, 1}, RepeatCursor: true}
	nobody := handler.HTTP{Endpoint: "http://127.0.0.1:1/mcp"}
	_, overHTTP := rudeHTTP(t, rude.Options{})
	_, overEvents := rudeHTTP(t, rude.Options{EventStream: true})
	_, withSessions := rudeHTTP(t, rude.Options{Legacy: true})
	_, endlessHTTP := rudeHTTP(t, endless)
	for name, c := range map[string]struct {
		rude, endless, missing handler.Transport
		mishaps                []mishap
	}{
		"over HTTP":                    {overHTTP, endlessHTTP, nobody, append(mishaps(), statuses()...)},
		"over HTTP with event streams": {overEvents, endlessHTTP, nobody, mishaps()},
		"over HTTP with sessions":      {withSessions, endlessHTTP, nobody, mishaps()},
		"over stdio":                   {rudeStdio(t, rude.Options{}), rudeStdio(t, endless), handler.Command{Path: "/no/such/program"}, mishaps()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t,
				handler.Server{Name: "rude", Transport: c.rude},
				// Their ends are the ends of all calls that share the connection.
				handler.Server{Name: "closing", Transport: c.rude},
				handler.Server{Name: "dying", Transport: c.rude},
				handler.Server{Name: "endless", Transport: c.endless},
				handler.Server{Name: "missing", Transport: c.missing})
			for way, options := range ways {
				if way != alone && name != "over HTTP" {
					continue // the transport makes no difference to it
				}
				for _, m := range c.mishaps {
					// Nor does the code or the status, beyond what a retry makes of it.
					if way != alone && (m.want.Code != 0 && m.want.Code != -32603 || m.want.HTTPStatus != 0 && m.want.HTTPStatus != 503) {
						continue
					}
					t.Run(m.name+", "+way, func(t *testing.T) {
						t.Parallel()
						m.options = over(options, m.options)
						m.happen(t, p)
					})
				}
			}
		})
	}
}

// happen runs a workflow that makes the call, examines the error, makes another
// call, and then fails with the error.
func (m mishap) happen(t *testing.T, p *path) {
	t.Helper()
	service := m.service
	if service == "" {
		service = "rude"
	}
	want := m.want
	var seen mcpnexus.Error
	run := p.start(t, func(ctx workflow.Context) error {
		client := p.client(service, caller.Options{Request: m.options})
		var err error
		if m.tool == "" {
			_, err = client.ListTools(ctx, nil)
		} else {
			_, err = client.CallTool(ctx, &mcp.CallToolParams{Name: m.tool, Arguments: json.RawMessage(m.arguments)})
		}
		c := &complaints{}
		if got, ok := mcpnexus.ErrorFrom(err); assert.True(c, ok, "%v", err) {
			seen = *got
			assert.Contains(c, got.Message, m.message)
			want.Message = got.Message
			assert.Contains(c, got.Problem, m.problem)
			if m.problem != "" {
				want.Problem = got.Problem
			}
			assert.Equal(c, &want, got)
		}
		assert.Equal(c, !want.NonRetryable, mcpnexus.Retryable(err))
		if service == "missing" {
			client = p.client("rude", caller.Options{})
		}
		assertEcho(ctx, c, client.With(mcpnexus.RequestOptions{StartToCloseTimeout: time.Minute}))
		if c.err() != nil {
			return c.err()
		}
		return err
	})
	err := outcome(t, run)
	got, ok := mcpnexus.ErrorFrom(err)
	require.True(t, ok, "%v", err)
	assert.Equal(t, &seen, got, "to whoever awaits the workflow")
	assert.Equal(t, !want.NonRetryable, mcpnexus.Retryable(err))
	// Without our helper, too: it is the innermost error, and what stands around it
	// is Temporal's.
	app := innermost(err)
	require.NotNil(t, app)
	assert.Equal(t, string(want.Type), app.Type())
	assert.Equal(t, want.NonRetryable, app.NonRetryable())
	assert.Equal(t, want.NextRetryDelay, app.NextRetryDelay())
	assert.Equal(t, want.Type != mcpnexus.ErrorTypeOutcomeUnknown && (want.Type != mcpnexus.ErrorTypeTransport || want.HTTPStatus != 0), app.HasDetails())
}

// innermost returns the last ApplicationError in a chain.
func innermost(err error) (last *temporal.ApplicationError) {
	for ; err != nil; err = errors.Unwrap(err) {
		if app, ok := err.(*temporal.ApplicationError); ok {
			last = app
		}
	}
	return last
}

// outcome waits for a workflow and returns its error.
func outcome(t *testing.T, run interface {
	Get(context.Context, any) error
}) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	err := run.Get(ctx, nil)
	require.NoError(t, ctx.Err())
	return err
}

// assertEcho says that a server is well.
func assertEcho(ctx workflow.Context, t assert.TestingT, client *caller.Client) {
	result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"are you": "well"}})
	if assert.NoError(t, err) {
		assert.Equal(t, map[string]any{"are you": "well"}, result.StructuredContent)
	}
}

func TestASessionThatTheServerLostIsWorthARetryAndTheNextCallHasAnother(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{Legacy: true})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	want := mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, HTTPStatus: 404}
	p.run(t, func(ctx workflow.Context) error {
		c := &complaints{}
		client := p.client("rude", caller.Options{Request: single})
		_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "status", Arguments: map[string]any{"status": 404}})
		if got, ok := mcpnexus.ErrorFrom(err); assert.True(c, ok, "%v", err) {
			want.Message = got.Message
			assert.Equal(c, &want, got)
			assert.Contains(c, got.Message, "lost the session")
		}
		assert.True(c, mcpnexus.Retryable(err))
		assertEcho(ctx, c, client)
		return c.err()
	})
}

func TestAToolsOwnErrorIsAResult(t *testing.T) {
	t.Parallel()
	_, overHTTP := rudeHTTP(t, rude.Options{})
	for name, transport := range map[string]handler.Transport{"over HTTP": overHTTP, "over stdio": rudeStdio(t, rude.Options{})} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "rude", Transport: transport})
			run := p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				client := p.client("rude", caller.Options{})
				result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "raw-result", Arguments: json.RawMessage(
					`{"result":{"isError":true,"content":[{"type":"text","text":"no such city"}],"structuredContent":{"id":9007199254740993}}}`)})
				if assert.NoError(c, err) {
					assert.True(c, result.IsError)
					assert.Equal(c, []mcp.Content{&mcp.TextContent{Text: "no such city"}}, result.Content)
					assert.Equal(c, map[string]any{"id": json.Number("9007199254740993")}, result.StructuredContent)
				}
				assertEcho(ctx, c, client)
				return c.err()
			})
			for _, event := range history(t, run) {
				assert.Nil(t, event.GetNexusOperationFailedEventAttributes(), "the operation succeeded")
			}
		})
	}
}

func TestAToolThatNeverAnswersTimesOutBeforeItsHandlerIsCalledAgain(t *testing.T) {
	t.Parallel()
	server, overHTTP := rudeHTTP(t, rude.Options{})
	for name, c := range map[string]struct {
		transport handler.Transport
		server    *rude.Server // nil when it cannot be asked
	}{
		"over HTTP":  {overHTTP, server},
		"over stdio": {rudeStdio(t, rude.Options{}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "rude", Transport: c.transport})
			p.run(t, func(ctx workflow.Context) error {
				c := &complaints{}
				client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{Execution: mcpnexus.ExecutionInline}})
				_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "silent"})
				if got, ok := mcpnexus.ErrorFrom(err); assert.True(c, ok, "%v", err) {
					assert.Equal(c, mcpnexus.ErrorTypeTimeout, got.Type)
					assert.False(c, got.NonRetryable)
					// What the server leaves a handler of its ten seconds, less our margin.
					assert.Greater(c, got.Timeout, 5*time.Second)
					assert.Less(c, got.Timeout, 10*time.Second)
				}
				assert.True(c, mcpnexus.Retryable(err))
				assertEcho(ctx, c, client)
				return c.err()
			})
			if c.server != nil {
				assert.Equal(t, 1, c.server.Stats().Calls["silent"], "it ran once")
				require.Eventually(t, func() bool { return c.server.Stats().Cancelled == 1 }, 20*time.Second, 10*time.Millisecond, "it was told to stop")
			}
		})
	}
}

func TestARequestThatCannotBeRightIsABadRequest(t *testing.T) {
	t.Parallel()
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	for name, c := range map[string]struct {
		operation string
		input     any
		want      string
	}{
		"an unknown option": {"call-tool",
			map[string]any{"name": "echo", "_meta": map[string]any{"nexusmcp/options": map[string]any{"timeout": "60s"}}},
			`rude: call-tool "echo": _meta["nexusmcp/options"]: timeout: unknown field`},
		"a duration in minutes": {"list-tools",
			map[string]any{"_meta": map[string]any{"nexusmcp/options": map[string]any{"startToCloseTimeout": "1m"}}},
			`rude: list-tools: _meta["nexusmcp/options"]: startToCloseTimeout: "1m" is not a duration`},
		"a negative number of attempts": {"discover",
			map[string]any{"_meta": map[string]any{"nexusmcp/options": map[string]any{"retryPolicy": map[string]any{"maximumAttempts": -1}}}},
			`retryPolicy.maximumAttempts: -1 is negative`},
		"an argument for a server without a factory": {"call-tool",
			map[string]any{"name": "echo", "_meta": map[string]any{"nexusmcp/options": map[string]any{"factoryArgument": "acme"}}},
			`factoryArgument: the server takes none`},
		"options that are no object":     {"call-tool", map[string]any{"name": "echo", "_meta": map[string]any{"nexusmcp/options": "60s"}}, "want a JSON object"},
		"_meta that is no object":        {"call-tool", map[string]any{"name": "echo", "_meta": 1}, "_meta is not a JSON object"},
		"no tool":                        {"call-tool", map[string]any{"arguments": map[string]any{}}, `the input has no "name"`},
		"a tool that is a number":        {"call-tool", map[string]any{"name": 7}, "name: 7 is not a string"},
		"a resource without a URI":       {"read-resource", map[string]any{}, `the input has no "uri"`},
		"an input that is no object":     {"call-tool", []string{"echo"}, "the input is not a JSON object"},
		"an input that is a JSON string": {"call-tool", "echo", "the input is not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := p.start(t, func(ctx workflow.Context) error {
				complaints := &complaints{}
				err := workflow.NewNexusClient(p.endpoint, "rude").ExecuteOperation(ctx, c.operation, c.input, workflow.NexusOperationOptions{}).Get(ctx, nil)
				assertBadRequest(complaints, err, c.want)
				assertEcho(ctx, complaints, p.client("rude", caller.Options{}))
				if complaints.err() != nil {
					return complaints.err()
				}
				return err
			})
			assertBadRequest(t, outcome(t, run), c.want)
		})
	}
	t.Run("options that the caller's client does not send", func(t *testing.T) {
		t.Parallel()
		run := p.start(t, func(ctx workflow.Context) error {
			client := p.client("rude", caller.Options{Request: mcpnexus.RequestOptions{StartToCloseTimeout: -time.Second}})
			_, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
			return err
		})
		assertBadRequest(t, outcome(t, run), `call-tool "echo" on service "rude": request options: startToCloseTimeout: -1s is negative`)
	})
	t.Run("a service that is not published", func(t *testing.T) {
		t.Parallel()
		p.run(t, func(ctx workflow.Context) error {
			c := &complaints{}
			_, err := p.client("polite", caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "echo"})
			var refused *nexus.HandlerError
			if assert.True(c, errors.As(err, &refused), "%v", err) {
				assert.Equal(c, nexus.HandlerErrorTypeNotFound, refused.Type)
			}
			assert.False(c, mcpnexus.Retryable(err))
			assertEcho(ctx, c, p.client("rude", caller.Options{}))
			return c.err()
		})
	})
	t.Cleanup(func() {
		// Each case called it once, after the refusal.
		assert.Equal(t, map[string]int{"echo": 12}, server.Stats().Calls)
	})
}

func assertBadRequest(t assert.TestingT, err error, want string) {
	_, ok := mcpnexus.ErrorFrom(err)
	assert.False(t, ok, "it is no failure of the MCP server: %v", err)
	assert.False(t, mcpnexus.Retryable(err))
	var refused *nexus.HandlerError
	if assert.True(t, errors.As(err, &refused), "%v", err) {
		assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
		assert.False(t, refused.Retryable())
		assert.ErrorContains(t, err, want)
	}
}

// This version's handler makes no such errors, but callers read them.
func TestErrorsThatOtherHandlersMakeReachWorkflowCode(t *testing.T) {
	t.Parallel()
	errs := map[string]*mcpnexus.Error{
		"unknown": mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: "the worker vanished"}),
		"denied":  mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeDenied, Message: "not for you", Rule: "tools.deny[0]"}),
	}
	service := nexus.NewService("rude")
	service.MustRegister(nexus.NewSyncOperation(mcpnexus.OperationCallTool, func(_ context.Context, input json.RawMessage, _ nexus.StartOperationOptions) (json.RawMessage, error) {
		var params mcp.CallToolParamsRaw
		if err := json.Unmarshal(input, &params); err != nil {
			return nil, err
		}
		if e := errs[params.Name]; e != nil {
			return nil, &nexus.OperationError{State: nexus.OperationStateFailed, Message: e.Message, Cause: e.ApplicationError()}
		}
		return json.RawMessage(`{"content":[],"structuredContent":` + string(params.Arguments) + `}`), nil
	}))
	p := publishOn(t, worker.Options{}, func(w worker.Worker) { w.RegisterNexusService(service) })
	for tool, e := range errs {
		t.Run(string(e.Type), func(t *testing.T) {
			t.Parallel()
			mishap{tool: tool, arguments: `{}`, want: *e, message: e.Message}.happen(t, p)
		})
	}
}

func TestTheLargestErrorThatTheHandlerAllowsArrives(t *testing.T) {
	t.Parallel()
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	long := strings.Repeat("m", 5<<10) // of which 4 KiB are kept
	for name, c := range map[string]struct {
		message string
		bytes   int // of data
		arrive  bool
		want    string
	}{
		"256 KiB of data":                 {long, 256 << 10, true, "mmm…"},
		"a byte more of data is left out": {"short", 256<<10 + 1, false, "its data of 262145 bytes was left out, the limit is 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := json.RawMessage(`"` + strings.Repeat("d", c.bytes-len(`""`)) + `"`)
			arguments, err := json.Marshal(map[string]any{"code": mcp.CodeURLElicitationRequired, "message": c.message, "data": data})
			require.NoError(t, err)
			m := mishap{tool: "error", arguments: string(arguments), want: mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: mcp.CodeURLElicitationRequired, NonRetryable: true}, message: c.want}
			if c.arrive {
				m.want.Data = data
			}
			// It arrives in the workflow, and with the workflow's own failure once more.
			m.happen(t, p)
		})
	}
}
