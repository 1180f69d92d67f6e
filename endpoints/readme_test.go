package endpoints_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

// Blocks of the README that this file checks begin with a comment that says what they are.
var readmeBlock = regexp.MustCompile("(?s)<!-- (spec|rendered|example): ([^>]*) -->\n```[a-z]+\n(.*?)```\n")

func TestTheREADMEShowsWhatRenderWrites(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)

	options := map[string]endpoints.RenderOptions{
		"temporal create":       {Format: endpoints.TemporalCLI},
		"temporal update":       {Format: endpoints.TemporalCLI, Update: true},
		"temporal cloud create": {Format: endpoints.TemporalCloudCLI},
		"temporal cloud update": {Format: endpoints.TemporalCloudCLI, Update: true},
		"tcld create":           {Format: endpoints.Tcld},
		"tcld update":           {Format: endpoints.Tcld, Update: true},
		"terraform":             {Format: endpoints.Terraform},
	}
	var specs []endpoints.Spec
	for _, match := range readmeBlock.FindAllStringSubmatch(string(readme), -1) {
		kind, name, block := match[1], match[2], match[3]
		switch kind {
		case "spec":
			specs, err = endpoints.Parse(name, []byte(block))
			require.NoError(t, err)
		case "rendered":
			option, ok := options[name]
			require.True(t, ok, "unknown or second block %q", name)
			delete(options, name)
			want, err := endpoints.Render(specs, option)
			require.NoError(t, err)
			require.Equal(t, want, block, name)
		case "example":
			require.Contains(t, unindent(string(example)), unindent(block), name)
		}
	}
	require.NotEmpty(t, specs)
	require.Empty(t, options, "blocks that the README lacks")
}

func unindent(code string) string {
	var lines []string
	for line := range strings.Lines(code) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
