package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var keys = []string{
	"sync_vs_handwritten", "sync_vs_activity", "fanout_vs_activity", "events_per_call",
	"legacy_stdio_vs_shared", "handler_overhead_us", "caller_overhead_us", "handoff_added_ms",
}

func TestAQuickRunMeasuresEverything(t *testing.T) {
	var out, errOut bytes.Buffer
	require.Equal(t, 0, execute(t.Context(), []string{"-json", "-quick"}, &out, &errOut), errOut.String())
	assert.Empty(t, errOut.String())
	t.Log(out.String())
	var measured map[string]*float64
	require.NoError(t, json.Unmarshal(out.Bytes(), &measured))
	assert.Len(t, measured, len(keys))
	for _, key := range keys {
		if value := measured[key]; assert.NotNil(t, value, key) {
			least := 0.0
			if strings.HasSuffix(key, "_us") {
				least = -1000 // of CPU: a difference of medians, which noise can make negative
			}
			assert.Greater(t, *value, least, key)
			assert.False(t, math.IsInf(*value, 0), key)
		}
	}
	assert.Equal(t, 5.0, *measured["events_per_call"])
	assert.Equal(t, 1, strings.Count(out.String(), "\n"), "one object on one line")
}

func TestArgumentsThatCannotBeRightEndInOneLine(t *testing.T) {
	for want, arguments := range map[string][]string{
		"-quik":           {"-quik"},
		`argument "fast"`: {"fast"},
	} {
		var out, errOut bytes.Buffer
		assert.Equal(t, 1, execute(t.Context(), arguments, &out, &errOut))
		assert.Contains(t, errOut.String(), want)
		assert.Equal(t, 1, strings.Count(errOut.String(), "\n"), errOut.String())
		assert.Empty(t, out.String())
	}
}

func TestAnInterruptEndsInOneLine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errOut bytes.Buffer
	assert.Equal(t, 1, execute(ctx, []string{"-json", "-quick"}, &out, &errOut))
	assert.Equal(t, "bench: interrupted\n", errOut.String())
	assert.Empty(t, out.String())
}

func TestQuantilesLieBetweenTheSamples(t *testing.T) {
	s := samples{4, 1, 3, 2}
	assert.Equal(t, 2.5, s.median())
	assert.Equal(t, 1.0, s.quantile(0))
	assert.InDelta(t, 3.7, s.quantile(0.9), 1e-9)
	assert.Equal(t, 4.0, s.quantile(1))
	assert.Equal(t, samples{4, 1, 3, 2}, s, "the samples stay in their order, which pairs them with others")
}

func TestTheBucketForeseesAHundredAtOnceAndAHundredASecond(t *testing.T) {
	var b bucket
	now := time.Unix(0, 0)
	assert.Equal(t, 0, b.take(now, 100), "the burst")
	assert.Equal(t, 1, b.take(now, 1))
	assert.Equal(t, 20*time.Millisecond, b.until(now, 1), "after the one that waits")
	now = now.Add(520 * time.Millisecond)
	assert.Equal(t, time.Duration(0), b.until(now, 51))
	assert.Equal(t, 9, b.take(now, 60))
	assert.Equal(t, 0, b.take(now.Add(time.Hour), 100), "it holds no more than the burst")
}
