package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type place struct {
	City string `json:"city" jsonschema:"the name of a city"`
}

type weather struct {
	City        string  `json:"city"`
	Temperature float64 `json:"temperature" jsonschema:"in degrees Celsius"`
	Sky         string  `json:"sky"`
}

var today = map[string]weather{
	"Oslo":   {"Oslo", -3.5, "clear"},
	"Bergen": {"Bergen", 6, "rain"},
}

// newWeatherServer returns an MCP server with three tools.
func newWeatherServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "weather", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "get_weather", Description: "Today's weather in a city."},
		func(_ context.Context, _ *mcp.CallToolRequest, in place) (*mcp.CallToolResult, weather, error) {
			w, ok := today[in.City]
			if !ok {
				// The tool's own failure: a result with isError.
				return nil, weather{}, fmt.Errorf("no weather station in %s", in.City)
			}
			return nil, w, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "pack", Description: "What to pack for the weather."},
		func(_ context.Context, _ *mcp.CallToolRequest, in weather) (*mcp.CallToolResult, any, error) {
			text := "a raincoat"
			if in.Temperature < 0 {
				text = "mittens"
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
		})
	mcp.AddTool(server, &mcp.Tool{Name: "study_climate", Description: "The climate of a city. Takes three seconds."},
		func(ctx context.Context, _ *mcp.CallToolRequest, in place) (*mcp.CallToolResult, any, error) {
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
				return nil, nil, ctx.Err()
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "colder in winter"}}}, nil, nil
		})
	return server
}

// newLibraryServer returns an MCP server with a resource and a prompt.
func newLibraryServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "library", Version: "1.0.0"}, nil)
	server.AddResource(&mcp.Resource{Name: "catalogue", URI: "library://catalogue", MIMEType: "text/plain"},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "text/plain", Text: "Growth of the Soil; Hunger; Pan"}}}, nil
		})
	server.AddPrompt(&mcp.Prompt{Name: "recommend", Arguments: []*mcp.PromptArgument{{Name: "mood", Required: true}}},
		func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "Recommend a book for a " + req.Params.Arguments["mood"] + " evening."}}}}, nil
		})
	return server
}

// webServer serves one MCP server over streamable HTTP on loopback.
type webServer struct {
	http.Server
	listener net.Listener
}

func listen(server *mcp.Server) (*webServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &webServer{listener: listener}
	s.Handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true})
	go func() { _ = s.Serve(listener) }() // until Close
	return s, nil
}

func (s *webServer) Addr() net.Addr { return s.listener.Addr() }
