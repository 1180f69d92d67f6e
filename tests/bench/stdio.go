package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"

	"github.com/nexusmcp/nexusmcp/internal/rude"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// stdioBlock is how many calls follow each other before it is the other server's
// turn. With one, a process could start during the other's call.
const stdioBlock = 10

// compareStdio compares a stdio server that needs a process for each call with the
// same server in one process. The process is this program, see [rude.MainIfAsked].
func (b *bed) compareStdio(ctx context.Context, rounds int, out io.Writer) (*float64, error) {
	ls, err := b.newLanes(ctx,
		b.library("process for each call", exclusiveService, mcpnexus.ExecutionInline),
		b.library("one process", sharedService, mcpnexus.ExecutionInline),
		b.library("one process, again", sharedService, mcpnexus.ExecutionInline),
	)
	if err != nil {
		return nil, err
	}
	params := &mcp.CallToolParams{Name: "huge", Arguments: arguments{Bytes: kilobyte}}
	call := func(ctx workflow.Context, c calls) error {
		result, err := c.one(ctx, params)
		return checkText(result, err, kilobyte)
	}
	if err := b.warmUp(ctx, ls, call); err != nil {
		return nil, err
	}
	if err := b.inTurns(ctx, ls, rounds, 4, stdioBlock, call); err != nil {
		return nil, err
	}
	ls.write(out, fmt.Sprintf("A stdio server of protocol version 2025-11-25, results of 1 KB (%d rounds of %d calls)", rounds, stdioBlock), "MEDIAN MS", "one process")
	took, err := startUp(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Starting its process and the handshake take %v.\n", took.Round(100*time.Microsecond))
	return ratio(ls[0], ls[1])
}

// startUp returns how long the process takes until it can be called.
func startUp(ctx context.Context) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var took samples
	for range 5 {
		began := time.Now()
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = os.Environ()
		for name, value := range (rude.Options{Legacy: true}).Environ() {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
		if err != nil {
			return 0, err
		}
		took.addTime(time.Since(began))
		if err := session.Close(); err != nil {
			return 0, err
		}
	}
	return time.Duration(took.median() * float64(time.Millisecond)), nil
}
