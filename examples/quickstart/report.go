package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
)

// A call is one Nexus operation in the workflow's history.
type call struct {
	service, operation, subject string
	scheduled                   *historypb.HistoryEvent
	took                        time.Duration
}

// report prints the calls as the history recorded them, beside what the
// workflow made of each.
func report(ctx context.Context, out io.Writer, c client.Client, run client.WorkflowRun, steps []Step) error {
	calls, events, err := readHistory(ctx, c, run)
	if err != nil {
		return err
	}
	if len(calls) != len(steps) {
		return fmt.Errorf("the history has %d calls, the workflow made %d", len(calls), len(steps))
	}
	fmt.Fprintf(out, "Workflow %s in namespace %q called:\n\n", run.GetID(), appNamespace)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tOPERATION\tOF\tTOOK\tEVENTS\tRESULT")
	for i, call := range calls {
		// A call's events are those until the next one is scheduled.
		next := events
		if i+1 < len(calls) {
			next = calls[i+1].scheduled.GetEventId()
		}
		cost := next - call.scheduled.GetEventId()
		fmt.Fprintf(table, "%s\t%s\t%s\t%v\t%d\t%s\n", call.service, call.operation, call.subject, call.took.Round(100*time.Microsecond), cost, steps[i].Result)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d calls, %d history events in all. A second list-tools came from the client's cache and cost none.\n", len(calls), events)
	return nil
}

func readHistory(ctx context.Context, c client.Client, run client.WorkflowRun) ([]*call, int64, error) {
	var calls []*call
	byEvent := map[int64]*call{}
	var events int64
	history := c.GetWorkflowHistory(ctx, run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		event, err := history.Next()
		if err != nil {
			return nil, 0, err
		}
		events = event.GetEventId()
		var ended int64
		switch event.GetEventType() {
		case enumspb.EVENT_TYPE_NEXUS_OPERATION_SCHEDULED:
			a := event.GetNexusOperationScheduledEventAttributes()
			scheduled := &call{service: a.GetService(), operation: a.GetOperation(), scheduled: event}
			// The caller's client puts the tool, prompt or URI into the summary.
			_ = json.Unmarshal(event.GetUserMetadata().GetSummary().GetData(), &scheduled.subject)
			calls = append(calls, scheduled)
			byEvent[event.GetEventId()] = scheduled
		case enumspb.EVENT_TYPE_NEXUS_OPERATION_COMPLETED:
			ended = event.GetNexusOperationCompletedEventAttributes().GetScheduledEventId()
		case enumspb.EVENT_TYPE_NEXUS_OPERATION_FAILED:
			ended = event.GetNexusOperationFailedEventAttributes().GetScheduledEventId()
		}
		if call, ok := byEvent[ended]; ok {
			call.took = event.GetEventTime().AsTime().Sub(call.scheduled.GetEventTime().AsTime())
		}
	}
	return calls, events, nil
}
