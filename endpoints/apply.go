package endpoints

import (
	"context"
	"errors"
	"fmt"

	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"google.golang.org/protobuf/proto"
)

// ErrCallersNotEnforced is in the chain of the error with which [Apply] refuses a spec whose AllowedCallers the server
// would not enforce. See [Options.AcceptUnenforcedCallers].
var ErrCallersNotEnforced = errors.New("the server does not enforce allowedCallers")

// Field of [Change] for an endpoint that pointed at a URL; a spec cannot say that.
const fieldTargetURL = "targetURL"

// Apply brings the endpoint of the spec's name to the spec: it creates it, updates what differs, or finds that nothing
// does and writes nothing. client is usually client.Client.OperatorService() of the Temporal SDK.
//
// What the spec does not state stays as it is: a nil Description keeps the stored one. Fields of the endpoint that a
// spec cannot express stay, too, except that an external target becomes a worker target.
//
// Apply is safe when several run at once. A write is made only against the version that was read; one that loses is
// followed by another read and another decision, for at most ten rounds. Two that want the same both succeed, and one
// of them reports Unchanged. Two that want different things both succeed, and the endpoint is as the later one asked.
//
// The error is an [*InvalidSpecError] for a spec that cannot be right, has [ErrCallersNotEnforced] in its chain for
// one that the server would not protect, and otherwise wraps the service error of the call that failed, or the
// context's error.
func Apply(ctx context.Context, client operatorservice.OperatorServiceClient, spec Spec, options Options) (Result, error) {
	return apply(ctx, clientService{client}, spec, options)
}

func apply(ctx context.Context, service service, spec Spec, options Options) (Result, error) {
	if err := Validate([]Spec{spec}); err != nil {
		return Result{}, fmt.Errorf("apply endpoint %q: %w", spec.Name, err)
	}
	if spec.AllowedCallers != nil && !options.AcceptUnenforcedCallers {
		return Result{}, fmt.Errorf("apply endpoint %q: %w: the spec allows only %q, but the operator service has no field for it "+
			"and any namespace could call the endpoint; remove the key, register the endpoint in Temporal Cloud, "+
			"or accept it with Options.AcceptUnenforcedCallers", spec.Name, ErrCallersNotEnforced, spec.AllowedCallers)
	}

	o := newOperator(service, options)
	result, err := o.settle(ctx, spec.Name, func(ctx context.Context, current *nexuspb.Endpoint) (Result, error) {
		if current == nil {
			wanted, _, err := merge(&nexuspb.EndpointSpec{Name: spec.Name}, spec)
			if err != nil {
				return Result{}, err
			}
			created, err := o.create(ctx, wanted)
			return Result{ID: created.GetId(), Outcome: Created}, err
		}
		wanted, changes, err := merge(current.GetSpec(), spec)
		if err != nil {
			return Result{}, err
		}
		if len(changes) == 0 {
			return Result{ID: current.GetId(), Outcome: Unchanged}, nil
		}
		_, err = o.update(ctx, current, wanted)
		return Result{ID: current.GetId(), Outcome: Updated, Changes: changes}, err
	})
	if err != nil {
		return Result{}, fmt.Errorf("apply endpoint %q: %w", spec.Name, err)
	}
	result.Name = spec.Name
	result.UnenforcedCallers = spec.AllowedCallers
	return result, nil
}

// merge is the stored spec with the wanted one laid over it, and what that changes. stored is not modified.
func merge(stored *nexuspb.EndpointSpec, wanted Spec) (*nexuspb.EndpointSpec, []Change, error) {
	merged := proto.Clone(stored).(*nexuspb.EndpointSpec)
	var changes []Change

	if wanted.Description != nil {
		// Compare the text, not the payload: writers escape JSON differently.
		before, readable := decodeDescription(stored.GetDescription())
		if !readable {
			before = unreadable(stored.GetDescription())
		}
		if !readable || before != *wanted.Description {
			payload, err := encodeDescription(*wanted.Description)
			if err != nil {
				return nil, nil, fmt.Errorf("encode the description: %w", err)
			}
			merged.Description = payload
			changes = append(changes, Change{Field: keyDescription, From: before, To: *wanted.Description})
		}
	}

	worker := stored.GetTarget().GetWorker()
	before := len(changes)
	if url := stored.GetTarget().GetExternal().GetUrl(); url != "" {
		changes = append(changes, Change{Field: fieldTargetURL, From: url})
	}
	if worker.GetNamespace() != wanted.TargetNamespace {
		changes = append(changes, Change{Field: keyTargetNamespace, From: worker.GetNamespace(), To: wanted.TargetNamespace})
	}
	if worker.GetTaskQueue() != wanted.TaskQueue {
		changes = append(changes, Change{Field: keyTaskQueue, From: worker.GetTaskQueue(), To: wanted.TaskQueue})
	}
	if len(changes) > before {
		target := merged.GetTarget().GetWorker()
		if target == nil {
			target = &nexuspb.EndpointTarget_Worker{}
			merged.Target = &nexuspb.EndpointTarget{Variant: &nexuspb.EndpointTarget_Worker_{Worker: target}}
		}
		target.Namespace, target.TaskQueue = wanted.TargetNamespace, wanted.TaskQueue
	}
	return merged, changes, nil
}
