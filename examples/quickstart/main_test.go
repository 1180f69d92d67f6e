package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the repository's.
func root(t *testing.T) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	require.True(t, ok)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// build builds the program as go run does.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "quickstart")
	cmd := exec.Command("go", "build", "-o", program, "./examples/quickstart")
	cmd.Dir = root(t)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return program
}

func TestTheQuickstartShowsTheWholePathAndLeavesNothingRunning(t *testing.T) {
	cmd := exec.Command("go", "run", "./examples/quickstart")
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	assert.Empty(t, stderr.String())
	for _, want := range []string{
		`in memory, namespaces "platform" and "app"`,
		`endpoint "mcp": created`,
		`weather   streamable HTTP at http://127.0.0.1:`,
		`Workflow plan-trip in namespace "app" called:`,
		`3 tools: get_weather, pack, study_climate`,
		`{"city":"Oslo","sky":"clear","temperature":-3.5}`,
		`"mittens"`,
		`library  read-resource  library://catalogue`,
		`"Recommend a book for a clear evening."`,
		`tool error (isError true): "no weather station in Atlantis"`,
		`MCPProtocolError -32602, retryable false`,
		`call-tools`,
		`2 of 3 cities have a weather station`,
		`"colder in winter"`,
		`9 calls, 54 history events in all.`,
	} {
		assert.Contains(t, string(out), want)
	}
	assert.Len(t, regexp.MustCompile(`(?m)^(weather|library) .* [0-9.]+m?s +5 `).FindAllString(string(out), -1), 8, "eight calls, with their time, of five events each")
	assert.Regexp(t, `(?m)^weather +call-tool +study_climate +3\.[0-9]+s +9 `, string(out), "and one that was handed off")
	for _, address := range regexp.MustCompile(`127\.0\.0\.1:[0-9]+`).FindAllString(string(out), -1) {
		_, err := net.DialTimeout("tcp", address, time.Second)
		assert.Error(t, err, "%s still listens", address)
	}
}

func TestWithUITheQuickstartStaysUntilItIsInterrupted(t *testing.T) {
	cmd := exec.Command(build(t), "--ui", "--ui-port", fmt.Sprint(freePort(t)))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()

	link := regexp.MustCompile(`^Web UI +(http://\S+)$`)
	url, last := "", ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		last = lines.Text()
		if match := link.FindStringSubmatch(last); match != nil {
			url = match[1]
			resp, err := http.Get(url)
			require.NoError(t, err)
			resp.Body.Close()
			assert.Equal(t, http.StatusOK, resp.StatusCode)
		}
		if strings.Contains(last, "Ctrl-C") {
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		}
	}
	require.NoError(t, cmd.Wait(), stderr.String())
	assert.NotEmpty(t, url)
	assert.Equal(t, "Stopped.", last)
	assert.Empty(t, stderr.String())
	_, err = http.Get(url)
	assert.Error(t, err, "the UI is gone")
}

func TestAPortInUseEndsInOneLine(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := fmt.Sprint(taken.Addr().(*net.TCPAddr).Port)
	for _, arguments := range [][]string{{"--port", port}, {"--ui", "--ui-port", port}} {
		var out, errOut bytes.Buffer
		assert.Equal(t, 1, execute(t.Context(), arguments, &out, &errOut))
		assert.Empty(t, out.String())
		assert.Equal(t, 1, strings.Count(errOut.String(), "\n"), errOut.String())
		assert.Contains(t, errOut.String(), port)
		assert.Contains(t, errOut.String(), "in use")
	}
}

func TestAnInterruptEndsInOneLine(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var errOut bytes.Buffer
	assert.Equal(t, 1, execute(ctx, nil, writer(func([]byte) { cancel() }), &errOut))
	assert.Equal(t, "quickstart: interrupted\n", errOut.String())
}

func TestArgumentsThatCannotBeRightEndInOneLine(t *testing.T) {
	for want, arguments := range map[string][]string{
		"-gui":            {"--gui"},
		`argument "fast"`: {"fast"},
		"--ui-port 0":     {"--ui", "--ui-port", "0"},
		"70000":           {"--port", "70000"},
	} {
		var out, errOut bytes.Buffer
		assert.Equal(t, 1, execute(t.Context(), arguments, &out, &errOut))
		assert.Contains(t, errOut.String(), want)
		assert.Equal(t, 1, strings.Count(errOut.String(), "\n"), errOut.String())
		assert.Empty(t, out.String())
	}
}

func TestHelpShowsTheFlags(t *testing.T) {
	var out, errOut bytes.Buffer
	assert.Equal(t, 0, execute(t.Context(), []string{"--help"}, &out, &errOut))
	assert.Contains(t, out.String(), "-ui-port")
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
