// Package npm runs the public MCP servers that the Model Context Protocol
// project publishes on npm, for tests that want a server that nobody here wrote.
//
// Which servers, and which versions of everything that they need, is in this
// folder's package.json and package-lock.json. The first test that needs a server
// installs them all into node_modules beside this file; later ones find them
// there. Nothing but Node.js has to be there beforehand.
//
// To change a version, edit package.json and run "npm run relock".
package npm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Names of the servers in package.json.
const (
	// ServerEverything has a bit of everything: all content types, prompts,
	// resources, completions, progress, and requests from the server to the client.
	ServerEverything = "@modelcontextprotocol/server-everything"
	// ServerFilesystem works on the directories that its arguments name.
	ServerFilesystem = "@modelcontextprotocol/server-filesystem"
	// ServerMemory is a knowledge graph in the file that the environment variable
	// MEMORY_FILE_PATH names. Name one: the default is inside node_modules.
	ServerMemory = "@modelcontextprotocol/server-memory"
)

// Install installs the servers unless they are there already. Any number of tests,
// in any number of processes, may call it at the same time: one installs, the
// others wait for it.
//
// It fails the test if it cannot install, for want of Node.js for example: a
// skipped test would look like one that passed.
func Install(tb testing.TB) {
	tb.Helper()
	if err := installed(); err != nil {
		tb.Fatal(err)
	}
}

// Command returns the command that runs the named server over stdio, installing
// it if need be. It is Node.js itself with the server's script, not npx or
// npm exec, so that what kills the process kills the server.
func Command(tb testing.TB, server string, args ...string) (program string, arguments []string) {
	tb.Helper()
	Install(tb)
	script, err := here().script(server)
	if err != nil {
		tb.Fatal(err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		tb.Fatal(err)
	}
	return node, append([]string{script}, args...)
}

// installed is what Install does, once per process: when it fails, for want of a
// network say, every other test would wait just as long to learn the same.
var installed = sync.OnceValue(func() error {
	if err := checkNode(); err != nil {
		return err
	}
	if dir := here(); !filepath.IsAbs(string(dir)) {
		return fmt.Errorf("cannot find the folder tests/npm: run the tests without -trimpath, which hides where the sources are")
	}
	_, err := here().install()
	return err
})

// here is the folder of this file.
func here() folder {
	_, file, _, _ := runtime.Caller(0)
	return folder(filepath.Dir(file))
}

// checkNode says in one line what is missing, if anything is, where npm would say
// it in many or not at all.
func checkNode() error {
	const get = "the tests run public MCP servers on Node.js: install Node.js 20, or 22 or later, which brings npm, from https://nodejs.org/en/download or with a package manager"
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: %s", program, get)
		}
	}
	out, err := exec.Command("node", "--version").Output()
	if err != nil {
		return fmt.Errorf("node --version fails (%v): %s", err, get)
	}
	version := strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 || n == 21 {
		return fmt.Errorf("node is %s, which is not enough: %s", version, get)
	}
	return nil
}

// script returns the absolute path of the program that an installed package has
// to offer, according to the package itself.
func (f folder) script(name string) (string, error) {
	dir := filepath.Join(string(f), "node_modules", filepath.FromSlash(name))
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("npm package %s is not installed: is it in %s?", name, filepath.Join(string(f), "package.json"))
	}
	if err != nil {
		return "", err
	}
	var manifest struct {
		Bin json.RawMessage `json:"bin"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		return "", fmt.Errorf("npm package %s: package.json: %w", name, err)
	}
	// "bin" is a script, or scripts by the name of the command.
	var script string
	if json.Unmarshal(manifest.Bin, &script) == nil && script != "" {
		return filepath.Join(dir, filepath.FromSlash(script)), nil
	}
	var scripts map[string]string
	if err := json.Unmarshal(manifest.Bin, &scripts); err != nil || len(scripts) == 0 {
		return "", fmt.Errorf("npm package %s has no program to run", name)
	}
	script, ok := scripts[path.Base(name)]
	if !ok && len(scripts) == 1 {
		for _, script = range scripts {
			ok = true
		}
	}
	if !ok {
		return "", fmt.Errorf("npm package %s has %d programs, none of them called %s", name, len(scripts), path.Base(name))
	}
	return filepath.Join(dir, filepath.FromSlash(script)), nil
}
