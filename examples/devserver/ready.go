package devserver

import (
	"context"
	"fmt"
	"time"

	"go.temporal.io/api/common/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// readyInterval is the time between two looks at a server that is starting.
	readyInterval = 5 * time.Millisecond

	// readyCallTimeout bounds one look, so that a call into a service that is not up yet cannot use up the
	// time for the whole start.
	readyCallTimeout = 2 * time.Second
)

// awaitReady returns when every service has answered once: the frontend for each namespace, history by
// looking for a workflow that cannot exist, which takes a shard, and matching by listing Nexus endpoints.
func awaitReady(ctx context.Context, frontend *grpc.ClientConn, namespaces []string) error {
	workflows := workflowservice.NewWorkflowServiceClient(frontend)
	for _, namespace := range namespaces {
		err := await(ctx, fmt.Sprintf("namespace %q", namespace), func(ctx context.Context) error {
			_, err := workflows.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
			return err
		})
		if err != nil {
			return err
		}
	}
	err := await(ctx, "history service", func(ctx context.Context) error {
		_, err := workflows.DescribeWorkflowExecution(ctx, &workflowservice.DescribeWorkflowExecutionRequest{
			Namespace: namespaces[0],
			Execution: &common.WorkflowExecution{WorkflowId: "devserver-ready"},
		})
		if status.Code(err) == codes.NotFound {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return await(ctx, "matching service", func(ctx context.Context) error {
		_, err := operatorservice.NewOperatorServiceClient(frontend).ListNexusEndpoints(ctx, &operatorservice.ListNexusEndpointsRequest{PageSize: 1})
		return err
	})
}

// await repeats look until it succeeds or ctx ends. The error then holds both ctx's reason and the last
// failure.
func await(ctx context.Context, what string, look func(context.Context) error) error {
	ticker := time.NewTicker(readyInterval)
	defer ticker.Stop()
	for {
		callCtx, cancel := context.WithTimeout(ctx, readyCallTimeout)
		err := look(callCtx)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w (last answer: %w)", what, context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
