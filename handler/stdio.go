package handler

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/log"
)

const (
	// terminateAfter is how long a process gets to end by itself after its stdin
	// closed, and again after SIGTERM, before it is killed. The specification
	// asks for "a reasonable time":
	// https://modelcontextprotocol.io/specification/2025-11-25/basic/lifecycle#stdio
	terminateAfter = 2 * time.Second
	// stderrLine is the most bytes of one line of a server's stderr that are logged.
	stderrLine = 4 << 10
)

// stdioTransport runs a command and speaks newline-delimited JSON with it.
//
// It stands in for the SDK's [mcp.CommandTransport], which gives a connection
// up over anything on stdout that is no message. Servers do print there: a
// banner, a log line, a library's warning. Such a line is logged and skipped.
// It also ends the whole process group: a server started by a shell or by npx
// is not the process that was started, but its child.
type stdioTransport struct {
	cmd    *exec.Cmd
	logger log.Logger
	limit  int64
}

// Connect implements [mcp.Transport]: it starts the process.
func (t *stdioTransport) Connect(ctx context.Context) (mcp.Connection, error) {
	stdin, err := t.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// Pipes of our own: Wait closes the exec package's, and with them an answer
	// that the process wrote before it ended.
	stdout, stdoutWriter, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	stderr, stderrWriter, err := os.Pipe()
	if err != nil {
		stdout.Close()
		stdoutWriter.Close()
		return nil, err
	}
	t.cmd.Stdout, t.cmd.Stderr = stdoutWriter, stderrWriter
	ownProcessGroup(t.cmd)
	err = t.cmd.Start()
	stdoutWriter.Close()
	stderrWriter.Close()
	if err != nil {
		stdin.Close()
		stdout.Close()
		stderr.Close()
		return nil, err
	}

	p := &process{cmd: t.cmd, stdin: stdin, stdout: stdout, stderr: stderr, exited: make(chan struct{})}
	go func() {
		p.exitErr = t.cmd.Wait()
		close(p.exited)
	}()
	go logLines(stderr, t.logger)
	lines := &messageLines{in: bufio.NewReaderSize(stdout, 64<<10), logger: t.logger, limit: t.limit}
	return (&mcp.IOTransport{
		Reader: struct {
			io.Reader
			io.Closer
		}{lines, p},
		Writer:        stdin,
		MaxLineLength: -1, // messageLines has the limit
	}).Connect(ctx)
}

type process struct {
	cmd            *exec.Cmd
	stdin          io.Closer
	stdout, stderr io.Closer

	closeOnce sync.Once
	exited    chan struct{}
	exitErr   error // valid after exited
}

// Close ends the process the way the specification asks for: it closes stdin,
// then sends SIGTERM, then kills, with time in between. It takes at most three
// times [terminateAfter].
func (p *process) Close() error {
	p.closeOnce.Do(func() {
		p.stdin.Close()
		if !p.endsWithin(terminateAfter) {
			terminateGroup(p.cmd.Process)
			if !p.endsWithin(terminateAfter) {
				killGroup(p.cmd.Process)
				p.endsWithin(terminateAfter)
			}
		}
		// What the process left behind in its group goes with it.
		killGroup(p.cmd.Process)
		p.stdout.Close()
		p.stderr.Close()
	})
	return nil
}

func (p *process) endsWithin(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// logLines logs a server's stderr line by line. It always reads on: a server
// whose stderr is full stands still.
func logLines(stderr io.Reader, logger log.Logger) {
	in := bufio.NewReaderSize(stderr, stderrLine)
	for {
		line, err := in.ReadSlice('\n')
		if text := bytes.TrimRight(line, "\r\n"); len(text) > 0 {
			logger.Info("MCP server stderr", "line", string(text))
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// messageLines passes on the lines of a server's stdout that are JSON-RPC
// messages. The specification allows nothing else there, but see
// [stdioTransport].
type messageLines struct {
	in     *bufio.Reader
	logger log.Logger
	limit  int64
	out    []byte
}

// Read implements [io.Reader].
func (m *messageLines) Read(p []byte) (int, error) {
	for len(m.out) == 0 {
		line, size, err := m.line()
		if err != nil {
			// A line without an end is an answer that was cut off.
			if len(line) > 0 && errors.Is(err, io.EOF) {
				return 0, io.ErrUnexpectedEOF
			}
			return 0, err
		}
		m.out = m.judge(line, size)
	}
	n := copy(p, m.out)
	m.out = m.out[n:]
	return n, nil
}

// line reads a line, of which it keeps no more than the limit.
func (m *messageLines) line() (line []byte, size int64, err error) {
	for {
		part, err := m.in.ReadSlice('\n')
		size += int64(len(part))
		if room := m.limit + 1 - int64(len(line)); room > 0 {
			line = append(line, part[:min(int64(len(part)), room)]...)
		}
		if err != bufio.ErrBufferFull {
			return line, size, err
		}
	}
}

// judge returns what the SDK shall see of a line: the message, a verdict on it,
// or nothing.
func (m *messageLines) judge(line []byte, size int64) []byte {
	text := bytes.TrimSpace(line)
	if len(text) == 0 {
		return nil
	}
	var v verdict
	switch {
	case size > m.limit:
		v.Size = size
	case isBatch(text):
		return line
	default:
		var message struct {
			JSONRPC string `json:"jsonrpc"`
			answer
		}
		err := json.Unmarshal(text, &message)
		if err == nil && message.JSONRPC == "2.0" {
			return line
		}
		if err == nil {
			err = errors.New(`no "jsonrpc": "2.0"`)
		}
		v.Problem = fmt.Sprintf("not a JSON-RPC message: %v", err)
	}
	// Only an answer names an ID, and no request of ours has another form of it.
	if match := responseID.FindSubmatch(text[:min(len(text), stderrLine)]); match != nil && bytes.Contains(text, []byte(`"jsonrpc"`)) {
		return append(v.answer(string(match[1])), '\n')
	}
	m.logger.Warn("MCP server wrote something else than a message to stdout; skipped", "line", string(text[:min(len(text), stderrLine)]))
	return nil
}

// isBatch reports whether a line is a batch of messages, which protocol versions
// before 2025-06-18 allow.
func isBatch(line []byte) bool {
	var batch []struct {
		JSONRPC string `json:"jsonrpc"`
	}
	if line[0] != '[' || json.Unmarshal(line, &batch) != nil {
		return false
	}
	for _, message := range batch {
		if message.JSONRPC != "2.0" {
			return false
		}
	}
	return len(batch) > 0
}

var responseID = regexp.MustCompile(`"id"\s*:\s*([0-9]{1,18})\b`)
