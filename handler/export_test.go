package handler

import mcpnexus "github.com/nexusmcp/nexusmcp/nexus"

// EndTimeout is how long a response may go on after the answer.
const EndTimeout = endTimeout

// Forget drops the outcomes that a handler remembers, as time would.
func Forget(h *Handler) { h.running.clear() }

// Attended is how often calls were begun or joined by somebody who still waits.
func Attended(h *Handler) (n int) {
	h.running.mu.Lock()
	defer h.running.mu.Unlock()
	for _, c := range h.running.byKey {
		n += c.attended
	}
	return n
}

// OperationNames returns the names of all operations.
func OperationNames() []string {
	names := []string{mcpnexus.OperationCallTools}
	for _, op := range operations {
		names = append(names, op.name)
	}
	return names
}
