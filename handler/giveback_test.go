package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/log"
)

// The moment in which a call gives up and gets its connection cannot be brought
// about from outside.
func TestAConnectionThatACallGaveUpOnIsForTheNextUnlessItIsATenants(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "s", Version: "1"}, nil)
	inside := InProcess{Server: server}
	var shared atomic.Int32
	p := newPool(Server{Name: "s", ProtocolVersion: "2025-11-25", Transport: ArgumentFactory(func(ctx context.Context, argument json.RawMessage) (mcp.Transport, error) {
		if len(argument) == 0 && shared.Add(1) > 1 {
			// One that is opened ahead would take the place of the one given back.
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return inside.open(ctx, nil, environment{logger: log.NewStructuredLogger(slog.Default()), limit: 1 << 20})
	})}, 1<<20)
	defer func() { require.NoError(t, p.close(context.Background())) }()
	logger := log.NewStructuredLogger(slog.New(slog.DiscardHandler))

	ours, err := p.acquire(t.Context(), nil, logger)
	require.NoError(t, err)
	tenants, err := p.acquire(t.Context(), json.RawMessage(`"acme"`), logger)
	require.NoError(t, err)

	tenants.giveBack(logger)
	p.mu.Lock()
	assert.True(t, p.single)
	assert.Empty(t, p.ready)
	_, kept := p.conns[tenants]
	assert.False(t, kept)
	p.mu.Unlock()

	ours.giveBack(logger)
	p.mu.Lock()
	defer p.mu.Unlock()
	require.Len(t, p.ready, 1)
	assert.Same(t, ours, p.ready[0])
}
