package handler

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

func disassemble(t *testing.T, result json.RawMessage) []batchOutcome {
	t.Helper()
	var out struct{ Results []batchOutcome }
	require.NoError(t, json.Unmarshal(result, &out))
	return out.Results
}

func numberedTitle(i int) string { return fmt.Sprintf("call %d", i) }

func TestOutcomesThatFitAreReturnedAsTheyAre(t *testing.T) {
	outcomes := []batchOutcome{{Result: json.RawMessage(`{ "a" : "<é>" }`)}, {Error: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeDenied, Message: "<m>", Rule: "r"})}}
	const want = `{"results":[{"result":{ "a" : "<é>" }},{"error":{"type":"MCPDenied","message":"<m>","details":["r"],"nonRetryable":true}}]}`
	assert.Equal(t, want, string(assemble(outcomes, len(want)+len(","), numberedTitle)))
	outcomes[0].Result = json.RawMessage(`"` + strings.Repeat("x", 1000) + `"`)
	whole := string(assemble(outcomes, 10_000, numberedTitle))
	assert.Equal(t, whole, string(assemble(outcomes, len(whole), numberedTitle)))
	assert.NotEqual(t, whole, string(assemble(outcomes, len(whole)-1, numberedTitle)))
	assert.Equal(t, `{"results":[]}`, string(assemble(nil, 100, numberedTitle)))
}

func TestWhatDoesNotFitIsCutInTheOrderOfTheCalls(t *testing.T) {
	const limit = 10_000
	result := func(size int) batchOutcome {
		return batchOutcome{Result: json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)}
	}
	big := json.RawMessage(`"` + strings.Repeat("d", 5000) + `"`)
	outcomes := []batchOutcome{
		result(4000), result(4000), result(4000), result(10),
		{Error: mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32042, Data: big, Message: strings.Repeat("m", 4000)})},
		result(10),
	}
	assembled := assemble(outcomes, limit, numberedTitle)
	assert.LessOrEqual(t, len(assembled), limit)
	got := disassemble(t, assembled)
	require.Len(t, got, len(outcomes))
	for _, i := range []int{0, 1, 3, 5} {
		assert.Equal(t, outcomes[i], got[i], i)
	}
	assert.Equal(t, mcpnexus.Error{
		Type: mcpnexus.ErrorTypeResultTooLarge, Size: 4000, Limit: limit, NonRetryable: true,
		Message: "call 2: the results of the batch do not fit together into 10000 bytes, this one of 4000 has no room: make smaller batches",
	}, *got[2].Error)
	assert.Equal(t, mcpnexus.ErrorTypeProtocol, got[4].Error.Type, "an error stays what it is")
	assert.EqualValues(t, -32042, got[4].Error.Code)
	assert.Nil(t, got[4].Error.Data)
	assert.Len(t, got[4].Error.Message, 256)
	assert.Len(t, outcomes[4].Error.Message, 4000, "the outcome itself is untouched")
}

func FuzzABatchsResultFits(f *testing.F) {
	f.Add(uint16(3), uint16(4000), uint16(9000))
	f.Add(uint16(500), uint16(300), uint16(2))
	f.Add(uint16(1), uint16(60_000), uint16(60_000))
	f.Fuzz(func(t *testing.T, calls, size, step uint16) {
		n := int(calls)%mcpnexus.MaxBatchCalls + 1
		outcomes := make([]batchOutcome, n)
		for i := range outcomes {
			length := (int(size) + i*int(step)) % (64 << 10)
			if i%3 == 2 {
				outcomes[i].Error = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Problem: strings.Repeat("p", length), Message: strings.Repeat("m", length%maxErrorMessage)})
				continue
			}
			outcomes[i].Result = json.RawMessage(`"` + strings.Repeat("<", length) + `"`)
		}
		const limit = 512 << 10 // more than 500 cut outcomes take
		assembled := assemble(outcomes, limit, numberedTitle)
		require.LessOrEqual(t, len(assembled), limit)
		got := disassemble(t, assembled)
		require.Len(t, got, n)
		whole := 0
		for i := range outcomes {
			if outcomes[i].Error != nil {
				require.Equal(t, mcpnexus.ErrorTypeProtocol, got[i].Error.Type)
			} else if got[i].Error != nil {
				require.Equal(t, mcpnexus.ErrorTypeResultTooLarge, got[i].Error.Type)
				continue
			} else {
				require.Equal(t, string(outcomes[i].Result), string(got[i].Result))
			}
			whole++
		}
		require.Positive(t, whole)
	})
}

func TestTheItemsOfABatchsWorkflowAreNoLargerThanARequest(t *testing.T) {
	b := &batch{raw: []json.RawMessage{json.RawMessage(`{"name":"a"}`), json.RawMessage(`{"name":"b"}`), json.RawMessage(`{"name":"c"}`), json.RawMessage(`{"name":"d"}`)}}
	states := []callState{{Ended: true, call: ended(1 << 20)}, {}, {Ended: true, call: ended(1 << 20)}, {Ended: true, call: ended(20)}}
	items := b.items(states, mcpnexus.MaxRequestBytes)
	assert.LessOrEqual(t, len(items), mcpnexus.MaxRequestBytes)
	var got []json.RawMessage
	require.NoError(t, json.Unmarshal(items, &got))
	require.Len(t, got, 4)
	assert.True(t, states[0].Ended)
	assert.Equal(t, `{"name":"b"}`, string(got[1]))
	assert.False(t, states[2].Ended, "its outcome is asked for")
	assert.Positive(t, states[2].Running)
	assert.Equal(t, `{"name":"c"}`, string(got[2]))
	assert.Equal(t, `{"result":"xxxxxxxxxxxxxxxxxx"}`, string(got[3]))
}

func TestAnOutcomeThatNeedsNoMoreThanItsCallNeedNotBeAskedFor(t *testing.T) {
	small, large := ended(20), ended(1000)
	b := &batch{raw: []json.RawMessage{json.RawMessage(`{"name":"` + strings.Repeat("a", 100) + `"}`), json.RawMessage(`{"name":"b"}`)}}
	states := []callState{{Ended: true, call: small}, {Ended: true, call: large}}
	items := b.items(states, 50) // less than the calls take
	assert.Equal(t, `[{"result":"xxxxxxxxxxxxxxxxxx"},{"name":"b"}]`, string(items))
	assert.True(t, states[0].Ended)
	assert.False(t, states[1].Ended)
}

// ended is a call with a result of that many bytes.
func ended(size int) *call {
	c := &call{ended: make(chan struct{})}
	c.result = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
	close(c.ended)
	return c
}

func TestWhatIsLeftOutIsNotEncoded(t *testing.T) {
	data := json.RawMessage(`"` + strings.Repeat("d", 100_000) + `"`)
	outcomes := make([]batchOutcome, 300)
	for i := range outcomes {
		outcomes[i].Error = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeProtocol, Code: -32602, Data: data, Message: "m"})
	}
	const limit = 2 << 20
	allocated := func(f func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	all := allocated(func() {
		for _, o := range outcomes {
			o.encode()
		}
	})
	assembling := allocated(func() { assert.LessOrEqual(t, len(assemble(outcomes, limit, numberedTitle)), limit) })
	assert.Less(t, assembling, all/2, "encoding all of it would take a workflow task a second")
	got := disassemble(t, assemble(outcomes, limit, numberedTitle))
	assert.Equal(t, data, got[0].Error.Data)
	assert.Nil(t, got[299].Error.Data)
	assert.EqualValues(t, -32602, got[299].Error.Code)
}
