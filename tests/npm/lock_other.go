//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package npm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
)

// fileLock is a lock that at most one caller holds: the one who could create the
// file. A process that is killed leaves the file behind, which acquire's error
// then names.
type fileLock struct{ path string }

// acquire waits for the lock until the context ends.
func acquire(ctx context.Context, path string) (*fileLock, error) {
	err := retry(ctx, func() (bool, error) {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		return true, file.Close()
	})
	if err != nil {
		return nil, fmt.Errorf("%w (if no other test is running, remove %s)", err, path)
	}
	return &fileLock{path}, nil
}

// share does nothing: only acquire's caller can remove the file.
func (l *fileLock) share(*exec.Cmd) {}

// Close releases the lock.
func (l *fileLock) Close() error {
	return os.Remove(l.path)
}
