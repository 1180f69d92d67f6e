package devserver

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// serverLogger hands the Temporal server's log to a slog.Logger.
//
// The server ends the process for what it thinks fatal, a port it cannot bind for instance. That is not for a
// library to do: here a fatal entry is logged as an error, remembered, and ends only its goroutine.
type serverLogger struct {
	slog       *slog.Logger
	firstFatal *atomic.Pointer[error] // shared by all loggers made with With
}

var (
	_ log.Logger      = (*serverLogger)(nil)
	_ log.WithLogger  = (*serverLogger)(nil)
	_ log.SLogWrapper = (*serverLogger)(nil)
)

func newServerLogger(logger *slog.Logger) *serverLogger {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &serverLogger{slog: logger, firstFatal: new(atomic.Pointer[error])}
}

func (l *serverLogger) Debug(message string, tags ...tag.Tag) { l.log(slog.LevelDebug, message, tags) }
func (l *serverLogger) Info(message string, tags ...tag.Tag)  { l.log(slog.LevelInfo, message, tags) }
func (l *serverLogger) Warn(message string, tags ...tag.Tag)  { l.log(slog.LevelWarn, message, tags) }
func (l *serverLogger) Error(message string, tags ...tag.Tag) { l.log(slog.LevelError, message, tags) }

// DPanic is an error: the server means it to panic only while the server itself is being developed.
func (l *serverLogger) DPanic(message string, tags ...tag.Tag) { l.log(slog.LevelError, message, tags) }

// Panic panics, because the server's code recovers from it where it can.
func (l *serverLogger) Panic(message string, tags ...tag.Tag) {
	l.log(slog.LevelError, message, tags)
	panic(message)
}

func (l *serverLogger) Fatal(message string, tags ...tag.Tag) {
	l.log(slog.LevelError, message, tags)
	err := fmt.Errorf("the Temporal server: %s", message)
	for _, t := range tags {
		err = fmt.Errorf("%w, %s: %v", err, t.Key(), t.Value())
	}
	l.firstFatal.CompareAndSwap(nil, &err)
	runtime.Goexit()
}

// fatal is the first fatal entry, or nil.
func (l *serverLogger) fatal() error {
	if err := l.firstFatal.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *serverLogger) With(tags ...tag.Tag) log.Logger {
	attributes := make([]any, len(tags))
	for i, t := range tags {
		attributes[i] = slog.Any(t.Key(), t.Value())
	}
	return &serverLogger{slog: l.slog.With(attributes...), firstFatal: l.firstFatal}
}

// SLog lets the SDK workers that run inside the server log to the same place.
func (l *serverLogger) SLog() *slog.Logger { return l.slog }

func (l *serverLogger) log(level slog.Level, message string, tags []tag.Tag) {
	// Reading a tag's value is slow, so not for an entry that nobody sees.
	if !l.slog.Enabled(context.Background(), level) {
		return
	}
	attributes := make([]slog.Attr, len(tags))
	for i, t := range tags {
		attributes[i] = slog.Any(t.Key(), t.Value())
	}
	l.slog.LogAttrs(context.Background(), level, message, attributes...)
}
