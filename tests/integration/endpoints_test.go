package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/nexusmcp/nexusmcp/caller"
	"github.com/nexusmcp/nexusmcp/endpoints"
	"github.com/nexusmcp/nexusmcp/handler"
)

// newSpec returns the spec of an endpoint that no other test has.
func newSpec(t *testing.T, name string) endpoints.Spec {
	t.Helper()
	spec := endpoints.Spec{Name: fmt.Sprintf("%s-%d", name, unique.Add(1)), TargetNamespace: platformNamespace, TaskQueue: "queue"}
	t.Cleanup(func() {
		_, err := endpoints.Delete(context.WithoutCancel(t.Context()), platformClient.OperatorService(), spec.Name, endpoints.Options{})
		assert.NoError(t, err)
	})
	return spec
}

func apply(t *testing.T, spec endpoints.Spec) endpoints.Result {
	t.Helper()
	result, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), spec, endpoints.Options{})
	require.NoError(t, err)
	return result
}

// stored returns an endpoint as List has it, nil when it has none of the name.
func stored(t *testing.T, name string) *endpoints.Endpoint {
	t.Helper()
	all, err := endpoints.List(t.Context(), platformClient.OperatorService(), endpoints.Options{})
	require.NoError(t, err)
	if i := slices.IndexFunc(all, func(e endpoints.Endpoint) bool { return e.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func TestApplyCreatesThenUpdatesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, "apply")
	text := "# `tools`\n\n\"quoted\" 'twice' $HOME $(rm -rf) \\n <&> ünïcode \U0001f327\n"
	spec.Description = &text

	created := apply(t, spec)
	assert.Equal(t, endpoints.Result{Name: spec.Name, ID: created.ID, Outcome: endpoints.Created}, created)
	require.NotEmpty(t, created.ID)
	first := stored(t, spec.Name)
	require.NotNil(t, first)
	assert.Equal(t, endpoints.Endpoint{
		Name: spec.Name, ID: created.ID, Version: 1, Description: text,
		TargetNamespace: platformNamespace, TaskQueue: "queue", Created: first.Created,
	}, *first)
	assert.NotZero(t, first.Created)

	assert.Equal(t, endpoints.Result{Name: spec.Name, ID: created.ID, Outcome: endpoints.Unchanged}, apply(t, spec))
	assert.Equal(t, first, stored(t, spec.Name), "nothing was written")

	empty := ""
	for version, c := range []struct {
		change  func(*endpoints.Spec)
		changes []endpoints.Change
		want    string // the description
	}{
		{func(s *endpoints.Spec) { s.TaskQueue = "another/queue" }, []endpoints.Change{{Field: "taskQueue", From: "queue", To: "another/queue"}}, text},
		{func(s *endpoints.Spec) { s.TargetNamespace = appNamespace }, []endpoints.Change{{Field: "targetNamespace", From: platformNamespace, To: appNamespace}}, text},
		{func(s *endpoints.Spec) { s.TaskQueue, s.Description = "third", nil }, []endpoints.Change{{Field: "taskQueue", From: "another/queue", To: "third"}}, text},
		{func(s *endpoints.Spec) { s.Description = &empty }, []endpoints.Change{{Field: "description", From: text, To: ""}}, ""},
		{func(s *endpoints.Spec) { s.Description = &text }, []endpoints.Change{{Field: "description", From: "", To: text}}, text},
	} {
		c.change(&spec)
		assert.Equal(t, endpoints.Result{Name: spec.Name, ID: created.ID, Outcome: endpoints.Updated, Changes: c.changes}, apply(t, spec))
		now := stored(t, spec.Name)
		require.NotNil(t, now)
		assert.Equal(t, endpoints.Endpoint{
			Name: spec.Name, ID: created.ID, Version: int64(version) + 2, Description: c.want,
			TargetNamespace: spec.TargetNamespace, TaskQueue: spec.TaskQueue, Created: now.Created, LastModified: now.LastModified,
		}, *now)
		assert.NotZero(t, now.LastModified)
		assert.Equal(t, endpoints.Unchanged, apply(t, spec).Outcome)
	}
}

func TestDeleteRemovesAnEndpointOnce(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, "delete")
	created := apply(t, spec)
	for _, want := range []endpoints.Result{
		{Name: spec.Name, ID: created.ID, Outcome: endpoints.Deleted},
		{Name: spec.Name, Outcome: endpoints.Missing},
	} {
		result, err := endpoints.Delete(t.Context(), platformClient.OperatorService(), spec.Name, endpoints.Options{})
		require.NoError(t, err)
		assert.Equal(t, want, result)
		assert.Nil(t, stored(t, spec.Name))
	}
	again := apply(t, spec)
	assert.Equal(t, endpoints.Created, again.Outcome)
	assert.NotEqual(t, created.ID, again.ID)
}

// atOnce runs f n times at the same time.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			f(i)
		})
	}
	close(begin)
	wg.Wait()
}

func TestAppliesAtTheSameTimeAllSucceed(t *testing.T) {
	t.Parallel()
	const n = 8
	same, differing := newSpec(t, "same"), newSpec(t, "differing")
	distinct := make([]endpoints.Spec, n)
	for i := range distinct {
		distinct[i] = newSpec(t, "distinct")
	}
	for name, c := range map[string]struct {
		spec     func(i int) endpoints.Spec
		outcomes map[endpoints.Outcome]int
	}{
		"of the same spec":        {func(int) endpoints.Spec { return same }, map[endpoints.Outcome]int{endpoints.Created: 1, endpoints.Unchanged: n - 1}},
		"of differing specs":      {func(i int) endpoints.Spec { s := differing; s.TaskQueue = fmt.Sprint("queue-", i); return s }, map[endpoints.Outcome]int{endpoints.Created: 1, endpoints.Updated: n - 1}},
		"of endpoints of its own": {func(i int) endpoints.Spec { return distinct[i] }, map[endpoints.Outcome]int{endpoints.Created: n}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			outcomes := map[endpoints.Outcome]int{}
			atOnce(n, func(i int) {
				result, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), c.spec(i), endpoints.Options{})
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				outcomes[result.Outcome]++
			})
			assert.Equal(t, c.outcomes, outcomes)
			var queues []string
			for i := range n {
				queues = append(queues, c.spec(i).TaskQueue)
			}
			for i := range n {
				now := stored(t, c.spec(i).Name)
				require.NotNil(t, now)
				assert.Contains(t, queues, now.TaskQueue)
			}
		})
	}
}

func TestApplyAndDeleteAtTheSameTimeBothSucceed(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, "contested")
	const rounds, sides = 10, 4
	var created, deleted atomic.Int64
	for round := range rounds {
		atOnce(sides, func(i int) {
			if i%2 == 0 {
				result, err := endpoints.Delete(t.Context(), platformClient.OperatorService(), spec.Name, endpoints.Options{})
				if assert.NoError(t, err) && result.Outcome == endpoints.Deleted {
					deleted.Add(1)
				}
				return
			}
			spec := spec
			spec.TaskQueue = fmt.Sprintf("queue-%d-%d", round, i)
			result, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), spec, endpoints.Options{})
			if assert.NoError(t, err) && result.Outcome == endpoints.Created {
				created.Add(1)
			}
		})
	}
	left := int64(0)
	if stored(t, spec.Name) != nil {
		left = 1
	}
	assert.Equal(t, created.Load(), deleted.Load()+left, "every endpoint that was created is deleted or there")
}

// A countingOperator counts the calls to the operator service.
type countingOperator struct {
	operatorservice.OperatorServiceClient
	calls atomic.Int64
}

func (o *countingOperator) ListNexusEndpoints(ctx context.Context, in *operatorservice.ListNexusEndpointsRequest, opts ...grpc.CallOption) (*operatorservice.ListNexusEndpointsResponse, error) {
	o.calls.Add(1)
	return o.OperatorServiceClient.ListNexusEndpoints(ctx, in, opts...)
}

func (o *countingOperator) CreateNexusEndpoint(ctx context.Context, in *operatorservice.CreateNexusEndpointRequest, opts ...grpc.CallOption) (*operatorservice.CreateNexusEndpointResponse, error) {
	o.calls.Add(1)
	return o.OperatorServiceClient.CreateNexusEndpoint(ctx, in, opts...)
}

func (o *countingOperator) UpdateNexusEndpoint(ctx context.Context, in *operatorservice.UpdateNexusEndpointRequest, opts ...grpc.CallOption) (*operatorservice.UpdateNexusEndpointResponse, error) {
	o.calls.Add(1)
	return o.OperatorServiceClient.UpdateNexusEndpoint(ctx, in, opts...)
}

// An outrunOperator lets somebody else create the endpoint before its own first creation.
type outrunOperator struct {
	operatorservice.OperatorServiceClient
	rival func()
	once  sync.Once
}

func (o *outrunOperator) CreateNexusEndpoint(ctx context.Context, in *operatorservice.CreateNexusEndpointRequest, opts ...grpc.CallOption) (*operatorservice.CreateNexusEndpointResponse, error) {
	o.once.Do(o.rival)
	return o.OperatorServiceClient.CreateNexusEndpoint(ctx, in, opts...)
}

// A client that was not made by the SDK returns gRPC statuses, which must be understood as well.
func TestEverythingWorksOverABareGRPCConnection(t *testing.T) {
	t.Parallel()
	connection, err := grpc.NewClient("passthrough:///"+temporalServer.HostPort(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, connection.Close()) })
	bare := operatorservice.NewOperatorServiceClient(connection)
	spec := newSpec(t, "bare")

	theirs := spec
	theirs.TaskQueue = "theirs"
	result, err := endpoints.Apply(t.Context(), &outrunOperator{OperatorServiceClient: bare, rival: func() { apply(t, theirs) }}, spec, endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Updated, result.Outcome, "the creation was refused with a status")

	listed, err := endpoints.List(t.Context(), bare, endpoints.Options{})
	require.NoError(t, err)
	assert.Contains(t, listed, *stored(t, spec.Name))

	nowhere := spec
	nowhere.TargetNamespace = "no-such-namespace"
	_, err = endpoints.Apply(t.Context(), bare, nowhere, endpoints.Options{})
	var precondition *serviceerror.FailedPrecondition
	require.ErrorAs(t, err, &precondition)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = endpoints.List(ctx, bare, endpoints.Options{})
	require.ErrorIs(t, err, context.Canceled)

	result, err = endpoints.Delete(t.Context(), bare, spec.Name, endpoints.Options{})
	require.NoError(t, err)
	assert.Equal(t, endpoints.Deleted, result.Outcome)
}

func TestATargetNamespaceThatDoesNotExistFailsAtOnce(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, "nowhere")
	for name, prepare := range map[string]func(*testing.T, *endpoints.Spec){
		"of a new endpoint":            func(t *testing.T, spec *endpoints.Spec) { *spec = newSpec(t, "nowhere") },
		"of an endpoint that is there": func(t *testing.T, _ *endpoints.Spec) { apply(t, spec) },
	} {
		t.Run(name, func(t *testing.T) {
			spec := spec
			prepare(t, &spec)
			before := stored(t, spec.Name)
			spec.TargetNamespace = "no-such-namespace"
			operator := &countingOperator{OperatorServiceClient: platformClient.OperatorService()}
			_, err := endpoints.Apply(t.Context(), operator, spec, endpoints.Options{})
			var precondition *serviceerror.FailedPrecondition
			require.ErrorAs(t, err, &precondition)
			assert.ErrorContains(t, err, "no-such-namespace")
			assert.Equal(t, int64(3), operator.calls.Load(), "it reads, writes, and looks once whether it lost a race")
			assert.Equal(t, before, stored(t, spec.Name))
		})
	}
}

func TestADescriptionOfTheGreatestLengthIsStoredAndALongerOneRefused(t *testing.T) {
	t.Parallel()
	const limit = 20_000 // bytes of the payload
	spec := newSpec(t, "described")
	encoded := func(text string) *nexuspb.EndpointSpec {
		payload, err := converter.GetDefaultDataConverter().ToPayload(text)
		require.NoError(t, err)
		return &nexuspb.EndpointSpec{
			Name: spec.Name, Description: payload,
			Target: &nexuspb.EndpointTarget{Variant: &nexuspb.EndpointTarget_Worker_{Worker: &nexuspb.EndpointTarget_Worker{Namespace: platformNamespace, TaskQueue: "queue"}}},
		}
	}
	text := strings.Repeat("d", limit)
	for encoded(text).GetDescription().Size() > limit {
		text = text[1:]
	}
	require.Equal(t, limit, encoded(text).GetDescription().Size())

	spec.Description = &text
	require.NoError(t, endpoints.Validate([]endpoints.Spec{spec}))
	assert.Equal(t, endpoints.Created, apply(t, spec).Outcome)
	now := stored(t, spec.Name)
	require.NotNil(t, now)
	assert.Equal(t, text, now.Description)

	longer := text + "d"
	spec.Description = &longer
	var invalid *endpoints.InvalidSpecError
	require.ErrorAs(t, endpoints.Validate([]endpoints.Spec{spec}), &invalid)
	_, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), spec, endpoints.Options{})
	require.ErrorAs(t, err, &invalid)
	// The server would have said the same.
	_, err = platformClient.OperatorService().UpdateNexusEndpoint(t.Context(), &operatorservice.UpdateNexusEndpointRequest{Id: now.ID, Version: now.Version, Spec: encoded(longer)})
	var argument *serviceerror.InvalidArgument
	require.ErrorAs(t, err, &argument)
}

func TestListReadsEveryPage(t *testing.T) {
	t.Parallel()
	const n = 101 // the server's pages have 100
	want := make([]string, n)
	specs := make([]endpoints.Spec, n)
	for i := range n {
		specs[i] = newSpec(t, "listed")
		want[i] = specs[i].Name
	}
	for _, spec := range specs {
		apply(t, spec)
	}
	operator := &countingOperator{OperatorServiceClient: platformClient.OperatorService()}
	all, err := endpoints.List(t.Context(), operator, endpoints.Options{})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, operator.calls.Load(), int64(2))
	var names []string
	for _, e := range all {
		names = append(names, e.Name)
	}
	assert.True(t, slices.IsSorted(names))
	assert.Equal(t, len(names), len(slices.Compact(slices.Clone(names))), "none twice")
	assert.Subset(t, names, want)
}

func TestASpecThatAllowsOnlySomeCallersIsRefusedUnlessThatIsAccepted(t *testing.T) {
	t.Parallel()
	spec := newSpec(t, "allowed")
	for _, allowed := range [][]string{{}, {"app"}} {
		spec.AllowedCallers = allowed
		_, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), spec, endpoints.Options{})
		require.ErrorIs(t, err, endpoints.ErrCallersNotEnforced)
		assert.Nil(t, stored(t, spec.Name))
	}
	result, err := endpoints.Apply(t.Context(), platformClient.OperatorService(), spec, endpoints.Options{AcceptUnenforcedCallers: true})
	require.NoError(t, err)
	assert.Equal(t, endpoints.Result{Name: spec.Name, ID: result.ID, Outcome: endpoints.Created, UnenforcedCallers: []string{"app"}}, result)
	assert.NotNil(t, stored(t, spec.Name))
}

func TestAWorkflowReachesTheWorkerThatTheEndpointPointsTo(t *testing.T) {
	t.Parallel()
	p := publish(t, handler.Server{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("the old worker's")}})
	queue := fmt.Sprintf("mcp-%d", unique.Add(1))
	plugin, err := handler.NewPlugin(handler.Options{Servers: []handler.Server{
		{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("the new worker's")}},
	}})
	require.NoError(t, err)
	newer := worker.New(platformClient, queue, worker.Options{Plugins: []worker.Plugin{plugin}})
	require.NoError(t, newer.Start())
	t.Cleanup(newer.Stop)

	ask := func() (edition string) {
		p.run(t, func(ctx workflow.Context) error {
			result, err := p.client("almanac", caller.Options{}).Discover(ctx, nil)
			if err != nil {
				return err
			}
			edition = result.Instructions
			return nil
		})
		return edition
	}
	assert.Equal(t, "the old worker's", ask())

	// The server's services read the endpoints anew within moments; both workers
	// are there all the while, so that no call fails.
	result := apply(t, endpoints.Spec{Name: p.endpoint, TargetNamespace: platformNamespace, TaskQueue: queue})
	require.Equal(t, endpoints.Updated, result.Outcome)
	within(t, func() bool { return ask() == "the new worker's" })
}

// The server refuses to schedule an operation of an endpoint that it does not
// have, and gives the workflow its task again.
func TestACallOfADeletedEndpointWaitsUntilItIsThereAgain(t *testing.T) {
	t.Parallel()
	p := publish(t, handler.Server{Name: "almanac", Transport: handler.InProcess{Server: newAlmanac("back again")}})
	spec := *stored(t, p.endpoint)
	call := func(ctx workflow.Context) error {
		_, err := p.client("almanac", caller.Options{}).Discover(ctx, nil)
		return err
	}
	p.run(t, call)
	_, err := endpoints.Delete(t.Context(), platformClient.OperatorService(), p.endpoint, endpoints.Options{})
	require.NoError(t, err)

	var run client.WorkflowRun
	within(t, func() bool {
		run = p.start(t, call)
		for {
			events := history(t, run)
			for _, event := range events {
				if failed := event.GetWorkflowTaskFailedEventAttributes(); failed != nil {
					assert.Equal(t, enumspb.WORKFLOW_TASK_FAILED_CAUSE_BAD_SCHEDULE_NEXUS_OPERATION_ATTRIBUTES, failed.GetCause())
					return true
				}
			}
			if events[len(events)-1].GetWorkflowExecutionCompletedEventAttributes() != nil {
				return false // the service that schedules had not heard of it yet
			}
		}
	})

	apply(t, endpoints.Spec{Name: p.endpoint, TargetNamespace: spec.TargetNamespace, TaskQueue: spec.TaskQueue})
	require.NoError(t, outcome(t, run))
}
