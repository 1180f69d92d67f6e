package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.temporal.io/sdk/workflow"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// stdioBlock is how many calls follow each other before it is the other server's
// turn. With one, a process could start during the other's call.
const stdioBlock = 10

// legacyVersion is the newest protocol version with sessions, which calls do not
// share.
const legacyVersion = "2025-11-25"

// compareStdio compares a stdio server that needs a process for each call with the
// same server in one process.
func (b *bed) compareStdio(ctx context.Context, rounds int, out io.Writer) (*float64, error) {
	ls, err := b.newLanes(ctx,
		b.library("process for each call", exclusiveService, mcpnexus.ExecutionInline),
		b.library("one process", sharedService, mcpnexus.ExecutionInline),
		b.library("one process, again", sharedService, mcpnexus.ExecutionInline),
	)
	if err != nil {
		return nil, err
	}
	params := textParams(kilobyte)
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
	ls.write(out, fmt.Sprintf("A stdio server of protocol version %s, results of 1 KB (%d rounds of %d calls)", legacyVersion, rounds, stdioBlock), "MEDIAN MS", "one process")
	took, err := b.startUp(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "Starting its process and the handshake take %v.\n", took.Round(100*time.Microsecond))
	return ratio(ls[0], ls[1])
}

// startUp returns how long the process takes until it can be called.
func (b *bed) startUp(ctx context.Context) (time.Duration, error) {
	var took samples
	for range 5 {
		began := time.Now()
		client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
		session, err := client.Connect(ctx, &mcp.CommandTransport{Command: exec.CommandContext(ctx, b.tool.program)}, &mcp.ClientSessionOptions{ProtocolVersion: legacyVersion})
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
