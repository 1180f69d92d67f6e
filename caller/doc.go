// Package caller is the calling side of nexusmcp: a durable client with which
// workflow code uses a published MCP server as if it held an mcp.ClientSession.
//
//	func Forecast(ctx workflow.Context, city string) (string, error) {
//		weather := caller.NewClient("mcp", "weather", caller.Options{})
//		result, err := weather.CallTool(ctx, &mcp.CallToolParams{
//			Name:      "get_weather",
//			Arguments: map[string]any{"city": city},
//		})
//		...
//	}
//
// One method call is one Nexus operation in the workflow's history. A [Client]
// waits its turn under a [Limit] before it opens an operation, because a
// workflow that opens one too many never gets past it; every method has a twin
// that returns a [Future], for calls that run at the same time. The tool list
// is remembered for as long as the client lives.
//
// # Errors
//
// What an operation returned is returned as it is; mcpnexus.ErrorFrom reads it.
// A tool that fails is no error but a result with IsError. A call whose context
// is cancelled returns a CanceledError, at once or when the operation has ended:
// see [OperationOptions]. By default it waits, and returns the result if there is
// one after all. A request that could not have been
// right, such as one with options that the contract refuses, fails at once with
// the BAD_REQUEST handler error that the handler would have answered, and puts
// nothing into the history.
//
// # Numbers
//
// Values that the protocol leaves open (structuredContent, _meta, tool schemas
// and the like) have the Go types that mcp.ClientSession gives them, so a number
// is a float64, with one exception: a number that a float64 would change, such
// as an integer above 2^53, is a json.Number that keeps its digits.
//
// # Determinism
//
// A Client reads no clock, makes no random choice and starts no goroutine, so a
// workflow that uses one replays. It belongs to one run of one workflow, and so
// does a Limit: make them inside the workflow function, never in a package
// variable.
package caller
