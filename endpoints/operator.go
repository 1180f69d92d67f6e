package endpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
)

const (
	defaultRPCTimeout = 10 * time.Second

	// A round is one read and one write. Every lost round means that somebody else got through, so ten are lost only
	// under heavy contention or on a server that is losing its hold on the endpoint table.
	maxRounds = 10

	firstPause = 25 * time.Millisecond
	maxPause   = time.Second
)

// Options adjusts [Apply], [List] and [Delete]. The zero value is right for most uses.
type Options struct {
	// RPCTimeout bounds each call to the server when the context has no deadline of its own. Zero or less means
	// 10 seconds. A context with a deadline is obeyed as it is.
	RPCTimeout time.Duration

	// AcceptUnenforcedCallers lets Apply register an endpoint whose spec states AllowedCallers. The operator service
	// has no such field (only Temporal Cloud has), so a self-hosted server lets every namespace call every endpoint
	// unless its authorizer says otherwise. Without this option Apply refuses, with [ErrCallersNotEnforced], to open an
	// endpoint wider than its spec says; with it, [Result.UnenforcedCallers] repeats what was not enforced.
	AcceptUnenforcedCallers bool
}

// service is what this package uses of the operator service. The generated client's methods also take gRPC call
// options; nothing here sets any, and without them a test double needs no gRPC.
type service interface {
	CreateNexusEndpoint(context.Context, *operatorservice.CreateNexusEndpointRequest) (*operatorservice.CreateNexusEndpointResponse, error)
	UpdateNexusEndpoint(context.Context, *operatorservice.UpdateNexusEndpointRequest) (*operatorservice.UpdateNexusEndpointResponse, error)
	DeleteNexusEndpoint(context.Context, *operatorservice.DeleteNexusEndpointRequest) (*operatorservice.DeleteNexusEndpointResponse, error)
	ListNexusEndpoints(context.Context, *operatorservice.ListNexusEndpointsRequest) (*operatorservice.ListNexusEndpointsResponse, error)
}

// clientService is a server's operator service, reached through the generated client.
type clientService struct {
	client operatorservice.OperatorServiceClient
}

func (s clientService) CreateNexusEndpoint(ctx context.Context, request *operatorservice.CreateNexusEndpointRequest) (*operatorservice.CreateNexusEndpointResponse, error) {
	return s.client.CreateNexusEndpoint(ctx, request)
}

func (s clientService) UpdateNexusEndpoint(ctx context.Context, request *operatorservice.UpdateNexusEndpointRequest) (*operatorservice.UpdateNexusEndpointResponse, error) {
	return s.client.UpdateNexusEndpoint(ctx, request)
}

func (s clientService) DeleteNexusEndpoint(ctx context.Context, request *operatorservice.DeleteNexusEndpointRequest) (*operatorservice.DeleteNexusEndpointResponse, error) {
	return s.client.DeleteNexusEndpoint(ctx, request)
}

func (s clientService) ListNexusEndpoints(ctx context.Context, request *operatorservice.ListNexusEndpointsRequest) (*operatorservice.ListNexusEndpointsResponse, error) {
	return s.client.ListNexusEndpoints(ctx, request)
}

// operator is the server's operator service with the manners that every call here needs: a timeout, errors that can be
// told apart, and rounds of reading and writing.
type operator struct {
	service service
	timeout time.Duration
}

func newOperator(service service, options Options) operator {
	timeout := options.RPCTimeout
	if timeout <= 0 {
		timeout = defaultRPCTimeout
	}
	return operator{service: service, timeout: timeout}
}

// call makes one RPC under the caller's deadline or, if there is none, under the default one.
func call[Request, Response any](
	ctx context.Context,
	o operator,
	request Request,
	rpc func(context.Context, Request) (Response, error),
) (Response, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	response, err := rpc(ctx, request)
	if err == nil {
		return response, nil
	}
	// A client made by the SDK returns service errors, a bare gRPC client statuses. Make them the same.
	var known serviceerror.ServiceError
	if !errors.As(err, &known) {
		if converted := serviceerror.FromStatus(serviceerror.ToStatus(err)); errors.As(converted, &known) {
			err = converted
		}
	}
	var unimplemented *serviceerror.Unimplemented
	switch {
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()):
		// So that errors.Is finds the context's error, which gRPC turns into a status.
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	case errors.As(err, &unimplemented):
		err = fmt.Errorf("the server has no Nexus endpoints in its operator service; it needs to be version 1.25 or newer, "+
			"and Temporal Cloud's endpoints are managed with the Cloud's own tools (see Render): %w", err)
	}
	return response, err
}

// find reads the endpoint of a name, or nil if there is none.
func (o operator) find(ctx context.Context, name string) (*nexuspb.Endpoint, error) {
	response, err := call(ctx, o, &operatorservice.ListNexusEndpointsRequest{Name: name}, o.service.ListNexusEndpoints)
	if err != nil {
		return nil, fmt.Errorf("read it: %w", err)
	}
	for _, endpoint := range response.GetEndpoints() {
		// The server has filtered. To touch an endpoint of another name would be so bad that we look again.
		if endpoint.GetSpec().GetName() == name {
			return endpoint, nil
		}
	}
	return nil, nil
}

// all reads every page of the server's endpoints, in the server's order.
func (o operator) all(ctx context.Context) ([]*nexuspb.Endpoint, error) {
	var (
		endpoints []*nexuspb.Endpoint
		token     []byte
	)
	for {
		response, err := call(ctx, o, &operatorservice.ListNexusEndpointsRequest{NextPageToken: token}, o.service.ListNexusEndpoints)
		if err != nil {
			return nil, fmt.Errorf("after %d endpoints: %w", len(endpoints), err)
		}
		endpoints = append(endpoints, response.GetEndpoints()...)
		next := response.GetNextPageToken()
		if len(next) == 0 {
			return endpoints, nil
		}
		if bytes.Equal(next, token) {
			return nil, fmt.Errorf("after %d endpoints: the server returned the same page token twice (%q)", len(endpoints), next)
		}
		token = next
	}
}

func (o operator) create(ctx context.Context, spec *nexuspb.EndpointSpec) (*nexuspb.Endpoint, error) {
	response, err := call(ctx, o, &operatorservice.CreateNexusEndpointRequest{Spec: spec}, o.service.CreateNexusEndpoint)
	if err != nil {
		return nil, fmt.Errorf("create it: %w", err)
	}
	return response.GetEndpoint(), nil
}

// update replaces the spec of an endpoint if it is still at the version that was read.
func (o operator) update(ctx context.Context, read *nexuspb.Endpoint, spec *nexuspb.EndpointSpec) (*nexuspb.Endpoint, error) {
	response, err := call(ctx, o, &operatorservice.UpdateNexusEndpointRequest{Id: read.GetId(), Version: read.GetVersion(), Spec: spec}, o.service.UpdateNexusEndpoint)
	if err != nil {
		return nil, fmt.Errorf("update it: %w", err)
	}
	return response.GetEndpoint(), nil
}

func (o operator) delete(ctx context.Context, read *nexuspb.Endpoint) error {
	_, err := call(ctx, o, &operatorservice.DeleteNexusEndpointRequest{Id: read.GetId(), Version: read.GetVersion()}, o.service.DeleteNexusEndpoint)
	if err != nil {
		return fmt.Errorf("delete it: %w", err)
	}
	return nil
}

// settle reads the endpoint of a name and lets act decide and write, until a write does not lose a race against
// somebody else's. Rounds are bounded, and the pauses between them end with the context.
func (o operator) settle(
	ctx context.Context,
	name string,
	act func(ctx context.Context, current *nexuspb.Endpoint) (Result, error),
) (Result, error) {
	var (
		previous *nexuspb.Endpoint
		lost     error
	)
	for round := 1; ; round++ {
		current, err := o.find(ctx, name)
		if err != nil {
			return Result{}, err
		}
		if lost != nil && !wasRace(lost, previous, current) {
			return Result{}, lost
		}
		result, err := act(ctx, current)
		if err == nil {
			return result, nil
		}
		if !mayBeRace(err, current) {
			return Result{}, err
		}
		if round == maxRounds {
			return Result{}, fmt.Errorf("gave up after losing %d races against other changes; try again when they are done: %w", maxRounds, err)
		}
		lost, previous = err, current
		if err := pause(ctx, round); err != nil {
			return Result{}, fmt.Errorf("%w, while waiting to try again after: %w", err, lost)
		}
	}
}

// mayBeRace reports whether a refused write can mean that the endpoint is not what was read: it exists after all, is
// gone, or has another version. The server also answers "failed precondition" when the version of the whole endpoint
// table has moved on, which a change of any other endpoint can cause.
func mayBeRace(err error, read *nexuspb.Endpoint) bool {
	var (
		exists   *serviceerror.AlreadyExists
		gone     *serviceerror.NotFound
		mismatch *serviceerror.FailedPrecondition
	)
	switch {
	case errors.As(err, &mismatch):
		return true
	case read == nil:
		return errors.As(err, &exists)
	default:
		return errors.As(err, &gone)
	}
}

// wasRace tells a lost race from a refusal that would only be repeated, given what was read before and after it.
// "Failed precondition" is ambiguous: the server uses it for a target namespace that does not exist, too.
func wasRace(err error, before, after *nexuspb.Endpoint) bool {
	var precondition *serviceerror.FailedPrecondition
	if !errors.As(err, &precondition) {
		return true
	}
	return strings.Contains(precondition.Message, "version mismatch") ||
		before.GetId() != after.GetId() || before.GetVersion() != after.GetVersion()
}

// pause waits before the next round. The first one is at once, because usually the other side is done. Then the pauses
// grow and vary: two sides in lockstep must come apart, and a server that has just lost the endpoint table needs a
// moment to notice.
func pause(ctx context.Context, round int) error {
	if round == 1 {
		return ctx.Err()
	}
	longest := min(firstPause<<(round-1), maxPause)
	timer := time.NewTimer(longest/2 + rand.N(longest/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
