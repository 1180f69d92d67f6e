package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Command reaches a server that it starts, over the server's stdin and stdout.
// What the server writes to stderr goes to the worker's log.
// Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio
type Command struct {
	// Path is the program: a path, or a name that is looked up in PATH. Required.
	Path string
	// Args are the program's arguments, without its name.
	Args []string
	// Env is added to the few variables that the process inherits (PATH, HOME and
	// others of the kind, as other MCP hosts do). The worker's other variables
	// stay with the worker: its own credentials may be among them.
	Env map[string]string
	// Dir is the working directory. Empty means the worker's.
	Dir string
}

func (t Command) validate() (mistakes []fieldError) {
	if t.Path == "" {
		mistakes = append(mistakes, fieldError{"Path", "is empty, want the program to start"})
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			mistakes = append(mistakes, fieldError{"Env", fmt.Sprintf("has the name %q, which no environment variable can have", name)})
		}
	}
	for _, field := range []struct {
		name   string
		values []string
	}{{"Path", []string{t.Path}}, {"Args", t.Args}, {"Env", slices.Collect(maps.Values(t.Env))}, {"Dir", []string{t.Dir}}} {
		if slices.ContainsFunc(field.values, func(s string) bool { return strings.ContainsRune(s, 0) }) {
			mistakes = append(mistakes, fieldError{field.name, "contains a NUL byte, which no process can be given"})
		}
	}
	return mistakes
}

func (t Command) open(_ context.Context, _ json.RawMessage, env environment) (mcp.Transport, error) {
	// Not CommandContext: the process outlives the call that started it.
	cmd := exec.Command(t.Path, t.Args...)
	if errors.Is(cmd.Err, exec.ErrNotFound) && strings.Contains(t.Path, " ") {
		return nil, fmt.Errorf("%w; arguments belong into Args", cmd.Err)
	}
	if t.Dir != "" {
		// Starting the process would blame the program.
		if _, err := os.Stat(t.Dir); err != nil {
			return nil, fmt.Errorf("the working directory: %w", err)
		}
	}
	cmd.Dir = t.Dir
	cmd.Env = []string{} // nil would inherit everything
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		cmd.Env = append(cmd.Env, name+"="+t.Env[name])
	}
	return &stdioTransport{cmd: cmd, logger: env.logger, limit: env.limit}, nil
}

func (Command) takesArgument() bool { return false }

// inherited are the variables that a program needs to find itself at home, and
// in which nobody keeps a secret.
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LC_ALL", "TZ", "TMPDIR",
	// Windows.
	"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
	"PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE",
}
