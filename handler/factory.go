package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A Factory makes the transport of each new connection, for what the other
// transports do not cover: an OAuth handler, a token that changes, a transport
// of one's own. It must be safe for concurrent use and heed ctx. An error makes
// the call fail with MCPTransportError; a non-retryable ApplicationError in it
// makes that non-retryable. Its text reaches the caller, without URLs and
// addresses, and so does that of an error of the transport's own.
//
// [New] calls it once to see that it returns a transport, which is then dropped
// without being connected. New waits for it at most 5 seconds; one that takes
// longer, or fails, may do better when it is needed.
type Factory func(ctx context.Context) (mcp.Transport, error)

func (f Factory) validate() []fieldError {
	if f == nil {
		return []fieldError{{"Transport", "is a nil Factory"}}
	}
	return try("a Factory", f)
}

func (f Factory) open(ctx context.Context, _ json.RawMessage, _ environment) (mcp.Transport, error) {
	return guard(func() (mcp.Transport, error) { return f(ctx) })
}

func (Factory) takesArgument() bool { return false }

// An ArgumentFactory is a [Factory] to which each caller may hand an argument:
// a tenant, an environment. The argument is the request option factoryArgument
// as JSON, or nil when the caller gave none. A call with an argument gets a
// connection of its own.
//
// The argument comes from the caller: check it before a URL or a command is
// made of it. It is recorded in the caller's history, so it never is a secret;
// the factory looks credentials up by it.
//
// [New] calls it once, without an argument, as it does a [Factory].
type ArgumentFactory func(ctx context.Context, argument json.RawMessage) (mcp.Transport, error)

func (f ArgumentFactory) validate() []fieldError {
	if f == nil {
		return []fieldError{{"Transport", "is a nil ArgumentFactory"}}
	}
	return try("an ArgumentFactory", func(ctx context.Context) (mcp.Transport, error) { return f(ctx, nil) })
}

func (f ArgumentFactory) open(ctx context.Context, argument json.RawMessage, _ environment) (mcp.Transport, error) {
	return guard(func() (mcp.Transport, error) { return f(ctx, argument) })
}

func (ArgumentFactory) takesArgument() bool { return true }

// factoryTrial is how long [New] waits for a factory.
const factoryTrial = 5 * time.Second

// try finds a factory that returns nothing.
func try(what string, f Factory) []fieldError {
	ctx, cancel := context.WithTimeout(context.Background(), factoryTrial)
	defer cancel()
	tried := make(chan error, 1)
	go func() {
		_, err := f.open(ctx, nil, environment{})
		tried <- err
	}()
	select {
	case err := <-tried:
		if errors.Is(err, errNoTransport) {
			return []fieldError{{"Transport", "is " + what + " that " + errNoTransport.Error()}}
		}
	case <-ctx.Done():
	}
	// A factory that cannot make a transport now may when it is needed.
	return nil
}

var errNoTransport = errors.New("returned neither a transport nor an error")

// guard calls a factory, which is somebody else's code on a goroutine of ours:
// a panic there would end the worker.
func guard(factory func() (mcp.Transport, error)) (t mcp.Transport, err error) {
	defer recovered(&err, "the factory panicked: %v")
	t, err = factory()
	if err != nil {
		return nil, fmt.Errorf("the factory failed: %w", err)
	}
	if v := reflect.ValueOf(t); t == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errNoTransport
	}
	return t, nil
}
