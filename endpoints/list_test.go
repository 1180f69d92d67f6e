package endpoints_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

func TestListReadsAllPagesAndSortsByName(t *testing.T) {
	// 0 to 3 pages of two, full and not.
	for n := range 7 {
		fake := newFakeOperator()
		fake.pageSize = 2
		var want []string
		for i := range n {
			fake.add("e"+string(rune('z'-i)), "mcp", nil)
			want = append([]string{"e" + string(rune('z'-i))}, want...)
		}
		listed, err := endpoints.ListFrom(t.Context(), fake, endpoints.Options{})
		require.NoError(t, err)
		var got []string
		for _, endpoint := range listed {
			got = append(got, endpoint.Name)
		}
		require.Equal(t, want, got)
		require.Equal(t, n/2+1, fake.count("list"))
	}
}

func TestListShowsWhatTheServerHas(t *testing.T) {
	fake := newFakeOperator()
	fake.add("aa", "mcp", jsonPayload(`"# A"`))
	fake.add("bb", "mcp", &commonpb.Payload{Metadata: map[string][]byte{"encoding": []byte("binary/encrypted")}, Data: []byte{1}})
	fake.insert(&nexuspb.EndpointSpec{Name: "cc", Target: &nexuspb.EndpointTarget{
		Variant: &nexuspb.EndpointTarget_External_{External: &nexuspb.EndpointTarget_External{Url: "https://example.com"}},
	}})
	_, err := endpoints.ApplyTo(t.Context(), fake, endpoints.Spec{Name: "bb", TargetNamespace: "platform", TaskQueue: "new"}, endpoints.Options{})
	require.NoError(t, err)

	listed, err := endpoints.ListFrom(t.Context(), fake, endpoints.Options{})
	require.NoError(t, err)
	require.Len(t, listed, 3)
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	require.Equal(t, endpoints.Endpoint{
		Name: "aa", ID: "id-001", Version: 1, Description: "# A", TargetNamespace: "platform", TaskQueue: "mcp", Created: created,
	}, listed[0])
	require.Equal(t, `1 bytes that are not plain text (encoding "binary/encrypted")`, listed[1].UnreadableDescription)
	require.Zero(t, listed[1].Created)
	require.NotZero(t, listed[1].LastModified)
	require.Equal(t, endpoints.Endpoint{Name: "cc", ID: "id-003", Version: 1, TargetURL: "https://example.com", Created: created}, listed[2])
}

func TestListStopsWhenAPageTokenRepeats(t *testing.T) {
	_, err := endpoints.ListFrom(t.Context(), repeatingOperator{}, endpoints.Options{})
	require.ErrorContains(t, err, "same page token twice")
}

type repeatingOperator struct {
	*fakeOperator // nil: no other method may be called
}

func (repeatingOperator) ListNexusEndpoints(context.Context, *operatorservice.ListNexusEndpointsRequest) (*operatorservice.ListNexusEndpointsResponse, error) {
	return &operatorservice.ListNexusEndpointsResponse{NextPageToken: []byte("again")}, nil
}
