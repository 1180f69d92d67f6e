package handler

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// InProcess reaches a server that lives in the worker's own process.
type InProcess struct {
	// Server is the server. Required. It may also be published elsewhere.
	Server *mcp.Server
}

func (t InProcess) validate() []fieldError {
	if t.Server == nil {
		return []fieldError{{"Server", "is nil"}}
	}
	return nil
}

func (t InProcess) open(ctx context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	// The SDK's own in-memory transport, with the limit on messages that the
	// other transports have.
	ours, theirs := net.Pipe()
	// The session ends when our side of it closes.
	if _, err := t.Server.Connect(context.WithoutCancel(ctx), &mcp.IOTransport{Reader: theirs, Writer: theirs, MaxLineLength: -1}, nil); err != nil {
		return nil, err
	}
	lines := &messageLines{in: bufio.NewReaderSize(ours, 64<<10), logger: env.logger, limit: env.limit}
	return &mcp.IOTransport{Reader: struct {
		io.Reader
		io.Closer
	}{lines, ours}, Writer: ours, MaxLineLength: -1}, nil
}

func (InProcess) takesArgument() bool { return false }
