package recorded

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Tools of [NewService].
const (
	// ToolEcho returns its arguments as structured content.
	ToolEcho = "echo"
	// ToolFail fails with the JSON-RPC error "invalid params".
	ToolFail = "fail"
	// ToolSlow answers once [ToolRelease] is called with the same arguments, so that
	// a workflow can cancel the call while it is open.
	ToolSlow = "slow"
	// ToolRelease lets ToolSlow answer.
	ToolRelease = "release"
)

// NewService returns a Nexus service that answers every operation of the
// contract. It needs no MCP server.
func NewService(name string) *nexus.Service {
	service := nexus.NewService(name)
	service.MustRegister(
		answer(mcpnexus.OperationListTools, `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"public"}`),
		nexus.NewSyncOperation(mcpnexus.OperationCallTool, callOperation),
		nexus.NewSyncOperation(mcpnexus.OperationCallTools, callAllOperation),
		answer(mcpnexus.OperationListPrompts, `{"prompts":[{"name":"greeting"}],"ttlMs":0,"cacheScope":"public"}`),
		answer(mcpnexus.OperationGetPrompt, `{"messages":[{"role":"user","content":{"type":"text","text":"Hello, Ada"}}]}`),
		answer(mcpnexus.OperationListResources, `{"resources":[{"name":"readme","uri":"file:///readme"}],"ttlMs":0,"cacheScope":"public"}`),
		answer(mcpnexus.OperationListResourceTemplates, `{"resourceTemplates":[{"name":"file","uriTemplate":"file:///{path}"}],"ttlMs":0,"cacheScope":"public"}`),
		answer(mcpnexus.OperationReadResource, `{"contents":[{"uri":"file:///readme","text":"Hello"}],"ttlMs":0,"cacheScope":"public"}`),
		answer(mcpnexus.OperationComplete, `{"completion":{"values":["Ada"]}}`),
		answer(mcpnexus.OperationDiscover, `{"serverInfo":{"name":"recorded","version":"1"},"capabilities":{},"protocolVersion":"2026-07-28"}`),
	)
	return service
}

func answer(operation, result string) nexus.RegisterableOperation {
	return nexus.NewSyncOperation(operation, func(context.Context, json.RawMessage, nexus.StartOperationOptions) (json.RawMessage, error) {
		return json.RawMessage(result), nil
	})
}

func callOperation(ctx context.Context, input json.RawMessage, _ nexus.StartOperationOptions) (json.RawMessage, error) {
	var params mcp.CallToolParamsRaw
	if err := json.Unmarshal(input, &params); err != nil {
		return nil, nexus.NewHandlerErrorf(nexus.HandlerErrorTypeBadRequest, "params: %w", err)
	}
	switch params.Name {
	case ToolFail:
		return nil, &nexus.OperationError{
			State: nexus.OperationStateFailed,
			Cause: mcpnexus.NewError(mcpnexus.Error{
				Type:    mcpnexus.ErrorTypeProtocol,
				Message: "invalid params",
				Code:    -32602,
			}).ApplicationError(),
		}
	case ToolSlow:
		select {
		case <-released(params.Arguments):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case ToolRelease:
		release(params.Arguments)
	}
	if params.Arguments == nil {
		params.Arguments = json.RawMessage(`{}`)
	}
	return json.RawMessage(fmt.Sprintf(`{"content":[],"structuredContent":%s}`, params.Arguments)), nil
}

func callAllOperation(ctx context.Context, input json.RawMessage, options nexus.StartOperationOptions) (json.RawMessage, error) {
	var params struct{ Calls []json.RawMessage }
	if err := json.Unmarshal(input, &params); err != nil {
		return nil, nexus.NewHandlerErrorf(nexus.HandlerErrorTypeBadRequest, "params: %w", err)
	}
	type outcome struct {
		Result json.RawMessage `json:"result,omitempty"`
		Error  *mcpnexus.Error `json:"error,omitempty"`
	}
	var results []outcome
	for _, call := range params.Calls {
		var o outcome
		var err error
		if o.Result, err = callOperation(ctx, call, options); err != nil {
			var ok bool
			if o.Error, ok = mcpnexus.ErrorFrom(err); !ok {
				return nil, err
			}
		}
		results = append(results, o)
	}
	return json.Marshal(map[string]any{"results": results})
}

var releases struct {
	sync.Mutex
	done map[string]chan struct{}
}

// released returns what is closed when the release is called, or was.
func released(arguments json.RawMessage) chan struct{} {
	releases.Lock()
	defer releases.Unlock()
	if releases.done == nil {
		releases.done = make(map[string]chan struct{})
	}
	done := releases.done[string(arguments)]
	if done == nil {
		done = make(chan struct{})
		releases.done[string(arguments)] = done
	}
	return done
}

func release(arguments json.RawMessage) {
	done := released(arguments)
	releases.Lock()
	defer releases.Unlock()
	select {
	case <-done:
	default:
		close(done)
	}
}
