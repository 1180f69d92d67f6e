package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asCommand, set in its environment, makes this test binary the command itself.
const asCommand = "DEVSERVER_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// command prepares the command in a process of its own, which ends with the test at the latest.
func command(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), executable, arguments...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.WaitDelay = time.Minute
	return cmd
}

func TestCommandTellsHowToReachTheServerAndStopsOnASignal(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := command(t, "-port", "-1", "-ui-port", "-1", "-namespace", "one", "-namespace", "two")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			stdout, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())

			var lines []string
			for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
				lines = append(lines, scanner.Text())
				if strings.HasPrefix(scanner.Text(), "Ctrl-C") {
					break
				}
			}
			said := strings.Join(lines, "\n")
			address := regexp.MustCompile(`(?m)^Address +(127\.0\.0\.1:\d+)$`).FindStringSubmatch(said)
			require.NotNil(t, address, said)
			ui := regexp.MustCompile(`(?m)^Web UI +(http://127\.0\.0\.1:\d+)$`).FindStringSubmatch(said)
			require.NotNil(t, ui, said)
			require.Contains(t, said, "one, two")
			require.Contains(t, said, "temporal workflow list --address "+address[1]+" --namespace one")
			response, err := http.Get(ui[1])
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, http.StatusOK, response.StatusCode)

			require.NoError(t, cmd.Process.Signal(signal))
			rest, err := io.ReadAll(stdout)
			require.NoError(t, err)
			require.NoError(t, cmd.Wait(), "exit code 0")
			require.Empty(t, string(rest))
			require.Empty(t, stderr.String())
		})
	}
}

func TestCommandEndsWithOneLineWhenItsPortIsInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)

	cmd := command(t, "-port", port, "-ui-port", "0")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Run(), &exit)
	require.Equal(t, exitFailed, exit.ExitCode())
	require.Empty(t, stdout.String())
	require.Equal(t, 1, strings.Count(stderr.String(), "\n"), stderr.String())
	require.Contains(t, stderr.String(), "port "+port+" on 127.0.0.1 is in use")
}

func TestCommandRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, test := range map[string]struct {
		arguments []string
		code      int
		want      string
	}{
		"an unknown flag": {[]string{"-colour", "red"}, exitUsage, "-colour"},
		"an argument":     {[]string{"start"}, exitUsage, `unexpected argument "start"`},
		"help":            {[]string{"-h"}, exitOK, "-ui-port"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			require.Equal(t, test.code, run(t.Context(), test.arguments, &stdout, &stderr))
			require.Contains(t, stderr.String(), test.want)
			require.Empty(t, stdout.String())
		})
	}
}
