package devserver

import (
	"sync"

	"go.temporal.io/server/client"
	"go.temporal.io/server/common"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/membership"
	"go.temporal.io/server/common/metrics"
	"go.temporal.io/server/common/testing/testhooks"
	"google.golang.org/grpc"
)

// connections remembers the gRPC connections between the server's services. The server never closes them,
// since its process normally ends when it stops; here they would go on dialing ports that are gone.
type connections struct {
	client.FactoryProvider

	mu   sync.Mutex
	open []*grpc.ClientConn
}

func newConnections() *connections {
	return &connections{FactoryProvider: client.NewFactoryProvider()}
}

// NewFactory is called by each service for the factory of its clients.
func (c *connections) NewFactory(
	rpcFactory common.RPCFactory,
	monitor membership.Monitor,
	metricsHandler metrics.Handler,
	collection *dynamicconfig.Collection,
	hooks testhooks.TestHooks,
	historyShards int32,
	logger log.Logger,
	throttledLogger log.Logger,
) client.Factory {
	remembering := rememberingFactory{RPCFactory: rpcFactory, connections: c}
	return c.FactoryProvider.NewFactory(remembering, monitor, metricsHandler, collection, hooks, historyShards, logger, throttledLogger)
}

func (c *connections) remember(conn *grpc.ClientConn) *grpc.ClientConn {
	if conn != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = append(c.open, conn)
	}
	return conn
}

// close closes the connections of a server that has stopped. Closing one twice is harmless: some are shared,
// and some the server does close.
func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// rememberingFactory hands every connection it creates to connections.
type rememberingFactory struct {
	common.RPCFactory
	connections *connections
}

func (f rememberingFactory) CreateLocalFrontendGRPCConnection() *grpc.ClientConn {
	return f.connections.remember(f.RPCFactory.CreateLocalFrontendGRPCConnection())
}

func (f rememberingFactory) CreateRemoteFrontendGRPCConnection(address string) *grpc.ClientConn {
	return f.connections.remember(f.RPCFactory.CreateRemoteFrontendGRPCConnection(address))
}

func (f rememberingFactory) CreateHistoryGRPCConnection(address string) *grpc.ClientConn {
	return f.connections.remember(f.RPCFactory.CreateHistoryGRPCConnection(address))
}

func (f rememberingFactory) CreateMatchingGRPCConnection(address string) *grpc.ClientConn {
	return f.connections.remember(f.RPCFactory.CreateMatchingGRPCConnection(address))
}
