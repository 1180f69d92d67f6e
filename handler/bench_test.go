//go:build unix

package handler_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nexus-rpc/sdk-go/nexus"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/handler"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The two benchmarks differ by what a call costs in the handler: MCP client and
// server are in the process, and counted, in both.

func BenchmarkACallOfTheMCPSession(b *testing.B) {
	for _, size := range resultSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).
				Connect(b.Context(), &mcp.StreamableClientTransport{Endpoint: serveText(b, size)}, nil)
			require.NoError(b, err)
			defer session.Close()
			perCall(b, func() error {
				_, err := session.CallTool(b.Context(), &mcp.CallToolParams{Name: "text"})
				return err
			})
		})
	}
}

func BenchmarkACallOfAnOperation(b *testing.B) {
	for _, size := range resultSizes {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			h, err := handler.New(handler.Options{Servers: []handler.Server{{Name: "text", Transport: handler.HTTP{Endpoint: serveText(b, size)}}}, Logger: &lines{}})
			require.NoError(b, err)
			defer func() { require.NoError(b, h.Close(context.WithoutCancel(b.Context()))) }()
			registry := plainRegistry{nexus.NewServiceRegistry()}
			h.Register(registry)
			operations, err := registry.NewHandler()
			require.NoError(b, err)
			p := &published{Handler: operations, handler: h}
			worker := workerContext(b)
			perCall(b, func() error {
				ctx, cancel := context.WithTimeout(worker, 9*time.Second) // what Temporal gives
				defer cancel()
				// One that is repeated could be answered from memory.
				id := fmt.Sprint("bench-", requests.Add(1))
				_, err := p.doWith(ctx, "text", mcpnexus.OperationCallTool, `{"name":"text"}`, nexus.StartOperationOptions{RequestID: id})
				return err
			})
		})
	}
}

var resultSizes = []int{1 << 10, 100 << 10, 1 << 20}

// serveText starts a server with a tool that answers with a text.
func serveText(b *testing.B, size int) (url string) {
	b.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "text", Version: "1"}, nil)
	answer := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", size)}}}
	server.AddTool(&mcp.Tool{Name: "text", InputSchema: map[string]any{"type": "object"}}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return answer, nil
	})
	listener := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true}))
	b.Cleanup(listener.Close)
	return listener.URL
}

// perCall runs a benchmark of calls one after the other, and reports their CPU
// beside their time: most of the time passes on loopback.
func perCall(b *testing.B, call func() error) {
	b.Helper()
	require.NoError(b, call()) // opens connections
	b.ReportAllocs()
	began := cpuTime(b)
	for b.Loop() {
		if err := call(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/float64(b.N), "cpu-µs/op")
}

// cpuTime returns the processor time that the process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
