package integration

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/handler"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
	"github.com/nexusmcp/nexusmcp/tests/npm"
)

// The servers of package npm were written by others, in another language and
// with another SDK: what they answer is what any server may answer. All three
// speak protocol version 2025-11-25, which has sessions.

// Names under which the tests publish the servers.
const (
	npmEverything = "everything"
	npmFiles      = "files"
	npmMemory     = "memory"
)

// npmOnce is the retry policy of a request whose failure is the point.
var npmOnce = mcpnexus.RequestOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}}

func npmStdio(t *testing.T, server string, args ...string) handler.Command {
	t.Helper()
	program, arguments := npm.Command(t, server, args...)
	return handler.Command{Path: program, Args: arguments}
}

// Over HTTP each call has a session of its own, over stdio all share a process.
func TestThePublicServerWithABitOfEverything(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(t *testing.T) handler.Server{
		"over stdio": func(t *testing.T) handler.Server {
			return handler.Server{Transport: npmStdio(t, npm.ServerEverything), Stateless: true}
		},
		"over streamable HTTP": func(t *testing.T) handler.Server {
			return handler.Server{Transport: handler.HTTP{Endpoint: npm.ServeEverything(t, npm.StreamableHTTP).URL}}
		},
		"over SSE": func(t *testing.T) handler.Server {
			return handler.Server{Transport: handler.SSE{Endpoint: npm.ServeEverything(t, npm.SSE).URL}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			s.Name = npmEverything
			p := publish(t, s)
			for name, test := range map[string]func(t *testing.T, p *path){
				"says what it is":                            everythingSaysWhatItIs,
				"lists its tools with their schemas":         everythingListsTools,
				"returns every kind of content":              everythingReturnsEveryKindOfContent,
				"answers with a result when a tool fails":    everythingFailsAsAResult,
				"fills in prompts":                           everythingFillsInPrompts,
				"hands out resources":                        everythingHandsOutResources,
				"completes arguments":                        everythingCompletesArguments,
				"refuses with a code":                        everythingRefusesWithACode,
				"times out in one call and answers the next": everythingTimesOut,
				"returns a long text as it came":             everythingReturnsALongText,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, p)
				})
			}
		})
	}
}

func npmText(s string) *mcp.TextContent { return &mcp.TextContent{Text: s} }

func npmJSON(t *testing.T, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	require.NoError(t, err)
	return string(out)
}

// npmImage is the server's image in the form that npmSteady gives it.
const npmImage = "SHA-256 4466be3b7a0e51778f8634f5e984197ec35c748caf4c3b32763f89c577d29614"

var npmClock = regexp.MustCompile(`created at .*`)

// npmSteady takes out of content what is another each time or too long to write
// down: the time of day, the bytes of an image, and compression.
func npmSteady(t *testing.T, content []mcp.Content) []mcp.Content {
	t.Helper()
	for _, c := range content {
		switch c := c.(type) {
		case *mcp.ImageContent:
			c.Data = fmt.Appendf(nil, "SHA-256 %x", sha256.Sum256(c.Data))
		case *mcp.EmbeddedResource:
			npmSteadyResource(t, c.Resource)
		}
	}
	return content
}

func npmSteadyResource(t *testing.T, r *mcp.ResourceContents) {
	t.Helper()
	r.Text = npmClock.ReplaceAllString(r.Text, "created at T")
	r.Blob = npmClock.ReplaceAll(r.Blob, []byte("created at T"))
	if r.MIMEType != "application/gzip" {
		return
	}
	reader, err := gzip.NewReader(bytes.NewReader(r.Blob))
	require.NoError(t, err)
	r.Blob, err = io.ReadAll(reader)
	assert.NoError(t, err)
}

func everythingSaysWhatItIs(t *testing.T, p *path) {
	var got *mcpnexus.DiscoverResult
	p.run(t, func(ctx workflow.Context) (err error) {
		got, err = p.client(npmEverything, caller.Options{}).Discover(ctx, nil)
		return err
	})
	assert.Equal(t, &mcp.Implementation{Name: "mcp-servers/everything", Title: "Everything Reference Server", Version: "2.0.0"}, got.ServerInfo)
	assert.Equal(t, "2025-11-25", got.ProtocolVersion)
	assert.Contains(t, got.Instructions, "🎉")
	assert.JSONEq(t, `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{},"completions":{}}`, npmJSON(t, got.Capabilities))
}

func everythingListsTools(t *testing.T, p *path) {
	var got *mcp.ListToolsResult
	p.run(t, func(ctx workflow.Context) (err error) {
		got, err = p.client(npmEverything, caller.Options{}).ListTools(ctx, nil)
		return err
	})
	tools := make(map[string]*mcp.Tool)
	var names []string
	for _, tool := range got.Tools {
		names = append(names, tool.Name)
		tools[tool.Name] = tool
	}
	// Tools that ask the client something are offered to those who can answer.
	assert.Equal(t, []string{
		"echo", "get-annotated-message", "get-env", "get-resource-links", "get-resource-reference",
		"get-structured-content", "get-sum", "get-tiny-image", "gzip-file-as-resource", "toggle-simulated-logging",
		"toggle-subscriber-updates", "trigger-long-running-operation", "simulate-research-query",
	}, names)

	sum := tools["get-sum"]
	assert.Equal(t, "Get Sum Tool", sum.Title)
	assert.Equal(t, "Returns the sum of two numbers", sum.Description)
	assert.JSONEq(t, `{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`, npmJSON(t, sum.Annotations))
	assert.JSONEq(t, `{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"type": "object",
		"properties": {"a": {"type":"number","description":"First number"}, "b": {"type":"number","description":"Second number"}},
		"required": ["a", "b"]
	}`, npmJSON(t, sum.InputSchema))
	assert.Nil(t, sum.OutputSchema)

	assert.JSONEq(t, `{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"type": "object",
		"properties": {
			"temperature": {"type":"number","description":"Temperature in celsius"},
			"conditions": {"type":"string","description":"Weather conditions description"},
			"humidity": {"type":"number","description":"Humidity percentage"}
		},
		"required": ["temperature", "conditions", "humidity"],
		"additionalProperties": false
	}`, npmJSON(t, tools["get-structured-content"].OutputSchema))
}

func everythingReturnsEveryKindOfContent(t *testing.T, p *path) {
	image := &mcp.ImageContent{MIMEType: "image/png", Data: []byte(npmImage)}
	reference := func(resource *mcp.ResourceContents) []mcp.Content {
		return []mcp.Content{
			npmText("Returning resource reference for Resource 7:"),
			&mcp.EmbeddedResource{Resource: resource},
			npmText("You can access this resource using the URI: " + resource.URI),
		}
	}
	calls := []struct {
		name, tool, arguments string
		content               []mcp.Content
		structured            string // JSON, "" for none
	}{
		{name: "text beyond ASCII", tool: "echo", arguments: `{"message":"hi é 🎉 <&>\u2028\u0000"}`,
			content: []mcp.Content{npmText("Echo: hi é 🎉 <&>\u2028\x00")}},
		{name: "numbers as arguments", tool: "get-sum", arguments: `{"a":2,"b":3.5}`,
			content: []mcp.Content{npmText("The sum of 2 and 3.5 is 5.5.")}},
		{name: "an image", tool: "get-tiny-image",
			content: []mcp.Content{npmText("Here's the image you requested:"), image, npmText("The image above is the MCP logo.")}},
		{name: "annotations", tool: "get-annotated-message", arguments: `{"messageType":"error","includeImage":true}`,
			content: []mcp.Content{
				&mcp.TextContent{Text: "Error: Operation failed", Annotations: &mcp.Annotations{Audience: []mcp.Role{"user", "assistant"}, Priority: 1}},
				&mcp.ImageContent{MIMEType: "image/png", Data: []byte(npmImage), Annotations: &mcp.Annotations{Audience: []mcp.Role{"user"}, Priority: 0.5}},
			}},
		{name: "structured content", tool: "get-structured-content", arguments: `{"location":"Chicago"}`,
			content:    []mcp.Content{npmText(`{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}`)},
			structured: `{"temperature":36,"conditions":"Light rain / drizzle","humidity":82}`},
		{name: "resource links", tool: "get-resource-links", arguments: `{"count":2}`,
			content: []mcp.Content{
				npmText("Here are 2 resource links to resources available in this server:"),
				&mcp.ResourceLink{URI: "demo://resource/dynamic/blob/1", Name: "Blob Resource 1", Description: "Resource 1: plaintext resource", MIMEType: "text/plain"},
				&mcp.ResourceLink{URI: "demo://resource/dynamic/text/2", Name: "Text Resource 2", Description: "Resource 2: plaintext resource", MIMEType: "text/plain"},
			}},
		{name: "an embedded text", tool: "get-resource-reference", arguments: `{"resourceType":"Text","resourceId":7}`,
			content: reference(&mcp.ResourceContents{URI: "demo://resource/dynamic/text/7", MIMEType: "text/plain", Text: "Resource 7: This is a plaintext resource created at T"})},
		{name: "an embedded blob", tool: "get-resource-reference", arguments: `{"resourceType":"Blob","resourceId":7}`,
			content: reference(&mcp.ResourceContents{URI: "demo://resource/dynamic/blob/7", MIMEType: "text/plain", Blob: []byte("Resource 7: This is a base64 blob created at T")})},
		{name: "an embedded file", tool: "gzip-file-as-resource", arguments: `{"name":"a.gz","data":"data:text/plain,hello","outputType":"resource"}`,
			content: []mcp.Content{&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "demo://resource/session/a.gz", MIMEType: "application/gzip", Blob: []byte("hello")}}}},
		{name: "a result that takes a while", tool: "trigger-long-running-operation", arguments: `{"duration":1,"steps":4}`,
			content: []mcp.Content{npmText("Long running operation completed. Duration: 1 seconds, Steps: 4.")}},
	}
	got := make([]*mcp.CallToolResult, len(calls))
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmEverything, caller.Options{})
		for i, c := range calls {
			params := &mcp.CallToolParams{Name: c.tool}
			if c.arguments != "" {
				params.Arguments = json.RawMessage(c.arguments)
			}
			if got[i], err = client.CallTool(ctx, params); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
	for i, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			assert.False(t, got[i].IsError)
			assert.Equal(t, c.content, npmSteady(t, got[i].Content))
			if c.structured == "" {
				assert.Nil(t, got[i].StructuredContent)
				return
			}
			assert.JSONEq(t, c.structured, npmJSON(t, got[i].StructuredContent))
		})
	}
}

func everythingFailsAsAResult(t *testing.T, p *path) {
	for name, c := range map[string]struct{ tool, arguments, text string }{
		"the tool does not exist":          {"nope", `{}`, "MCP error -32602: Tool nope not found"},
		"an argument is missing":           {"get-sum", `{"a":1}`, "MCP error -32602: Input validation error: Invalid arguments for tool get-sum"},
		"an argument has the wrong type":   {"echo", `{"message":7}`, "MCP error -32602: Input validation error: Invalid arguments for tool echo"},
		"an argument is none of a few":     {"get-structured-content", `{"location":"Oslo"}`, "MCP error -32602: Input validation error: Invalid arguments for tool get-structured-content"},
		"the tool throws":                  {"get-resource-reference", `{"resourceId":-1}`, "Invalid resourceId: -1. Must be a finite positive integer."},
		"the tool has to be run as a task": {"simulate-research-query", `{"topic":"python"}`, "requires task augmentation"},
	} {
		t.Run(name, func(t *testing.T) {
			var got *mcp.CallToolResult
			p.run(t, func(ctx workflow.Context) (err error) {
				got, err = p.client(npmEverything, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: c.tool, Arguments: json.RawMessage(c.arguments)})
				return err
			})
			assert.True(t, got.IsError)
			require.Len(t, got.Content, 1)
			assert.Contains(t, got.Content[0].(*mcp.TextContent).Text, c.text)
		})
	}
}

func everythingFillsInPrompts(t *testing.T, p *path) {
	user := func(content mcp.Content) *mcp.PromptMessage {
		return &mcp.PromptMessage{Role: "user", Content: content}
	}
	prompts := []struct {
		name      string
		arguments map[string]string
		want      []*mcp.PromptMessage
	}{
		{"simple-prompt", nil, []*mcp.PromptMessage{user(npmText("This is a simple prompt without arguments."))}},
		{"args-prompt", map[string]string{"city": "Oslo"}, []*mcp.PromptMessage{user(npmText("What's weather in Oslo?"))}},
		{"args-prompt", map[string]string{"city": "Ålesund", "state": "Møre"}, []*mcp.PromptMessage{user(npmText("What's weather in Ålesund, Møre?"))}},
		{"completable-prompt", map[string]string{"department": "Sales", "name": "Eve"}, []*mcp.PromptMessage{user(npmText("Please promote Eve to the head of the Sales team."))}},
		{"resource-prompt", map[string]string{"resourceType": "Text", "resourceId": "3"}, []*mcp.PromptMessage{
			user(npmText("This prompt includes the Text resource with id: 3. Please analyze the following resource:")),
			user(&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "demo://resource/dynamic/text/3", MIMEType: "text/plain", Text: "Resource 3: This is a plaintext resource created at T"}}),
		}},
		{"resource-prompt", map[string]string{"resourceType": "Blob", "resourceId": "3"}, []*mcp.PromptMessage{
			user(npmText("This prompt includes the Blob resource with id: 3. Please analyze the following resource:")),
			user(&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "demo://resource/dynamic/blob/3", MIMEType: "text/plain", Blob: []byte("Resource 3: This is a base64 blob created at T")}}),
		}},
	}
	var list *mcp.ListPromptsResult
	got := make([]*mcp.GetPromptResult, len(prompts))
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmEverything, caller.Options{})
		if list, err = client.ListPrompts(ctx, nil); err != nil {
			return err
		}
		for i, c := range prompts {
			if got[i], err = client.GetPrompt(ctx, &mcp.GetPromptParams{Name: c.name, Arguments: c.arguments}); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		return nil
	})
	assert.Equal(t, []*mcp.Prompt{
		{Name: "simple-prompt", Title: "Simple Prompt", Description: "A prompt with no arguments"},
		{Name: "args-prompt", Title: "Arguments Prompt", Description: "A prompt with two arguments, one required and one optional", Arguments: []*mcp.PromptArgument{
			{Name: "city", Description: "Name of the city", Required: true},
			{Name: "state"}, // the server itself leaves an optional one's description out
		}},
		{Name: "completable-prompt", Title: "Team Management", Description: "First argument choice narrows values for second argument.", Arguments: []*mcp.PromptArgument{
			{Name: "department", Description: "Choose the department.", Required: true},
			{Name: "name", Description: "Choose a team member to lead the selected department.", Required: true},
		}},
		{Name: "resource-prompt", Title: "Resource Prompt", Description: "A prompt that includes an embedded resource reference", Arguments: []*mcp.PromptArgument{
			{Name: "resourceType", Description: "Type of resource to fetch", Required: true},
			{Name: "resourceId", Description: "ID of the text resource to fetch", Required: true},
		}},
	}, list.Prompts)
	for i, c := range prompts {
		for _, message := range got[i].Messages {
			npmSteady(t, []mcp.Content{message.Content})
		}
		assert.Equal(t, c.want, got[i].Messages, "%s %v", c.name, c.arguments)
	}
}

func everythingHandsOutResources(t *testing.T, p *path) {
	var list *mcp.ListResourcesResult
	var templates *mcp.ListResourceTemplatesResult
	var documents, dynamic []*mcp.ReadResourceResult
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmEverything, caller.Options{})
		if list, err = client.ListResources(ctx, nil); err != nil {
			return err
		}
		if templates, err = client.ListResourceTemplates(ctx, nil); err != nil {
			return err
		}
		// Over stdio the list also has what another test put into the process.
		list.Resources = slices.DeleteFunc(list.Resources, func(r *mcp.Resource) bool {
			return strings.HasPrefix(r.URI, "demo://resource/session/")
		})
		documents = make([]*mcp.ReadResourceResult, len(list.Resources))
		for i, resource := range list.Resources {
			if documents[i], err = client.ReadResource(ctx, &mcp.ReadResourceParams{URI: resource.URI}); err != nil {
				return err
			}
		}
		dynamic = make([]*mcp.ReadResourceResult, 2)
		for i, uri := range []string{"demo://resource/dynamic/text/5", "demo://resource/dynamic/blob/5"} {
			if dynamic[i], err = client.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri}); err != nil {
				return err
			}
		}
		return nil
	})
	var names []string
	for i, resource := range list.Resources {
		names = append(names, resource.Name)
		assert.Equal(t, "demo://resource/static/document/"+resource.Name, resource.URI)
		assert.Equal(t, "text/markdown", resource.MIMEType)
		assert.Equal(t, "Static document file exposed from /docs: "+resource.Name, resource.Description)

		require.Len(t, documents[i].Contents, 1)
		document := documents[i].Contents[0]
		assert.Equal(t, resource.URI, document.URI)
		assert.Equal(t, "text/markdown", document.MIMEType)
		assert.Contains(t, document.Text, "# Everything Server")
	}
	assert.Equal(t, []string{"architecture.md", "extension.md", "features.md", "how-it-works.md", "instructions.md", "startup.md", "structure.md"}, names)
	assert.Equal(t, []*mcp.ResourceTemplate{
		{Name: "Dynamic Text Resource", URITemplate: "demo://resource/dynamic/text/{resourceId}", MIMEType: "text/plain",
			Description: "Plaintext dynamic resource fabricated from the {resourceId} variable, which must be an integer."},
		{Name: "Dynamic Blob Resource", URITemplate: "demo://resource/dynamic/blob/{resourceId}", MIMEType: "application/octet-stream",
			Description: "Binary (base64) dynamic resource fabricated from the {resourceId} variable, which must be an integer."},
	}, templates.ResourceTemplates)
	for i, want := range []*mcp.ResourceContents{
		{URI: "demo://resource/dynamic/text/5", MIMEType: "text/plain", Text: "Resource 5: This is a plaintext resource created at T"},
		{URI: "demo://resource/dynamic/blob/5", MIMEType: "text/plain", Blob: []byte("Resource 5: This is a base64 blob created at T")},
	} {
		require.Len(t, dynamic[i].Contents, 1)
		npmSteadyResource(t, dynamic[i].Contents[0])
		assert.Equal(t, want, dynamic[i].Contents[0])
	}
}

func everythingCompletesArguments(t *testing.T, p *path) {
	prompt := func(name string) *mcp.CompleteReference {
		return &mcp.CompleteReference{Type: "ref/prompt", Name: name}
	}
	template := &mcp.CompleteReference{Type: "ref/resource", URI: "demo://resource/dynamic/text/{resourceId}"}
	in := func(department string) *mcp.CompleteContext {
		return &mcp.CompleteContext{Arguments: map[string]string{"department": department}}
	}
	completions := []struct {
		params mcp.CompleteParams
		want   []string
	}{
		{mcp.CompleteParams{Ref: prompt("completable-prompt"), Argument: mcp.CompleteParamsArgument{Name: "department", Value: "S"}}, []string{"Sales", "Support"}},
		{mcp.CompleteParams{Ref: prompt("completable-prompt"), Argument: mcp.CompleteParamsArgument{Name: "name"}, Context: in("Sales")}, []string{"David", "Eve", "Frank"}},
		{mcp.CompleteParams{Ref: prompt("completable-prompt"), Argument: mcp.CompleteParamsArgument{Name: "name", Value: "G"}, Context: in("Marketing")}, []string{"Grace"}},
		{mcp.CompleteParams{Ref: prompt("completable-prompt"), Argument: mcp.CompleteParamsArgument{Name: "name"}}, []string{}},
		{mcp.CompleteParams{Ref: template, Argument: mcp.CompleteParamsArgument{Name: "resourceId", Value: "5"}}, []string{"5"}},
		{mcp.CompleteParams{Ref: template, Argument: mcp.CompleteParamsArgument{Name: "resourceId", Value: "five"}}, []string{}},
	}
	got := make([]*mcp.CompleteResult, len(completions))
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmEverything, caller.Options{})
		for i, c := range completions {
			if got[i], err = client.Complete(ctx, &c.params); err != nil {
				return err
			}
		}
		return nil
	})
	for i, c := range completions {
		assert.Equal(t, mcp.CompletionResultDetails{Values: c.want, Total: len(c.want)}, got[i].Completion, "%v", npmJSON(t, c.params))
	}
}

func everythingRefusesWithACode(t *testing.T, p *path) {
	type call func(ctx workflow.Context, client *caller.Client) error
	prompt := func(name string, arguments map[string]string) call {
		return func(ctx workflow.Context, client *caller.Client) error {
			_, err := client.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: arguments})
			return err
		}
	}
	read := func(uri string) call {
		return func(ctx workflow.Context, client *caller.Client) error {
			_, err := client.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
			return err
		}
	}
	complete := func(ref *mcp.CompleteReference) call {
		return func(ctx workflow.Context, client *caller.Client) error {
			_, err := client.Complete(ctx, &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "a", Value: "b"}})
			return err
		}
	}
	for name, c := range map[string]struct {
		call      call
		code      int64
		retryable bool
		subject   string
		text      string
	}{
		"a prompt without any of its arguments": {prompt("args-prompt", nil), -32602, false, `get-prompt "args-prompt"`, "Invalid arguments for prompt args-prompt"},
		"a prompt without the one it needs":     {prompt("args-prompt", map[string]string{"state": "Møre"}), -32602, false, `get-prompt "args-prompt"`, "Invalid arguments for prompt args-prompt"},
		"a prompt that does not exist":          {prompt("nope", nil), -32602, false, `get-prompt "nope"`, "Prompt nope not found"},
		"a prompt that throws":                  {prompt("resource-prompt", map[string]string{"resourceType": "Video", "resourceId": "1"}), -32603, true, `get-prompt "resource-prompt"`, "Invalid resourceType: Video"},
		"a resource that does not exist":        {read("demo://nope"), -32602, false, `read-resource "demo://nope"`, "Resource demo://nope not found"},
		"a resource that throws":                {read("demo://resource/dynamic/text/0"), -32603, true, `read-resource "demo://resource/dynamic/text/0"`, "Unknown resource"},
		"a completion of an unknown prompt":     {complete(&mcp.CompleteReference{Type: "ref/prompt", Name: "nope"}), -32602, false, "complete", "Prompt nope not found"},
		"a completion of an unknown template":   {complete(&mcp.CompleteReference{Type: "ref/resource", URI: "demo://nope/{x}"}), -32602, false, "complete", "Resource template demo://nope/{x} not found"},
	} {
		t.Run(name, func(t *testing.T) {
			var failure *mcpnexus.Error
			p.run(t, func(ctx workflow.Context) error {
				failure, _ = mcpnexus.ErrorFrom(c.call(ctx, p.client(npmEverything, caller.Options{Request: npmOnce})))
				return nil
			})
			require.NotNil(t, failure)
			assert.Equal(t, mcpnexus.ErrorTypeProtocol, failure.Type)
			assert.Equal(t, c.code, failure.Code)
			assert.Equal(t, c.retryable, !failure.NonRetryable)
			assert.Contains(t, failure.Message, npmEverything+": "+c.subject)
			assert.Contains(t, failure.Message, c.text)
		})
	}
}

func everythingTimesOut(t *testing.T, p *path) {
	var failure *mcpnexus.Error
	var next *mcp.CallToolResult
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmEverything, caller.Options{Request: npmOnce})
		_, err = client.With(mcpnexus.RequestOptions{StartToCloseTimeout: time.Second}).
			CallTool(ctx, &mcp.CallToolParams{Name: "trigger-long-running-operation", Arguments: map[string]any{"duration": 60, "steps": 60}})
		failure, _ = mcpnexus.ErrorFrom(err)
		next, err = client.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "again"}})
		return err
	})
	require.NotNil(t, failure)
	assert.Equal(t, mcpnexus.ErrorTypeTimeout, failure.Type)
	assert.Equal(t, time.Second, failure.Timeout)
	assert.False(t, failure.NonRetryable)
	assert.Equal(t, []mcp.Content{npmText("Echo: again")}, next.Content)
}

func everythingReturnsALongText(t *testing.T, p *path) {
	// Two, three and four bytes a letter, so that some are cut by any buffer.
	message := strings.Repeat("é€🎉<&>\u2028", 30_000)
	var got *mcp.CallToolResult
	p.run(t, func(ctx workflow.Context) (err error) {
		got, err = p.client(npmEverything, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": message}})
		return err
	})
	require.Len(t, got.Content, 1)
	assert.True(t, got.Content[0].(*mcp.TextContent).Text == "Echo: "+message)
}

func TestACallerThatKnowsOnlyNexusGetsThePublicServersOwnJSON(t *testing.T) {
	t.Parallel()
	dir := npmDir(t)
	command := npmStdio(t, npm.ServerFilesystem, dir)
	graph := npmStdio(t, npm.ServerMemory)
	graph.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.jsonl")}
	for name, c := range map[string]struct {
		transport func(t *testing.T) handler.Transport
		// direct is asked the same, without anything between.
		direct   handler.Command
		requests []npmRequest
	}{
		"the everything server over stdio": {
			transport: func(t *testing.T) handler.Transport { return npmStdio(t, npm.ServerEverything) },
			direct:    npmStdio(t, npm.ServerEverything),
			requests:  npmEverythingRequests,
		},
		"the everything server over streamable HTTP": {
			transport: func(t *testing.T) handler.Transport {
				return handler.HTTP{Endpoint: npm.ServeEverything(t, npm.StreamableHTTP).URL}
			},
			direct:   npmStdio(t, npm.ServerEverything),
			requests: npmEverythingRequests,
		},
		"the filesystem server": {
			transport: func(t *testing.T) handler.Transport { return command },
			direct:    command,
			requests: []npmRequest{
				{"list-tools", "tools/list", `{}`, `"taskSupport":"forbidden"`},
				{"call-tool", "tools/call", `{"name":"list_allowed_directories","arguments":{}}`, `"structuredContent":{"content":"Allowed directories:`},
			},
		},
		"the memory server": {
			transport: func(t *testing.T) handler.Transport { return graph },
			direct:    graph,
			requests: []npmRequest{
				{"list-tools", "tools/list", `{}`, `"taskSupport":"forbidden"`},
				{"list-resources", "resources/list", `{}`, `memory://knowledge-graph`},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := publish(t, handler.Server{Name: "public", Transport: c.transport(t), Stateless: true})
			var got []converter.RawValue
			var discovered json.RawMessage
			p.run(t, func(ctx workflow.Context) error {
				client := workflow.NewNexusClient(p.endpoint, "public")
				got = make([]converter.RawValue, len(c.requests))
				for i, r := range c.requests {
					if err := client.ExecuteOperation(ctx, r.operation, json.RawMessage(r.params), workflow.NexusOperationOptions{}).Get(ctx, &got[i]); err != nil {
						return fmt.Errorf("%s: %w", r.operation, err)
					}
				}
				return client.ExecuteOperation(ctx, "discover", nil, workflow.NexusOperationOptions{}).Get(ctx, &discovered)
			})
			initialized, want := npmAsk(t, c.direct, c.requests)
			for i, r := range c.requests {
				assert.Equal(t, "json/plain", string(got[i].Payload().GetMetadata()["encoding"]))
				assert.Equal(t, string(want[i]), string(got[i].Payload().GetData()), "%s %s", r.operation, r.params)
				assert.Contains(t, string(got[i].Payload().GetData()), r.contains)
			}
			assert.JSONEq(t, string(initialized), string(discovered))
		})
	}
}

// npmRequest is a request as a caller in another language sends it, and as it
// goes to the server.
type npmRequest struct{ operation, method, params, contains string }

// npmEverythingRequests have answers that are the same each time. What they
// contain includes what the types of package mcp do not know or leave out.
var npmEverythingRequests = []npmRequest{
	{"list-tools", "tools/list", `{}`, `"execution":{"taskSupport":"required"}`},
	{"list-prompts", "prompts/list", `{}`, `"required":false`},
	{"list-resources", "resources/list", `{}`, `"mimeType":"text/markdown"`},
	{"list-resource-templates", "resources/templates/list", `{}`, `"uriTemplate":"demo://resource/dynamic/text/{resourceId}"`},
	{"get-prompt", "prompts/get", `{"name":"args-prompt","arguments":{"city":"Oslo"}}`, `What's weather in Oslo?`},
	{"read-resource", "resources/read", `{"uri":"demo://resource/static/document/instructions.md"}`, `🎉`},
	{"complete", "completion/complete", `{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"x"}}`, `"total":0,"hasMore":false`},
	{"call-tool", "tools/call", `{"name":"get-annotated-message","arguments":{"messageType":"success","includeImage":true}}`, `"annotations":{"audience":["user"],"priority":0.7}`},
	{"call-tool", "tools/call", `{"name":"get-structured-content","arguments":{"location":"Los Angeles"}}`, `"structuredContent":{"temperature":73,`},
	{"call-tool", "tools/call", `{"name":"nope"}`, `"isError":true`},
	{"call-tool", "tools/call", `{"name":"trigger-long-running-operation","arguments":{"duration":0.2,"steps":20},"_meta":{"progressToken":"mine"}}`, `Steps: 20.`},
}

// npmAsk starts a server, sends it the requests, and returns what discover
// should say of it and the results as they stand on its standard output.
func npmAsk(t *testing.T, server handler.Command, requests []npmRequest) (discover json.RawMessage, results []json.RawMessage) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, server.Path, server.Args...)
	cmd.Env = os.Environ()
	for name, value := range server.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() {
		cancel()
		_ = cmd.Wait()
	}()
	lines := bufio.NewReader(stdout)
	answer := func(id int) json.RawMessage {
		for {
			line, err := lines.ReadBytes('\n')
			require.NoError(t, err)
			var message struct {
				ID     int
				Method string
				Result json.RawMessage
			}
			require.NoError(t, json.Unmarshal(line, &message), "%s", line)
			if message.Method == "" && message.ID == id {
				return message.Result
			}
		}
	}
	_, err = fmt.Fprintln(stdin, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	require.NoError(t, err)
	discover = answer(1)
	_, err = fmt.Fprintln(stdin, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	require.NoError(t, err)
	for i, r := range requests {
		_, err := fmt.Fprintf(stdin, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", i+2, r.method, r.params)
		require.NoError(t, err)
		results = append(results, answer(i+2))
	}
	return discover, results
}

// npmDir is a temporary directory under the name that a server gives it.
func npmDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	return dir
}

func TestWhatACallLeavesInAPublicServersSessionIsNotForTheNextCall(t *testing.T) {
	t.Parallel()
	server := npm.ServeEverything(t, npm.StreamableHTTP)
	p := publish(t,
		handler.Server{Name: npmEverything, Transport: handler.HTTP{Endpoint: server.URL}},
		handler.Server{Name: "shared", Transport: handler.HTTP{Endpoint: server.URL}, Stateless: true})
	var failure *mcpnexus.Error
	var shared *mcp.ReadResourceResult
	p.run(t, func(ctx workflow.Context) error {
		compress := func(client *caller.Client, name string) (*mcp.ReadResourceResult, error) {
			result, err := client.CallTool(ctx, &mcp.CallToolParams{Name: "gzip-file-as-resource", Arguments: map[string]any{"name": name, "data": "data:text/plain,hello"}})
			if err != nil {
				return nil, err
			}
			return client.ReadResource(ctx, &mcp.ReadResourceParams{URI: result.Content[0].(*mcp.ResourceLink).URI})
		}
		_, err := compress(p.client(npmEverything, caller.Options{}), "mine.gz")
		failure, _ = mcpnexus.ErrorFrom(err)
		shared, err = compress(p.client("shared", caller.Options{}), "ours.gz")
		return err
	})
	require.NotNil(t, failure)
	assert.Equal(t, int64(-32602), failure.Code)
	assert.Contains(t, failure.Message, "Resource demo://resource/session/mine.gz not found")

	require.Len(t, shared.Contents, 1)
	npmSteadyResource(t, shared.Contents[0])
	assert.Equal(t, &mcp.ResourceContents{URI: "demo://resource/session/ours.gz", MIMEType: "application/gzip", Blob: []byte("hello")}, shared.Contents[0],
		"a publisher who says that the server is stateless has it so")
}

func TestAPublicServerThatIsKilledBetweenCallsIsARetryableTransportError(t *testing.T) {
	t.Parallel()
	for name, stateless := range map[string]bool{"with a session for each call": false, "with a session for all": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := npm.ServeEverything(t, npm.StreamableHTTP)
			p := publish(t, handler.Server{Name: npmEverything, Transport: handler.HTTP{Endpoint: server.URL}, Stateless: stateless})
			echo := func(ctx workflow.Context) error {
				_, err := p.client(npmEverything, caller.Options{Request: npmOnce}).CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": "hi"}})
				return err
			}
			p.run(t, echo)
			server.Kill()
			for _, when := range []string{"at first", "and ever after"} {
				var failure *mcpnexus.Error
				p.run(t, func(ctx workflow.Context) error {
					failure, _ = mcpnexus.ErrorFrom(echo(ctx))
					return nil
				})
				require.NotNil(t, failure, when)
				assert.Equal(t, mcpnexus.ErrorTypeTransport, failure.Type, when)
				assert.Zero(t, failure.HTTPStatus, when)
				assert.False(t, failure.NonRetryable, when)
			}
		})
	}
}

func TestAPublicServerThatIsKilledDuringACallIsARetryableTransportError(t *testing.T) {
	t.Parallel()
	server := npm.ServeEverything(t, npm.StreamableHTTP)
	answering := &npmAnswering{tool: "trigger-long-running-operation", begun: make(chan struct{})}
	p := publish(t, handler.Server{Name: npmEverything, Transport: handler.HTTP{Endpoint: server.URL, Client: &http.Client{Transport: answering}}})
	var failure *mcpnexus.Error
	go func() {
		select {
		case <-answering.begun:
			server.Kill()
		case <-t.Context().Done():
		}
	}()
	p.run(t, func(ctx workflow.Context) error {
		_, err := p.client(npmEverything, caller.Options{Request: npmOnce}).CallTool(ctx, &mcp.CallToolParams{Name: answering.tool, Arguments: map[string]any{"duration": 60}})
		failure, _ = mcpnexus.ErrorFrom(err)
		return nil
	})
	require.NotNil(t, failure)
	assert.Equal(t, mcpnexus.ErrorTypeTransport, failure.Type, failure.Message)
	assert.False(t, failure.NonRetryable)
}

func TestAPublicServersAnswerOnAResumedStreamArrives(t *testing.T) {
	t.Parallel()
	server := npm.ServeEverything(t, npm.StreamableHTTP)
	cut := &npmCut{tool: "trigger-long-running-operation", drained: make(chan struct{})}
	p := publish(t, handler.Server{Name: npmEverything, Transport: handler.HTTP{Endpoint: server.URL, Client: &http.Client{Transport: cut}}})
	var got *mcp.CallToolResult
	p.run(t, func(ctx workflow.Context) (err error) {
		got, err = p.client(npmEverything, caller.Options{Request: npmOnce}).CallTool(ctx, &mcp.CallToolParams{Name: cut.tool, Arguments: map[string]any{"duration": 0.1, "steps": 1}})
		return err
	})
	assert.Equal(t, []mcp.Content{npmText("Long running operation completed. Duration: 0.1 seconds, Steps: 1.")}, got.Content)
}

// npmCut cuts the event stream with a tool's answer after the first event, as a
// lost network connection would, and lets the client come back for the rest.
type npmCut struct {
	tool    string
	once    sync.Once
	drained chan struct{}
}

func (c *npmCut) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Last-Event-Id") != "" {
		select {
		case <-c.drained:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	isCall := npmIsCall(req, c.tool)
	if isCall {
		req = req.WithContext(context.WithoutCancel(req.Context()))
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || !isCall {
		return resp, err
	}
	whole := resp.Body
	stream := bufio.NewReader(whole)
	var first []byte
	for !bytes.HasSuffix(first, []byte("\n\n")) {
		line, err := stream.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		first = append(first, line...)
	}
	go func() {
		_, _ = io.Copy(io.Discard, stream)
		whole.Close()
		c.once.Do(func() { close(c.drained) })
	}()
	resp.Body = io.NopCloser(bytes.NewReader(first))
	return resp, nil
}

// npmAnswering closes begun when the server has begun to answer a tool's call.
type npmAnswering struct {
	tool  string
	once  sync.Once
	begun chan struct{}
}

func (a *npmAnswering) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err == nil && npmIsCall(req, a.tool) {
		a.once.Do(func() { close(a.begun) })
	}
	return resp, err
}

// npmIsCall reports whether an HTTP request calls the tool.
func npmIsCall(req *http.Request, tool string) bool {
	if req.GetBody == nil {
		return false
	}
	body, err := req.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	return err == nil && bytes.Contains(data, []byte(tool))
}

func TestAPublicServerOffersToolsThatAskTheUserOnlyToThoseWhoCanAnswer(t *testing.T) {
	t.Parallel()
	command := npmStdio(t, npm.ServerEverything)
	p := publish(t,
		handler.Server{Name: npmEverything, Transport: command, Stateless: true},
		handler.Server{Name: "asking", Transport: handler.Factory(func(context.Context) (mcp.Transport, error) {
			return npmDeclaring{&mcp.CommandTransport{Command: exec.Command(command.Path, command.Args...)}, `{"elicitation":{"url":{}}}`}, nil
		}), Stateless: true})

	const tool = "trigger-url-elicitation"
	call := func(errorPath bool) *mcp.CallToolParams {
		return &mcp.CallToolParams{
			Meta:      mcp.Meta{mcp.MetaKeyClientCapabilities: map[string]any{"elicitation": map[string]any{"url": map[string]any{}}}},
			Name:      tool,
			Arguments: map[string]any{"url": "https://example.com/", "errorPath": errorPath},
		}
	}
	var undeclared, unanswered *mcp.CallToolResult
	var tools *mcp.ListToolsResult
	var required *mcpnexus.Error
	p.run(t, func(ctx workflow.Context) (err error) {
		// A server with sessions does not read what a request declares.
		if undeclared, err = p.client(npmEverything, caller.Options{}).CallTool(ctx, call(true)); err != nil {
			return err
		}
		client := p.client("asking", caller.Options{})
		if tools, err = client.ListTools(ctx, nil); err != nil {
			return err
		}
		if unanswered, err = client.CallTool(ctx, call(false)); err != nil {
			return err
		}
		_, err = client.CallTool(ctx, call(true))
		required, _ = mcpnexus.ErrorFrom(err)
		return nil
	})
	assert.True(t, undeclared.IsError)
	assert.Equal(t, []mcp.Content{npmText("MCP error -32602: Tool " + tool + " not found")}, undeclared.Content)

	var names []string
	for _, tool := range tools.Tools {
		names = append(names, tool.Name)
	}
	assert.Contains(t, names, tool)
	assert.True(t, unanswered.IsError, "the question finds nobody, and the tool fails at once")

	require.NotNil(t, required)
	assert.Equal(t, mcpnexus.ErrorTypeProtocol, required.Type)
	assert.Equal(t, int64(mcp.CodeURLElicitationRequired), required.Code)
	assert.True(t, required.NonRetryable)
	var data struct {
		Elicitations []struct{ Mode, URL, Message, ElicitationID string }
	}
	require.NoError(t, json.Unmarshal(required.Data, &data), "%s", required.Data)
	require.Len(t, data.Elicitations, 1)
	assert.Equal(t, "url", data.Elicitations[0].Mode)
	assert.Equal(t, "https://modelcontextprotocol.io", data.Elicitations[0].URL)
	assert.NotEmpty(t, data.Elicitations[0].ElicitationID)
}

// npmDeclaring is a transport of a publisher's own, over which the client
// declares the given capabilities.
type npmDeclaring struct {
	mcp.Transport
	capabilities string
}

func (d npmDeclaring) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := d.Transport.Connect(ctx)
	return npmDeclaringConn{conn, json.RawMessage(d.capabilities)}, err
}

type npmDeclaringConn struct {
	mcp.Connection
	capabilities json.RawMessage
}

func (c npmDeclaringConn) Write(ctx context.Context, message jsonrpc.Message) error {
	if req, ok := message.(*jsonrpc.Request); ok && req.Method == "initialize" {
		var params map[string]json.RawMessage
		if err := json.Unmarshal(req.Params, &params); err != nil {
			return err
		}
		params["capabilities"] = c.capabilities
		declared := *req
		var err error
		if declared.Params, err = json.Marshal(params); err != nil {
			return err
		}
		message = &declared
	}
	return c.Connection.Write(ctx, message)
}

// Not parallel: it changes the environment.
func TestAPublicServersProcessDoesNotSeeTheWorkersEnvironment(t *testing.T) {
	t.Setenv("NEXUSMCP_TEST_WORKERS_SECRET", "secret")
	command := npmStdio(t, npm.ServerEverything)
	command.Env = map[string]string{"NEXUSMCP_TEST_GIVEN": "a given"}
	p := publish(t, handler.Server{Name: npmEverything, Transport: command, IdleTimeout: handler.CloseAtOnce})
	var got *mcp.CallToolResult
	p.run(t, func(ctx workflow.Context) (err error) {
		got, err = p.client(npmEverything, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "get-env"})
		return err
	})
	var env map[string]string
	require.NoError(t, json.Unmarshal([]byte(got.Content[0].(*mcp.TextContent).Text), &env))
	assert.Equal(t, "a given", env["NEXUSMCP_TEST_GIVEN"])
	assert.Equal(t, os.Getenv("PATH"), env["PATH"])
	assert.NotContains(t, env, "NEXUSMCP_TEST_WORKERS_SECRET")
}

func TestAWorkflowWorksOnFilesThroughAPublicServer(t *testing.T) {
	t.Parallel()
	dir := npmDir(t)
	p := publish(t, handler.Server{Name: npmFiles, Transport: npmStdio(t, npm.ServerFilesystem, dir)})
	in := func(name string) string { return filepath.Join(dir, name) }
	steps := []struct {
		tool              string
		arguments         map[string]any
		isError           bool
		exactly, contains string
	}{
		{tool: "write_file", arguments: map[string]any{"path": in("a.txt"), "content": "one\ntwo\n🎉\n"}, exactly: "Successfully wrote to " + in("a.txt")},
		{tool: "read_text_file", arguments: map[string]any{"path": in("a.txt"), "head": 1}, exactly: "one"},
		{tool: "edit_file", arguments: map[string]any{"path": in("a.txt"), "edits": []any{map[string]any{"oldText": "two", "newText": "TWO"}}}, contains: " one\n-two\n+TWO\n 🎉\n"},
		{tool: "create_directory", arguments: map[string]any{"path": in("sub")}, exactly: "Successfully created directory " + in("sub")},
		{tool: "move_file", arguments: map[string]any{"source": in("a.txt"), "destination": in("sub/b.txt")}, exactly: "Successfully moved " + in("a.txt") + " to " + in("sub/b.txt")},
		{tool: "read_text_file", arguments: map[string]any{"path": in("sub/b.txt")}, exactly: "one\nTWO\n🎉\n"},
		{tool: "list_directory", arguments: map[string]any{"path": dir}, exactly: "[DIR] sub"},
		{tool: "directory_tree", arguments: map[string]any{"path": dir}, contains: `"name": "b.txt"`},
		{tool: "search_files", arguments: map[string]any{"path": dir, "pattern": "**/*.txt"}, exactly: in("sub/b.txt")},
		{tool: "get_file_info", arguments: map[string]any{"path": in("sub/b.txt")}, contains: "size: 13\n"},
		{tool: "list_allowed_directories", exactly: "Allowed directories:\n" + dir},
		{tool: "read_text_file", arguments: map[string]any{"path": in("a.txt")}, isError: true, contains: "ENOENT"},
		{tool: "read_text_file", arguments: map[string]any{"path": filepath.Dir(dir)}, isError: true, contains: "Access denied - path outside allowed directories"},
		{tool: "write_file", arguments: map[string]any{"path": in("c.txt")}, isError: true, contains: "MCP error -32602: Input validation error"},
	}
	var got []*mcp.CallToolResult
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmFiles, caller.Options{})
		results := make([]*mcp.CallToolResult, len(steps))
		for i, step := range steps {
			if results[i], err = client.CallTool(ctx, &mcp.CallToolParams{Name: step.tool, Arguments: step.arguments}); err != nil {
				return err
			}
		}
		got = results
		return nil
	})
	for i, step := range steps {
		name := fmt.Sprintf("step %d, %s", i+1, step.tool)
		assert.Equal(t, step.isError, got[i].IsError, name)
		require.Len(t, got[i].Content, 1, name)
		text := got[i].Content[0].(*mcp.TextContent).Text
		if step.exactly != "" {
			assert.Equal(t, step.exactly, text, name)
		}
		assert.Contains(t, text, step.contains, name)
		if step.isError {
			assert.Nil(t, got[i].StructuredContent, name)
		} else {
			assert.Equal(t, map[string]any{"content": text}, got[i].StructuredContent, name)
		}
	}
	content, err := os.ReadFile(in("sub/b.txt"))
	require.NoError(t, err)
	assert.Equal(t, "one\nTWO\n🎉\n", string(content))
}

func TestFilesOfAPublicServerArriveAsImagesAudioAndBlobs(t *testing.T) {
	t.Parallel()
	dir := npmDir(t)
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	resource := func(name string, blob []byte) *mcp.EmbeddedResource {
		uri := url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(dir, name))}
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri.String(), MIMEType: "application/octet-stream", Blob: blob}}
	}
	media := map[string]struct {
		data []byte
		want mcp.Content
	}{
		"image.png": {everyByte, &mcp.ImageContent{MIMEType: "image/png", Data: everyByte}},
		"sound.wav": {[]byte("RIFF"), &mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("RIFF")}},
		"other.bin": {everyByte, resource("other.bin", everyByte)},
		"empty.bin": {nil, resource("empty.bin", []byte{})},
	}
	for name, m := range media {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), m.data, 0o600))
	}
	p := publish(t, handler.Server{Name: npmFiles, Transport: npmStdio(t, npm.ServerFilesystem, dir), Stateless: true})
	for name, m := range media {
		t.Run(name, func(t *testing.T) {
			var got *mcp.CallToolResult
			p.run(t, func(ctx workflow.Context) (err error) {
				got, err = p.client(npmFiles, caller.Options{}).CallTool(ctx, &mcp.CallToolParams{Name: "read_media_file", Arguments: map[string]any{"path": filepath.Join(dir, name)}})
				return err
			})
			assert.False(t, got.IsError)
			assert.Equal(t, []mcp.Content{m.want}, got.Content)
			assert.JSONEq(t, npmJSON(t, map[string]any{"content": []mcp.Content{m.want}}), npmJSON(t, got.StructuredContent))
		})
	}
}

func TestWhatAPublicServerDoesNotHaveIsMethodNotFound(t *testing.T) {
	t.Parallel()
	p := publish(t, handler.Server{Name: npmFiles, Transport: npmStdio(t, npm.ServerFilesystem, t.TempDir()), Stateless: true})
	var info *mcpnexus.DiscoverResult
	failures := make(map[string]*mcpnexus.Error)
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmFiles, caller.Options{})
		if info, err = client.Discover(ctx, nil); err != nil {
			return err
		}
		refused := func(operation string, err error) { failures[operation], _ = mcpnexus.ErrorFrom(err) }
		_, err = client.ListPrompts(ctx, nil)
		refused("list-prompts", err)
		_, err = client.GetPrompt(ctx, &mcp.GetPromptParams{Name: "a"})
		refused("get-prompt", err)
		_, err = client.ListResources(ctx, nil)
		refused("list-resources", err)
		_, err = client.ListResourceTemplates(ctx, nil)
		refused("list-resource-templates", err)
		_, err = client.ReadResource(ctx, &mcp.ReadResourceParams{URI: "a:b"})
		refused("read-resource", err)
		_, err = client.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: "a"}})
		refused("complete", err)
		return nil
	})
	assert.Equal(t, &mcp.Implementation{Name: "secure-filesystem-server", Version: "0.2.0"}, info.ServerInfo)
	assert.JSONEq(t, `{"tools":{"listChanged":true}}`, npmJSON(t, info.Capabilities))
	assert.Len(t, failures, 6)
	for operation, failure := range failures {
		require.NotNil(t, failure, operation)
		assert.Equal(t, int64(-32601), failure.Code, operation)
		assert.True(t, failure.NonRetryable, operation)
	}
}

func TestAPublicServersKnowledgeOutlivesItsProcesses(t *testing.T) {
	t.Parallel()
	command := npmStdio(t, npm.ServerMemory)
	command.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "memory.jsonl")}
	p := publish(t, handler.Server{Name: npmMemory, Transport: command})

	const (
		ada  = `{"name":"Ada","entityType":"person","observations":["wrote the first program 🎉"]}`
		ada2 = `{"name":"Ada","entityType":"person","observations":["wrote the first program 🎉","was a countess"]}`
		ada3 = `{"name":"Ada","entityType":"person","observations":["was a countess"]}`
		eng  = `{"name":"Engine","entityType":"machine","observations":[]}`
		rel  = `{"from":"Ada","to":"Engine","relationType":"programmed"}`
	)
	steps := []struct{ tool, arguments, want string }{
		{"read_graph", `{}`, `{"entities":[],"relations":[]}`},
		{"create_entities", `{"entities":[` + ada + `,` + eng + `]}`, `{"entities":[` + ada + `,` + eng + `]}`},
		{"create_entities", `{"entities":[` + ada + `]}`, `{"entities":[]}`},
		{"create_relations", `{"relations":[` + rel + `]}`, `{"relations":[` + rel + `]}`},
		{"add_observations", `{"observations":[{"entityName":"Ada","contents":["was a countess"]}]}`, `{"results":[{"entityName":"Ada","addedObservations":["was a countess"]}]}`},
		{"search_nodes", `{"query":"countess"}`, `{"entities":[` + ada2 + `],"relations":[` + rel + `]}`},
		{"open_nodes", `{"names":["Engine"]}`, `{"entities":[` + eng + `],"relations":[` + rel + `]}`},
		{"delete_observations", `{"deletions":[{"entityName":"Ada","observations":["wrote the first program 🎉"]}]}`, `{"success":true,"message":"Observations deleted successfully"}`},
		{"read_graph", `{}`, `{"entities":[` + ada3 + `,` + eng + `],"relations":[` + rel + `]}`},
		{"delete_relations", `{"relations":[` + rel + `]}`, `{"success":true,"message":"Relations deleted successfully"}`},
		{"delete_entities", `{"entityNames":["Engine"]}`, `{"success":true,"message":"Entities deleted successfully"}`},
	}
	var tools *mcp.ListToolsResult
	var resources *mcp.ListResourcesResult
	got := make([]*mcp.CallToolResult, len(steps))
	var unknown *mcp.CallToolResult
	p.run(t, func(ctx workflow.Context) (err error) {
		client := p.client(npmMemory, caller.Options{})
		if tools, err = client.ListTools(ctx, nil); err != nil {
			return err
		}
		if resources, err = client.ListResources(ctx, nil); err != nil {
			return err
		}
		for i, step := range steps {
			if got[i], err = client.CallTool(ctx, &mcp.CallToolParams{Name: step.tool, Arguments: json.RawMessage(step.arguments)}); err != nil {
				return fmt.Errorf("step %d, %s: %w", i+1, step.tool, err)
			}
		}
		unknown, err = client.CallTool(ctx, &mcp.CallToolParams{Name: "add_observations", Arguments: json.RawMessage(`{"observations":[{"entityName":"Bob","contents":["nobody"]}]}`)})
		return err
	})
	assert.Len(t, tools.Tools, 9)
	for _, tool := range tools.Tools {
		assert.NotNil(t, tool.OutputSchema, tool.Name)
	}
	assert.Equal(t, []*mcp.Resource{{URI: "memory://knowledge-graph", Name: "knowledge-graph", Title: "Knowledge Graph",
		Description: "The full knowledge graph with all entities and relations", MIMEType: "application/json"}}, resources.Resources)
	for i, step := range steps {
		name := fmt.Sprintf("step %d, %s", i+1, step.tool)
		assert.False(t, got[i].IsError, name)
		require.NotNil(t, got[i].StructuredContent, name)
		assert.JSONEq(t, step.want, npmJSON(t, got[i].StructuredContent), name)
	}
	assert.True(t, unknown.IsError)
	assert.Equal(t, []mcp.Content{npmText("Entity with name Bob not found")}, unknown.Content)

	// Another workflow, another worker, another process: the same file.
	later := publish(t, handler.Server{Name: npmMemory, Transport: command})
	var graph *mcp.ReadResourceResult
	later.run(t, func(ctx workflow.Context) (err error) {
		graph, err = later.client(npmMemory, caller.Options{}).ReadResource(ctx, &mcp.ReadResourceParams{URI: "memory://knowledge-graph"})
		return err
	})
	require.Len(t, graph.Contents, 1)
	assert.Equal(t, "application/json", graph.Contents[0].MIMEType)
	assert.JSONEq(t, `{"entities":[`+ada3+`],"relations":[]}`, graph.Contents[0].Text)
}

func TestOneWorkflowUsesThreePublicServersOfOneEndpointAtOnce(t *testing.T) {
	t.Parallel()
	dir := npmDir(t)
	graph := npmStdio(t, npm.ServerMemory)
	graph.Env = map[string]string{"MEMORY_FILE_PATH": filepath.Join(dir, "memory.jsonl")}
	p := publish(t,
		handler.Server{Name: npmEverything, Transport: handler.HTTP{Endpoint: npm.ServeEverything(t, npm.StreamableHTTP).URL}},
		handler.Server{Name: npmFiles, Transport: npmStdio(t, npm.ServerFilesystem, dir), Stateless: true},
		handler.Server{Name: npmMemory, Transport: graph, Stateless: true})
	const calls = 15 // to each, more than may be under way at once
	var echoes, writes, graphs []string
	run := p.run(t, func(ctx workflow.Context) error {
		limit := caller.NewLimit(caller.DefaultLimit)
		each := func(service, tool string, arguments func(i int) any) []*caller.Future[*mcp.CallToolResult] {
			client := p.client(service, caller.Options{Limit: limit})
			futures := make([]*caller.Future[*mcp.CallToolResult], calls)
			for i := range futures {
				futures[i] = client.CallToolAsync(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments(i)})
			}
			return futures
		}
		texts := func(futures []*caller.Future[*mcp.CallToolResult]) ([]string, error) {
			out := make([]string, len(futures))
			for i, future := range futures {
				result, err := future.Get(ctx)
				if err != nil {
					return nil, err
				}
				out[i] = result.Content[0].(*mcp.TextContent).Text
			}
			return out, nil
		}
		a := each(npmEverything, "echo", func(i int) any { return map[string]any{"message": fmt.Sprint(i)} })
		b := each(npmFiles, "write_file", func(i int) any {
			return map[string]any{"path": filepath.Join(dir, fmt.Sprint(i)), "content": fmt.Sprint(i)}
		})
		c := each(npmMemory, "read_graph", func(int) any { return nil })
		var err error
		if echoes, err = texts(a); err != nil {
			return err
		}
		if writes, err = texts(b); err != nil {
			return err
		}
		graphs, err = texts(c)
		return err
	})
	for i := range calls {
		assert.Equal(t, fmt.Sprintf("Echo: %d", i), echoes[i])
		assert.Equal(t, "Successfully wrote to "+filepath.Join(dir, fmt.Sprint(i)), writes[i])
		assert.JSONEq(t, `{"entities":[],"relations":[]}`, graphs[i])
	}
	for _, event := range history(t, run) {
		assert.NotEqual(t, enumspb.EVENT_TYPE_WORKFLOW_TASK_FAILED, event.GetEventType())
	}
}
