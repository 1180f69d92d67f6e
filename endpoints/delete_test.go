package endpoints_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

func TestDeleteRemovesByName(t *testing.T) {
	fake := newFakeOperator()
	fake.add("tools", "mcp", nil)
	fake.add("others", "mcp", nil)

	result, err := endpoints.DeleteFrom(t.Context(), fake, "tools", endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Result{Name: "tools", ID: "id-001", Outcome: endpoints.Deleted}, result)

	result, err = endpoints.DeleteFrom(t.Context(), fake, "tools", endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Result{Name: "tools", Outcome: endpoints.Missing}, result)
	require.Equal(t, `endpoint "tools": missing`, result.String())
	fake.stored(t, "others")
}

func TestDeleteThatLosesARaceReadsAgain(t *testing.T) {
	for _, test := range []struct {
		name    string
		rival   func(*fakeOperator) error
		outcome endpoints.Outcome
		calls   string
	}{
		{
			name:    "a rival deletes it",
			rival:   func(f *fakeOperator) error { f.remove("tools"); return nil },
			outcome: endpoints.Missing,
			calls:   "list delete list",
		},
		{
			name:    "a rival replaces it",
			rival:   func(f *fakeOperator) error { f.remove("tools"); f.add("tools", "theirs", nil); return nil },
			outcome: endpoints.Deleted,
			calls:   "list delete list delete",
		},
		{
			name: "another endpoint moves the table",
			rival: func(*fakeOperator) error {
				return serviceerror.NewFailedPrecondition("nexus endpoints table version mismatch")
			},
			outcome: endpoints.Deleted,
			calls:   "list delete list delete",
		},
		{
			// The API promises it, though server v1.32.1 does not check.
			name: "the version moves",
			rival: func(f *fakeOperator) error {
				f.touch("tools", "theirs")
				return serviceerror.NewFailedPrecondition("it is not what it was")
			},
			outcome: endpoints.Deleted,
			calls:   "list delete list delete",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			fake := newFakeOperator()
			fake.add("tools", "mcp", nil)
			fake.before = func(_ context.Context, method string) error {
				if method == "delete" && fake.count("delete") == 1 {
					return test.rival(fake)
				}
				return nil
			}
			result, err := endpoints.DeleteFrom(t.Context(), fake, "tools", endpoints.Options{})
			require.NoError(t, err)
			require.Equal(t, test.outcome, result.Outcome)
			require.Equal(t, test.calls, fake.called())
		})
	}
}

func TestDeleteWithoutANameTouchesNothing(t *testing.T) {
	fake := newFakeOperator()
	fake.add("tools", "mcp", nil)
	_, err := endpoints.DeleteFrom(t.Context(), fake, "", endpoints.Options{})
	require.ErrorContains(t, err, "name is empty")
	require.Empty(t, fake.called(), "an empty name is no filter: the server would list everything")
}

func TestAServerThatIgnoresTheNameFilterDoesNotMakeUsTouchAnother(t *testing.T) {
	operator := unfilteredOperator{newFakeOperator()}
	operator.add("others", "mcp", nil)
	result, err := endpoints.DeleteFrom(t.Context(), operator, "tools", endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Missing, result.Outcome)
	operator.stored(t, "others")
}

type unfilteredOperator struct{ *fakeOperator }

func (o unfilteredOperator) ListNexusEndpoints(ctx context.Context, request *operatorservice.ListNexusEndpointsRequest) (*operatorservice.ListNexusEndpointsResponse, error) {
	return o.fakeOperator.ListNexusEndpoints(ctx, &operatorservice.ListNexusEndpointsRequest{NextPageToken: request.GetNextPageToken()})
}
