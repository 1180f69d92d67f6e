package devserver_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/nexusmcp/nexusmcp/examples/devserver"
)

const (
	callers = "callers"
	tools   = "tools"

	// patience is how long a test waits for what should come at once: long, since under the race detector on a
	// busy machine a server is a hundred times as slow.
	patience = 2 * time.Minute
)

// shared is the server of all tests that need no server of their own. Tests here do not run in parallel.
var shared *devserver.Server

func TestMain(m *testing.M) {
	code := m.Run()
	if shared != nil {
		if err := shared.Stop(); err != nil && code == 0 {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

func sharedServer(t *testing.T) *devserver.Server {
	t.Helper()
	if shared == nil {
		server, err := devserver.Start(testContext(t), devserver.Options{
			Namespaces: []string{callers, tools},
			UIPort:     devserver.FreePort,
		})
		require.NoError(t, err)
		shared = server
	}
	return shared
}

func startServer(t *testing.T, options devserver.Options) *devserver.Server {
	t.Helper()
	server, err := devserver.Start(testContext(t), options)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop()) })
	return server
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func dial(t *testing.T, server *devserver.Server, namespace string) client.Client {
	t.Helper()
	options := server.ClientOptions(namespace)
	options.Logger = log.NewStructuredLogger(slog.New(slog.DiscardHandler))
	c, err := client.DialContext(testContext(t), options)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// startWorker starts a worker on a task queue named after the test.
func startWorker(t *testing.T, c client.Client, register func(worker.Registry)) (taskQueue string) {
	t.Helper()
	w := worker.New(c, t.Name(), worker.Options{})
	register(w)
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	return t.Name()
}

func TestGivenNamespacesAreThereWhenStartReturns(t *testing.T) {
	server := sharedServer(t)
	for _, name := range []string{callers, tools} {
		_, err := dial(t, server, name).WorkflowService().DescribeNamespace(testContext(t), &workflowservice.DescribeNamespaceRequest{Namespace: name})
		require.NoError(t, err, name)
	}
	_, err := dial(t, server, callers).WorkflowService().DescribeNamespace(testContext(t), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
	require.ErrorAs(t, err, new(*serviceerror.NamespaceNotFound), "only the namespaces that were given")
}

func TestZeroOptionsStartAServerWithTheDefaultNamespaceAndNoUI(t *testing.T) {
	server := startServer(t, devserver.Options{})
	_, err := dial(t, server, "default").WorkflowService().DescribeNamespace(testContext(t), &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Empty(t, server.UIURL())
}

func TestServersInOneProcessStartTogetherAndShareNothing(t *testing.T) {
	const count = 4
	servers := make([]*devserver.Server, count)
	var group sync.WaitGroup
	for i := range servers {
		group.Go(func() {
			name := "only-" + strconv.Itoa(i)
			server, err := devserver.Start(testContext(t), devserver.Options{Namespaces: []string{name}})
			if assert.NoError(t, err) {
				servers[i] = server
				t.Cleanup(func() { assert.NoError(t, server.Stop()) })
			}
		})
	}
	group.Wait()
	require.False(t, t.Failed())
	for i, server := range servers {
		service := dial(t, server, "default").WorkflowService()
		for j := range servers {
			_, err := service.DescribeNamespace(testContext(t), &workflowservice.DescribeNamespaceRequest{Namespace: "only-" + strconv.Itoa(j)})
			if i == j {
				require.NoError(t, err)
			} else {
				require.ErrorAs(t, err, new(*serviceerror.NamespaceNotFound))
			}
		}
	}
}

func TestStartRefusesWhatCannotWork(t *testing.T) {
	notSQLite := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(notSQLite, bytes.Repeat([]byte("no database\n"), 100), 0o600))

	// Somebody else's database.
	foreign := filepath.Join(t.TempDir(), "foreign.db")
	database, err := sql.Open("sqlite", foreign)
	require.NoError(t, err)
	_, err = database.Exec("CREATE TABLE songs (title TEXT)")
	require.NoError(t, err)
	require.NoError(t, database.Close())

	for name, test := range map[string]struct {
		options devserver.Options
		want    []string
	}{
		"a namespace name that no header can carry": {devserver.Options{Namespaces: []string{"\u00fc"}}, []string{"Options.Namespaces[0] is \"\u00fc\"", "printable ASCII"}},
		"the same port twice":                       {devserver.Options{Port: 17233, UIPort: 17233}, []string{"both 17233"}},
		"somebody else's database":                  {devserver.Options{DatabaseFile: foreign}, []string{"foreign.db", "no Temporal server's", "songs"}},
		"an empty namespace name":                   {devserver.Options{Namespaces: []string{"a", ""}}, []string{"Options.Namespaces[1] is empty"}},
		"a port beyond the last":                    {devserver.Options{Port: 65536}, []string{"port 65536 does not exist", "1 to 65535"}},
		"a UI port before the first":                {devserver.Options{UIPort: -2}, []string{"port -2 does not exist", "-1 for a free port"}},
		"a database in a missing directory":         {devserver.Options{DatabaseFile: filepath.Join(t.TempDir(), "missing", "dev.db")}, []string{"missing/dev.db", "a directory that exists"}},
		"a database file that is not SQLite":        {devserver.Options{DatabaseFile: notSQLite}, []string{"notes.txt", "file is not a database"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := devserver.Start(testContext(t), test.options)
			for _, want := range append(test.want, "devserver: start: ") {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestPortInUseIsOneClearError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port

	for name, options := range map[string]devserver.Options{
		"the server's": {Port: port},
		"the UI's":     {UIPort: port},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := devserver.Start(testContext(t), options)
			require.ErrorIs(t, err, syscall.EADDRINUSE)
			require.ErrorContains(t, err, "port "+strconv.Itoa(port)+" on 127.0.0.1 is in use")
			require.ErrorContains(t, err, "choose another port")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestEndedContextStopsTheStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := devserver.Start(ctx, devserver.Options{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "devserver: start: ")

	// Ending it halfway leaves nothing on the port.
	port := freePort(t)
	ctx, cancel = context.WithCancel(t.Context())
	_, err = devserver.Start(ctx, devserver.Options{Port: port, Logger: slog.New(cancelOnFirstRecord{cancel})})
	require.ErrorIs(t, err, context.Canceled)
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	require.NoError(t, err)
	require.NoError(t, listener.Close())
}

// cancelOnFirstRecord is a log handler that cancels a context as soon as the server says anything.
type cancelOnFirstRecord struct{ cancel context.CancelFunc }

func (h cancelOnFirstRecord) Enabled(context.Context, slog.Level) bool { return true }
func (h cancelOnFirstRecord) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h cancelOnFirstRecord) WithGroup(string) slog.Handler            { return h }
func (h cancelOnFirstRecord) Handle(context.Context, slog.Record) error {
	h.cancel()
	return nil
}

func TestStopFreesThePortsAndMayBeCalledAgain(t *testing.T) {
	port, uiPort := freePort(t), freePort(t)
	server, err := devserver.Start(testContext(t), devserver.Options{Port: port, UIPort: uiPort})
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:"+strconv.Itoa(port), server.HostPort())
	require.Equal(t, "http://127.0.0.1:"+strconv.Itoa(uiPort), server.UIURL())

	var group sync.WaitGroup
	for range 3 {
		group.Go(func() { assert.NoError(t, server.Stop()) })
	}
	group.Wait()

	for _, port := range []int{port, uiPort} {
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		require.NoError(t, err, "the port is free again as soon as Stop returns")
		require.NoError(t, listener.Close())
	}
	again := startServer(t, devserver.Options{Port: port, UIPort: uiPort})
	require.Equal(t, server.HostPort(), again.HostPort())
}

// alone, set in its environment, tells a test that it has the process to itself.
const alone = "DEVSERVER_TEST_ALONE"

func TestStoppedServersLeaveFiveGoroutinesEach(t *testing.T) {
	if os.Getenv(alone) == "" {
		// Elsewhere the shared server's goroutines would come and go in the count.
		executable, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.CommandContext(testContext(t), executable, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1")
		output, err := cmd.CombinedOutput()
		require.NoError(t, err, string(output))
		require.Contains(t, string(output), "--- PASS: "+t.Name())
		return
	}
	const servers = 3
	before := runtime.NumGoroutine()
	for range servers {
		server, err := devserver.Start(testContext(t), devserver.Options{UIPort: devserver.FreePort})
		require.NoError(t, err)
		get(t, server.UIURL()+"/api/v1/namespaces")
		require.NoError(t, server.Stop())
	}
	// Nothing outside the server can end those five: see Stop.
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.LessOrEqual(t, runtime.NumGoroutine(), before+1+5*servers) // one is EventuallyWithT's
	}, patience, 10*time.Millisecond)
}

func TestOptionsLoggerGetsTheServersLog(t *testing.T) {
	var buffer lockedBuffer
	startServer(t, devserver.Options{Logger: slog.New(slog.NewTextHandler(&buffer, nil))})
	require.Contains(t, buffer.String(), "frontend starting")
	require.Contains(t, buffer.String(), "service=frontend")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestWebUIServesThePageAndTheAPI(t *testing.T) {
	server := sharedServer(t)

	page, header := get(t, server.UIURL()+"/")
	require.Contains(t, header.Get("Content-Type"), "text/html")
	require.Contains(t, strings.ToLower(page), "<!doctype html>")

	body, _ := get(t, server.UIURL()+"/api/v1/namespaces")
	var list struct {
		Namespaces []struct {
			NamespaceInfo struct{ Name string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &list), body)
	var names []string
	for _, namespace := range list.Namespaces {
		names = append(names, namespace.NamespaceInfo.Name)
	}
	require.Subset(t, names, []string{callers, tools})

	body, _ = get(t, server.UIURL()+"/api/v1/settings")
	require.Contains(t, body, `"DisableNewsFetch":true`)
}

func get(t *testing.T, url string) (string, http.Header) {
	t.Helper()
	request, err := http.NewRequestWithContext(testContext(t), http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Close = true // an idle connection would be a goroutine that other tests count
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	return string(body), response.Header
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
