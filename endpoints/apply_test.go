package endpoints_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

func tools(taskQueue string) endpoints.Spec {
	return endpoints.Spec{Name: "tools", TargetNamespace: "platform", TaskQueue: taskQueue}
}

func described(spec endpoints.Spec, markdown string) endpoints.Spec {
	spec.Description = &markdown
	return spec
}

func TestApplyCreatesAnEndpointThatIsNotThere(t *testing.T) {
	fake := newFakeOperator()
	result, err := endpoints.ApplyTo(t.Context(), fake, described(tools("mcp"), "# Tools"), endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Result{Name: "tools", ID: "id-001", Outcome: endpoints.Created}, result)
	require.Equal(t, `endpoint "tools": created`, result.String())

	spec := fake.stored(t, "tools").Spec
	require.Equal(t, "platform", spec.GetTarget().GetWorker().GetNamespace())
	require.Equal(t, "mcp", spec.GetTarget().GetWorker().GetTaskQueue())
	require.Equal(t, "json/plain", string(spec.GetDescription().GetMetadata()["encoding"]))
	require.Equal(t, `"# Tools"`, string(spec.GetDescription().GetData()))
}

func TestApplyASecondTimeWritesNothing(t *testing.T) {
	fake := newFakeOperator()
	spec := described(tools("mcp"), "<b>a & b</b>\n")
	for _, want := range []endpoints.Outcome{endpoints.Created, endpoints.Unchanged, endpoints.Unchanged} {
		result, err := endpoints.ApplyTo(t.Context(), fake, spec, endpoints.Options{})
		require.NoError(t, err)
		require.Equal(t, want, result.Outcome)
		require.Empty(t, result.Changes)
	}
	require.Equal(t, "list create list list", fake.called())
	require.EqualValues(t, 1, fake.stored(t, "tools").Version)
}

func TestApplyComparesDescriptionsAsTextNotAsBytes(t *testing.T) {
	fake := newFakeOperator()
	// Go escapes "<" in JSON, a browser does not.
	fake.add("tools", "mcp", jsonPayload(`"<b>"`))
	result, err := endpoints.ApplyTo(t.Context(), fake, described(tools("mcp"), "<b>"), endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Unchanged, result.Outcome)
}

func TestApplyChangesOnlyWhatDiffersAndSaysWhat(t *testing.T) {
	for _, test := range []struct {
		name    string
		spec    endpoints.Spec
		changes []endpoints.Change
		says    string
	}{
		{
			name:    "the task queue",
			spec:    tools("new"),
			changes: []endpoints.Change{{Field: "taskQueue", From: "mcp", To: "new"}},
			says:    `endpoint "tools": updated: taskQueue from "mcp" to "new"`,
		},
		{
			name:    "the description",
			spec:    described(tools("mcp"), "new text"),
			changes: []endpoints.Change{{Field: "description", From: "old", To: "new text"}},
			says:    `endpoint "tools": updated: description (3 bytes to 8 bytes)`,
		},
		{
			name:    "a description that is cleared",
			spec:    described(tools("mcp"), ""),
			changes: []endpoints.Change{{Field: "description", From: "old", To: ""}},
			says:    `endpoint "tools": updated: description (3 bytes to 0 bytes)`,
		},
		{
			name: "everything",
			spec: described(endpoints.Spec{Name: "tools", TargetNamespace: "other", TaskQueue: "new"}, "new"),
			changes: []endpoints.Change{
				{Field: "description", From: "old", To: "new"},
				{Field: "targetNamespace", From: "platform", To: "other"},
				{Field: "taskQueue", From: "mcp", To: "new"},
			},
			says: `endpoint "tools": updated: description (3 bytes to 3 bytes), targetNamespace from "platform" to "other", taskQueue from "mcp" to "new"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := newFakeOperator("other")
			fake.add("tools", "mcp", jsonPayload(`"old"`))
			result, err := endpoints.ApplyTo(t.Context(), fake, test.spec, endpoints.Options{})
			require.NoError(t, err)
			require.Equal(t, endpoints.Result{Name: "tools", ID: "id-001", Outcome: endpoints.Updated, Changes: test.changes}, result)
			require.Equal(t, test.says, result.String())

			again, err := endpoints.ApplyTo(t.Context(), fake, test.spec, endpoints.Options{})
			require.NoError(t, err)
			require.Equal(t, endpoints.Unchanged, again.Outcome)
			require.Equal(t, "list update list", fake.called())
		})
	}
}

func TestApplyKeepsADescriptionThatTheSpecDoesNotState(t *testing.T) {
	encrypted := &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte{1, 2, 3}}
	for name, payload := range map[string]*commonpb.Payload{"plain": jsonPayload(`"keep me"`), "encrypted": encrypted} {
		t.Run(name, func(t *testing.T) {
			fake := newFakeOperator()
			fake.add("tools", "mcp", payload)
			result, err := endpoints.ApplyTo(t.Context(), fake, tools("new"), endpoints.Options{})
			require.NoError(t, err)
			require.Equal(t, endpoints.Updated, result.Outcome)
			require.Equal(t, payload.GetData(), fake.stored(t, "tools").GetSpec().GetDescription().GetData())
		})
	}
}

func TestApplyReplacesADescriptionThatItCannotRead(t *testing.T) {
	fake := newFakeOperator()
	fake.add("tools", "mcp", &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte{1, 2, 3}})
	result, err := endpoints.ApplyTo(t.Context(), fake, described(tools("mcp"), "plain"), endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, []endpoints.Change{{Field: "description", From: `3 bytes that are not plain text (encoding "binary/encrypted")`, To: "plain"}}, result.Changes)
	require.Equal(t, `"plain"`, string(fake.stored(t, "tools").GetSpec().GetDescription().GetData()))
}

func TestApplyTurnsAnExternalTargetIntoAWorkerTarget(t *testing.T) {
	fake := newFakeOperator()
	fake.insert(&nexuspb.EndpointSpec{Name: "tools", Target: &nexuspb.EndpointTarget{
		Variant: &nexuspb.EndpointTarget_External_{External: &nexuspb.EndpointTarget_External{Url: "https://example.com"}},
	}})
	result, err := endpoints.ApplyTo(t.Context(), fake, tools("mcp"), endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, []endpoints.Change{
		{Field: "targetURL", From: "https://example.com"},
		{Field: "targetNamespace", To: "platform"},
		{Field: "taskQueue", To: "mcp"},
	}, result.Changes)
	require.Equal(t, "mcp", fake.stored(t, "tools").GetSpec().GetTarget().GetWorker().GetTaskQueue())
}

func TestApplyRefusesCallersThatTheServerWouldNotEnforce(t *testing.T) {
	for name, callers := range map[string][]string{"some": {"orders"}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			fake := newFakeOperator()
			spec := tools("mcp")
			spec.AllowedCallers = callers
			_, err := endpoints.ApplyTo(t.Context(), fake, spec, endpoints.Options{})
			require.ErrorIs(t, err, endpoints.ErrCallersNotEnforced)
			require.ErrorContains(t, err, `apply endpoint "tools"`)
			require.Empty(t, fake.called(), "nothing may be registered")

			for _, outcome := range []endpoints.Outcome{endpoints.Created, endpoints.Unchanged} {
				result, err := endpoints.ApplyTo(t.Context(), fake, spec, endpoints.Options{AcceptUnenforcedCallers: true})
				require.NoError(t, err)
				require.Equal(t, outcome, result.Outcome)
				require.Equal(t, callers, result.UnenforcedCallers)
				require.Contains(t, result.String(), "not enforced")
			}
		})
	}
}

func TestApplyChecksTheSpecBeforeItCallsTheServer(t *testing.T) {
	fake := newFakeOperator()
	_, err := endpoints.ApplyTo(t.Context(), fake, endpoints.Spec{Name: "no_underscores"}, endpoints.Options{})
	var invalid *endpoints.InvalidSpecError
	require.ErrorAs(t, err, &invalid)
	require.Len(t, invalid.Problems, 3)
	require.Empty(t, fake.called())
}

func TestApplyThatLosesARaceReadsAgainAndDecidesAgain(t *testing.T) {
	for _, test := range []struct {
		name    string
		exists  bool
		rival   func(*fakeOperator)
		on      string
		outcome endpoints.Outcome
		calls   string
	}{
		{
			name:    "a rival creates the same",
			rival:   func(f *fakeOperator) { f.add("tools", "mcp", nil) },
			on:      "create",
			outcome: endpoints.Unchanged,
			calls:   "list create list",
		},
		{
			name:    "a rival creates another",
			rival:   func(f *fakeOperator) { f.add("tools", "theirs", nil) },
			on:      "create",
			outcome: endpoints.Updated,
			calls:   "list create list update",
		},
		{
			name:    "a rival updates to the same",
			exists:  true,
			rival:   func(f *fakeOperator) { f.touch("tools", "mcp") },
			on:      "update",
			outcome: endpoints.Unchanged,
			calls:   "list update list",
		},
		{
			name:    "a rival updates to another",
			exists:  true,
			rival:   func(f *fakeOperator) { f.touch("tools", "theirs") },
			on:      "update",
			outcome: endpoints.Updated,
			calls:   "list update list update",
		},
		{
			name:    "a rival deletes it",
			exists:  true,
			rival:   func(f *fakeOperator) { f.remove("tools") },
			on:      "update",
			outcome: endpoints.Created,
			calls:   "list update list create",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := newFakeOperator()
			if test.exists {
				fake.add("tools", "old", nil)
			}
			var once sync.Once
			fake.before = func(_ context.Context, method string) error {
				if method == test.on {
					once.Do(func() { test.rival(fake) })
				}
				return nil
			}
			result, err := endpoints.ApplyTo(t.Context(), fake, tools("mcp"), endpoints.Options{})
			require.NoError(t, err)
			require.Equal(t, test.outcome, result.Outcome)
			require.Equal(t, test.calls, fake.called())
			require.Equal(t, "mcp", fake.stored(t, "tools").GetSpec().GetTarget().GetWorker().GetTaskQueue())
		})
	}
}

func TestApplyTriesAgainWhenAnotherEndpointMovedTheTable(t *testing.T) {
	for _, method := range []string{"create", "update"} {
		t.Run(method, func(t *testing.T) {
			fake := newFakeOperator()
			if method == "update" {
				fake.add("tools", "old", nil)
			}
			fake.before = func(_ context.Context, called string) error {
				if called == method && fake.count(method) == 1 {
					return serviceerror.NewFailedPrecondition("nexus endpoints table version mismatch")
				}
				return nil
			}
			_, err := endpoints.ApplyTo(t.Context(), fake, tools("mcp"), endpoints.Options{})
			require.NoError(t, err)
			require.Equal(t, 2, fake.count(method))
		})
	}
}

func TestApplyReportsAMissingNamespaceInsteadOfTryingAgain(t *testing.T) {
	for _, exists := range []bool{false, true} {
		fake := newFakeOperator()
		if exists {
			fake.add("tools", "mcp", nil)
		}
		_, err := endpoints.ApplyTo(t.Context(), fake,
			endpoints.Spec{Name: "tools", TargetNamespace: "nowhere", TaskQueue: "mcp"}, endpoints.Options{})
		require.ErrorContains(t, err, "could not verify namespace")
		require.ErrorContains(t, err, `apply endpoint "tools"`)
		require.Equal(t, 1, fake.count("create")+fake.count("update"))
	}
}

func TestApplyGivesUpAfterTenLostRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeOperator()
		fake.add("tools", "old", nil)
		fake.before = func(_ context.Context, method string) error {
			if method == "update" {
				fake.touch("tools", "theirs")
			}
			return nil
		}
		start := time.Now()
		_, err := endpoints.ApplyTo(t.Context(), fake, tools("mcp"), endpoints.Options{})
		require.ErrorContains(t, err, "gave up after losing 10 races")
		var mismatch *serviceerror.FailedPrecondition
		require.ErrorAs(t, err, &mismatch)
		require.Equal(t, 10, fake.count("update"))
		require.Less(t, time.Since(start), 10*time.Second)
	})
}

func TestApplyStopsWaitingWhenTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeOperator()
		fake.add("tools", "old", nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		fake.before = func(_ context.Context, method string) error {
			if method == "update" {
				fake.touch("tools", "theirs")
				if fake.count("update") == 3 {
					// After this update, so during the pause that follows it.
					time.AfterFunc(time.Millisecond, cancel)
				}
			}
			return nil
		}
		_, err := endpoints.ApplyTo(ctx, fake, tools("mcp"), endpoints.Options{})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3, fake.count("update"))
	})
}

func TestManyAppliesAtOnceAllEndWell(t *testing.T) {
	for _, test := range []struct {
		name   string
		queues []string
	}{
		{"with the same spec", []string{"mcp", "mcp", "mcp", "mcp", "mcp", "mcp"}},
		{"with different specs", []string{"a", "b", "c", "a", "b", "c"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := newFakeOperator()
			// All have read "no such endpoint" before the first one writes.
			var read sync.WaitGroup
			read.Add(len(test.queues))
			fake.before = func(_ context.Context, method string) error {
				if method == "create" {
					read.Done()
					read.Wait()
				}
				return nil
			}
			results := make([]endpoints.Result, len(test.queues))
			errs := make([]error, len(test.queues))
			var all sync.WaitGroup
			for i, queue := range test.queues {
				all.Go(func() {
					results[i], errs[i] = endpoints.ApplyTo(t.Context(), fake, tools(queue), endpoints.Options{})
				})
			}
			all.Wait()

			created := 0
			for i := range results {
				require.NoError(t, errs[i])
				if results[i].Outcome == endpoints.Created {
					created++
				}
			}
			require.Equal(t, 1, created)
			require.Contains(t, test.queues, fake.stored(t, "tools").GetSpec().GetTarget().GetWorker().GetTaskQueue())
		})
	}
}
