package endpoints_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fakeOperator keeps endpoints as server v1.32.1 does: names are unique, an update must name the current version, a
// deletion need not (the server ignores it), an update forgets when the endpoint was created, and lists come in pages
// in the order of the IDs.
type fakeOperator struct {
	namespaces []string
	pageSize   int

	// before is called ahead of each call, without the lock: it may change the endpoints, to win a race, or return an
	// error that the call then returns.
	before func(ctx context.Context, method string) error

	mu        sync.Mutex
	endpoints []*nexuspb.Endpoint // sorted by ID
	nextID    int
	calls     []string
}

func newFakeOperator(namespaces ...string) *fakeOperator {
	return &fakeOperator{namespaces: append(namespaces, "platform"), pageSize: 100}
}

func (f *fakeOperator) enter(ctx context.Context, method string) error {
	f.mu.Lock()
	f.calls = append(f.calls, method)
	before := f.before
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, method); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *fakeOperator) checkSpec(spec *nexuspb.EndpointSpec) error {
	if !slices.Contains(f.namespaces, spec.GetTarget().GetWorker().GetNamespace()) {
		return serviceerror.NewFailedPrecondition("could not verify namespace referenced by target exists: Namespace is not found.")
	}
	if spec.GetDescription().Size() > 20000 {
		return serviceerror.NewInvalidArgument("description size exceeds limit of 20000")
	}
	return nil
}

func (f *fakeOperator) CreateNexusEndpoint(ctx context.Context, request *operatorservice.CreateNexusEndpointRequest) (*operatorservice.CreateNexusEndpointResponse, error) {
	if err := f.enter(ctx, "create"); err != nil {
		return nil, err
	}
	if err := f.checkSpec(request.GetSpec()); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byName(request.GetSpec().GetName()) != nil {
		return nil, serviceerror.NewAlreadyExistsf("error creating Nexus endpoint. Endpoint with name %v already registered", request.GetSpec().GetName())
	}
	return &operatorservice.CreateNexusEndpointResponse{Endpoint: f.insert(request.GetSpec())}, nil
}

func (f *fakeOperator) UpdateNexusEndpoint(ctx context.Context, request *operatorservice.UpdateNexusEndpointRequest) (*operatorservice.UpdateNexusEndpointResponse, error) {
	if err := f.enter(ctx, "update"); err != nil {
		return nil, err
	}
	if err := f.checkSpec(request.GetSpec()); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, endpoint := range f.endpoints {
		if endpoint.Id != request.GetId() {
			continue
		}
		if endpoint.Version != request.GetVersion() {
			return nil, serviceerror.NewFailedPreconditionf("nexus endpoint version mismatch. received: %v expected %v", request.GetVersion(), endpoint.Version)
		}
		endpoint.Version++
		endpoint.Spec = proto.Clone(request.GetSpec()).(*nexuspb.EndpointSpec)
		endpoint.CreatedTime = nil
		endpoint.LastModifiedTime = timestamppb.Now()
		return &operatorservice.UpdateNexusEndpointResponse{Endpoint: clone(endpoint)}, nil
	}
	return nil, serviceerror.NewNotFoundf("error updating Nexus endpoint. endpoint ID %v not found", request.GetId())
}

func (f *fakeOperator) DeleteNexusEndpoint(ctx context.Context, request *operatorservice.DeleteNexusEndpointRequest) (*operatorservice.DeleteNexusEndpointResponse, error) {
	if err := f.enter(ctx, "delete"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if request.GetVersion() <= 0 {
		return nil, serviceerror.NewInvalidArgument("endpoint version is non-positive")
	}
	before := len(f.endpoints)
	f.endpoints = slices.DeleteFunc(f.endpoints, func(e *nexuspb.Endpoint) bool { return e.Id == request.GetId() })
	if len(f.endpoints) == before {
		return nil, serviceerror.NewNotFoundf("error deleting nexus endpoint with ID: %v", request.GetId())
	}
	return &operatorservice.DeleteNexusEndpointResponse{}, nil
}

func (f *fakeOperator) ListNexusEndpoints(ctx context.Context, request *operatorservice.ListNexusEndpointsRequest) (*operatorservice.ListNexusEndpointsResponse, error) {
	if err := f.enter(ctx, "list"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if name := request.GetName(); name != "" {
		if endpoint := f.byName(name); endpoint != nil {
			return &operatorservice.ListNexusEndpointsResponse{Endpoints: []*nexuspb.Endpoint{clone(endpoint)}}, nil
		}
		return &operatorservice.ListNexusEndpointsResponse{}, nil
	}
	response := &operatorservice.ListNexusEndpointsResponse{}
	for _, endpoint := range f.endpoints {
		if endpoint.Id <= string(request.GetNextPageToken()) {
			continue
		}
		if len(response.Endpoints) == f.pageSize {
			// Like the server, also when exactly one page is full: the last page may be empty.
			break
		}
		response.Endpoints = append(response.Endpoints, clone(endpoint))
	}
	if len(response.Endpoints) == f.pageSize {
		response.NextPageToken = []byte(response.Endpoints[f.pageSize-1].Id)
	}
	return response, nil
}

// Below: what tests do behind the back of the code under test.

func (f *fakeOperator) insert(spec *nexuspb.EndpointSpec) *nexuspb.Endpoint {
	f.nextID++
	endpoint := &nexuspb.Endpoint{
		Id:          fmt.Sprintf("id-%03d", f.nextID),
		Version:     1,
		Spec:        proto.Clone(spec).(*nexuspb.EndpointSpec),
		CreatedTime: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}
	f.endpoints = append(f.endpoints, endpoint)
	return clone(endpoint)
}

func (f *fakeOperator) byName(name string) *nexuspb.Endpoint {
	for _, endpoint := range f.endpoints {
		if endpoint.GetSpec().GetName() == name {
			return endpoint
		}
	}
	return nil
}

func (f *fakeOperator) add(name, taskQueue string, description *commonpb.Payload) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.insert(&nexuspb.EndpointSpec{Name: name, Description: description, Target: workerTarget("platform", taskQueue)})
}

// touch raises the version and sets the task queue, as somebody else's update does.
func (f *fakeOperator) touch(name, taskQueue string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	endpoint := f.byName(name)
	endpoint.Version++
	endpoint.Spec.Target = workerTarget("platform", taskQueue)
}

func (f *fakeOperator) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endpoints = slices.DeleteFunc(f.endpoints, func(e *nexuspb.Endpoint) bool { return e.GetSpec().GetName() == name })
}

func (f *fakeOperator) stored(t *testing.T, name string) *nexuspb.Endpoint {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	endpoint := f.byName(name)
	require.NotNil(t, endpoint, "no endpoint %q", name)
	return clone(endpoint)
}

// called is the calls so far, such as "list create".
func (f *fakeOperator) called() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.calls, " ")
}

func (f *fakeOperator) count(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, call := range f.calls {
		if call == method {
			n++
		}
	}
	return n
}

func clone(endpoint *nexuspb.Endpoint) *nexuspb.Endpoint {
	return proto.Clone(endpoint).(*nexuspb.Endpoint)
}

func workerTarget(namespace, taskQueue string) *nexuspb.EndpointTarget {
	return &nexuspb.EndpointTarget{Variant: &nexuspb.EndpointTarget_Worker_{
		Worker: &nexuspb.EndpointTarget_Worker{Namespace: namespace, TaskQueue: taskQueue},
	}}
}

func jsonPayload(data string) *commonpb.Payload {
	return &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(data)}
}
