package caller

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// BatchSize is the most calls that [Client.CallTools] puts into one operation. It
// is many enough for a server that starts a hundred operations in a second. More
// would gain little and cost much: several batches are spread over the
// publisher's workers, one does not wait for the slowest call of all, and the
// results of a batch, which together have no more room than that of a single
// call, have 100 KB each on average.
const BatchSize = 20

// ToolOutcome is what became of one of several calls.
type ToolOutcome struct {
	// Result is the tool's, also of a tool that failed (IsError). Nil if Err is set.
	Result *mcp.CallToolResult
	// Err is the call's own error: an ApplicationError that mcpnexus.ErrorFrom reads,
	// without the NexusOperationError that [Client.CallTool] has around it. If the
	// operation as a whole failed, it is the operation's error, the same for all its
	// calls. A call that was never sent has the error that CallTool has then.
	Err error
}

// CallTools calls tools at the same time, in as few operations as is sensible,
// and returns the outcome of each call in the order of calls. A call that fails
// does not keep the others from their results. For many short calls it is
// several times faster than as many CallTool at the same time, and puts a
// fraction of the events into the history, because a Temporal server starts only
// so many operations in a second, 100 for each endpoint by default.
//
// A batch of calls is one operation, with at most [BatchSize] calls. It has one
// place under the [Limit], one summary and one cancellation, with which all its
// calls end, and its outcomes come together, when its last call has ended. If an
// operation fails as such, for example because its time is over, that is the
// error of all its calls. Results of a batch that do not fit together into the
// operation's result are MCPResultTooLarge errors, although the tools ran: call
// tools that return much with CallToolAsync.
func (c *Client) CallTools(ctx workflow.Context, calls []*mcp.CallToolParams) []ToolOutcome {
	outcomes := make([]ToolOutcome, len(calls))
	for i, future := range c.CallToolsAsync(ctx, calls) {
		outcomes[i].Result, outcomes[i].Err = future.Get(ctx)
	}
	return outcomes
}

// CallToolsAsync is [Client.CallTools] as one Future for each call. The arguments
// are read before it returns, so the same params can be changed for the next
// call.
func (c *Client) CallToolsAsync(ctx workflow.Context, calls []*mcp.CallToolParams) []*Future[*mcp.CallToolResult] {
	futures := make([]*Future[*mcp.CallToolResult], len(calls))
	refused := c.admissible(ctx)
	next := newBatch(c)
	for i, params := range calls {
		var copied mcp.CallToolParams
		if params != nil {
			copied = *params
		}
		r := request{service: c.service, operation: mcpnexus.OperationCallTools, summary: summary(&copied)}
		err := refused
		if err == nil && ctx.Err() != nil {
			futures[i] = failed[*mcp.CallToolResult](ctx, r, ctx.Err())
			continue
		}
		var input json.RawMessage
		if err == nil {
			input, err = encode(&copied, nil)
		}
		if err == nil {
			err = next.admits(input)
		}
		if err != nil {
			futures[i] = failed[*mcp.CallToolResult](ctx, r, badRequest(r, err))
			continue
		}
		if !next.fits(input) {
			next.send(ctx, c)
			next = newBatch(c)
		}
		raw, settable := workflow.NewFuture(ctx)
		futures[i] = &Future[*mcp.CallToolResult]{request: r, raw: raw}
		next.add(r.summary, input, settable)
	}
	next.send(ctx, c)
	return futures
}

// batch is one call-tools operation.
type batch struct {
	input   []byte // without its end
	empty   int    // bytes of an input without calls
	each    int    // bytes that the handler adds to each call: the options
	policy  int    // bytes that are in each call's activity again
	names   []string
	results []workflow.Settable
	request request
}

const batchEnd = "]}"

func newBatch(c *Client) *batch {
	b := &batch{request: request{service: c.service, operation: mcpnexus.OperationCallTools}, each: len(c.request)}
	if policy := c.options.Request.RetryPolicy; policy != nil {
		for _, name := range policy.NonRetryableErrorTypes {
			b.policy += len(name) + len(`"",`)
		}
	}
	b.input = append(b.input, '{')
	if c.request != nil {
		b.input = fmt.Appendf(b.input, `"_meta":{%q:%s},`, mcpnexus.MetaKeyOptions, c.request)
	}
	b.input = append(b.input, `"calls":[`...)
	b.empty = len(b.input) + len(batchEnd)
	return b
}

// admits reports that a call is too large for any batch.
func (b *batch) admits(call json.RawMessage) error {
	if size := b.empty + len(call); size > mcpnexus.MaxRequestBytes {
		return fmt.Errorf("the request has %d bytes of JSON, the limit is %d", size, mcpnexus.MaxRequestBytes)
	}
	return nil
}

func (b *batch) fits(call json.RawMessage) bool {
	size := len(b.input) + len(",") + len(call) + len(batchEnd) + len(b.results)*b.each
	// Of the 3 MiB that the handler takes, policies included, half a MiB is for what else it
	// counts.
	return len(b.results) < BatchSize && size <= mcpnexus.MaxRequestBytes && size+(len(b.results)+1)*b.policy <= 3<<20-512<<10
}

func (b *batch) add(name string, call json.RawMessage, result workflow.Settable) {
	if len(b.results) > 0 {
		b.input = append(b.input, ',')
	}
	b.input = append(b.input, call...)
	b.names = append(b.names, name)
	b.results = append(b.results, result)
}

// send sends the batch, unless it is empty.
func (b *batch) send(ctx workflow.Context, c *Client) {
	if len(b.results) == 0 {
		return
	}
	b.request.input = append(b.input, batchEnd...)
	b.request.summary = batchSummary(b.names)
	c.submit(ctx, b.request, b)
}

// SetError implements settler: the operation's error is that of each call.
func (b *batch) SetError(err error) {
	for _, result := range b.results {
		result.SetError(err)
	}
}

// SetValue implements settler. What is in the results is read with the futures.
func (b *batch) SetValue(raw any) {
	outcomes, err := b.split(raw.(json.RawMessage))
	if err != nil {
		b.SetError(undecodable(b.request, err))
		return
	}
	for i, o := range outcomes {
		var failure mcpnexus.Error
		switch {
		case (o.Result == nil) == (o.Error == nil):
			err = fmt.Errorf("results[%d] has not one of result and error", i)
		case o.Error != nil:
			if err = json.Unmarshal(o.Error, &failure); err == nil {
				b.results[i].SetError(failure.ApplicationError())
				continue
			}
			err = fmt.Errorf("results[%d].error: %w", i, err)
		default:
			b.results[i].SetValue(o.Result)
			continue
		}
		b.results[i].SetError(undecodable(b.request, err))
	}
}

// outcome is one of an operation's results.
type outcome struct{ Result, Error json.RawMessage }

func (b *batch) split(raw json.RawMessage) ([]outcome, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return nil, fmt.Errorf("it is %.32s, want a JSON object", raw)
	}
	var output struct{ Results []outcome }
	if err := json.Unmarshal(raw, &output); err != nil {
		return nil, err
	}
	if len(output.Results) != len(b.results) {
		return nil, fmt.Errorf("it has %d results for %d calls", len(output.Results), len(b.results))
	}
	return output.Results, nil
}

// batchSummary says in one line which tools are called: one that is called several
// times, or the first one.
func batchSummary(names []string) string {
	others := len(names) - 1
	if others == 0 {
		return names[0]
	}
	how := fmt.Sprintf(" and %d others", others)
	if others == 1 {
		how = " and 1 other"
	}
	same := true
	for _, name := range names {
		same = same && name == names[0]
	}
	if same {
		how = fmt.Sprintf(" ×%d", len(names))
	}
	return strings.TrimSpace(shorten(names[0], maxSummary-len(how)) + how)
}
