// Package handler publishes MCP servers as Temporal Nexus services.
//
// A worker that carries the package's plugin answers, for each server it was
// given, the ten operations of the contract (package mcpnexus,
// github.com/nexusmcp/nexusmcp/nexus). Transports, processes and credentials
// stay on that worker; callers know an endpoint and the server's name.
//
//	plugin, err := handler.NewPlugin(handler.Options{
//		Servers: []handler.Server{
//			{Name: "weather", Transport: handler.HTTP{Endpoint: "https://example.com/mcp"}},
//			{Name: "files", Transport: handler.Command{Path: "mcp-files", Args: []string{"/srv"}}},
//		},
//	})
//	w := worker.New(client, "mcp", worker.Options{Plugins: []worker.Plugin{plugin}})
//
// A request runs within the Nexus request that starts it if it is quick. One that
// takes longer goes on where it runs, and one that failed and may be retried is,
// in a workflow of the worker's own namespace ([WorkflowType]): a request may take
// as long as its caller allows, survives the death of its worker, and is
// cancelled at the MCP server when the caller cancels it.
package handler
