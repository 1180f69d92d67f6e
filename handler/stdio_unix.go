//go:build unix

package handler

import (
	"os"
	"os/exec"
	"syscall"
)

// ownProcessGroup makes the command the leader of a process group, so that a
// signal reaches its children, and Ctrl-C in the worker's terminal does not:
// the worker drains first.
func ownProcessGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// An error means that the group is gone, which is what was wanted.
func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }
func killGroup(p *os.Process)      { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
