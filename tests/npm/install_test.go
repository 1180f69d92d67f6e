package npm

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// installIn names the environment variable that makes this test binary a process
// that installs in a folder and reports whether it had to.
const installIn = "NEXUSMCP_TEST_INSTALL_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(installIn); dir != "" {
		did, err := folder(dir).install()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Print(did)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// localPackages is a folder with packages that npm installs without a network:
// they are in the folder too, and npm links to them.
func localPackages(t *testing.T, names ...string) folder {
	t.Helper()
	require.NoError(t, checkNode())
	dir := t.TempDir()
	writeLocalPackages(t, folder(dir), names...)
	return folder(dir)
}

func writeLocalPackages(t *testing.T, f folder, names ...string) {
	t.Helper()
	dependencies := map[string]string{}
	locked := map[string]any{}
	for _, name := range names {
		writeJSON(t, f, filepath.Join("packages", name, "package.json"), map[string]any{
			"name": name, "version": "1.0.0", "bin": "main.js",
		})
		dependencies[name] = "file:packages/" + name
		locked["packages/"+name] = map[string]any{"name": name, "version": "1.0.0"}
		locked["node_modules/"+name] = map[string]any{"resolved": "packages/" + name, "link": true}
	}
	locked[""] = map[string]any{"name": "local", "dependencies": dependencies}
	writeJSON(t, f, "package.json", map[string]any{"name": "local", "dependencies": dependencies})
	writeJSON(t, f, "package-lock.json", map[string]any{
		"name": "local", "lockfileVersion": 3, "requires": true, "packages": locked,
	})
}

func writeJSON(t *testing.T, f folder, name string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	path := filepath.Join(string(f), name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, text, 0o644))
}

// installer is a process that installs in the folder.
func installer(t *testing.T, f folder) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), installIn+"="+string(f))
	return cmd
}

func requireInstalled(t *testing.T, f folder, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(string(f), "node_modules"))
	require.NoError(t, err)
	var got []string
	for _, entry := range entries {
		if entry.Name()[0] != '.' {
			got = append(got, entry.Name())
		}
	}
	require.ElementsMatch(t, names, got)
	for _, name := range names {
		require.FileExists(t, filepath.Join(string(f), "node_modules", name, "package.json"))
	}
}

func TestTheSecondInstallDoesNothing(t *testing.T) {
	f := localPackages(t, "one", "two")

	did, err := f.install()
	require.NoError(t, err)
	assert.True(t, did)
	requireInstalled(t, f, "one", "two")

	did, err = f.install()
	require.NoError(t, err)
	assert.False(t, did)
}

func TestOfManyGoroutinesAndProcessesOneInstalls(t *testing.T) {
	f := localPackages(t, "one", "two")
	var (
		wait sync.WaitGroup
		mu   sync.Mutex
		dids []string
	)
	report := func(did string, err error) {
		mu.Lock()
		defer mu.Unlock()
		assert.NoError(t, err)
		dids = append(dids, did)
	}
	for range 2 {
		wait.Go(func() {
			did, err := f.install()
			// Whoever waited for another install returns when that is done, not before.
			assert.FileExists(t, f.marker())
			report(fmt.Sprint(did), err)
		})
		process := installer(t, f)
		wait.Go(func() {
			out, err := process.Output()
			report(string(out), err)
		})
	}
	wait.Wait()

	assert.ElementsMatch(t, []string{"true", "false", "false", "false"}, dids)
	requireInstalled(t, f, "one", "two")
}

func TestAnInstallThatWasNotFinishedIsDoneAgain(t *testing.T) {
	f := localPackages(t, "one", "two")
	// What is left when npm ends half-way: some packages, and some of their files.
	require.NoError(t, os.MkdirAll(filepath.Join(string(f), "node_modules", "one"), 0o755))

	did, err := f.install()
	require.NoError(t, err)
	assert.True(t, did)
	requireInstalled(t, f, "one", "two")
}

func TestAnInstallerThatIsKilledLeavesNoHarm(t *testing.T) {
	names := []string{}
	for i := range 40 {
		names = append(names, fmt.Sprintf("package-%d", i))
	}
	f := localPackages(t, names...)
	process := installer(t, f)
	require.NoError(t, process.Start())
	// Some time later npm is at work. The outcome must be the same whenever the
	// kill comes, before, while or after it writes.
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(string(f), "node_modules"))
		return err == nil
	}, time.Minute, time.Millisecond)
	require.NoError(t, process.Process.Kill())
	process.Wait()

	// npm itself lives on. The next install must not work in the same folder before
	// npm is done, or it would delete what the other writes.
	_, err := f.install()
	require.NoError(t, err)
	requireInstalled(t, f, names...)

	did, err := f.install()
	require.NoError(t, err)
	assert.False(t, did)
}

func TestAChangedLockFileInstallsAnew(t *testing.T) {
	f := localPackages(t, "one", "two")
	_, err := f.install()
	require.NoError(t, err)

	writeLocalPackages(t, f, "two", "three")
	did, err := f.install()
	require.NoError(t, err)
	assert.True(t, did)
	requireInstalled(t, f, "two", "three")
}

func TestAFailedInstallSaysWhatNPMSaid(t *testing.T) {
	f := localPackages(t, "one")
	// npm ci refuses a lock file that does not belong to the package.json.
	writeJSON(t, f, "package.json", map[string]any{
		"name": "local", "dependencies": map[string]string{"missing": "file:packages/missing"},
	})

	_, err := f.install()
	require.ErrorContains(t, err, "npm ci in "+string(f))
	assert.ErrorContains(t, err, "Missing: missing@")
	assert.NoFileExists(t, f.marker())
}
