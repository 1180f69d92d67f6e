// Package endpoints registers Nexus endpoints: the names by which workflows reach a worker's MCP servers.
//
// One [Spec] describes an endpoint. It is read from YAML or JSON with [ReadFile] or [Parse] and then taken to the
// server in whichever way the platform team works:
//
//   - [Apply] brings a Temporal server's endpoint to the spec through its operator service, touching only what differs;
//   - [Render] writes the same spec as commands for `temporal`, `temporal cloud` or `tcld`, or as Terraform.
//
// [List] and [Delete] complete the round. Everything but Apply, List and Delete works without a server.
//
// All functions are safe for concurrent use, by one process or by many: an Apply that loses a race reads again and
// decides again.
package endpoints
