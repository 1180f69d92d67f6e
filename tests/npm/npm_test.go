package npm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`

func TestEveryServerAnswersOverStdio(t *testing.T) {
	for server, args := range map[string][]string{
		ServerEverything: nil,
		ServerFilesystem: {t.TempDir()},
		ServerMemory:     nil,
	} {
		t.Run(server, func(t *testing.T) {
			program, arguments := Command(t, server, args...)
			assert.True(t, filepath.IsAbs(arguments[0]), arguments[0])

			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, arguments...)
			cmd.Env = append(os.Environ(), "MEMORY_FILE_PATH="+filepath.Join(t.TempDir(), "memory.jsonl"))
			stdin, err := cmd.StdinPipe()
			require.NoError(t, err)
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())

			_, err = fmt.Fprintln(stdin, initialize)
			require.NoError(t, err)
			line, err := bufio.NewReader(stdout).ReadBytes('\n')
			require.NoError(t, err)
			requireInitialized(t, line)

			// If what was started were only something that starts the server, the server
			// would outlive it and hold its output open.
			require.NoError(t, cmd.Process.Kill())
			defer context.AfterFunc(ctx, func() { stdout.Close() })()
			_, err = io.Copy(io.Discard, stdout)
			assert.NoError(t, err)
			assert.Error(t, cmd.Wait())
		})
	}
}

func requireInitialized(t *testing.T, answer []byte) {
	t.Helper()
	var initialized struct {
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	require.NoError(t, json.Unmarshal(answer, &initialized), "%s", answer)
	assert.Equal(t, "2025-11-25", initialized.Result.ProtocolVersion)
}

func TestServerEverythingAnswersOverStreamableHTTP(t *testing.T) {
	server := ServeEverything(t, StreamableHTTP)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(initialize))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)

	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && data != "" {
			requireInitialized(t, []byte(data))
			return
		}
	}
	require.Fail(t, "no answer", lines.Err())
}

func TestServerEverythingAnswersOverSSE(t *testing.T) {
	server := ServeEverything(t, SSE)

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "event: endpoint\n", line)
}

func TestServersOverHTTPDoNotShareAPort(t *testing.T) {
	assert.NotEqual(t, ServeEverything(t, StreamableHTTP).URL, ServeEverything(t, StreamableHTTP).URL)
}

func TestAServerOverHTTPIsOnTheLoopbackOnly(t *testing.T) {
	address, err := url.Parse(ServeEverything(t, StreamableHTTP).URL)
	require.NoError(t, err)

	interfaces, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, each := range interfaces {
		network, ok := each.(*net.IPNet)
		if !ok || network.IP.IsLoopback() || network.IP.IsLinkLocalUnicast() {
			continue
		}
		connection, err := net.DialTimeout("tcp", net.JoinHostPort(network.IP.String(), address.Port()), time.Second)
		if !assert.Error(t, err, network.IP) {
			connection.Close()
		}
	}
}

func TestAKilledServerIsGone(t *testing.T) {
	server := ServeEverything(t, StreamableHTTP)
	server.Kill()
	server.Kill()

	address, err := url.Parse(server.URL)
	require.NoError(t, err)
	_, err = net.Dial("tcp", address.Host)
	assert.Error(t, err)
}

func TestAServerEndsWithTheTestsHoweverTheyEnd(t *testing.T) {
	const child = "NEXUSMCP_TEST_SERVE_UNTIL_KILLED"
	if os.Getenv(child) != "" {
		fmt.Println(ServeEverything(t, StreamableHTTP).URL)
		select {}
	}
	Install(t)
	self, err := os.Executable()
	require.NoError(t, err)
	process := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	process.Env = append(os.Environ(), child+"=1")
	stdout, err := process.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, process.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	address, err := url.Parse(strings.TrimSpace(line))
	require.NoError(t, err)
	connection, err := net.Dial("tcp", address.Host)
	require.NoError(t, err)
	connection.Close()

	require.NoError(t, process.Process.Kill())
	assert.Error(t, process.Wait())
	assert.Eventually(t, func() bool {
		connection, err := net.Dial("tcp", address.Host)
		if err == nil {
			connection.Close()
		}
		return err != nil
	}, time.Minute, 10*time.Millisecond)
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	node, args := Command(t, ServerEverything, "telepathy")
	_, err := serve(exec.Command(node, args...), "/mcp")
	assert.ErrorContains(t, err, "it ended before it listened\n")
	assert.ErrorContains(t, err, "Unknown transport: telepathy")
}

func TestAMissingProgramIsNamedInOneLine(t *testing.T) {
	for _, missing := range []string{"node", "npm"} {
		t.Run(missing, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				t.Skip("the test puts shell scripts on the PATH, which Windows does not run")
			}
			dir := t.TempDir()
			for _, program := range []string{"node", "npm"} {
				if program != missing {
					require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho v20.0.0\n"), 0o755))
				}
			}
			t.Setenv("PATH", dir)

			err := checkNode()
			require.ErrorContains(t, err, missing+" is missing: ")
			assert.ErrorContains(t, err, "install Node.js 20")
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestAnOldNodeIsNamedInOneLine(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the test puts shell scripts on the PATH, which Windows does not run")
	}
	for version, ok := range map[string]bool{
		"v18.20.8": false, "v20.0.0": true, "v21.7.3": false, "v22.12.0": true, "v100.0.0": true, "nonsense": false,
	} {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			for _, program := range []string{"node", "npm"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\necho "+version+"\n"), 0o755))
			}
			t.Setenv("PATH", dir)

			err := checkNode()
			if ok {
				assert.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "node is "+version+", which is not enough: ")
			assert.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestTheLockFileNamesNoHost(t *testing.T) {
	text, err := os.ReadFile("package-lock.json")
	require.NoError(t, err)
	assert.NotContains(t, string(text), "://", `"npm run relock" takes addresses out`)

	var lock struct {
		Packages map[string]struct {
			Integrity        string
			HasInstallScript bool
		}
	}
	require.NoError(t, json.Unmarshal(text, &lock))
	require.NotEmpty(t, lock.Packages)
	for name, pkg := range lock.Packages {
		if name == "" {
			continue
		}
		assert.NotEmpty(t, pkg.Integrity, "%s: without an address it takes a checksum to know what is installed", name)
		assert.False(t, pkg.HasInstallScript, "%s: .npmrc keeps install scripts from running", name)
	}
}

func TestThePackageSaysWhatItsProgramIs(t *testing.T) {
	for _, row := range []struct {
		name, bin, script, problem string
	}{
		{name: "a script", bin: `"dist/main.js"`, script: "dist/main.js"},
		{name: "one command of any name", bin: `{"start":"main.js"}`, script: "main.js"},
		{name: "the command with the package's name", bin: `{"start":"a.js","server":"b.js"}`, script: "b.js"},
		{name: "no command with the package's name", bin: `{"start":"a.js","stop":"b.js"}`, problem: "has 2 programs, none of them called server"},
		{name: "no program", bin: `null`, problem: "has no program to run"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := folder(t.TempDir())
			writeJSON(t, f, "node_modules/@scope/server/package.json", map[string]any{"bin": json.RawMessage(row.bin)})

			script, err := f.script("@scope/server")
			if row.problem != "" {
				require.ErrorContains(t, err, "npm package @scope/server "+row.problem)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, filepath.Join(string(f), "node_modules", "@scope", "server", filepath.FromSlash(row.script)), script)
		})
	}

	_, err := folder(t.TempDir()).script("@scope/server")
	assert.ErrorContains(t, err, "npm package @scope/server is not installed")
}
