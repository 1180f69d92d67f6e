// Command effectsserver is the suite's MCP server, which its environment configures. It
// is a program of its own because the suite starts it thousands of times, and a process
// that links a Temporal server takes most of a second of CPU to start.
package main

import (
	"fmt"
	"os"

	"github.com/nexusmcp/nexusmcp/internal/effects"
)

func main() {
	effects.MainIfAsked()
	fmt.Fprintln(os.Stderr, "effectsserver: "+effects.Env+" is not set")
	os.Exit(2)
}
