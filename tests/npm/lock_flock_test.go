//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package npm

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALockThatACommandSharesIsHeldUntilTheCommandEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := acquire(t.Context(), path)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	lock.share(cmd)
	require.NoError(t, cmd.Start())
	// As when the process that took the lock is killed.
	require.NoError(t, lock.Close())

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = acquire(ctx, path)
	assert.ErrorIs(t, err, context.DeadlineExceeded)

	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait())
	lock, err = acquire(t.Context(), path)
	require.NoError(t, err)
	assert.NoError(t, lock.Close())
}
