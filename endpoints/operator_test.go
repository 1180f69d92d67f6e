package endpoints_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"

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
		_, err := endpoints.ApplyTo(ctx, fake, tools("mcp"), options)
		require.NoError(t, err)
		_, err = endpoints.ListFrom(ctx, fake, options)
		require.NoError(t, err)
		_, err = endpoints.DeleteFrom(ctx, fake, "tools", options)
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
		_, err := endpoints.ApplyTo(t.Context(), fake, tools("mcp"), endpoints.Options{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `apply endpoint "tools": read it`)
	})
}

func TestAServerWithoutEndpointsIsNamedAsSuch(t *testing.T) {
	fake := newFakeOperator()
	fake.before = func(context.Context, string) error { return serviceerror.NewUnimplemented("unknown method") }
	_, err := endpoints.ListFrom(t.Context(), fake, endpoints.Options{})
	require.ErrorContains(t, err, "1.25 or newer")
}

func TestErrorsOfTheServerStayInTheChain(t *testing.T) {
	fake := newFakeOperator()
	denied := serviceerror.NewPermissionDenied("no", "because")
	fake.before = func(context.Context, string) error { return denied }
	_, err := endpoints.DeleteFrom(t.Context(), fake, "tools", endpoints.Options{})
	require.ErrorIs(t, err, denied)
	require.True(t, strings.HasPrefix(err.Error(), `delete endpoint "tools": `), err)

	unknown := errors.New("not a service error")
	fake.before = func(context.Context, string) error { return unknown }
	_, err = endpoints.ListFrom(t.Context(), fake, endpoints.Options{})
	require.ErrorIs(t, err, unknown)
}
