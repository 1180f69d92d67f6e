package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/endpoints"
	mcpnexus "github.com/nexusmcp/nexusmcp/nexus"
)

// The README quotes this program. These tests keep it true: its Go code is from
// files that tests run, and its commands are run by a test or rendered by the code
// that tests them.

var codeBlock = regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```")

func blocks(t *testing.T, language string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	require.NoError(t, err)
	var out []string
	for _, match := range codeBlock.FindAllStringSubmatch(string(readme), -1) {
		if match[1] == language {
			out = append(out, match[2])
		}
	}
	require.NotEmpty(t, out)
	return out
}

func TestTheReadmesGoCodeIsTheQuickstartsOrTestedElsewhere(t *testing.T) {
	var source strings.Builder
	for _, file := range []string{"main.go", "workflow.go", "workflow_test.go", filepath.Join(root(t), "tests", "npm", "readme_test.go")} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		source.WriteString(dedent(string(text)))
	}
	for _, block := range blocks(t, "go") {
		assert.Contains(t, source.String(), dedent(block), "not in the quickstart:\n%s", block)
	}
}

func TestTheReadmesCommandsAreRun(t *testing.T) {
	register, err := endpoints.Render([]endpoints.Spec{endpoint()}, endpoints.RenderOptions{Format: endpoints.TemporalCLI})
	require.NoError(t, err)
	ci, err := os.ReadFile(filepath.Join(root(t), ".ci", "run"))
	require.NoError(t, err)
	require.Contains(t, string(ci), "go test work", "CI runs the README's command")
	for _, block := range blocks(t, "sh") {
		assert.Contains(t, []string{
			"go run ./examples/quickstart\n", // TestTheQuickstartShowsTheWholePath…
			"go test work\n",                 // CI
			register,                         // the endpoints package runs what it renders
		}, block)
	}
}

func TestTheReadmesRequestIsOfTheContractsForm(t *testing.T) {
	for _, block := range blocks(t, "json") {
		var params struct {
			Name string                     `json:"name"`
			Meta map[string]json.RawMessage `json:"_meta"`
		}
		require.NoError(t, json.Unmarshal([]byte(block), &params))
		var options mcpnexus.RequestOptions
		require.NoError(t, json.Unmarshal(params.Meta[mcpnexus.MetaKeyOptions], &options))
		assert.False(t, options.IsZero())
	}
}

// dedent removes indentation, which an excerpt has less of.
func dedent(code string) string {
	lines := strings.Split(code, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimLeft(line, "\t")
	}
	return strings.Join(lines, "\n")
}
