package handler

import (
	"context"
	"log/slog"

	"go.temporal.io/sdk/log"
)

// slogLogger lets the MCP SDK log to a Temporal logger.
func slogLogger(logger log.Logger) *slog.Logger { return slog.New(&slogHandler{logger: logger}) }

// warn logs on a goroutine of ours, which a logger of the publisher's own must
// not end.
func warn(logger log.Logger, message string, keyvals ...any) {
	defer func() { _ = recover() }()
	logger.Warn(message, keyvals...)
}

type slogHandler struct {
	logger log.Logger
	prefix string
}

// Enabled implements [slog.Handler]. What is not worth a warning is the SDK's
// own business.
func (h *slogHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// Handle implements [slog.Handler].
func (h *slogHandler) Handle(_ context.Context, r slog.Record) error {
	args := make([]any, 0, 2*r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		args = append(args, h.prefix+a.Key, a.Value.Any())
		return true
	})
	if r.Level >= slog.LevelError {
		h.logger.Error("MCP: "+r.Message, args...)
	} else {
		h.logger.Warn("MCP: "+r.Message, args...)
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (h *slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	args := make([]any, 0, 2*len(attrs))
	for _, a := range attrs {
		args = append(args, h.prefix+a.Key, a.Value.Any())
	}
	return &slogHandler{logger: log.With(h.logger, args...), prefix: h.prefix}
}

// WithGroup implements [slog.Handler].
func (h *slogHandler) WithGroup(name string) slog.Handler {
	return &slogHandler{logger: h.logger, prefix: h.prefix + name + "."}
}
