package endpoints

import "strings"

// shellCommand is one command line: literal words, then flags, one a line.
type shellCommand struct {
	words string // fixed text, needs no quoting
	flags []string
}

// flag adds --name=value. The value is never a word of its own: a Markdown list begins with a dash, and every program
// rendered for (cobra, urfave/cli) takes what follows "=" as it is.
func (c *shellCommand) flag(name, value string) {
	c.flags = append(c.flags, "--"+name+"="+shellQuote(value))
}

func (c *shellCommand) bare(name string) {
	c.flags = append(c.flags, "--"+name)
}

func (c *shellCommand) String() string {
	return c.words + " \\\n  " + strings.Join(c.flags, " \\\n  ") + "\n"
}

// Characters that no POSIX shell gives a meaning in the middle of a word.
const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@,+"

// shellQuote makes value one word, or part of one, for a POSIX shell.
func shellQuote(value string) string {
	if value != "" && strings.Trim(value, shellSafe) == "" {
		return value
	}
	// Inside single quotes nothing is special but the single quote itself (POSIX.1 XCU 2.2.2). So end the quotes, write
	// an escaped one, and begin again.
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
