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
	// maxSkippedLogged is how many lines of a connection that are no messages are
	// logged, each cut as those of stderr.
	maxSkippedLogged = 20
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
	p := &process{cmd: t.cmd, exited: make(chan struct{}), logged: make(chan struct{})}
	if err := p.start(); err != nil {
		return nil, err
	}
	go func() {
		p.exitErr = t.cmd.Wait()
		close(p.exited)
	}()
	go func() {
		defer close(p.logged)
		logLines(p.stderr, t.logger)
	}()
	lines := &messageLines{in: bufio.NewReaderSize(p.stdout, 64<<10), logger: t.logger, limit: t.limit, ended: p.ended}
	return (&mcp.IOTransport{
		Reader: struct {
			io.Reader
			io.Closer
		}{lines, p},
		Writer:        p.stdin,
		MaxLineLength: -1, // messageLines has the limit
	}).Connect(ctx)
}

type process struct {
	cmd                   *exec.Cmd
	stdin, stdout, stderr *os.File

	closeOnce sync.Once
	exited    chan struct{}
	exitErr   error         // valid after exited
	logged    chan struct{} // closed when all of stderr is in the log
}

// start starts the process with pipes of our own: Wait would close the exec
// package's, and lose an answer that the process wrote before it ended.
func (p *process) start() error {
	var opened []*os.File
	closeAll := func() {
		for _, f := range opened {
			f.Close()
		}
	}
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			opened = append(opened, r, w)
		}
		return r, w, err
	}
	stdin, ours, err1 := pipe()
	p.stdin = ours
	ours, stdout, err2 := pipe()
	p.stdout = ours
	ours, stderr, err3 := pipe()
	p.stderr = ours
	if err := errors.Join(err1, err2, err3); err != nil {
		closeAll()
		return err
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = stdin, stdout, stderr
	ownProcessGroup(p.cmd)
	if err := p.cmd.Start(); err != nil {
		closeAll()
		return err
	}
	for _, theirs := range []*os.File{stdin, stdout, stderr} {
		theirs.Close()
	}
	return nil
}

// ended says why the process's output came to an end.
func (p *process) ended() error {
	if !p.endsWithin(terminateAfter / 4) {
		return fmt.Errorf("the process closed its stdout: %w", io.EOF)
	}
	if p.exitErr == nil {
		return fmt.Errorf("the process ended: %w", io.EOF)
	}
	return fmt.Errorf("the process ended with %v: %w", p.exitErr, io.EOF)
}

// Close ends the process the way the specification asks for: it closes stdin,
// then sends SIGTERM, then kills, with time in between. It takes at most four
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
		// Its last words are the most interesting. Only a child that left the group
		// can still hold stderr open.
		select {
		case <-p.logged:
		case <-time.After(terminateAfter):
		}
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
	ended  func() error // says why the output ended; nil when that is plain
	out    []byte
	// skipped counts the lines that were no messages.
	skipped int
}

// Read implements [io.Reader].
func (m *messageLines) Read(p []byte) (int, error) {
	for len(m.out) == 0 {
		line, size, id, err := m.line()
		switch {
		case err == nil:
			m.out = m.judge(line, size, id)
		case errors.Is(err, io.EOF) && m.whole(line):
			m.out = append(line, '\n') // all of it but its end
		case errors.Is(err, io.EOF) && m.ended != nil:
			return 0, m.ended()
		case errors.Is(err, io.EOF) && len(line) > 0:
			return 0, io.ErrUnexpectedEOF
		default:
			return 0, err
		}
	}
	n := copy(p, m.out)
	m.out = m.out[n:]
	return n, nil
}

// line reads a line, of which it keeps no more than the limit. The ID is that
// of an answer, if the line looks like one.
func (m *messageLines) line() (line []byte, size int64, id func() (string, bool), err error) {
	var scan topLevel
	for {
		part, err := m.in.ReadSlice('\n')
		size += int64(len(part))
		if size <= m.limit {
			line = append(line, part...)
		} else {
			scan.feed(line)
			scan.feed(part)
			line = line[:0]
		}
		if err != bufio.ErrBufferFull {
			return line, size, func() (string, bool) { scan.feed(line); return scan.answerID() }, err
		}
	}
}

// judge returns what the SDK shall see of a line: the message, a verdict on it,
// or nothing.
func (m *messageLines) judge(line []byte, size int64, id func() (string, bool)) []byte {
	text := bytes.TrimSpace(line)
	var v verdict
	switch {
	case size > m.limit:
		v.Size = size
	case len(text) == 0:
		return nil
	case text[0] == '[':
		// Protocol versions before 2025-06-18 have batches. The SDK keeps to some
		// rules about them; one by one, their messages need none.
		if batch, ok := unpack(text); ok {
			return batch
		}
		v.Problem = "not a batch of JSON-RPC messages"
	default:
		_, err := decodeAnswer(text)
		if err == nil {
			return line
		}
		v.Problem = err.Error()
	}
	if id, ok := id(); ok {
		return append(v.answer(id), '\n')
	}
	switch m.skipped++; {
	case m.skipped <= maxSkippedLogged:
		m.logger.Warn("MCP server wrote something else than a message to stdout; skipped", "bytes", size, "line", string(text[:min(len(text), stderrLine)]))
	case m.skipped == maxSkippedLogged+1:
		m.logger.Warn("MCP server goes on writing something else than messages to stdout; skipped, and not logged any more")
	}
	return nil
}

// unpack makes lines of a batch.
func unpack(batch []byte) (lines []byte, ok bool) {
	var messages []json.RawMessage
	if json.Unmarshal(batch, &messages) != nil || len(messages) == 0 {
		return nil, false
	}
	for _, message := range messages {
		if _, err := decodeAnswer(message); err != nil {
			return nil, false
		}
		lines = append(append(lines, encode(message)...), '\n')
	}
	return lines, true
}

// whole reports whether the last line is a message that only lacks its end.
func (m *messageLines) whole(line []byte) bool {
	_, err := decodeAnswer(line)
	return err == nil
}
