package endpoints

import (
	"fmt"
	"strings"
)

// Outcome says what became of an endpoint.
type Outcome string

const (
	// Created: there was no endpoint of the name, now there is.
	Created Outcome = "created"
	// Updated: [Result.Changes] were made to an existing endpoint.
	Updated Outcome = "updated"
	// Unchanged: the endpoint was already as specified; nothing was written.
	Unchanged Outcome = "unchanged"
	// Deleted: the endpoint is gone, and this call removed it.
	Deleted Outcome = "deleted"
	// Missing: there was no endpoint of the name to delete.
	Missing Outcome = "missing"
)

// Result is what [Apply] or [Delete] did.
//
// A client that retries a call whose answer was lost, as the SDK's does, can find its own work done: Apply then says
// Unchanged for what it created itself, and Delete says Missing. The server is as asked either way.
type Result struct {
	// Name of the endpoint.
	Name string `json:"name"`
	// ID that the server gave the endpoint; "" when Missing.
	ID string `json:"id,omitempty"`
	// Outcome of the call.
	Outcome Outcome `json:"outcome"`
	// Changes that were made, in the order of the spec's keys. Empty unless Outcome is Updated.
	Changes []Change `json:"changes,omitempty"`
	// UnenforcedCallers are the spec's AllowedCallers when it stated them: this server does not enforce them. See
	// [Options.AcceptUnenforcedCallers]. nil when the spec said nothing.
	UnenforcedCallers []string `json:"unenforcedCallers,omitzero"`
}

// Change is one field of an endpoint that [Apply] changed.
type Change struct {
	// Field is the key of the spec ("description", "targetNamespace", "taskQueue"), or "targetURL" for an endpoint that
	// pointed at an external URL before.
	Field string `json:"field"`
	// From is the old value. For a description that is not plain text, such as an encrypted one, it says so.
	From string `json:"from"`
	// To is the new value.
	To string `json:"to"`
}

// String is one line for a person, with a second one if callers are not enforced.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "endpoint %q: %s", r.Name, r.Outcome)
	for i, change := range r.Changes {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		b.WriteString(separator + change.String())
	}
	if r.UnenforcedCallers != nil {
		fmt.Fprintf(&b, "\nendpoint %q: warning: %s %q not enforced: this server lets every namespace call it", r.Name, keyAllowedCallers, r.UnenforcedCallers)
	}
	return b.String()
}

// String leaves out the text of a description, which can be long.
func (c Change) String() string {
	if c.Field == keyDescription {
		return fmt.Sprintf("%s (%d bytes to %d bytes)", c.Field, len(c.From), len(c.To))
	}
	return fmt.Sprintf("%s from %q to %q", c.Field, c.From, c.To)
}
