package npm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// installTimeout bounds an install, the wait for another process's install
// included. It stays below the ten minutes after which go test gives up with every
// goroutine's stack instead of a reason. From an empty cache an install takes about
// 20 seconds.
const installTimeout = 5 * time.Minute

// folder is a folder with a package.json and its lock file.
type folder string

// install makes node_modules what the lock file says, and reports whether it had
// to do anything for that.
func (f folder) install() (did bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()

	want, err := f.fingerprint()
	if err != nil {
		return false, err
	}
	if f.isDone(want) {
		return false, nil
	}

	lock, err := acquire(ctx, filepath.Join(string(f), ".install.lock"))
	if err != nil {
		return false, fmt.Errorf("waiting for another install in %s: %w", f, err)
	}
	defer lock.Close()
	if f.isDone(want) {
		return false, nil
	}

	// While npm is at work, and if it does not come to an end, nothing may say that
	// it did.
	if err := os.Remove(f.marker()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	npm := exec.CommandContext(ctx, "npm", "ci")
	npm.Dir = string(f)
	// Whoever kills the tests does not kill npm: it goes on deleting and writing
	// files. So it holds the lock as well, until it ends.
	lock.share(npm)
	// Bounds the wait for the output after npm was killed.
	npm.WaitDelay = 5 * time.Second
	output, err := npm.CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("not done after %v (%w)", installTimeout, err)
	}
	if err != nil {
		return false, fmt.Errorf("npm ci in %s: %w; it needs an npm registry, or a cache that has every package\n%s", f, err, output)
	}
	return true, os.WriteFile(f.marker(), []byte(want), 0o644)
}

// marker is the file that says what node_modules was installed from. It is inside,
// so that it goes when node_modules goes.
func (f folder) marker() string {
	return filepath.Join(string(f), "node_modules", ".installed-from")
}

// isDone reports whether the last install came to its end and was of the wanted
// packages.
func (f folder) isDone(want string) bool {
	got, err := os.ReadFile(f.marker())
	// A marker that was cut short while it was written is not equal to any.
	return err == nil && string(got) == want
}

// fingerprint identifies what is to be installed.
func (f folder) fingerprint() (string, error) {
	hash := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := os.ReadFile(filepath.Join(string(f), name))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// retry calls try until it succeeds or fails for good, or the context ends. It is
// how to wait for a lock under a context: a call that blocks cannot be interrupted.
func retry(ctx context.Context, try func() (ok bool, err error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := try(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
