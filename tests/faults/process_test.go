//go:build unix

package faults

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/internal/asprocess"
	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

// patience is how long something may take that should happen at once, on a busy
// machine: the Temporal server leaves an endpoint alone for a minute after a few
// requests in a row that failed, which on such a machine they may.
const patience = slowdown * 2 * time.Minute

// A process is one that a test starts. It ends with its test, and with the test binary,
// however that ends.
type process struct {
	name   string
	cmd    *exec.Cmd
	ready  chan struct{} // closed when the first line was printed
	exited chan struct{}

	mu     sync.Mutex
	lines  []string // of stdout
	stderr bytes.Buffer
}

// launch starts a program with its configuration in a variable of its environment, and
// returns when it has printed its first line.
func launch(t *testing.T, program, name, variable string, config any) *process {
	t.Helper()
	p := &process{name: name, cmd: exec.Command(program), ready: make(chan struct{}), exited: make(chan struct{})}
	p.cmd.Env = os.Environ()
	for name, value := range asprocess.Environ(variable, config) {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	// Whatever happens to the test binary, the process sees the end of its stdin.
	_, err := p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.cmd.Stderr = (*processLog)(p)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.exited)
		first := sync.OnceFunc(func() { close(p.ready) })
		for lines := bufio.NewScanner(stdout); lines.Scan(); first() {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		_ = p.cmd.Wait() // how it ended is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill(t)
		p.mu.Lock()
		defer p.mu.Unlock()
		if strings.Contains(p.stderr.String(), "DATA RACE") {
			t.Errorf("%s, process %d, has a data race", name, p.cmd.Process.Pid)
		}
		if t.Failed() && p.stderr.Len() > 0 {
			t.Logf("stderr of %s, process %d:\n%s", name, p.cmd.Process.Pid, p.stderr.String())
		}
	})
	select {
	case <-p.ready:
	case <-p.exited:
		require.FailNowf(t, "ended at once", "%s: %v", name, p.cmd.ProcessState)
	case <-time.After(2 * patience):
		require.FailNow(t, "not ready", name)
	}
	return p
}

// processLog keeps what a process writes to stderr.
type processLog process

// Write implements [io.Writer].
func (p *processLog) Write(data []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(data)
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// said returns the lines that the process has printed.
func (p *process) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[:len(p.lines):len(p.lines)]
}

// kill ends the process with SIGKILL, if it has not ended yet.
func (p *process) kill(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Kill() // it may have ended
	p.wait(t)
}

// stop sends SIGTERM and waits until the process has ended, in good order.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if !p.running() {
		return
	}
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.wait(t)
	require.True(t, p.cmd.ProcessState.Success(), "%s: %v", p.name, p.cmd.ProcessState)
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(2 * patience):
		require.FailNowf(t, "does not end", "%s, process %d", p.name, p.pid())
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// alive reports whether there is a process of that ID, also one that is not the
// test's own child.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// lostAnswers counts the answers that a worker has lost.
func (p *process) lostAnswers() int {
	return strings.Count(strings.Join(p.said(), "\n"), workers.AnswerLost)
}
