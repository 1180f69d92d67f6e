package handler

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type learnKey struct{}

// putsParamsInHeaders reports whether params of some tools travel in headers
// that only the tool's definition names (SEP-2243).
func (s *session) putsParamsInHeaders() bool {
	if !s.http || !s.modern() {
		return false
	}
	init := s.client.InitializeResult()
	return init != nil && init.Capabilities != nil && init.Capabilities.Tools != nil
}

// learnTools makes the session know the tools' definitions. The channel that it
// returns is closed when they are known, or cannot be: a server that does not
// list its tools may well run them. The calls of a connection wait for the same
// listing, which outlives the first of them.
func (s *session) learnTools(like object) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned != nil {
		return s.learned
	}
	learned := make(chan struct{})
	ctx, cancel := context.WithTimeout(s.life, learnTimeout)
	s.learned, s.stopLearning = learned, cancel
	// Of the call's _meta only what says who calls concerns the list.
	params := object{}
	if meta, err := like.object("_meta"); err == nil {
		listMeta := object{}
		for _, key := range []string{mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities} {
			if v, ok := meta[key]; ok {
				listMeta[key] = v
			}
		}
		params = params.with("_meta", encode(listMeta))
	}
	go func() {
		defer close(learned)
		// The SDK tells the publisher's logger of definitions that it cannot use.
		defer func() { _ = recover() }()
		defer cancel()
		_, _ = s.list(ctx, listTools, params, s.limit) // see above
	}()
	return learned
}

// learnTimeout is how long the tools may take to be listed before the first call.
const learnTimeout = 10 * time.Second

// halfway returns a channel that is ready when half of the time that ctx has
// left is over.
func halfway(ctx context.Context) <-chan time.Time {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return time.After(time.Until(deadline) / 2)
}

// toolsListed notes that somebody listed the tools.
func (s *session) toolsListed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned == nil {
		s.learned = make(chan struct{})
		close(s.learned)
	}
}

// forgetTools makes the next call list the tools again, unless that is being done.
func (s *session) forgetTools() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.learned:
		s.learned = nil
	default:
	}
}

// validTools gives the SDK the tools whose params travel in headers, for later
// calls, and returns all whose x-mcp-header annotations are valid: the others must
// not be offered (SEP-2243). The SDK learns from its own ListTools alone, which
// the middleware lets answer with the given list. Of tools without annotations it
// need not know: it would keep their schemas, and read one in each call. A list
// that is not whole adds to what is known.
func (s *session) validTools(ctx context.Context, tools []*mcp.Tool, whole bool) (map[*mcp.Tool]bool, error) {
	s.giving.Lock()
	defer s.giving.Unlock()
	annotated := map[string]*mcp.Tool{}
	if known := s.headers.Load(); known != nil && !whole {
		maps.Copy(annotated, *known)
	}
	valid := make(map[*mcp.Tool]bool, len(tools))
	var given []*mcp.Tool
	for _, tool := range tools {
		if hasKey(tool.InputSchema, "x-mcp-header") {
			given = append(given, tool)
		} else {
			valid[tool] = true
		}
		delete(annotated, tool.Name)
	}
	given = slices.AppendSeq(given, maps.Values(annotated))
	for _, tool := range given {
		annotated[tool.Name] = tool
	}
	res, err := s.client.ListTools(context.WithValue(ctx, learnKey{}, &mcp.ListToolsResult{Tools: given}), nil)
	if err != nil {
		return nil, err
	}
	s.headers.Store(&annotated)
	for _, tool := range res.Tools {
		valid[tool] = true
	}
	return valid, nil
}

// hasHeaders reports whether params of the tool travel in headers, as far as the
// tools are known.
func (s *session) hasHeaders(tool string) bool {
	tools := s.headers.Load()
	return tools != nil && (*tools)[tool] != nil
}

// hasKey reports whether an object in a decoded JSON value has the key.
func hasKey(value any, key string) bool {
	switch value := value.(type) {
	case map[string]any:
		if _, ok := value[key]; ok {
			return true
		}
		for _, member := range value {
			if hasKey(member, key) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(value, func(item any) bool { return hasKey(item, key) })
	}
	return false
}
