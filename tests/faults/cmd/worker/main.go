// Command worker is a worker of the fault suite, of which its environment says what it
// does.
package main

import (
	"fmt"
	"os"

	"github.com/nexusmcp/nexusmcp/tests/faults/workers"
)

func main() {
	workers.MainIfAsked()
	fmt.Fprintf(os.Stderr, "worker: neither %s nor %s is set\n", workers.HandlersEnv, workers.CallersEnv)
	os.Exit(2)
}
