package handler

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A listKind is one of the protocol's lists that come in pages.
type listKind struct {
	method string
	items  string // the result's field that holds them
}

var (
	listTools             = listKind{"tools/list", "tools"}
	listPrompts           = listKind{"prompts/list", "prompts"}
	listResources         = listKind{"resources/list", "resources"}
	listResourceTemplates = listKind{"resources/templates/list", "resourceTemplates"}
)

// maxPages is more pages than any list has that is worth reading.
const maxPages = 5000

// list follows the server's cursors to the end and returns one result. A limit
// above zero ends it early when the result grows beyond.
func (s *session) list(ctx context.Context, kind listKind, params object, limit int64) (json.RawMessage, error) {
	var merged mergedList
	var tools []*mcp.Tool
	var size int64
	seen := map[string]bool{}
	// What begins at a cursor is not the whole list.
	_, cut := params["cursor"]
	since := s.memory.now()
	for {
		raw, result, err := s.callOnce(ctx, kind.method, params)
		if err != nil {
			return nil, err
		}
		if page, ok := result.(*mcp.ListToolsResult); ok {
			tools = append(tools, page.Tools...)
		}
		if size += int64(len(raw)); limit > 0 && size > limit {
			return nil, verdict{Size: size}.err()
		}
		cursor, err := merged.add(kind, raw)
		if err != nil {
			return nil, verdict{Problem: err.Error()}.err()
		}
		if cursor == "" {
			break
		}
		if len(seen) == maxPages {
			return nil, verdict{Problem: fmt.Sprintf("the list does not end: it has more than %d pages", maxPages)}.err()
		}
		if seen[cursor] {
			return nil, verdict{Problem: fmt.Sprintf("the list does not end: the cursor %.80q came twice", cursor)}.err()
		}
		seen[cursor] = true
		params = params.with("cursor", encode(cursor))
	}
	if kind == listTools && !cut {
		s.toolsKnown(newToolSet(tools), since)
	}
	if kind == listTools && s.http && s.modern() {
		valid, err := s.validTools(ctx, tools, !cut)
		if err != nil {
			return nil, err
		}
		if !cut {
			s.toolsListed()
		}
		merged.keep(func(i int) bool { return i < len(tools) && valid[tools[i]] })
	}
	return merged.result(kind), nil
}

// mergedList is a list result made of pages.
type mergedList struct {
	fields object
	meta   object
	items  []json.RawMessage

	pages    int
	ttl      int64
	ttlPages int
	scope    string
}

// add appends a page and returns the cursor of the next, empty at the end.
func (m *mergedList) add(kind listKind, raw json.RawMessage) (cursor string, err error) {
	var page object
	if err := json.Unmarshal(raw, &page); err != nil {
		return "", err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(page[kind.items], &items); err != nil {
		return "", fmt.Errorf("%s is not an array", kind.items)
	}
	for i, item := range items {
		if !isObject(item) {
			return "", fmt.Errorf("%s[%d] is not an object", kind.items, i)
		}
	}
	meta, err := page.object("_meta")
	if err != nil {
		return "", err
	}
	if m.fields == nil {
		m.fields, m.meta = object{}, object{}
	}
	m.pages++
	m.items = append(m.items, items...)
	for key, value := range meta {
		m.meta[key] = value
	}
	if v, ok := page["ttlMs"]; ok && string(v) != "null" {
		var ttl int64
		if err := json.Unmarshal(v, &ttl); err != nil {
			return "", fmt.Errorf("ttlMs %.40s is not a number of milliseconds", v)
		}
		if m.ttlPages == 0 || ttl < m.ttl {
			m.ttl = ttl
		}
		m.ttlPages++
	}
	if v, ok := page["cacheScope"]; ok && string(v) != "null" {
		var scope string
		if err := json.Unmarshal(v, &scope); err != nil {
			return "", fmt.Errorf("cacheScope %.40s is not a string", v)
		}
		if m.scope != "private" {
			m.scope = scope
		}
	}
	if v, ok := page["nextCursor"]; ok && string(v) != "null" {
		if err := json.Unmarshal(v, &cursor); err != nil {
			return "", fmt.Errorf("nextCursor %.40s is not a string", v)
		}
	}
	for key, value := range page {
		switch key {
		case kind.items, "_meta", "ttlMs", "cacheScope", "nextCursor":
		default:
			m.fields[key] = value
		}
	}
	return cursor, nil
}

func (m *mergedList) keep(valid func(int) bool) {
	kept := make([]json.RawMessage, 0, len(m.items))
	for i, item := range m.items {
		if valid(i) {
			kept = append(kept, item)
		}
	}
	m.items = kept
}

func (m *mergedList) result(kind listKind) json.RawMessage {
	if m.items == nil {
		m.items = []json.RawMessage{}
	}
	out := m.fields
	out[kind.items] = encode(m.items)
	if len(m.meta) > 0 {
		out["_meta"] = encode(m.meta)
	}
	if m.ttlPages > 0 {
		// A page that gives no time to live is stale at once (SEP-2549), and so is
		// a list that holds it.
		if m.ttlPages < m.pages {
			m.ttl = 0
		}
		out["ttlMs"] = encode(m.ttl)
	}
	if m.scope != "" {
		out["cacheScope"] = encode(m.scope)
	}
	return encode(out)
}
