package handler_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// outcomes reads the output of call-tools.
func outcomes(t *testing.T, output string) (list []struct {
	Result json.RawMessage
	Error  *mcpnexus.Error
}) {
	t.Helper()
	var out struct{ Results json.RawMessage }
	require.NoError(t, json.Unmarshal([]byte(output), &out))
	require.NoError(t, json.Unmarshal(out.Results, &list))
	return list
}

func TestABatchReturnsTheOutcomeOfEachCallInTheirOrder(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		output, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTools, `{"calls":[
			{"name":"slow","arguments":{"ms":50}},
			{"name":"raw-result","arguments":{"result":{"structuredContent":{"z":9007199254740993,"a":"<b>"},"content":[]}}},
			{"name":"error","arguments":{"code":-32602,"message":"no such city","data":{"city":"<Atlantis>"}}},
			{"name":"raw-result","arguments":{"result":{"isError":true,"content":[]}}},
			{"name":"error","arguments":{"code":-32603,"message":"try again"}}
		]}`)
		require.NoError(t, err)
		got := outcomes(t, output)
		require.Len(t, got, 5)
		assert.JSONEq(t, `{"resultType":"complete","content":[{"type":"text","text":"at last"}]}`, string(got[0].Result))
		assert.Equal(t, `{"structuredContent":{"z":9007199254740993,"a":"<b>"},"content":[]}`, string(got[1].Result), "byte for byte")
		assert.Equal(t, &mcpnexus.Error{
			Type: mcpnexus.ErrorTypeProtocol, Code: -32602, Data: json.RawMessage(`{"city":"<Atlantis>"}`), NonRetryable: true,
			Message: `rude: call-tool "error": no such city (JSON-RPC error -32602)`,
		}, got[2].Error)
		assert.Equal(t, `{"isError":true,"content":[]}`, string(got[3].Result), "a tool that fails is a result")
		assert.False(t, got[4].Error.NonRetryable)
		for i, o := range got {
			assert.NotEqual(t, len(o.Result) > 0, o.Error != nil, "calls[%d] has one outcome", i)
		}
	})
}

// newMirror returns a server whose tools answer with their own params.
func newMirror(began func(name string)) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "mirror", Version: "1"}, nil)
	for _, tool := range []*mcp.Tool{
		{Name: "mirror", InputSchema: map[string]any{"type": "object"}},
		{Name: "destroy", InputSchema: map[string]any{"type": "object"}, Annotations: &mcp.ToolAnnotations{DestructiveHint: new(true)}},
	} {
		server.AddTool(tool, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			began(req.Params.Name)
			return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: map[string]any{"meta": req.Params.Meta, "arguments": req.Params.Arguments}}, nil
		})
	}
	return server
}

func TestEachCallOfABatchHasItsOwnIdempotencyKeyAndMeta(t *testing.T) {
	p := publish(t, handler.Server{Name: "mirror", Transport: handler.InProcess{Server: newMirror(func(string) {})}})
	output, err := p.doWith(t.Context(), "mirror", mcpnexus.OperationCallTools,
		`{"_meta":{"nexusmcp/options":{"startToCloseTimeout":"20s"},"acme/batch":1},"calls":[{"name":"mirror","arguments":{"n":0}},{"name":"mirror","_meta":{"acme/call":[1],"traceparent":"mine"}}]}`,
		nexus.StartOperationOptions{RequestID: "request-9", Header: nexus.Header{"traceparent": "theirs"}})
	require.NoError(t, err)
	got := outcomes(t, output)
	require.Len(t, got, 2)
	for i, want := range []struct{ meta, arguments string }{
		{`{"nexusmcp/idempotencyKey":"request-9/0","progressToken":"request-9/0","traceparent":"theirs"}`, `{"n":0}`},
		{`{"nexusmcp/idempotencyKey":"request-9/1","progressToken":"request-9/1","traceparent":"mine","acme/call":[1]}`, `{}`},
	} {
		require.Nil(t, got[i].Error)
		var result struct {
			StructuredContent struct {
				Meta      map[string]any
				Arguments json.RawMessage
			}
		}
		require.NoError(t, json.Unmarshal(got[i].Result, &result))
		meta := result.StructuredContent.Meta
		for name := range meta {
			if strings.HasPrefix(name, "io.modelcontextprotocol/") {
				delete(meta, name)
			}
		}
		text, err := json.Marshal(meta)
		require.NoError(t, err)
		assert.JSONEq(t, want.meta, string(text))
		assert.JSONEq(t, want.arguments, string(result.StructuredContent.Arguments))
	}
}

func TestTheOptionsOfABatchAreThoseOfCallsWithoutTheirOwn(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	output, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTools, `{
		"_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.2s"}},
		"calls":[
			{"name":"silent"},
			{"name":"slow","arguments":{"ms":600},"_meta":{"nexusmcp/options":{"startToCloseTimeout":"20s"}}},
			{"name":"slow","arguments":{"ms":600},"_meta":{"nexusmcp/options":{}}},
			{"name":"silent","_meta":{"nexusmcp/options":null}},
			{"name":"silent","_meta":{"nexusmcp/options":{"startToCloseTimeout":"0.3s","retryPolicy":{"nonRetryableErrorTypes":["MCPTimeoutError"]}}}}
		]}`)
	require.NoError(t, err)
	got := outcomes(t, output)
	require.Len(t, got, 5)
	for i, want := range map[int]mcpnexus.Error{0: {Timeout: 200 * time.Millisecond}, 3: {Timeout: 200 * time.Millisecond}, 4: {Timeout: 300 * time.Millisecond, NonRetryable: true}} {
		require.NotNil(t, got[i].Error, i)
		assert.Equal(t, mcpnexus.ErrorTypeTimeout, got[i].Error.Type)
		assert.Equal(t, want.Timeout, got[i].Error.Timeout)
		assert.Equal(t, want.NonRetryable, got[i].Error.NonRetryable)
	}
	for _, i := range []int{1, 2} {
		assert.Nil(t, got[i].Error)
		assert.Contains(t, string(got[i].Result), "at last")
	}
}

func TestABatchThatCannotBeRightIsRefusedWholeAndNothingIsSent(t *testing.T) {
	server, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	const good = `{"name":"echo"}`
	for name, c := range map[string]struct{ input, want string }{
		"no input":                      {``, `the input has no "calls"`},
		"no calls":                      {`{}`, `the input has no "calls"`},
		"null":                          {`{"calls":null}`, `the input has no "calls"`},
		"an empty list":                 {`{"calls":[]}`, "calls is empty, want at least one call"},
		"an object":                     {`{"calls":{"name":"echo"}}`, "calls is not an array"},
		"a single call's params":        {`{"name":"echo","calls":[` + good + `]}`, "name: unknown field, want calls and _meta"},
		"another case":                  {`{"Calls":[` + good + `]}`, "Calls: unknown field, want calls and _meta"},
		"too many":                      {`{"calls":[` + strings.Repeat(good+",", 500) + good + `]}`, "calls has 501 calls, the limit is 500"},
		"too many bytes":                {`{"calls":[{"name":"echo","arguments":{"text":"` + strings.Repeat("x", mcpnexus.MaxRequestBytes) + `"}}]}`, "bytes of JSON, the limit is 2031616"},
		"a call that is no object":      {`{"calls":[` + good + `,7]}`, "calls[1]: the input is not a JSON object"},
		"a call without a name":         {`{"calls":[` + good + `,` + good + `,{"arguments":{}}]}`, `calls[2]: the input has no "name"`},
		"a call's _meta that is a text": {`{"calls":[{"name":"echo","_meta":"x"}]}`, "calls[0]: _meta is not a JSON object"},
		"a call's bad option":           {`{"calls":[` + good + `,{"name":"echo","_meta":{"nexusmcp/options":{"timeout":"5s"}}}]}`, `calls[1]: _meta["nexusmcp/options"]: timeout: unknown field`},
		"a bad option":                  {`{"_meta":{"nexusmcp/options":{"execution":"later"}},"calls":[` + good + `]}`, `call-tools: _meta["nexusmcp/options"]: execution: "later" is none of`},
		"a factory argument":            {`{"_meta":{"nexusmcp/options":{"factoryArgument":1}},"calls":[` + good + `]}`, "factoryArgument: the server takes none"},
		"a call's factory argument":     {`{"calls":[` + good + `,{"name":"echo","_meta":{"nexusmcp/options":{"factoryArgument":1}}}]}`, "calls[1]: _meta"},
		"inline for some": {`{"_meta":{"nexusmcp/options":{"execution":"inline"}},"calls":[` + good + `,{"name":"echo","_meta":{"nexusmcp/options":{}}}]}`,
			"calls[1]: execution: inline is for all calls of a batch or for none"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTools, c.input)
			var refused *nexus.HandlerError
			require.ErrorAs(t, err, &refused)
			assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
			assert.Contains(t, refused.Message, "rude: call-tools: ")
			assert.Contains(t, refused.Message, c.want)
		})
	}
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTools, `{"calls":[`+good+`,{"name":"echo","_meta":{"nexusmcp/options":{"execution":"durable"}}}]}`)
	var refused *nexus.HandlerError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, nexus.HandlerErrorTypeNotImplemented, refused.Type)
	assert.Contains(t, refused.Message, "calls[1]: execution: durable needs a Temporal worker")
	assert.Empty(t, server.Stats().Calls)
}

// In the history of a workflow each call has the options of its own.
func TestABatchWhoseOptionsAreTooLargeForItsManyCallsIsRefused(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: handler.ArgumentFactory(func(context.Context, json.RawMessage) (mcp.Transport, error) {
		return &mcp.StreamableClientTransport{Endpoint: transport.Endpoint}, nil
	})})
	batch := func(calls int) string {
		return fmt.Sprintf(`{"_meta":{"nexusmcp/options":{"factoryArgument":"%s"}},"calls":[%s{"name":"echo"}]}`, strings.Repeat("x", 100<<10), strings.Repeat(`{"name":"echo"},`, calls-1))
	}
	_, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTools, batch(20))
	require.NoError(t, err)
	_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTools, batch(40))
	var refused *nexus.HandlerError
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
	assert.Contains(t, refused.Message, "calls[30]: with it the calls have more than 3145728 bytes of JSON")
	// A policy is also the activity's own.
	_, err = p.do(t.Context(), "rude", mcpnexus.OperationCallTools, fmt.Sprintf(
		`{"_meta":{"nexusmcp/options":{"retryPolicy":{"nonRetryableErrorTypes":["%s"]}}},"calls":[%s{"name":"echo"}]}`,
		strings.Repeat("x", 5000), strings.Repeat(`{"name":"echo"},`, 499)))
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, nexus.HandlerErrorTypeBadRequest, refused.Type)
	assert.Contains(t, refused.Message, "with it the calls have more than 3145728 bytes of JSON")
}

// Each call is an activity whose type and input have the service's name.
func TestABatchWhoseServicesNameIsTooLongForItsManyCallsIsRefused(t *testing.T) {
	name := strings.Repeat("s", 900)
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: name, Transport: transport})
	batch := `{"calls":[` + strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"name":"echo","arguments":{"a":%q}},`, strings.Repeat("x", 3_900)), 500), ",") + `]}`
	require.Less(t, len(batch), mcpnexus.MaxRequestBytes)
	refuses := func(batch string) bool {
		_, err := p.do(t.Context(), name, mcpnexus.OperationCallTools, batch)
		var refused *nexus.HandlerError
		return errors.As(err, &refused) && strings.Contains(refused.Message, "counting for each the names")
	}
	assert.False(t, refuses(batch), "names of two times 900 bytes")
	with := strings.Replace(batch, `{"calls"`, fmt.Sprintf(`{"_meta":{"nexusmcp/options":{"retryPolicy":{"nonRetryableErrorTypes":[%q]}}},"calls"`, strings.Repeat("t", 400)), 1)
	assert.True(t, refuses(with), "with a policy of two times 400")
}

func TestResultsThatDoNotFitIntoABatchsFailAlone(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		const limit = 64 << 10
		p := publishWith(t, handler.Options{MaxResultBytes: limit, Servers: []handler.Server{{Name: "rude", Transport: transport}}})
		output, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTools, `{"calls":[
			{"name":"huge","arguments":{"bytes":40000}},{"name":"huge","arguments":{"bytes":30000}},{"name":"huge","arguments":{"bytes":20000}},
			{"name":"huge","arguments":{"bytes":100000}},{"name":"echo"}]}`)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(output), limit)
		got := outcomes(t, output)
		require.Len(t, got, 5)
		for _, i := range []int{0, 2, 4} {
			require.Nil(t, got[i].Error, i)
		}
		assert.Len(t, got[0].Result, 40000+len(`{"resultType":"complete","content":[{"type":"text","text":""}]}`))
		assert.Contains(t, got[1].Error.Message, `rude: call-tool "huge": the results of the batch do not fit together into 65536 bytes, this one of 30063 has no room: make smaller batches`)
		for _, i := range []int{1, 3} {
			assert.Equal(t, mcpnexus.ErrorTypeResultTooLarge, got[i].Error.Type)
			assert.True(t, got[i].Error.NonRetryable)
			assert.EqualValues(t, limit, got[i].Error.Limit)
		}
		assert.EqualValues(t, 30063, got[1].Error.Size)
		assert.NotContains(t, got[3].Error.Message, "batch", "it does not fit alone either")
	})
}

func TestABatchThatIsStartedAgainIsAnsweredByTheSameCalls(t *testing.T) {
	eachTransport(t, rude.Options{}, func(t *testing.T, transport handler.Transport) {
		p := publish(t, handler.Server{Name: "rude", Transport: transport})
		const input = `{"calls":[{"name":"slow","arguments":{"ms":300}},{"name":"echo"},{"name":"error","arguments":{"code":-32602}}]}`
		const times = 4
		outputs := make([]string, times)
		var wg sync.WaitGroup
		for i := range times {
			wg.Go(func() {
				output, err := p.doWith(t.Context(), "rude", mcpnexus.OperationCallTools, input, nexus.StartOperationOptions{RequestID: "again"})
				assert.NoError(t, err)
				outputs[i] = output
			})
		}
		wg.Wait()
		later, err := p.doWith(t.Context(), "rude", mcpnexus.OperationCallTools, input, nexus.StartOperationOptions{RequestID: "again"})
		require.NoError(t, err)
		for _, output := range outputs {
			assert.Equal(t, later, output)
		}
		out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTool, `{"name":"stats"}`)
		require.NoError(t, err)
		assert.Contains(t, out, `"calls":{"echo":1,"error":1,"slow":1,"stats":1}`)
	})
}

func TestABatchRunsItsCallsTogetherButNotTooMany(t *testing.T) {
	var now, most atomic.Int64
	server := mcp.NewServer(&mcp.Implementation{Name: "wide", Version: "1"}, nil)
	full := make(chan struct{})
	open := sync.OnceFunc(func() { close(full) })
	server.AddTool(&mcp.Tool{Name: "meet", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		if n == 50 {
			open()
		}
		select {
		case <-full:
			return &mcp.CallToolResult{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	p := publish(t, handler.Server{Name: "wide", Transport: handler.InProcess{Server: server}})
	output, err := p.do(t.Context(), "wide", mcpnexus.OperationCallTools, `{"calls":[`+strings.Repeat(`{"name":"meet"},`, 79)+`{"name":"meet"}]}`)
	require.NoError(t, err)
	got := outcomes(t, output)
	require.Len(t, got, 80)
	for i, o := range got {
		assert.Nil(t, o.Error, i)
	}
	assert.EqualValues(t, 50, most.Load())
}

func TestWhoeverGivesUpOnABatchEndsItsCalls(t *testing.T) {
	began, cancelled := make(chan struct{}, 3), make(chan struct{}, 3)
	p := publish(t, handler.Server{Name: "patient", Transport: handler.InProcess{Server: newPatient(t.Context(), func() { began <- struct{}{} }, func() { cancelled <- struct{}{} })}})
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan error, 1)
	go func() {
		_, err := p.do(ctx, "patient", mcpnexus.OperationCallTools, `{"calls":[{"name":"wait"},{"name":"wait"},{"name":"wait"}]}`)
		ends <- err
	}()
	for range 3 {
		<-began
	}
	cancel()
	require.Error(t, <-ends)
	for range 3 {
		<-cancelled
	}
}

func TestARequestThatItsClientGaveUpIsMadeAgainWhenItIsAskedForAgain(t *testing.T) {
	for operation, input := range map[string]string{
		mcpnexus.OperationCallTool:  `{"name":"t"}`,
		mcpnexus.OperationCallTools: `{"calls":[{"name":"t"}]}`,
	} {
		t.Run(operation, func(t *testing.T) {
			server := mcp.NewServer(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			runs := make(chan int32, 10)
			var n atomic.Int32
			server.AddTool(&mcp.Tool{Name: "t", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				run := n.Add(1)
				runs <- run
				if run == 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ok"}}}, nil
			})
			p := publish(t, handler.Server{Name: "c", Transport: handler.InProcess{Server: server}})
			same := nexus.StartOperationOptions{RequestID: "same"}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			ends := make(chan error, 1)
			go func() {
				_, err := p.doWith(ctx, "c", operation, input, same)
				ends <- err
			}()
			<-runs
			cancel()
			require.Error(t, <-ends)
			var output string
			require.Eventually(t, func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var err error
				output, err = p.doWith(ctx, "c", operation, input, same)
				var refused *nexus.HandlerError // while the first is ending
				require.True(t, err == nil || errors.As(err, &refused) && refused.Type == nexus.HandlerErrorTypeUnavailable, "%v", err)
				return err == nil
			}, 20*time.Second, 10*time.Millisecond)
			assert.Contains(t, output, `"text":"ok"`)
			assert.EqualValues(t, 2, <-runs)
		})
	}
}

func TestWhoeverOnlyJoinedARequestEndsItForNobodyElse(t *testing.T) {
	for operation, input := range map[string]string{
		mcpnexus.OperationCallTool:  `{"name":"t"}`,
		mcpnexus.OperationCallTools: `{"calls":[{"name":"t"}]}`,
	} {
		t.Run(operation, func(t *testing.T) {
			server := mcp.NewServer(&mcp.Implementation{Name: "c", Version: "1"}, nil)
			began, answer := make(chan struct{}, 2), make(chan struct{})
			server.AddTool(&mcp.Tool{Name: "t", InputSchema: map[string]any{"type": "object"}}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				began <- struct{}{}
				select {
				case <-answer:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "ok"}}}, nil
			})
			p := publish(t, handler.Server{Name: "c", Transport: handler.InProcess{Server: server}})
			do := func(ctx context.Context) <-chan string {
				ends := make(chan string, 1)
				go func() {
					output, err := p.doWith(ctx, "c", operation, input, nexus.StartOperationOptions{RequestID: "same"})
					ends <- fmt.Sprint(output, err)
				}()
				return ends
			}
			first := do(t.Context())
			<-began
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			second := do(ctx)
			require.Eventually(t, func() bool { return handler.Attended(p.handler) == 2 }, 20*time.Second, time.Millisecond)
			cancel()
			assert.NotContains(t, <-second, `"text":"ok"`)
			close(answer)
			assert.Contains(t, <-first, `"text":"ok"`)
			assert.Empty(t, began, "it ran once")
		})
	}
}

func TestABatchOfFiveHundredCallsIsAnswered(t *testing.T) {
	var ran atomic.Int64
	p := publish(t, handler.Server{Name: "mirror", Transport: handler.InProcess{Server: newMirror(func(string) { ran.Add(1) })}})
	calls := make([]string, mcpnexus.MaxBatchCalls)
	for i := range calls {
		calls[i] = fmt.Sprintf(`{"name":"mirror","arguments":{"n":%d}}`, i)
	}
	output, err := p.do(t.Context(), "mirror", mcpnexus.OperationCallTools, `{"calls":[`+strings.Join(calls, ",")+`]}`)
	require.NoError(t, err)
	for i, o := range outcomes(t, output) {
		require.Nil(t, o.Error)
		require.Contains(t, string(o.Result), fmt.Sprintf(`"arguments":{"n":%d}`, i))
	}
	assert.EqualValues(t, len(calls), ran.Load())
}

func TestACallOfABatchDoesNotLoseTheTimeInWhichItWaitsForItsTurn(t *testing.T) {
	_, transport := rudeHTTP(t, rude.Options{})
	p := publish(t, handler.Server{Name: "rude", Transport: transport})
	const call = `{"name":"slow","arguments":{"ms":1000}}`
	out, err := p.do(t.Context(), "rude", mcpnexus.OperationCallTools,
		`{"_meta":{"nexusmcp/options":{"scheduleToCloseTimeout":"2.5s"}},"calls":[`+strings.Repeat(call+",", 149)+call+`]}`)
	require.NoError(t, err)
	var batch struct {
		Results []struct{ Error json.RawMessage }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &batch))
	assert.Len(t, batch.Results, 150)
	for _, r := range batch.Results {
		assert.Empty(t, r.Error)
	}
}
