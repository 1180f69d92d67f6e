package handler

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
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
		c.busy.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCalls(&sync.WaitGroup{})
		call, _ := c.begin(t.Context(), "a", maxRunning)
		c.owe(call)
		time.Sleep(claimWithin - time.Second)
		assert.Same(t, call, c.claim("a"))
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.NoError(t, call.ctx.Err(), "one that was claimed goes on")
		c.pay(call)
		c.busy.Wait()
		assert.Nil(t, c.claim("b"))
		c.owe(call)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.NoError(t, call.ctx.Err(), "also when it was claimed before it was handed off for good")
	})
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
