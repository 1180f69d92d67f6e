//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package npm

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// fileLock is a lock that at most one process holds, and in it one caller. The
// operating system releases it when every process that has the file open is gone,
// so nobody is ever shut out by a process that was killed.
type fileLock struct{ file *os.File }

// acquire waits for the lock until the context ends.
func acquire(ctx context.Context, path string) (*fileLock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	err = retry(ctx, func() (bool, error) {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		file.Close()
		return nil, err
	}
	return &fileLock{file}, nil
}

// share lets the command hold the lock too, for as long as it runs.
func (l *fileLock) share(cmd *exec.Cmd) {
	cmd.ExtraFiles = append(cmd.ExtraFiles, l.file)
}

// Close releases this process's hold on the lock. It does not unlock, which would
// take the lock from a command that shares it. The file stays: removing it would
// let a process that has it open and one that creates it anew both hold the lock.
func (l *fileLock) Close() error {
	return l.file.Close()
}
