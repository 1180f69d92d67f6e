package caller

import (
	"iter"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"
)

// Tools is [Client.ListTools] as a sequence. An error ends it and is its last
// element.
func (c *Client) Tools(ctx workflow.Context, params *mcp.ListToolsParams) iter.Seq2[*mcp.Tool, error] {
	return elements(ctx, params, c.ListTools, func(r *mcp.ListToolsResult) []*mcp.Tool { return r.Tools })
}

// Prompts is [Client.ListPrompts] as a sequence. An error ends it and is its
// last element.
func (c *Client) Prompts(ctx workflow.Context, params *mcp.ListPromptsParams) iter.Seq2[*mcp.Prompt, error] {
	return elements(ctx, params, c.ListPrompts, func(r *mcp.ListPromptsResult) []*mcp.Prompt { return r.Prompts })
}

// Resources is [Client.ListResources] as a sequence. An error ends it and is
// its last element.
func (c *Client) Resources(ctx workflow.Context, params *mcp.ListResourcesParams) iter.Seq2[*mcp.Resource, error] {
	return elements(ctx, params, c.ListResources, func(r *mcp.ListResourcesResult) []*mcp.Resource { return r.Resources })
}

// ResourceTemplates is [Client.ListResourceTemplates] as a sequence. An error
// ends it and is its last element.
func (c *Client) ResourceTemplates(ctx workflow.Context, params *mcp.ListResourceTemplatesParams) iter.Seq2[*mcp.ResourceTemplate, error] {
	return elements(ctx, params, c.ListResourceTemplates, func(r *mcp.ListResourceTemplatesResult) []*mcp.ResourceTemplate { return r.ResourceTemplates })
}

// elements needs no cursor: the list operations return every page at once.
func elements[Params, Result, Element any](
	ctx workflow.Context, params Params,
	list func(workflow.Context, Params) (Result, error), of func(Result) []*Element,
) iter.Seq2[*Element, error] {
	return func(yield func(*Element, error) bool) {
		result, err := list(ctx, params)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, element := range of(result) {
			if !yield(element, nil) {
				return
			}
		}
	}
}
