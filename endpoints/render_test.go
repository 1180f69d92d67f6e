package endpoints_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

// stub stands in for the programs that rendered commands start: it writes its name, the number of its arguments and the
// arguments, each ended by a NUL, which no argument can contain. It uses nothing but the shell itself.
const stub = `#!/bin/sh
{
  printf '%s\0' "${0##*/}" "$#"
  for argument in "$@"; do printf '%s\0' "$argument"; done
} >>"$ARGUMENT_LOG"
`

// awkward is what has broken a quoting function before, or would.
var awkward = []string{
	"",
	"plain",
	"two words",
	"it's",
	"'",
	"''",
	"'\\''",
	`"double"`,
	`$HOME ${HOME} $(id) $((1+1)) $'x'`,
	"`id`",
	`back\slash \n \\ \`,
	"line\nline\r\nline\n",
	"\n",
	"\ttab",
	"- a Markdown list\n- of two",
	"--name=other",
	"-",
	"--",
	"!history !! !$",
	"*?[a-z]{b,c} ~ ~root",
	"a;b|c&d>e<f#g(h)i",
	"# heading",
	"=x",
	"%s %d %%",
	"ünïcödé 😀 \u2028\u202e\u00a0\ufeff",
	"\x01\x1b[31mred\x7f",
	"EOF\nEOT\n<<EOF",
	"${a} $${b} $$${c} %{if} %%{x} $ % { ${",
	strings.Repeat("'\"$`\\\n", 2000),
}

// awkwardSpec puts an awkward text wherever a spec can take it.
func awkwardSpec(text string) endpoints.Spec {
	spec := endpoints.Spec{Name: "tools", Description: &text, TargetNamespace: "platform", TaskQueue: "mcp", AllowedCallers: []string{"orders"}}
	line := strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, text))
	if line != "" && len(line) <= 1000 && !strings.HasPrefix(line, "/_sys/") {
		spec.TargetNamespace, spec.TaskQueue = line, line
		if !strings.Contains(line, ",") {
			spec.AllowedCallers = []string{line, "orders"}
		}
	}
	return spec
}

// shells are those on this machine that the rendered commands are for.
func shells(t *testing.T) []string {
	var found []string
	for _, shell := range []string{"sh", "bash", "dash", "zsh", "ksh", "busybox"} {
		if path, err := exec.LookPath(shell); err == nil {
			found = append(found, path)
		}
	}
	require.NotEmpty(t, found, "the rendered commands need a POSIX shell")
	return found
}

// run lets a shell execute a script and returns the argument lists of the programs that it started.
func run(t *testing.T, shell, script string) [][]string {
	t.Helper()
	directory := t.TempDir()
	for _, program := range []string{"temporal", "tcld"} {
		require.NoError(t, os.WriteFile(filepath.Join(directory, program), []byte(stub), 0o700))
	}
	log := filepath.Join(directory, "arguments")

	// Not sh -c: the script is longer than Linux lets one argument be.
	file := filepath.Join(directory, "script")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	arguments := []string{file}
	if filepath.Base(shell) == "busybox" {
		arguments = []string{"sh", file}
	}
	command := exec.Command(shell, arguments...)
	command.Dir = directory
	command.Env = []string{"PATH=" + directory, "ARGUMENT_LOG=" + log, "HOME=" + directory}
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s: %s", shell, output)
	require.Empty(t, string(output))

	data, err := os.ReadFile(log)
	require.NoError(t, err)
	records := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	var calls [][]string
	for len(records) > 0 {
		count, err := strconv.Atoi(records[1])
		require.NoError(t, err)
		calls = append(calls, append([]string{records[0]}, records[2:2+count]...))
		records = records[2+count:]
	}
	return calls
}

// argv is what the programs must receive for a spec, written down apart from the code under test.
func argv(spec endpoints.Spec, options endpoints.RenderOptions) [][]string {
	base := map[endpoints.Format][]string{
		endpoints.TemporalCLI:      {"temporal", "operator", "nexus", "endpoint"},
		endpoints.TemporalCloudCLI: {"temporal", "cloud", "nexus", "endpoint"},
		endpoints.Tcld:             {"tcld", "nexus", "endpoint"},
	}[options.Format]
	words := func(more ...string) []string { return append(append([]string{}, base...), more...) }
	cloud := options.Format != endpoints.TemporalCLI

	verb := "create"
	if options.Update {
		verb = "update"
	}
	first := words(verb, "--name="+spec.Name, "--target-namespace="+spec.TargetNamespace, "--target-task-queue="+spec.TaskQueue)
	if cloud && !options.Update {
		for _, caller := range spec.AllowedCallers {
			first = append(first, "--allow-namespace="+caller)
		}
	}
	if spec.Description != nil && *spec.Description != "" {
		first = append(first, "--description="+*spec.Description)
	} else if spec.Description != nil && options.Update {
		first = append(first, "--unset-description")
	}
	var last []string
	if options.Format == endpoints.TemporalCloudCLI {
		if options.Update {
			last = append(last, "--idempotent")
		}
		if options.AutoConfirm {
			last = append(last, "--auto-confirm")
		}
	}
	calls := [][]string{append(first, last...)}
	if cloud && options.Update && len(spec.AllowedCallers) > 0 {
		callers := words("allowed-namespace", "set", "--name="+spec.Name)
		for _, caller := range spec.AllowedCallers {
			callers = append(callers, "--namespace="+caller)
		}
		calls = append(calls, append(callers, last...))
	}
	return calls
}

func TestAnyTextReachesTheProgramUnchangedThroughEveryShell(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the rendered commands are for POSIX shells, and Windows has none")
	}
	var specs []endpoints.Spec
	add := func(text string) {
		spec := awkwardSpec(text)
		spec.Name = fmt.Sprintf("tools-%d", len(specs))
		specs = append(specs, spec)
	}
	for _, text := range awkward {
		add(text)
	}
	// A fixed seed, so that a failure repeats.
	random := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("'\"`$\\!{}()<>|&;#*?~-= \t\n\r,%aA0😀é\x01\x1b\u2028")
	for range 20 {
		text := make([]rune, random.IntN(60))
		for i := range text {
			text[i] = alphabet[random.IntN(len(alphabet))]
		}
		add(string(text))
	}
	specs = append(specs, endpoints.Spec{Name: "bare", TargetNamespace: "platform", TaskQueue: "mcp"})

	for _, shell := range shells(t) {
		for _, options := range []endpoints.RenderOptions{
			{Format: endpoints.TemporalCLI},
			{Format: endpoints.TemporalCLI, Update: true},
			{Format: endpoints.TemporalCloudCLI},
			{Format: endpoints.TemporalCloudCLI, Update: true, AutoConfirm: true},
			{Format: endpoints.Tcld},
			{Format: endpoints.Tcld, Update: true},
		} {
			t.Run(fmt.Sprintf("%s/%s/update=%v", filepath.Base(shell), options.Format, options.Update), func(t *testing.T) {
				script, err := endpoints.Render(specs, options)
				require.NoError(t, err)
				var want [][]string
				for _, spec := range specs {
					want = append(want, argv(spec, options)...)
				}
				got := run(t, shell, script)
				require.Equal(t, len(want), len(got))
				for i := range want {
					require.Equal(t, want[i], got[i])
				}
			})
		}
	}
}

func TestCallersThatASelfHostedServerIgnoresBecomeAComment(t *testing.T) {
	spec := tools("mcp")
	spec.AllowedCallers = []string{"orders", "it's $HOME"}
	script, err := endpoints.Render([]endpoints.Spec{spec}, endpoints.RenderOptions{Format: endpoints.TemporalCLI})
	require.NoError(t, err)
	require.Equal(t, `# allowedCallers orders 'it'\''s $HOME': not enforced by a self-hosted server, where every namespace can call the endpoint
temporal operator nexus endpoint create \
  --name=tools \
  --target-namespace=platform \
  --target-task-queue=mcp
`, script)
}

func TestAFormatThatCannotSaySomethingSaysSo(t *testing.T) {
	nobody := tools("mcp")
	nobody.AllowedCallers = []string{}
	comma := tools("mcp")
	comma.AllowedCallers = []string{"a,b"}
	for _, test := range []struct {
		name    string
		spec    endpoints.Spec
		options endpoints.RenderOptions
		want    string
	}{
		{"temporal cloud cannot take the last caller away", nobody, endpoints.RenderOptions{Format: endpoints.TemporalCloudCLI, Update: true},
			`render endpoint "tools" as temporal-cloud: allowedCallers is empty, and "allowed-namespace set" needs at least one`},
		{"tcld cannot take the last caller away", nobody, endpoints.RenderOptions{Format: endpoints.Tcld, Update: true},
			`render endpoint "tools" as tcld: allowedCallers is empty`},
		{"tcld splits lists at commas", comma, endpoints.RenderOptions{Format: endpoints.Tcld},
			`tcld would split "a,b" at the comma`},
		{"Terraform cannot leave callers alone", tools("mcp"), endpoints.RenderOptions{Format: endpoints.Terraform},
			`render endpoint "tools" as terraform: allowedCallers is missing`},
		{"an unknown format", tools("mcp"), endpoints.RenderOptions{Format: "yaml"},
			`unknown format "yaml"; use temporal, temporal-cloud, tcld or terraform`},
		{"a format that was forgotten", tools("mcp"), endpoints.RenderOptions{}, `unknown format ""`},
		{"an invalid spec", endpoints.Spec{Name: "tools"}, endpoints.RenderOptions{Format: endpoints.Tcld}, "targetNamespace: is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := endpoints.Render([]endpoints.Spec{test.spec}, test.options)
			require.ErrorContains(t, err, test.want)
		})
	}
	for _, format := range []endpoints.Format{endpoints.TemporalCloudCLI, endpoints.Tcld} {
		script, err := endpoints.Render([]endpoints.Spec{nobody}, endpoints.RenderOptions{Format: format})
		require.NoError(t, err, "a new endpoint has no callers anyway")
		require.NotContains(t, script, "allow-namespace")
	}
}

func TestTerraformHasOneResourcePerEndpoint(t *testing.T) {
	first := described(tools("mcp"), "# Tools\n\n\"a\" \\ ${b} %{c} $d\t\r\x1b\u2028é\n")
	first.AllowedCallers = []string{"orders.a1", "billing.a1"}
	second := described(endpoints.Spec{Name: "more-tools", TargetNamespace: "platform.a1", TaskQueue: "mcp-2", AllowedCallers: []string{}}, "")
	got, err := endpoints.Render([]endpoints.Spec{first, second}, endpoints.RenderOptions{Format: endpoints.Terraform})
	require.NoError(t, err)
	require.Equal(t, `resource "temporalcloud_nexus_endpoint" "tools" {
  name        = "tools"
  description = "# Tools\n\n\"a\" \\ $${b} %%{c} $d\t\r\u001b\u2028é\n"

  worker_target = {
    namespace_id = "platform"
    task_queue   = "mcp"
  }

  allowed_caller_namespaces = [
    "orders.a1",
    "billing.a1",
  ]
}

resource "temporalcloud_nexus_endpoint" "more_tools" {
  name = "more-tools"

  worker_target = {
    namespace_id = "platform.a1"
    task_queue   = "mcp-2"
  }

  allowed_caller_namespaces = []
}
`, got)
}

func TestHCLStringsDecodeToTheirValue(t *testing.T) {
	for _, text := range awkward {
		require.Equal(t, text, decodeHCL(t, descriptionInHCL(t, text)))
	}
}

// descriptionInHCL is the quoted template that stands for a description.
func descriptionInHCL(t *testing.T, text string) string {
	t.Helper()
	spec := described(tools("mcp"), text)
	spec.AllowedCallers = []string{}
	rendered, err := endpoints.Render([]endpoints.Spec{spec}, endpoints.RenderOptions{Format: endpoints.Terraform})
	require.NoError(t, err)
	for line := range strings.Lines(rendered) {
		if value, ok := strings.CutPrefix(line, "  description = "); ok {
			return strings.TrimSuffix(value, "\n")
		}
	}
	require.Empty(t, text)
	return `""`
}

// decodeHCL reads a quoted template without interpolation, after hclsyntax/spec.md: backslash escapes, and a doubled
// "$" or "%" before "{".
func decodeHCL(t *testing.T, quoted string) string {
	t.Helper()
	require.True(t, len(quoted) >= 2 && quoted[0] == '"' && quoted[len(quoted)-1] == '"', quoted)
	rest := quoted[1 : len(quoted)-1]
	var b strings.Builder
	for rest != "" {
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case strings.HasPrefix(rest, "$${"), strings.HasPrefix(rest, "%%{"):
			b.WriteString(rest[1:3])
			rest = rest[3:]
			continue
		case strings.HasPrefix(rest, "${"), strings.HasPrefix(rest, "%{"):
			require.Fail(t, "interpolation begins", rest)
		case r == '"' || r == '\n':
			require.Fail(t, "the string ends early", rest)
		case r == '\\':
			next := rest[1]
			if next == 'u' {
				var code rune
				_, err := fmt.Sscanf(rest[2:6], "%x", &code)
				require.NoError(t, err)
				b.WriteRune(code)
				rest = rest[6:]
				continue
			}
			i := strings.IndexByte(`nrt"\`, next)
			require.GreaterOrEqual(t, i, 0, "escape %q", rest[:2])
			b.WriteByte("\n\r\t\"\\"[i])
			rest = rest[2:]
			continue
		}
		b.WriteString(rest[:size])
		rest = rest[size:]
	}
	return b.String()
}

// Terraform's own reading, where it is installed. It needs no provider and no network for this.
func TestTerraformItselfReadsAndFormatsItTheSame(t *testing.T) {
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		// It is in no registry that the tests install from. The decoder above, written
		// from its language's specification, reads the same texts everywhere.
		t.Skip("no terraform on this machine")
	}
	directory := t.TempDir()
	configuration := filepath.Join(directory, "rc")
	require.NoError(t, os.WriteFile(configuration, nil, 0o600))
	ask := func(input string, arguments ...string) string {
		command := exec.Command(terraform, arguments...)
		command.Dir = directory
		command.Env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+configuration, "CHECKPOINT_DISABLE=1", "HOME="+directory)
		command.Stdin = strings.NewReader(input)
		output, err := command.CombinedOutput()
		require.NoError(t, err, "%s", output)
		return string(output)
	}

	var specs []endpoints.Spec
	var list []string
	for i, text := range awkward {
		spec := described(tools("mcp"), text)
		spec.Name = fmt.Sprintf("tools-%d", i)
		spec.AllowedCallers = []string{"a", "b"}[:i%3%2+i%2] // none, one or two
		specs = append(specs, spec)
		list = append(list, "base64encode("+descriptionInHCL(t, text)+")")
	}
	values := strings.Split(strings.Trim(strings.TrimSpace(ask("join(\",\", ["+strings.Join(list, ", ")+"])\n", "console")), `"`), ",")
	require.Len(t, values, len(awkward))
	for i, text := range awkward {
		value, err := base64.StdEncoding.DecodeString(values[i])
		require.NoError(t, err)
		require.Equal(t, text, string(value))
	}

	rendered, err := endpoints.Render(specs, endpoints.RenderOptions{Format: endpoints.Terraform})
	require.NoError(t, err)
	require.Equal(t, rendered, ask(rendered, "fmt", "-"))
}
