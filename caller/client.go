package caller

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Client calls one published MCP server from one run of one workflow. Its
// methods are those of mcp.ClientSession; params may be nil where a request
// needs none, and are never written to. Each has a twin that returns at once: a
// [Future] that workflow code reads when it likes, for calls at the same time.
//
// A call is scheduled, if it need not wait under the [Limit], when the coroutine
// that makes it next blocks. Cancelled before that, it never is.
//
// All coroutines of the workflow may use a Client. It must not be kept from one
// workflow run for another; a call through one that was fails.
type Client struct {
	service   string
	options   Options         // Limit is unused, see shared
	request   json.RawMessage // options.Request in its wire form, nil when zero
	operation workflow.NexusOperationOptions
	nexus     workflow.NexusClient
	err       error // why no request can be right
	shared    *shared
}

// shared is what a client and those derived from it have in common.
type shared struct {
	run   run
	limit *Limit
	tools toolCache
}

// NewClient returns a client of the MCP server that is published as the Nexus
// service of that name behind the Nexus endpoint. It sends nothing. Arguments or
// options that cannot be right fail every call of the client with the same
// BAD_REQUEST handler error, which names them. An endpoint that does not exist is for
// the Temporal server to notice: it fails the workflow task, again and again, until the
// endpoint is registered.
func NewClient(endpoint, service string, options Options) *Client {
	s := &shared{limit: options.Limit}
	if s.limit == nil {
		s.limit = new(Limit)
	}
	options.Request = snapshot(options.Request)
	c := &Client{service: service, options: options, shared: s}
	if c.err = c.connect(endpoint); c.err == nil {
		c.err = c.configure()
	}
	return c
}

// With returns a client that differs in its request options: those set in
// request replace this client's, the others stay. A factory argument of JSON
// null takes this client's away. The new client waits under the same [Limit]
// and remembers tools together with this one, each by its own request, so that
// what one factory argument was told is never the answer to another.
func (c *Client) With(request mcpnexus.RequestOptions) *Client {
	derived := *c
	derived.options.Request = override(c.options.Request, request)
	// An option that was bad before may have been replaced by a good one.
	if derived.nexus != nil {
		derived.err = derived.configure()
	}
	return &derived
}

// reserved begins the names that Temporal keeps for itself;
// workflow.NewNexusClient panics on them, and on empty ones.
const reserved = "__temporal_"

func (c *Client) connect(endpoint string) error {
	for _, name := range []struct{ what, value string }{{"endpoint", endpoint}, {"service", c.service}} {
		if name.value == "" {
			return fmt.Errorf("the name of the Nexus %s is empty", name.what)
		}
		if strings.HasPrefix(name.value, reserved) {
			return fmt.Errorf("the name of the Nexus %s, %q, begins with the reserved %s", name.what, name.value, reserved)
		}
	}
	if err := c.shared.limit.validate(); err != nil {
		return err
	}
	c.nexus = workflow.NewNexusClient(endpoint, c.service)
	return nil
}

// operationMargin is how much longer the operation may take than its request. The
// handler keeps to the request's timeout; the operation's is for when no handler
// answers. The Temporal server keeps a second of it for itself, and does not even
// send a request that has less than 1.5 seconds left
// (component.nexusoperations.limit.request.timeout.min).
const operationMargin = 2500 * time.Millisecond

// longestTimeout is the most time that an operation gets, a hundred years: the
// request's can be so long that nothing can be added to it.
const longestTimeout = 100 * 365 * 24 * time.Hour

func (c *Client) configure() error {
	request := c.options.Request
	c.request = nil
	if !request.IsZero() {
		// Validate first: encoding/json would wrap its error in the name of a Go type.
		if err := request.Validate(); err != nil {
			return fmt.Errorf("request options: %w", err)
		}
		data, err := json.Marshal(request)
		if err != nil {
			return fmt.Errorf("request options: %w", err)
		}
		c.request = data
	}
	if err := c.options.Operation.validate(); err != nil {
		return err
	}
	c.operation = workflow.NexusOperationOptions{
		ScheduleToCloseTimeout: c.options.Operation.ScheduleToCloseTimeout,
		ScheduleToStartTimeout: c.options.Operation.ScheduleToStartTimeout,
		StartToCloseTimeout:    c.options.Operation.StartToCloseTimeout,
		CancellationType:       c.options.Operation.CancellationType,
	}
	if c.operation.ScheduleToCloseTimeout == 0 && request.ScheduleToCloseTimeout > 0 {
		c.operation.ScheduleToCloseTimeout = min(request.ScheduleToCloseTimeout, longestTimeout) + operationMargin
	}
	return nil
}

// ListTools returns every tool of the server (tools/list, all pages).
//
// The answer is remembered for the client and those derived from it by
// [Client.With]: the same request again, with the same params and request
// options, puts nothing into the history, and one that comes while the first is
// under way gets the first one's answer. Errors are not remembered. Every caller
// gets a copy of its own. See [Client.ForgetTools] and Options.DisableToolCache.
func (c *Client) ListTools(ctx workflow.Context, params *mcp.ListToolsParams) (*mcp.ListToolsResult, error) {
	return c.ListToolsAsync(ctx, params).Get(ctx)
}

// ListToolsAsync is [Client.ListTools] as a Future.
func (c *Client) ListToolsAsync(ctx workflow.Context, params *mcp.ListToolsParams) *Future[*mcp.ListToolsResult] {
	if c.options.DisableToolCache {
		return send(ctx, c, mcpnexus.ListTools, params, c.execute)
	}
	return send(ctx, c, mcpnexus.ListTools, params, func(ctx workflow.Context, r request) workflow.Future {
		return c.shared.tools.answer(ctx, string(r.input), func(ctx workflow.Context) workflow.Future {
			return c.execute(ctx, r)
		})
	})
}

// ForgetTools drops what [Client.ListTools] remembered, for this client and
// those that share with it, so that the next call asks the server. A call that
// is under way keeps its answer to itself and those that already wait for it.
func (c *Client) ForgetTools() { c.shared.tools.forget() }

// CallTool calls a tool (tools/call). A tool that fails is a result with
// IsError, not an error.
func (c *Client) CallTool(ctx workflow.Context, params *mcp.CallToolParams) (*mcp.CallToolResult, error) {
	return c.CallToolAsync(ctx, params).Get(ctx)
}

// CallToolAsync is [Client.CallTool] as a Future. The arguments are read before
// it returns, so the same params can be changed for the next call.
func (c *Client) CallToolAsync(ctx workflow.Context, params *mcp.CallToolParams) *Future[*mcp.CallToolResult] {
	return send(ctx, c, mcpnexus.CallTool, params, c.execute)
}

// ListPrompts returns every prompt of the server (prompts/list, all pages).
func (c *Client) ListPrompts(ctx workflow.Context, params *mcp.ListPromptsParams) (*mcp.ListPromptsResult, error) {
	return c.ListPromptsAsync(ctx, params).Get(ctx)
}

// ListPromptsAsync is [Client.ListPrompts] as a Future.
func (c *Client) ListPromptsAsync(ctx workflow.Context, params *mcp.ListPromptsParams) *Future[*mcp.ListPromptsResult] {
	return send(ctx, c, mcpnexus.ListPrompts, params, c.execute)
}

// GetPrompt returns a prompt with its arguments filled in (prompts/get).
func (c *Client) GetPrompt(ctx workflow.Context, params *mcp.GetPromptParams) (*mcp.GetPromptResult, error) {
	return c.GetPromptAsync(ctx, params).Get(ctx)
}

// GetPromptAsync is [Client.GetPrompt] as a Future.
func (c *Client) GetPromptAsync(ctx workflow.Context, params *mcp.GetPromptParams) *Future[*mcp.GetPromptResult] {
	return send(ctx, c, mcpnexus.GetPrompt, params, c.execute)
}

// ListResources returns every resource that the server lists (resources/list,
// all pages).
func (c *Client) ListResources(ctx workflow.Context, params *mcp.ListResourcesParams) (*mcp.ListResourcesResult, error) {
	return c.ListResourcesAsync(ctx, params).Get(ctx)
}

// ListResourcesAsync is [Client.ListResources] as a Future.
func (c *Client) ListResourcesAsync(ctx workflow.Context, params *mcp.ListResourcesParams) *Future[*mcp.ListResourcesResult] {
	return send(ctx, c, mcpnexus.ListResources, params, c.execute)
}

// ListResourceTemplates returns every resource template of the server
// (resources/templates/list, all pages).
func (c *Client) ListResourceTemplates(ctx workflow.Context, params *mcp.ListResourceTemplatesParams) (*mcp.ListResourceTemplatesResult, error) {
	return c.ListResourceTemplatesAsync(ctx, params).Get(ctx)
}

// ListResourceTemplatesAsync is [Client.ListResourceTemplates] as a Future.
func (c *Client) ListResourceTemplatesAsync(ctx workflow.Context, params *mcp.ListResourceTemplatesParams) *Future[*mcp.ListResourceTemplatesResult] {
	return send(ctx, c, mcpnexus.ListResourceTemplates, params, c.execute)
}

// ReadResource returns the contents of a resource (resources/read).
func (c *Client) ReadResource(ctx workflow.Context, params *mcp.ReadResourceParams) (*mcp.ReadResourceResult, error) {
	return c.ReadResourceAsync(ctx, params).Get(ctx)
}

// ReadResourceAsync is [Client.ReadResource] as a Future.
func (c *Client) ReadResourceAsync(ctx workflow.Context, params *mcp.ReadResourceParams) *Future[*mcp.ReadResourceResult] {
	return send(ctx, c, mcpnexus.ReadResource, params, c.execute)
}

// Complete returns suggestions for an argument of a prompt or of a resource
// template (completion/complete).
func (c *Client) Complete(ctx workflow.Context, params *mcp.CompleteParams) (*mcp.CompleteResult, error) {
	return c.CompleteAsync(ctx, params).Get(ctx)
}

// CompleteAsync is [Client.Complete] as a Future.
func (c *Client) CompleteAsync(ctx workflow.Context, params *mcp.CompleteParams) *Future[*mcp.CompleteResult] {
	return send(ctx, c, mcpnexus.Complete, params, c.execute)
}

// Discover returns what the server says of itself: name, capabilities,
// instructions and the protocol version in use. Params can only carry _meta.
func (c *Client) Discover(ctx workflow.Context, params *mcp.DiscoverParams) (*mcpnexus.DiscoverResult, error) {
	return c.DiscoverAsync(ctx, params).Get(ctx)
}

// DiscoverAsync is [Client.Discover] as a Future.
func (c *Client) DiscoverAsync(ctx workflow.Context, params *mcp.DiscoverParams) *Future[*mcpnexus.DiscoverResult] {
	return send(ctx, c, mcpnexus.Discover, params, c.execute)
}
