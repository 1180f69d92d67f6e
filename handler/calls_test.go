package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The sleeps of these tests are those of synctest's clock, which jumps over them.

func TestAFinishedCallIsRememberedForTwoMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(&sync.WaitGroup{})
		first, known := c.begin(t.Context(), "a", maxRunning)
		assert.False(t, known)
		again, known := c.begin(t.Context(), "a", maxRunning)
		assert.True(t, known)
		assert.Same(t, first, again, "joined while it runs")
		c.end(first, ending{result: []byte(`{}`)})
		time.Sleep(rememberFor - time.Second)
		again, known = c.begin(t.Context(), "a", maxRunning)
		assert.True(t, known)
		assert.Same(t, first, again)
		assert.Equal(t, `{}`, string(again.result))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Empty(t, c.byKey, "nothing is left of it")
		assert.Zero(t, c.bytes)
		other, known := c.begin(t.Context(), "a", maxRunning)
		assert.False(t, known)
		assert.NotSame(t, first, other)
	})
}

func TestFinishedCallsAreRememberedUpToAnAmountOfMemory(t *testing.T) {
	c := newCalls(&sync.WaitGroup{})
	const each = 1 << 20
	for i := range 100 {
		call, _ := c.begin(t.Context(), fmt.Sprint(i), maxRunning)
		c.end(call, ending{result: make([]byte, each)})
		assert.LessOrEqual(t, c.bytes, rememberBytes)
	}
	_, oldest := c.byKey["0"]
	_, newest := c.byKey["99"]
	assert.False(t, oldest)
	assert.True(t, newest)
	assert.Len(t, c.byKey, rememberBytes/(each+1<<10))
	c.clear()
	assert.Empty(t, c.byKey)
}

func TestAFinishedCallDoesNotKeepTheNexusRequestThatBeganIt(t *testing.T) {
	c := newCalls(&sync.WaitGroup{})
	call, _ := c.begin(t.Context(), "a", maxRunning)
	ctx := call.ctx
	c.end(call, ending{})
	assert.ErrorIs(t, ctx.Err(), context.Canceled)
	assert.Nil(t, call.ctx)
	assert.Nil(t, call.stop.Load())
	call.cancel(errUnclaimed) // by whoever still had it
}

func TestNoMoreCallsRunThanThereIsRoomFor(t *testing.T) {
	c := newCalls(&sync.WaitGroup{})
	first, _ := c.begin(t.Context(), "a", 2)
	_, _ = c.begin(t.Context(), "b", 2)
	third, known := c.begin(t.Context(), "c", 2)
	assert.Nil(t, third)
	assert.False(t, known)
	joined, known := c.begin(t.Context(), "a", 2)
	assert.Same(t, first, joined, "one that runs can be joined")
	assert.True(t, known)
	c.end(first, ending{})
	third, _ = c.begin(t.Context(), "c", 2)
	assert.NotNil(t, third)
}

func TestACallThatNobodyClaimsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(&sync.WaitGroup{})
		call, _ := c.begin(t.Context(), "a", maxRunning)
		c.owe(call)
		time.Sleep(claimWithin)
		synctest.Wait()
		assert.ErrorIs(t, context.Cause(call.ctx), errUnclaimed)
		assertIdle(t, c)
	})
}

func TestACallGoesOnForAsLongAsSomebodyHasClaimedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(&sync.WaitGroup{})
		call, _ := c.begin(t.Context(), "a", maxRunning)
		goesOn := func(why string) {
			t.Helper()
			time.Sleep(time.Hour)
			synctest.Wait()
			assert.NoError(t, call.ctx.Err(), why)
		}
		c.owe(call)
		time.Sleep(claimWithin - time.Second)
		first, ok := c.claim("a")
		assert.True(t, ok)
		assert.Same(t, call, first.call)
		goesOn("it was claimed in time")
		second, ok := c.claimAgain("a")
		assert.True(t, ok)
		// In whichever order they were taken, and by whomever the server has forgotten.
		second.leave()
		goesOn("the first is there")
		third, _ := c.claimAgain("a")
		first.leave()
		goesOn("the third is there")
		third.settle()
		assertIdle(t, c)
		c.owe(call)
		goesOn("it was claimed before it was handed off for good")
		_, ok = c.claim("b")
		assert.False(t, ok)
		fourth, _ := c.claimAgain("a")
		c.end(call, ending{result: []byte(`{}`)})
		fourth.settle()
		assertIdle(t, c)
	})
}

func TestACallWhoseClaimWasGivenUpWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(&sync.WaitGroup{})
		call, _ := c.begin(t.Context(), "a", maxRunning)
		c.owe(call)
		first, _ := c.claim("a")
		time.Sleep(time.Hour)
		first.leave()
		time.Sleep(claimWithin - time.Second)
		second, _ := c.claimAgain("a")
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.NoError(t, call.ctx.Err())
		second.leave()
		time.Sleep(claimWithin)
		synctest.Wait()
		assert.ErrorIs(t, context.Cause(call.ctx), errUnclaimed)
		assertIdle(t, c)
	})
}

func TestAnAttemptFollowsOnACallThatHasFailedUnlessThatIsFinal(t *testing.T) {
	for name, c := range map[string]struct {
		ending ending
		joined bool
	}{
		"a result":               {ending{result: []byte(`{}`)}, true},
		"an error for good":      {ending{failure: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32602})}, true},
		"an error to be retried": {ending{failure: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport})}, false},
		"the worker's stop":      {ending{failure: stopping(), stopped: true}, false},
		"nobody wanted it":       {ending{failure: stopping(), cancelled: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := newCalls(&sync.WaitGroup{})
			call, _ := calls.begin(t.Context(), "a", maxRunning)
			calls.owe(call)
			calls.end(call, c.ending)
			claimed, ok := calls.claimAgain("a")
			assert.Equal(t, c.joined, ok)
			if ok {
				claimed.settle()
			}
			assertIdle(t, calls) // nobody else asks for it
		})
	}
}

func TestAnOutcomeIsKeptForAsLongAsItIsOwed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(&sync.WaitGroup{})
		const each = 1 << 20
		for i := range rememberBytes/each + 1 {
			call, _ := c.begin(t.Context(), fmt.Sprint(i), noLimit)
			c.owe(call)
			if i%2 == 1 {
				c.end(call, ending{result: make([]byte, each)})
				continue
			}
			c.end(call, ending{result: make([]byte, 2*each)})
		}
		assert.LessOrEqual(t, c.bytes, rememberBytes)
		for i := range rememberBytes/each + 1 {
			claimed, ok := c.claim(fmt.Sprint(i))
			assert.True(t, ok, "all are there")
			claimed.settle()
		}
		assert.Zero(t, c.kept)
		assertIdle(t, c)
		time.Sleep(rememberFor)
		synctest.Wait()
		assert.Empty(t, c.byKey)
	})
}

func TestNoCallBeginsWhileTooMuchIsOwed(t *testing.T) {
	c := newCalls(&sync.WaitGroup{})
	var running []*call
	for i := range 3 {
		call, _ := c.begin(t.Context(), fmt.Sprint(i), maxRunning)
		c.owe(call)
		running = append(running, call)
	}
	for _, call := range running {
		c.end(call, ending{result: make([]byte, rememberBytes/3)})
	}
	one, _ := c.begin(t.Context(), "a", maxRunning)
	assert.NotNil(t, one, "as much as is remembered")
	c.owe(one)
	c.end(one, ending{result: make([]byte, rememberBytes)})
	refused, known := c.begin(t.Context(), "b", maxRunning)
	assert.Nil(t, refused)
	assert.False(t, known)
	joined, _ := c.begin(t.Context(), "0", maxRunning)
	assert.Same(t, running[0], joined, "one that is known can be joined")
	for _, key := range []string{"0", "1", "2", "a"} {
		claimed, ok := c.claim(key)
		assert.True(t, ok)
		claimed.settle()
	}
	assertIdle(t, c)
	begun, _ := c.begin(t.Context(), "b", maxRunning)
	assert.NotNil(t, begun)
	c.clear()
}

// assertIdle says that nothing is owed any more.
func assertIdle(t *testing.T, c *calls) {
	t.Helper()
	idle := make(chan struct{})
	go func() {
		c.busy.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-time.After(10 * time.Second):
		assert.Fail(t, "something is owed")
	}
}

func TestOperationsAreToldApart(t *testing.T) {
	keys := map[string]bool{}
	for _, service := range []string{"a", "b"} {
		for _, operation := range []string{"call-tool", "read-resource"} {
			for _, id := range []string{"1", "2"} {
				for _, input := range []string{`{"name":"x"}`, `{"name":"y"}`} {
					keys[callKey(service, operation, id, []byte(input))] = true
				}
			}
		}
	}
	assert.Len(t, keys, 16)
	assert.Equal(t, callKey("a", "b", "c", nil), callKey("a", "b", "c", nil))
}

// A lateContext is done, and what is to follow on that has not come about yet.
type lateContext struct {
	context.Context
	done chan struct{}
}

func (c lateContext) Done() <-chan struct{}            { return c.done }
func (c lateContext) AfterFunc(func()) func() bool     { return func() bool { return true } }
func (c lateContext) Value(any) any                    { return nil }
func (c lateContext) Deadline() (_ time.Time, ok bool) { return time.Time{}, false }

func (c lateContext) Err() error {
	if isClosed(c.done) {
		return context.Canceled
	}
	return nil
}

func TestACallWhoseOnlyClientHasJustLeftIsCancelled(t *testing.T) {
	for name, c := range map[string]struct{ joined, gone, want bool }{
		"it has gone":                        {gone: true, want: true},
		"it has its answer":                  {gone: false, want: false},
		"it has gone, and another waits yet": {joined: true, gone: true, want: false},
	} {
		t.Run(name, func(t *testing.T) {
			calls := newCalls(&sync.WaitGroup{})
			call, _ := calls.begin(t.Context(), "a", maxRunning)
			if c.joined {
				calls.begin(t.Context(), "a", maxRunning)
			}
			client := lateContext{done: make(chan struct{})}
			leave := calls.attend(client, call)
			if c.gone {
				close(client.done)
			}
			leave()
			assert.Equal(t, c.want, errors.Is(context.Cause(call.ctx), errAbandoned))
		})
	}
}

// What is to be known before a request is sent, that it is marked for example, does not
// heed its context with every codec.
func TestARequestThatIsLateBeforeItIsSentLeavesTheConnectionToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
		server.AddTool(&mcp.Tool{Name: "slow", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(time.Minute)
			return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
		})
		h, err := New(Options{Servers: []Server{{Name: "s", Transport: InProcess{Server: server}}}})
		require.NoError(t, err)
		defer func() { assert.NoError(t, h.Close(context.Background())) }()
		call := func() *request { return &request{params: object{"name": encode("slow")}, subject: "slow"} }
		other := make(chan error)
		go func() {
			_, err := h.services["s"].attempt(context.Background(), callToolOperation, call())
			other <- err
		}()
		synctest.Wait()
		connection := h.services["s"].pool.shared
		require.NotNil(t, connection)
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Second, &timeoutError{what: "not sent", timeout: time.Second})
		defer cancel()
		late := call()
		late.beforeSending = func(ctx context.Context) error {
			time.Sleep(30 * time.Second)
			return context.Cause(ctx)
		}
		_, err = h.services["s"].attempt(ctx, callToolOperation, late)
		require.ErrorContains(t, err, "not sent within 1s")
		require.NoError(t, <-other)
		assert.Same(t, connection, h.services["s"].pool.shared, "which the next request uses")
	})
}

func TestNullIsAParamThatIsNotThere(t *testing.T) {
	for _, c := range []struct {
		operation   operation
		input, want string
	}{
		{operations[0], `{"cursor":null,"_meta":null}`, `{"_meta":{"nexusmcp/idempotencyKey":"id"}}`},
		{operations[0], `{"_meta":{"progressToken":null,"theirs":null}}`, `{"_meta":{"nexusmcp/idempotencyKey":"id","theirs":null}}`},
		{callToolOperation, `{"name":"t","arguments":null,"task":null}`, `{"_meta":{"nexusmcp/idempotencyKey":"id"},"name":"t"}`},
		{callToolOperation, `{"name":"t","arguments":{"a":null}}`, `{"_meta":{"nexusmcp/idempotencyKey":"id"},"name":"t","arguments":{"a":null}}`},
	} {
		req, err := parseRequest(c.operation, json.RawMessage(c.input), nexus.StartOperationOptions{RequestID: "id"}, mcpnexus.RequestOptions{})
		require.NoError(t, err, c.input)
		assert.JSONEq(t, c.want, string(req.params.join()))
	}
}
