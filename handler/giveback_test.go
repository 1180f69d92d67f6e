package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
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
	p := newPool(Server{Name: "s", ProtocolVersion: "2025-11-25", Transport: ArgumentFactory(func(ctx context.Context, _ json.RawMessage) (mcp.Transport, error) {
		return inside.open(ctx, nil, environment{logger: log.NewStructuredLogger(slog.Default()), limit: 1 << 20})
	})}, 1<<20)
	defer func() { require.NoError(t, p.close(context.Background())) }()
	logger := log.NewStructuredLogger(slog.New(slog.DiscardHandler))

	ours, err := p.acquire(t.Context(), nil, logger)
	require.NoError(t, err)
	tenants, err := p.acquire(t.Context(), json.RawMessage(`"acme"`), logger)
	require.NoError(t, err)

	// What is made ready meanwhile would take the place of the one given back.
	p.mu.Lock()
	for _, c := range p.ready {
		p.retire(c)
		p.closeConn(c)
	}
	p.mu.Unlock()
	tenants.giveBack(logger)
	p.mu.Lock()
	require.True(t, p.single)
	assert.False(t, slices.Contains(p.ready, tenants))
	_, kept := p.conns[tenants]
	assert.False(t, kept)
	p.mu.Unlock()

	ours.giveBack(logger)
	p.mu.Lock()
	defer p.mu.Unlock()
	assert.True(t, len(p.ready) == 1 && !p.ready[0].alone, "it, or the one that was opened ahead, is ready")
}
