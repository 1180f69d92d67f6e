package endpoints_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

func TestEveryCallHasADeadline(t *testing.T) {
	deadlines := func(ctx context.Context, options endpoints.Options) []time.Duration {
		fake := newFakeOperator()
		var left []time.Duration
		fake.before = func(ctx context.Context, _ string) error {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			left = append(left, time.Until(deadline))
			return nil
		}
		_, err := endpoints.Apply(ctx, fake.client(), tools("mcp"), options)
		require.NoError(t, err)
		_, err = endpoints.List(ctx, fake.client(), options)
		require.NoError(t, err)
		_, err = endpoints.Delete(ctx, fake.client(), "tools", options)
		require.NoError(t, err)
		return left
	}
	synctest.Test(t, func(t *testing.T) {
		// list create, list, list delete
		ten := 10 * time.Second
		require.Equal(t, []time.Duration{ten, ten, ten, ten, ten}, deadlines(t.Context(), endpoints.Options{}))
		one := time.Second
		require.Equal(t, []time.Duration{one, one, one, one, one}, deadlines(t.Context(), endpoints.Options{RPCTimeout: one}))

		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		hour := time.Hour
		require.Equal(t, []time.Duration{hour, hour, hour, hour, hour}, deadlines(ctx, endpoints.Options{RPCTimeout: one}))
	})
}

func TestAServerThatDoesNotAnswerIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFakeOperator()
		fake.before = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return serviceerror.NewDeadlineExceeded("context deadline exceeded")
		}
		_, err := endpoints.Apply(t.Context(), fake.client(), tools("mcp"), endpoints.Options{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `apply endpoint "tools": read it`)
	})
}

func TestAServerWithoutEndpointsIsNamedAsSuch(t *testing.T) {
	fake := newFakeOperator()
	fake.before = func(context.Context, string) error { return serviceerror.NewUnimplemented("unknown method") }
	_, err := endpoints.List(t.Context(), fake.client(), endpoints.Options{})
	require.ErrorContains(t, err, "1.25 or newer")
}

// A client that was not made by the SDK returns gRPC statuses, which must be understood as well.
func TestEverythingWorksOverABareGRPCConnection(t *testing.T) {
	fake := newFakeOperator()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		response, err := handle(ctx, request)
		if err != nil {
			err = serviceerror.ToStatus(err).Err() // as the Temporal server's own interceptor does
		}
		return response, err
	}))
	operatorservice.RegisterOperatorServiceServer(server, fake)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	connection, err := grpc.NewClient("passthrough:///fake",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	client := operatorservice.NewOperatorServiceClient(connection)

	var once sync.Once
	fake.before = func(_ context.Context, method string) error {
		if method == "create" {
			once.Do(func() { fake.add("tools", "theirs", nil) })
		}
		return nil
	}
	text := "# `tools`\n$HOME \"quoted\" <&> ünïcode"
	result, err := endpoints.Apply(t.Context(), client, described(tools("mcp"), text), endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Updated, result.Outcome, "the create was refused with a status")

	listed, err := endpoints.List(t.Context(), client, endpoints.Options{})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, text, listed[0].Description)

	_, err = endpoints.Apply(t.Context(), client, endpoints.Spec{Name: "tools", TargetNamespace: "nowhere", TaskQueue: "q"}, endpoints.Options{})
	var precondition *serviceerror.FailedPrecondition
	require.ErrorAs(t, err, &precondition)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = endpoints.List(ctx, client, endpoints.Options{})
	require.ErrorIs(t, err, context.Canceled)

	result, err = endpoints.Delete(t.Context(), client, "tools", endpoints.Options{})
	require.NoError(t, err)
	require.Equal(t, endpoints.Deleted, result.Outcome)
}

func TestErrorsOfTheServerStayInTheChain(t *testing.T) {
	fake := newFakeOperator()
	denied := serviceerror.NewPermissionDenied("no", "because")
	fake.before = func(context.Context, string) error { return denied }
	_, err := endpoints.Delete(t.Context(), fake.client(), "tools", endpoints.Options{})
	require.ErrorIs(t, err, denied)
	require.True(t, strings.HasPrefix(err.Error(), `delete endpoint "tools": `), err)

	unknown := errors.New("not a service error")
	fake.before = func(context.Context, string) error { return unknown }
	_, err = endpoints.List(t.Context(), fake.client(), endpoints.Options{})
	require.ErrorIs(t, err, unknown)
}
