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
// Every operation runs inline, within the few seconds that Temporal gives a
// Nexus handler: a request that takes longer is cancelled on the wire and fails
// with MCPTimeoutError.
package handler
