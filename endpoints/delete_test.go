package endpoints_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

func TestDeleteRemovesByName(t *testing.T) {
	fake := newFakeOperator()
	fake.add("tools", "mcp", nil)
	fake.add("others", "mcp", nil)

	result, err := endpoints.Delete(t.Context(), fake.client(), "tools", endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Result{Name: "tools", ID: "id-001", Outcome: endpoints.Deleted}, result)

	result, err = endpoints.Delete(t.Context(), fake.client(), "tools", endpoints.Options{})
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
			result, err := endpoints.Delete(t.Context(), fake.client(), "tools", endpoints.Options{})
			require.NoError(t, err)
			require.Equal(t, test.outcome, result.Outcome)
			require.Equal(t, test.calls, fake.called())
		})
	}
}

func TestDeleteWithoutANameTouchesNothing(t *testing.T) {
	fake := newFakeOperator()
	fake.add("tools", "mcp", nil)
	_, err := endpoints.Delete(t.Context(), fake.client(), "", endpoints.Options{})
	require.ErrorContains(t, err, "name is empty")
	require.Empty(t, fake.called(), "an empty name is no filter: the server would list everything")
}

func TestAServerThatIgnoresTheNameFilterDoesNotMakeUsTouchAnother(t *testing.T) {
	client := unfilteredClient{directClient{fake: newFakeOperator()}}
	client.fake.add("others", "mcp", nil)
	result, err := endpoints.Delete(t.Context(), client, "tools", endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Missing, result.Outcome)
	client.fake.stored(t, "others")
}

type unfilteredClient struct{ directClient }

func (c unfilteredClient) ListNexusEndpoints(ctx context.Context, in *operatorservice.ListNexusEndpointsRequest, _ ...grpc.CallOption) (*operatorservice.ListNexusEndpointsResponse, error) {
	return c.fake.ListNexusEndpoints(ctx, &operatorservice.ListNexusEndpointsRequest{NextPageToken: in.GetNextPageToken()})
}
