package handler

import mcpnexus "github.com/nexusmcp/nexusmcp/nexus"

// EndTimeout is how long a response may go on after the answer.
const EndTimeout = endTimeout

// Forget drops the outcomes that a handler remembers, as time would.
func Forget(h *Handler) { h.running.clear() }

// OperationNames returns the names of all operations.
func OperationNames() []string {
	names := []string{mcpnexus.OperationCallTools}
	for _, op := range operations {
		names = append(names, op.name)
	}
	return names
}
