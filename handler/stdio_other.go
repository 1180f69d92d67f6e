//go:build !unix

package handler

import (
	"os"
	"os/exec"
)

// Process groups are a Unix notion: elsewhere only the command itself is ended.
func ownProcessGroup(*exec.Cmd) {}

func terminateGroup(p *os.Process) { _ = p.Kill() }
func killGroup(p *os.Process)      { _ = p.Kill() }
