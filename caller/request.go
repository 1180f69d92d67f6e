package caller

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"go.temporal.io/sdk/workflow"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// request is one call as it will be sent, however long it waits for its turn.
type request struct {
	service   string
	operation string
	summary   string // the tool, prompt or URI, "" when the operation has none
	input     json.RawMessage
}

// String names the request in errors.
func (r request) String() string {
	what := r.operation
	if r.summary != "" {
		what += fmt.Sprintf(" %q", r.summary)
	}
	return fmt.Sprintf("%s on service %q", what, r.service)
}

// send makes a request of params and hands it to carry, which returns the
// future of its raw result. What can be known to be wrong is refused here,
// before anything reaches the workflow's state or history.
func send[P any, Params interface {
	*P
	mcp.Params
}, Result any](
	ctx workflow.Context, c *Client, operation nexus.OperationReference[Params, Result], params Params,
	carry func(workflow.Context, request) workflow.Future,
) *Future[Result] {
	var copied P
	if params != nil {
		copied = *params
	}
	r := request{service: c.service, operation: operation.Name(), summary: summary(Params(&copied))}
	if err := c.admissible(ctx); err != nil {
		return failed[Result](ctx, r, badRequest(r, err))
	}
	if err := ctx.Err(); err != nil {
		return failed[Result](ctx, r, err)
	}
	input, err := encode(Params(&copied), c.request)
	if err != nil {
		return failed[Result](ctx, r, badRequest(r, err))
	}
	r.input = input
	return &Future[Result]{request: r, raw: carry(ctx, r)}
}

// admissible reports why c may not be used, at all or here.
func (c *Client) admissible(ctx workflow.Context) error {
	if c.err != nil {
		return c.err
	}
	if workflow.IsReadOnly(ctx) {
		return fmt.Errorf("a query handler, an update validator or a side effect cannot call an MCP server")
	}
	if err := c.shared.run.claim(ctx, "Client"); err != nil {
		return err
	}
	return c.shared.limit.run.claim(ctx, "Limit")
}

// encode returns params, which the caller owns no longer, with the request
// options, if there are any, as an input. It is JSON now, not when the operation
// is scheduled, because what the arguments point to is still the workflow's and
// may have changed by then.
func encode(params mcp.Params, options json.RawMessage) (json.RawMessage, error) {
	meta := params.GetMeta()
	if _, ok := meta[mcpnexus.MetaKeyOptions]; ok {
		return nil, fmt.Errorf("_meta has the key %q, which belongs to the request options: set them with Client.With or Options.Request", mcpnexus.MetaKeyOptions)
	}
	if err := check(params); err != nil {
		return nil, err
	}
	if options != nil {
		if meta = maps.Clone(meta); meta == nil {
			meta = make(map[string]any, 1)
		}
		meta[mcpnexus.MetaKeyOptions] = options
		params.SetMeta(meta)
	}
	input, err := marshal("params", params)
	if err != nil {
		return nil, err
	}
	if len(input) > mcpnexus.MaxRequestBytes {
		return nil, fmt.Errorf("the request has %d bytes of JSON, the limit is %d", len(input), mcpnexus.MaxRequestBytes)
	}
	return input, nil
}

// marshal returns the JSON form of what.
func marshal(what string, value any) (json.RawMessage, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be encoded as JSON: %w", what, err)
	}
	// Go writes values of any depth, but reads none deeper than 10,000.
	if len(raw) > 20_000 && !json.Valid(raw) {
		return nil, fmt.Errorf("%s are nested more than 10,000 deep", what)
	}
	return raw, nil
}

// check refuses params that lack what the protocol requires, and arguments that are
// no object. It replaces arguments by their JSON form.
func check(params mcp.Params) error {
	switch p := params.(type) {
	case *mcp.CallToolParams:
		if p.Name == "" {
			return errors.New("name is empty, want a tool's")
		}
		if p.Arguments == nil {
			return nil
		}
		arguments, err := marshal("arguments", p.Arguments)
		if err != nil {
			return err
		}
		if arguments[0] != '{' && string(arguments) != "null" {
			return fmt.Errorf("arguments: a %T is not a JSON object: want a struct, a map with string keys or a json.RawMessage that is one", p.Arguments)
		}
		p.Arguments = arguments
	case *mcp.GetPromptParams:
		if p.Name == "" {
			return errors.New("name is empty, want a prompt's")
		}
	case *mcp.ReadResourceParams:
		if p.URI == "" {
			return errors.New("uri is empty, want a resource's")
		}
	case *mcp.CompleteParams:
		if p.Ref == nil {
			return errors.New("ref is nil, want a prompt's or a resource template's")
		}
	}
	return nil
}

// badRequest is the error that the handler would answer, so that workflow code
// need not care which side noticed.
func badRequest(r request, err error) error {
	return nexus.NewHandlerErrorf(nexus.HandlerErrorTypeBadRequest, "%s: %w", r, err)
}
