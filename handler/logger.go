package handler

import (
	"context"
	"log/slog"
	"unicode/utf8"

	"go.temporal.io/sdk/log"
)

// slogLogger lets the MCP SDK log to a Temporal logger.
func slogLogger(logger log.Logger) *slog.Logger { return slog.New(&slogHandler{logger: logger}) }

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

// maxErrorMessage is the most bytes of an error's message that are passed on.
const maxErrorMessage = 4 << 10

// truncate cuts s to at most n bytes, between characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "…"
	cut := n - len(mark)
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + mark
}
