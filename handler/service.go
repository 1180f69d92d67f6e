package handler

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nexus-rpc/sdk-go/nexus"

	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// A service is one published server.
type service struct {
	handler       *Handler
	name          string
	pool          *pool
	takesArgument bool
}

// An operation is one of the contract's that is a single request, as the handler
// runs it: all but call-tools.
type operation struct {
	name string
	// subject is the param that names what the request is about, and that the
	// protocol requires. Empty when there is none.
	subject string
	// check refuses other params of another form than the protocol has. Nil when there
	// are none.
	check func(params object) error
	run   func(ctx context.Context, s *session, params object, limit int64) (json.RawMessage, error)
}

var callToolOperation = operation{name: mcpnexus.OperationCallTool, subject: "name", check: checkTool, run: calling("tools/call")}

var operations = []operation{
	{name: mcpnexus.OperationListTools, run: listing(listTools)},
	callToolOperation,
	{name: mcpnexus.OperationListPrompts, run: listing(listPrompts)},
	{name: mcpnexus.OperationGetPrompt, subject: "name", check: checkPrompt, run: calling("prompts/get")},
	{name: mcpnexus.OperationListResources, run: listing(listResources)},
	{name: mcpnexus.OperationListResourceTemplates, run: listing(listResourceTemplates)},
	{name: mcpnexus.OperationReadResource, subject: "uri", run: calling("resources/read")},
	{name: mcpnexus.OperationComplete, check: checkCompletion, run: calling("completion/complete")},
	{name: mcpnexus.OperationDiscover, run: func(ctx context.Context, s *session, params object, _ int64) (json.RawMessage, error) {
		return s.discover(ctx, params)
	}},
}

func listing(kind listKind) func(context.Context, *session, object, int64) (json.RawMessage, error) {
	return func(ctx context.Context, s *session, params object, limit int64) (json.RawMessage, error) {
		return s.list(ctx, kind, params, limit)
	}
}

func calling(method string) func(context.Context, *session, object, int64) (json.RawMessage, error) {
	return func(ctx context.Context, s *session, params object, _ int64) (json.RawMessage, error) {
		raw, _, err := s.call(ctx, method, params)
		return raw, err
	}
}

func (s *service) nexusService() *nexus.Service {
	out := nexus.NewService(s.name)
	for _, op := range operations {
		out.MustRegister(newRegistered(op.name, s.starter(op)))
	}
	out.MustRegister(newRegistered(mcpnexus.OperationCallTools, s.startBatch))
	return out
}

// refuse answers a request that nothing is done for.
func (s *service) refuse(kind nexus.HandlerErrorType, op operation, req *request, reason string) error {
	return nexus.NewHandlerErrorf(kind, "%s", message(s.title(op, req)+": "+reason))
}

// message makes a text fit to be sent: Temporal's messages are UTF-8, and one
// that is not cannot be answered at all, so that the request would come again
// and again.
func message(text string) string {
	return truncate(strings.ToValidUTF8(text, "\uFFFD"), maxErrorMessage)
}

// A request is an operation's input.
type request struct {
	params  object
	subject string
	options mcpnexus.RequestOptions
	// id is Temporal's, the same each time that the operation is started.
	id string
	// beforeSending, if not nil, must agree before the request is sent.
	beforeSending func(context.Context) error
}

// parse reads an operation's input and makes of it the params for the server.
// The default options are those of a request that has none.
func (s *service) parse(op operation, input json.RawMessage, start nexus.StartOperationOptions, defaults mcpnexus.RequestOptions) (*request, error) {
	req, err := parseRequest(op, input, start, defaults)
	if err == nil {
		err = s.accept(req.options)
	}
	return req, err
}

// accept refuses options that make no sense for the server.
func (s *service) accept(options mcpnexus.RequestOptions) error {
	if len(options.FactoryArgument) > 0 && !s.takesArgument {
		return fmt.Errorf("_meta[%q]: factoryArgument: the server takes none, its publisher did not give it an argument factory", mcpnexus.MetaKeyOptions)
	}
	return nil
}

// parseRequest depends on nothing but its arguments.
func parseRequest(op operation, input json.RawMessage, start nexus.StartOperationOptions, defaults mcpnexus.RequestOptions) (_ *request, err error) {
	req := &request{id: start.RequestID, options: defaults}
	if len(input) > mcpnexus.MaxRequestBytes {
		return req, fmt.Errorf("the request has %d bytes of JSON, the limit is %d", len(input), mcpnexus.MaxRequestBytes)
	}
	if !utf8.Valid(input) {
		return req, errors.New("the input is not UTF-8, as JSON must be")
	}
	if len(input) > 0 && string(input) != "null" {
		valid := json.Valid(input)
		if valid {
			req.params, err = decodeObject(input)
		}
		if !valid || err != nil {
			return req, errors.New("the input is not a JSON object, want the params of the MCP request")
		}
		// In other languages null is often what is not there. MCP has it nowhere, and many
		// servers refuse it.
		maps.DeleteFunc(req.params, func(_ string, value json.RawMessage) bool { return string(value) == "null" })
	}
	if op.subject != "" {
		raw, ok := req.params[op.subject]
		if !ok {
			return req, fmt.Errorf("the input has no %q", op.subject)
		}
		if req.subject, err = decodeString(raw); err != nil {
			return req, fmt.Errorf("%s: %.64s is not a string", op.subject, raw)
		}
		if req.subject == "" {
			return req, fmt.Errorf("%s is empty", op.subject)
		}
		// It travels in an HTTP header too (SEP-2243).
		if strings.ContainsFunc(req.subject, unicode.IsControl) {
			return req, fmt.Errorf("%s contains a control character", op.subject)
		}
	}
	if op.check != nil {
		if err := op.check(req.params); err != nil {
			return req, err
		}
	}
	meta, err := req.params.object("_meta")
	if err != nil {
		return req, err
	}
	if raw, ok := meta[mcpnexus.MetaKeyOptions]; ok && string(raw) != "null" {
		if err := json.Unmarshal(raw, &req.options); err != nil {
			return req, fmt.Errorf("_meta[%q]: %w", mcpnexus.MetaKeyOptions, err)
		}
	}
	delete(meta, mcpnexus.MetaKeyOptions)
	if string(meta["progressToken"]) == "null" {
		delete(meta, "progressToken")
	}
	// The Nexus request ID is the same each time that one operation is started.
	meta[mcpnexus.MetaKeyIdempotencyKey] = encode(start.RequestID)
	// W3C Trace Context travels in _meta under its own names (SEP-414).
	if _, ok := meta["traceparent"]; !ok {
		for _, name := range traceHeaders {
			if value := start.Header.Get(name); value != "" {
				meta[name] = encode(value)
			}
		}
	}
	req.params = req.params.with("_meta", meta.join())
	return req, nil
}

// Many servers call params of another form than the protocol has an error of their own
// (-32603), with which the request would be sent again and again. Errors do not quote
// them: they may be what histories and logs must not have.

func checkTool(params object) error {
	if raw, ok := params["arguments"]; ok && !isObject(raw) {
		return errors.New("arguments is not a JSON object")
	}
	return nil
}

func checkPrompt(params object) error {
	arguments, err := params.object("arguments")
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		if arguments[name][0] != '"' {
			return fmt.Errorf("arguments: %.64q is not a string, as those of a prompt are", name)
		}
	}
	return nil
}

func checkCompletion(params object) error {
	for _, name := range []string{"ref", "argument"} {
		if raw, ok := params[name]; !ok {
			return fmt.Errorf("the input has no %q", name)
		} else if !isObject(raw) {
			return fmt.Errorf("%s is not a JSON object", name)
		}
	}
	return nil
}

var traceHeaders = []string{"traceparent", "tracestate", "baggage"}

// title names a request for messages: service, operation, and subject.
func (s *service) title(op operation, req *request) string {
	return title(s.name, op.name, req.subject)
}

func title(service, operation, subject string) string {
	if subject == "" {
		return service + ": " + operation
	}
	return fmt.Sprintf("%s: %s %.200q", service, operation, subject)
}

// attempt sends the request once, on a connection of the pool.
func (s *service) attempt(ctx context.Context, op operation, req *request) (result json.RawMessage, err error) {
	// A transport or a logger may be the publisher's own code.
	survivePanic := func() {
		if p := recover(); p != nil {
			result, err = nil, mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: fmt.Sprintf("panic: %v", p)})
		}
	}
	defer survivePanic()
	c, err := s.pool.acquire(ctx, req.options.FactoryArgument, s.handler.logger(ctx))
	if err != nil {
		return nil, &unsent{err}
	}
	defer func() { c.release(err) }()
	defer survivePanic() // before the connection is released, which it may have broken
	if op.name == mcpnexus.OperationCallTool {
		if err := c.session.prepare(ctx, req.params); err != nil {
			return nil, &unsent{err}
		}
	}
	if req.beforeSending != nil {
		if err := req.beforeSending(ctx); err != nil {
			return nil, &unsent{err}
		}
	}
	defer c.cutWhenStuck(ctx)() // what goes before leaves the connection to others
	limit := int64(s.handler.options.MaxResultBytes)
	result, err = op.run(ctx, c.session, req.params, limit)
	switch {
	case err != nil:
		return nil, err
	case int64(len(result)) > limit:
		return nil, verdict{Size: int64(len(result))}.err()
	case !utf8.Valid(result):
		// Go's decoder lets it pass; those of other languages do not (RFC 8259).
		return nil, verdict{Problem: "the result is not UTF-8"}.err()
	}
	return result, nil
}

// unsent marks the error of an attempt that did not come to send its request.
type unsent struct{ cause error }

func (e *unsent) Error() string { return e.cause.Error() }
func (e *unsent) Unwrap() error { return e.cause }

// contractError gives any error of an attempt the contract's form.
func (s *service) contractError(op operation, req *request, err error) *mcpnexus.Error {
	e, ok := errors.AsType[*mcpnexus.Error](err)
	if !ok {
		timeout, ok := errors.AsType[*timeoutError](err)
		cut, isCut := errors.AsType[*cutOffError](err)
		switch {
		case isCut:
			e = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeOutcomeUnknown, Message: cut.Error()})
		case ok:
			e = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTimeout, Timeout: timeout.timeout, Message: err.Error()})
		case errors.Is(err, context.DeadlineExceeded):
			// The Nexus request's own deadline. Ours is earlier, but was seen later.
			e = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTimeout, Message: "no answer within the time that the Nexus request had left"})
		case errors.Is(err, errStopping):
			e = stopping()
		case errors.Is(err, context.Canceled):
			e = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: "cancelled before it was answered"})
		default:
			e = mcpnexus.NewError(mcpnexus.Error{Type: mcpnexus.ErrorTypeTransport, Message: forCallers(err)})
		}
	}
	out := *e
	if out.Type == mcpnexus.ErrorTypeResultTooLarge {
		out.Limit = cmp.Or(out.Limit, int64(s.handler.options.MaxResultBytes))
		out.Message = fmt.Sprintf("the result has at least %d bytes, the limit is %d", out.Size, out.Limit)
	}
	heed(req.options, &out)
	out.Message = message(s.title(op, req) + ": " + out.Message)
	return &out
}
