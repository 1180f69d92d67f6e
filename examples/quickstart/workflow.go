package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/caller"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A Step is what one call of the workflow came to, for the report.
type Step struct {
	// Result is a line of text.
	Result string
}

// PlanTrip calls the published servers. Whatever it learns is in its history: a
// worker that takes it over asks nobody twice.
func PlanTrip(ctx workflow.Context, city string) ([]Step, error) {
	var steps []Step
	note := func(format string, args ...any) { steps = append(steps, Step{fmt.Sprintf(format, args...)}) }

	limit := caller.NewLimit(caller.DefaultLimit) // shared by all clients of the workflow
	weather := caller.NewClient("mcp", "weather", caller.Options{Limit: limit})
	library := caller.NewClient("mcp", "library", caller.Options{Limit: limit})

	tools, err := weather.ListTools(ctx, nil)
	if err != nil {
		return nil, err
	}
	note("%d tools: %s, %s, %s", len(tools.Tools), tools.Tools[0].Name, tools.Tools[1].Name, tools.Tools[2].Name)

	impatient := weather.With(mcpnexus.RequestOptions{
		StartToCloseTimeout:    5 * time.Second,                           // for each attempt
		ScheduleToCloseTimeout: time.Minute,                               // for all of them
		RetryPolicy:            &temporal.RetryPolicy{MaximumAttempts: 3}, // also of a destructive tool
	})
	today, err := impatient.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": city}})
	if err != nil {
		return nil, err
	}
	note("%s", compact(today.StructuredContent))

	pack, err := weather.CallTool(ctx, &mcp.CallToolParams{Name: "pack", Arguments: today.StructuredContent})
	if err != nil {
		return nil, err
	}
	note("%q", text(pack.Content[0]))

	catalogue, err := library.ReadResource(ctx, &mcp.ReadResourceParams{URI: "library://catalogue"})
	if err != nil {
		return nil, err
	}
	note("%q", catalogue.Contents[0].Text)

	prompt, err := library.GetPrompt(ctx, &mcp.GetPromptParams{Name: "recommend", Arguments: map[string]string{"mood": "clear"}})
	if err != nil {
		return nil, err
	}
	note("%q", text(prompt.Messages[0].Content))

	// A tool that fails is a result. The workflow, or the model, decides.
	failed, err := weather.CallTool(ctx, &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": "Atlantis"}})
	if err != nil {
		return nil, err
	}
	note("tool error (isError %v): %q", failed.IsError, text(failed.Content[0]))

	// A request that the server refuses is an error, with the server's code.
	_, err = weather.CallTool(ctx, &mcp.CallToolParams{Name: "get_wether", Arguments: map[string]any{"city": city}})
	if refused, ok := mcpnexus.ErrorFrom(err); ok {
		note("%s %d, retryable %v", refused.Type, refused.Code, !refused.NonRetryable)
	} else if err != nil {
		return nil, err // cancelled, timed out, or refused as malformed
	}

	// Many calls are cheaper together. Each has its own outcome.
	var calls []*mcp.CallToolParams
	for _, other := range []string{"Bergen", "Oslo", "Atlantis"} {
		calls = append(calls, &mcp.CallToolParams{Name: "get_weather", Arguments: map[string]any{"city": other}})
	}
	stations := 0
	for _, outcome := range weather.CallTools(ctx, calls) {
		if outcome.Err != nil {
			return nil, outcome.Err // this call's own, which mcpnexus.ErrorFrom reads
		}
		if !outcome.Result.IsError {
			stations++
		}
	}
	note("%d of %d cities have a weather station", stations, len(calls))

	// A tool that takes its time is handed off to a workflow of the platform team's.
	study, err := weather.CallTool(ctx, &mcp.CallToolParams{Name: "study_climate", Arguments: map[string]any{"city": city}})
	if err != nil {
		return nil, err
	}
	note("%q", text(study.Content[0]))

	// The tools are known by now: this puts nothing into the history.
	if _, err := weather.ListTools(ctx, nil); err != nil {
		return nil, err
	}
	return steps, nil
}

func text(content mcp.Content) string {
	if text, ok := content.(*mcp.TextContent); ok {
		return text.Text
	}
	return fmt.Sprintf("%T", content)
}

func compact(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(out)
}
