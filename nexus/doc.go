// Package nexus is the contract between the callers and the publishers of MCP
// servers: what travels through a Temporal Nexus endpoint, and nothing about
// how either side does its work.
//
// Every published MCP server is one Nexus service whose name is the server's
// name. It has the ten operations of this package, whose input and output are
// the Model Context Protocol's own JSON, unchanged. Request options travel in
// the params' _meta (see [RequestOptions]); a failed operation carries an
// ApplicationError that [ErrorFrom] reads.
//
// Files that need this package usually need
// github.com/nexus-rpc/sdk-go/nexus too, so import it as mcpnexus:
//
//	import mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
package nexus
