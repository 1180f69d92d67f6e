//go:build unix

// Package faults tests that nothing is lost and nothing runs twice when things
// break: workers, MCP servers and the Temporal server are processes, which are
// killed, stopped, kept away and started again while calls are under way. Each
// test asserts what the caller's workflow gets, and how often the tool ran.
package faults

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/sdk/log"

	"github.com/nexusmcp/nexusmcp/examples/devserver"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// Namespaces of the two sides.
const (
	platformNamespace = "platform"
	appNamespace      = "app"
)

// shared is the Temporal server of all tests but those that break theirs. Each
// test has its own endpoint on it: the server stops calling one on which a few
// calls in a row have failed.
var shared *temporalServer

func TestMain(m *testing.M) {
	temporalMainIfAsked()
	flag.Parse()
	if slowdown > 1 && !*withRace {
		fmt.Println("faults: not run with the race detector beside other packages, see withRace")
		return
	}
	allAtOnce()
	os.Exit(runTests(m))
}

// withRace is for when nothing else runs. The suite's many processes must say in
// time that they live, and with the race detector, on a small machine, beside the
// tests of other packages, they do not.
var withRace = flag.Bool("with-race", false, "run although built with the race detector: takes several times as long")

// allAtOnce lets all tests run at the same time, unless the command line says how
// many. They spend their time waiting, the longest for a minute and a half. Those
// that are not long wait for a turn, see siteOptions.Long.
func allAtOnce() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "200") // the flag exists, and takes numbers
	}
}

func runTests(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "faults:", err)
		return 1
	}
	dir, err := os.MkdirTemp("", "nexusmcp-faults-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if err := build(ctx, dir); err != nil {
		return fail(err)
	}
	server, err := devserver.Start(ctx, devserver.Options{Namespaces: []string{platformNamespace, appNamespace}})
	if err != nil {
		return fail(err)
	}
	defer server.Stop()
	if shared, err = connect(ctx, server.HostPort()); err != nil {
		return fail(err)
	}
	defer shared.close()
	return m.Run()
}

// Programs that tests start: an MCP server, and workers of both sides.
var serverProgram, workerProgram string

func build(ctx context.Context, dir string) error {
	arguments := []string{"build", "-o", dir}
	if slowdown > 1 {
		arguments = append(arguments, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(arguments, "./cmd/...")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the suite's programs with the go command: %w: %q", err, bytes.TrimSpace(out))
	}
	serverProgram, workerProgram = filepath.Join(dir, "effectsserver"), filepath.Join(dir, "worker")
	return nil
}

// newLogger returns a logger for the test process, where failing operations are
// what the tests are about.
func newLogger() log.Logger {
	level := slog.LevelError + 4
	if flag.Parsed() && testing.Verbose() {
		level = slog.LevelWarn
	}
	return log.NewStructuredLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})))
}

var unique atomic.Int64

// forEachExecution runs a test for calls that the handler may answer at once and
// for those that are durable from the beginning.
func forEachExecution(t *testing.T, test func(t *testing.T, execution mcpnexus.Execution)) {
	t.Parallel()
	for _, execution := range []mcpnexus.Execution{mcpnexus.ExecutionAuto, mcpnexus.ExecutionDurable} {
		t.Run(string(execution), func(t *testing.T) {
			t.Parallel()
			test(t, execution)
		})
	}
}

// A phase is how far a call has come when something breaks.
type phase struct {
	name      string
	execution mcpnexus.Execution
	// inline says that the call still runs within the Nexus request.
	inline bool
}

var phases = []phase{
	{"inline", mcpnexus.ExecutionAuto, true},
	{"handed off", mcpnexus.ExecutionAuto, false},
	{"durable", mcpnexus.ExecutionDurable, false},
}

func forEachPhase(t *testing.T, test func(t *testing.T, p phase)) {
	t.Parallel()
	for _, p := range phases {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// within waits until the answer is yes, and fails the test if it takes longer.
func within(t *testing.T, limit time.Duration, what string, yes func() bool) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for !yes() {
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// pass lets time pass that a test is about.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
