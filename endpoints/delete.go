package endpoints

import (
	"context"
	"errors"
	"fmt"

	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
)

// Delete removes the endpoint of a name. Workflows that call it hang from then on, their workflow tasks failing, and go
// on when an endpoint of that name is there again. That there is no such endpoint is not an error: the Outcome is then
// Missing instead of Deleted.
//
// It is the name that is deleted: if somebody changes or replaces the endpoint in the meantime, Delete reads again and
// deletes what is there then, for at most ten rounds.
func Delete(ctx context.Context, client operatorservice.OperatorServiceClient, name string, options Options) (Result, error) {
	return remove(ctx, clientService{client}, name, options)
}

func remove(ctx context.Context, service service, name string, options Options) (Result, error) {
	if name == "" {
		return Result{}, errors.New("delete endpoint: the name is empty; give the name of one endpoint")
	}
	o := newOperator(service, options)
	result, err := o.settle(ctx, name, func(ctx context.Context, current *nexuspb.Endpoint) (Result, error) {
		if current == nil {
			return Result{Outcome: Missing}, nil
		}
		return Result{ID: current.GetId(), Outcome: Deleted}, o.delete(ctx, current)
	})
	if err != nil {
		return Result{}, fmt.Errorf("delete endpoint %q: %w", name, err)
	}
	result.Name = name
	return result, nil
}
