//lint:file-ignore SA1019 servers of older protocol versions still send what is deprecated

package caller

import (
	"reflect"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A value that a new version of package mcp leaves open must not lose its large
// numbers unseen.
func TestEveryOpenValueOfAResultIsKnown(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, result := range []any{
		mcp.ListToolsResult{}, mcp.CallToolResult{}, mcp.ListPromptsResult{}, mcp.GetPromptResult{},
		mcp.ListResourcesResult{}, mcp.ListResourceTemplatesResult{}, mcp.ReadResourceResult{},
		mcp.CompleteResult{}, mcpnexus.DiscoverResult{},
		// Behind the interfaces Content and InputRequest.
		mcp.TextContent{}, mcp.ImageContent{}, mcp.AudioContent{}, mcp.ResourceLink{}, mcp.EmbeddedResource{},
		mcp.ToolUseContent{}, mcp.ToolResultContent{},
		mcp.ElicitParams{}, mcp.CreateMessageWithToolsParams{}, mcp.ListRootsParams{},
	} {
		walkOpen(reflect.TypeOf(result), "", seen, func(where, key string) {
			assert.True(t, openKeys[key], "%s: the key %q is not among openKeys", where, key)
		})
	}
}

// walkOpen reports the JSON keys of typ whose values have no type.
func walkOpen(typ reflect.Type, key string, seen map[reflect.Type]bool, report func(where, key string)) {
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice:
		walkOpen(typ.Elem(), key, seen, report)
	case reflect.Map:
		if typ.Elem() == reflect.TypeFor[any]() {
			report(typ.String(), key)
			return
		}
		walkOpen(typ.Elem(), key, seen, report)
	case reflect.Struct:
		if seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			field := typ.Field(i)
			if !field.IsExported() {
				continue
			}
			// Content has its tags in an unexported type, where a key is its field's
			// name but for the first letter's case.
			name := strings.ToLower(field.Name[:1]) + field.Name[1:]
			if field.Name == "Meta" {
				name = "_meta"
			}
			if tag, _, _ := strings.Cut(field.Tag.Get("json"), ","); tag != "" {
				name = tag
			}
			if field.Type == reflect.TypeFor[any]() {
				report(typ.String(), name)
				continue
			}
			walkOpen(field.Type, name, seen, report)
		}
	}
}
