package devserver

import (
	"go.temporal.io/server/common/authorization"
	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
	"go.temporal.io/server/temporal"
)

// clusterName is the name the Temporal CLI's development server uses: it is written to the database, so the
// same name lets either open the other's file.
const clusterName = "active"

// historyPollRPS is how often in a second history may look for new tasks in one shard. The server's default
// of 20 makes every workflow step wait 50 ms, because there is only one shard.
const historyPollRPS = 2000

// tuning holds every dynamic setting that differs from the server's default. None of them is a limit that a
// program could meet: a program that runs here meets the same limits in production.
var tuning = dynamicconfig.StaticClient{
	dynamicconfig.TransferProcessorMaxPollRPS.Key():   historyPollRPS,
	dynamicconfig.OutboundProcessorMaxPollRPS.Key():   historyPollRPS, // Nexus operations and callbacks
	dynamicconfig.TimerProcessorMaxPollRPS.Key():      historyPollRPS,
	dynamicconfig.VisibilityProcessorMaxPollRPS.Key(): historyPollRPS,

	// One partition for each task queue: with the default of four, a task often waits to be forwarded to
	// the partition that has the poller.
	dynamicconfig.MatchingNumTaskqueueReadPartitions.Key():  1,
	dynamicconfig.MatchingNumTaskqueueWritePartitions.Key(): 1,

	// The check calls home, which a test must not.
	dynamicconfig.EnableServerVersionCheck.Key(): false,

	// The server starts these workers of its own and never stops them; they would outlive Stop. Without
	// them history applies parent close policies itself, and a file keeps the traces of old workflows.
	dynamicconfig.EnableParentClosePolicyWorker.Key(): false,
	dynamicconfig.TaskQueueScannerEnabled.Key():       false,
	dynamicconfig.HistoryScannerEnabled.Key():         false,
}

func serverOptions(database databaseConfig, ports serverPorts, logger *serverLogger, connections *connections) []temporal.ServerOption {
	return []temporal.ServerOption{
		temporal.WithConfig(serverConfig(database, ports)),
		// The worker service too: schedules, batch operations, worker deployments and the deletion of
		// namespaces run there.
		temporal.ForServices(temporal.DefaultServices),
		// Static hosts spare the server the gossip by which its services would otherwise find each other.
		temporal.WithStaticHosts(map[primitives.ServiceName]static.Hosts{
			primitives.FrontendService: static.SingleLocalHost(address(ports.frontend)),
			primitives.HistoryService:  static.SingleLocalHost(address(ports.history)),
			primitives.MatchingService: static.SingleLocalHost(address(ports.matching)),
			primitives.WorkerService:   static.SingleLocalHost(address(ports.worker)),
		}),
		temporal.WithLogger(logger),
		temporal.WithDynamicConfigClient(tuning),
		temporal.WithClientFactoryProvider(connections),
		temporal.WithAuthorizer(authorization.NewNoopAuthorizer()),
		temporal.WithClaimMapper(func(*config.Config) authorization.ClaimMapper {
			return authorization.NewNoopClaimMapper()
		}),
	}
}

// serverConfig leaves metrics and pprof out, so that they neither listen nor touch what is global in the
// process.
func serverConfig(database databaseConfig, ports serverPorts) *config.Config {
	service := func(grpcPort, httpPort int) config.Service {
		return config.Service{RPC: config.RPC{GRPCPort: grpcPort, HTTPPort: httpPort, BindOnIP: loopback}}
	}
	disabled := config.Archival{
		History:    config.HistoryArchival{State: config.ArchivalDisabled},
		Visibility: config.VisibilityArchival{State: config.ArchivalDisabled},
	}
	return &config.Config{
		Global: config.Global{Membership: config.Membership{BroadcastAddress: loopback}},
		Persistence: config.Persistence{
			DefaultStore:     sqliteStore,
			VisibilityStore:  sqliteStore,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqliteStore: {SQL: database}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {
					Enabled:                true,
					InitialFailoverVersion: 1,
					RPCAddress:             address(ports.frontend),
					// With the frontend's HTTP port, what Nexus needs: the completion of an
					// asynchronous operation is an HTTP request to the frontend.
					HTTPAddress: address(ports.frontendHTTP),
				},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services: map[string]config.Service{
			string(primitives.FrontendService): service(ports.frontend, ports.frontendHTTP),
			string(primitives.HistoryService):  service(ports.history, 0),
			string(primitives.MatchingService): service(ports.matching, 0),
			string(primitives.WorkerService):   service(ports.worker, 0),
		},
		Archival: disabled,
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: config.ArchivalDisabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: config.ArchivalDisabled},
		}},
		PublicClient: config.PublicClient{HostPort: address(ports.frontend)},
	}
}

// sqliteStore names the one data store within the configuration.
const sqliteStore = "sqlite"
