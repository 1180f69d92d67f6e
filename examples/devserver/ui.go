package devserver

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/temporalio/ui-server/v2/server/api"
	"github.com/temporalio/ui-server/v2/server/auth"
	"github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/headers"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
)

const (
	// uiMaxResponseBytes is the largest answer of the frontend that the UI shows: a long history is larger
	// than gRPC's default of 4 MiB. It is ui-server's own limit.
	uiMaxResponseBytes = 64 << 20

	// uiDrain is how long a request in flight may take once the server stops.
	uiDrain = time.Second
)

// webUI serves Temporal's Web UI.
//
// It is put together from the parts of ui-server, not with its NewServer, because that one binds a port by
// number, ends the process when it cannot, and keeps its connection to the frontend after it has stopped.
type webUI struct {
	url    string
	http   *http.Server
	served chan error
}

// startWebUI serves the UI on the listener, which it closes in stop, for the frontend at hostPort, which it
// calls through conn.
func startWebUI(listener net.Listener, hostPort string, conn *grpc.ClientConn) (*webUI, error) {
	handler, err := uiHandler(hostPort, conn)
	if err != nil {
		return nil, fmt.Errorf("build Web UI: %w", err)
	}
	w := &webUI{
		url:    "http://" + listener.Addr().String(),
		http:   &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		served: make(chan error, 1),
	}
	go func() { w.served <- w.http.Serve(listener) }()
	return w, nil
}

func uiHandler(hostPort string, conn *grpc.ClientConn) (http.Handler, error) {
	provider, err := config.NewConfigProviderWithRefresh(&config.Config{
		TemporalGRPCAddress: hostPort,
		EnableUI:            true,
		DisableNewsFetch:    true,                              // no calls to the internet
		CORS:                config.CORS{CookieInsecure: true}, // plain HTTP
		HideLogs:            true,
	})
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.Use(middleware.Recover(), middleware.Gzip(), middleware.Secure())
	e.Use(csrf.EnsureTokenCookie(false), middleware.CSRFWithConfig(csrf.MiddlewareConfig(provider, false)))

	route.SetHealthRoute(e)
	forward := []api.Middleware{headers.WithForwardHeaders([]string{auth.AuthorizationExtrasHeader, "Caller-Type"})}
	v1 := e.Group("/api/v1")
	v1.GET("/settings", api.GetSettings(provider))
	v1.GET("/ui-extensions", api.GetUIExtensions(provider, api.TemporalAccessCheck(conn, forward)))
	v1.GET(api.WorkflowRawHistoryUrl, api.WorkflowRawHistoryHandler(workflowservice.NewWorkflowServiceClient(conn)))
	v1.Any("/*", api.TemporalAPIHandler(provider, forward, conn))

	assets, err := ui.Assets()
	if err != nil {
		return nil, err
	}
	// The assets hold two builds of the UI; the other one is Temporal Cloud's.
	local, err := fs.Sub(assets, "local")
	if err != nil {
		return nil, err
	}
	if err := route.SetUIRoutes(e, "", local, provider); err != nil {
		return nil, err
	}
	route.SetRenderRoute(e, "/")
	return e, nil
}

// stop closes the listener and every connection, after giving requests in flight a moment.
func (w *webUI) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, uiDrain)
	defer cancel()
	if err := w.http.Shutdown(ctx); err != nil {
		// Someone still waits for an answer; a browser does not keep the server up.
		_ = w.http.Close()
	}
	if err := <-w.served; err != http.ErrServerClosed {
		return fmt.Errorf("the Web UI on %s: %w", w.url, err)
	}
	return nil
}
