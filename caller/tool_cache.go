package caller

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"
)

// toolCache remembers the answers to list-tools in the server's own JSON, so
// that each reader decodes a copy of its own. Answers are told apart by the
// whole request, options included: another factory argument is another server.
type toolCache struct {
	answers map[string]*toolAnswer
}

// toolAnswer is the answer to one request, or the promise of it.
type toolAnswer struct {
	ctx   workflow.Context // of the call that asked
	raw   workflow.Future
	valid bool // raw is known to hold a tool list
}

func (c *toolCache) forget() { c.answers = nil }

// answer returns the remembered answer to request. When there is none, or only
// one that nobody should get again, it asks for one.
func (c *toolCache) answer(ctx workflow.Context, request string, ask func(workflow.Context) workflow.Future) workflow.Future {
	known := c.answers[request]
	if known == nil || known.failed(ctx) {
		known = &toolAnswer{ctx: ctx, raw: ask(ctx)}
		if c.answers == nil {
			c.answers = make(map[string]*toolAnswer)
		}
		c.answers[request] = known
		return known.raw
	}
	// In the same cancellation scope, the other call's fate is this one's.
	if known.valid || known.ctx.Done() == ctx.Done() {
		return known.raw
	}

	joined, settable := workflow.NewFuture(ctx)
	workflow.GoNamed(ctx, "joined list-tools", func(ctx workflow.Context) {
		workflow.NewSelector(ctx).
			AddFuture(known.raw, func(workflow.Future) {}).
			AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) {}).
			Select(ctx)
		switch {
		case !known.raw.IsReady():
			settable.SetError(ctx.Err())
		case known.ctx.Err() != nil && ctx.Err() == nil && known.failed(ctx):
			// The other call was cancelled, which is no answer to this one.
			settable.Chain(c.answer(ctx, request, ask))
		default:
			settable.Chain(known.raw)
		}
	})
	return joined
}

// failed reports whether the answer has arrived and is no tool list.
func (a *toolAnswer) failed(ctx workflow.Context) bool {
	if a.valid || !a.raw.IsReady() {
		return false
	}
	var raw json.RawMessage
	if a.raw.Get(ctx, &raw) != nil {
		return true
	}
	_, err := decode[*mcp.ListToolsResult](raw)
	a.valid = err == nil
	return !a.valid
}
