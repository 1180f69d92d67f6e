package nexus

import (
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
)

// Names of the operations of every published MCP server, as they appear in
// Temporal histories, the UI and the CLI. What each does is said at the reference
// of the same name, below.
const (
	OperationListTools             = "list-tools"
	OperationCallTool              = "call-tool"
	OperationCallTools             = "call-tools"
	OperationListPrompts           = "list-prompts"
	OperationGetPrompt             = "get-prompt"
	OperationListResources         = "list-resources"
	OperationListResourceTemplates = "list-resource-templates"
	OperationReadResource          = "read-resource"
	OperationComplete              = "complete"
	OperationDiscover              = "discover"
)

// MaxRequestBytes is the most bytes of JSON that an operation's input may have: a
// little less than the 2 MiB that a Temporal server takes in one payload by
// default. The rest is for what a durable workflow adds. A larger request is
// refused: by package caller in the workflow, where it would fail the workflow
// task and every retry of it, and by the handler with BAD_REQUEST. Temporal's
// JSON writes <, > and & as six bytes each.
const MaxRequestBytes = 2<<20 - 64<<10

// Typed references to the operations, for callers that use
// workflow.NexusClient directly. The list operations return every page of the
// server's list at once, so their results have no nextCursor.
var (
	// ListTools is tools/list.
	ListTools = nexus.NewOperationReference[*mcp.ListToolsParams, *mcp.ListToolsResult](OperationListTools)
	// CallTool is tools/call. A tool that fails is a normal result with isError.
	CallTool = nexus.NewOperationReference[*mcp.CallToolParams, *mcp.CallToolResult](OperationCallTool)
	// CallTools is many tools/call in one operation, whose outcomes are each call's
	// own: see [CallToolsParams].
	CallTools = nexus.NewOperationReference[*CallToolsParams, *CallToolsResult](OperationCallTools)
	// ListPrompts is prompts/list.
	ListPrompts = nexus.NewOperationReference[*mcp.ListPromptsParams, *mcp.ListPromptsResult](OperationListPrompts)
	// GetPrompt is prompts/get.
	GetPrompt = nexus.NewOperationReference[*mcp.GetPromptParams, *mcp.GetPromptResult](OperationGetPrompt)
	// ListResources is resources/list.
	ListResources = nexus.NewOperationReference[*mcp.ListResourcesParams, *mcp.ListResourcesResult](OperationListResources)
	// ListResourceTemplates is resources/templates/list.
	ListResourceTemplates = nexus.NewOperationReference[*mcp.ListResourceTemplatesParams, *mcp.ListResourceTemplatesResult](OperationListResourceTemplates)
	// ReadResource is resources/read.
	ReadResource = nexus.NewOperationReference[*mcp.ReadResourceParams, *mcp.ReadResourceResult](OperationReadResource)
	// Complete is completion/complete.
	Complete = nexus.NewOperationReference[*mcp.CompleteParams, *mcp.CompleteResult](OperationComplete)
	// Discover says what the server is and can do. It takes no input; params
	// are accepted only to carry request options in their _meta.
	Discover = nexus.NewOperationReference[*mcp.DiscoverParams, *DiscoverResult](OperationDiscover)
)

// DiscoverResult is the output of the discover operation: what the server said
// of itself when it was asked, in either of the protocol's two forms
// (server/discover since 2026-07-28, initialize before).
type DiscoverResult struct {
	// ServerInfo is the server's name and version. Nil when the server did not
	// name itself, which the protocol allows since 2026-07-28.
	ServerInfo *mcp.Implementation `json:"serverInfo,omitempty"`
	// Capabilities are the features that the server offers.
	Capabilities *mcp.ServerCapabilities `json:"capabilities,omitempty"`
	// Instructions tell a model how to use the server. Often empty.
	Instructions string `json:"instructions,omitempty"`
	// ProtocolVersion is the version that the publishing worker and the server
	// agreed on, such as "2026-07-28".
	ProtocolVersion string `json:"protocolVersion"`
}
