package caller

import (
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxSummary limits a summary in its JSON form. The server's limit for a summary
// as a payload is 400 bytes (limit.userMetadataSummarySize); the rest is left
// to the payload's metadata and to a codec that encrypts it.
const maxSummary = 200

// summary says in one line what a request is about: the tool, the prompt, the
// URI, or the argument to complete. Never the arguments' values: a summary is
// shown in lists to people who do not open the request.
func summary(params mcp.Params) string {
	switch p := params.(type) {
	case *mcp.CallToolParams:
		return oneLine(p.Name)
	case *mcp.GetPromptParams:
		return oneLine(p.Name)
	case *mcp.ReadResourceParams:
		return oneLine(p.URI)
	case *mcp.CompleteParams:
		if p.Ref != nil {
			// Only one of name and URI is set.
			return oneLine(p.Ref.Name + p.Ref.URI + " " + p.Argument.Name)
		}
	}
	return ""
}

// oneLine returns s without what would break a line, hide or reorder text, and
// not longer than maxSummary allows.
func oneLine(s string) string { return shorten(s, maxSummary) }

// shorten is oneLine for a limit of its own.
func shorten(s string, limit int) string {
	size := len(`""`)
	var line strings.Builder
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			r = ' '
		}
		size += encodedLen(r)
		if size > limit-len("…") {
			line.WriteRune('…')
			break
		}
		line.WriteRune(r)
	}
	return strings.Join(strings.Fields(line.String()), " ")
}

// encodedLen is how many bytes encoding/json makes of a printable rune: six of
// '<'. That almost all take one is known without asking, once for every letter of
// every call.
func encodedLen(r rune) int {
	if r < utf8.RuneSelf && !strings.ContainsRune(`"\<>&`, r) {
		return 1
	}
	encoded, _ := json.Marshal(string(r))
	return len(encoded) - len(`""`)
}
