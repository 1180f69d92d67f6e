package endpoints_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/nexusmcp/nexusmcp/endpoints"
)

func text(s string) *string { return &s }

func TestYAMLAndJSONReadTheSame(t *testing.T) {
	one := endpoints.Spec{
		Name:            "tools",
		Description:     text("# Tools\n\"quoted\" $HOME `id` 😀\u2028end\n"),
		TargetNamespace: "platform",
		TaskQueue:       "mcp",
		AllowedCallers:  []string{"orders", "billing"},
	}
	two := endpoints.Spec{Name: "more-tools", TargetNamespace: "platform", TaskQueue: "mcp-2"}
	for _, test := range []struct {
		name, file, data string
		want             []endpoints.Spec
	}{
		{"one endpoint", "e.yaml", `
name: tools
description: "# Tools\n\"quoted\" $HOME ` + "`id`" + ` \U0001F600\u2028end\n"
targetNamespace: platform
taskQueue: mcp
allowedCallers: [orders, billing]
`, []endpoints.Spec{one}},
		{"a list", "e.yaml", `
endpoints:
  - {name: more-tools, targetNamespace: platform, taskQueue: mcp-2}
  - name: other
    targetNamespace: &ns platform
    taskQueue: *ns
`, []endpoints.Spec{two, {Name: "other", TargetNamespace: "platform", TaskQueue: "platform"}}},
		{"several documents, some empty", "e.yaml", `
---
name: more-tools
targetNamespace: platform
taskQueue: mcp-2
---
---
endpoints:
  - name: other
    targetNamespace: platform
    taskQueue: q
---
`, []endpoints.Spec{two, {Name: "other", TargetNamespace: "platform", TaskQueue: "q"}}},
		{"JSON with tabs and surrogate pairs", "e.json", "\ufeff{\n\t\"name\": \"tools\",\n\t\"description\": \"# Tools\\n\\\"quoted\\\" $HOME `id` \\ud83d\\ude00\u2028end\\n\"," +
			"\n\t\"targetNamespace\": \"platform\",\n\t\"taskQueue\": \"mcp\",\n\t\"allowedCallers\": [\"orders\", \"billing\"]\n}\n", []endpoints.Spec{one}},
		{"JSON from a pipe", "<stdin>", `{"endpoints": [{"name": "more-tools", "targetNamespace": "platform", "taskQueue": "mcp-2"}]}`, []endpoints.Spec{two}},
		{"stated empty values", "e.yaml", "name: tools\ndescription: ''\ntargetNamespace: platform\ntaskQueue: q\nallowedCallers: []\n", []endpoints.Spec{
			{Name: "tools", Description: text(""), TargetNamespace: "platform", TaskQueue: "q", AllowedCallers: []string{}},
		}},
		{"text that looks like something else, in quotes", "e.yaml", "name: 'no'\ntargetNamespace: '123'\ntaskQueue: \"true\"\n", []endpoints.Spec{
			{Name: "no", TargetNamespace: "123", TaskQueue: "true"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := endpoints.Parse(test.file, []byte(test.data))
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestASpecWrittenAsJSONReadsBackAsItself(t *testing.T) {
	for _, spec := range []endpoints.Spec{
		{Name: "tools", TargetNamespace: "platform", TaskQueue: "q"},
		{Name: "tools", Description: text(""), TargetNamespace: "platform", TaskQueue: "q", AllowedCallers: []string{}},
		{Name: "tools", Description: text("a\nb"), TargetNamespace: "platform", TaskQueue: "q", AllowedCallers: []string{"x"}},
	} {
		data, err := json.Marshal(spec)
		require.NoError(t, err)
		got, err := endpoints.Parse("e.json", data)
		require.NoError(t, err)
		require.Equal(t, []endpoints.Spec{spec}, got)
	}
}

func TestEachMistakeIsNamedWithItsLineAndWhatWouldBeRight(t *testing.T) {
	valid := "name: tools\ntargetNamespace: platform\ntaskQueue: q\n"
	for _, test := range []struct {
		name, file, data string
		want             []string
	}{
		{"an unknown key", "e.yaml", valid + "queue: x\n", []string{
			"e.yaml:4: queue: is not a key of an endpoint; those are name, description, targetNamespace, taskQueue, allowedCallers"}},
		{"a repeated key", "e.yaml", valid + "name: other\n", []string{
			"e.yaml:4: name: is given twice, first on line 1; keep one"}},
		{"a key that repeats another by its alias", "e.yaml", "&taskQueue name: tools\ntargetNamespace: platform\n*taskQueue : q\n", []string{
			"e.yaml:1: taskQueue: is missing; give the task queue on which the workers poll",
			"e.yaml:3: name: is given twice, first on line 1; keep one"}},
		{"JSON that only opens", "e.json", strings.Repeat("\n[", 1_000_000), []string{
			"e.json:102: is not valid JSON: it is nested more than 100 deep"}},
		{"missing keys", "e.yaml", "\n\nname: tools\n", []string{
			"e.yaml:3: targetNamespace: is missing; give the namespace in which the workers poll",
			"e.yaml:3: taskQueue: is missing; give the task queue on which the workers poll"}},
		{"empty values", "e.yaml", "name: ''\ntargetNamespace: ''\ntaskQueue: ''\nallowedCallers: ['']\n", []string{
			"e.yaml:1: name: is missing; give the name that workflows will call, such as tools",
			"e.yaml:2: targetNamespace: is missing; give the namespace in which the workers poll",
			"e.yaml:3: taskQueue: is missing; give the task queue on which the workers poll",
			"e.yaml:4: allowedCallers[0]: is missing; give a namespace, or remove the entry"}},
		{"values of another type", "e.yaml", "name: 12\ndescription:\ntargetNamespace: [a]\ntaskQueue: true\nallowedCallers: orders\n", []string{
			`e.yaml:1: name: is a number (12); if the text is meant, put it in quotes: "12"`,
			`e.yaml:2: description: has no value; write "" to clear the description, or leave the key out to keep the one on the server`,
			`e.yaml:3: targetNamespace: is a list; give a string`,
			`e.yaml:4: taskQueue: is a boolean (true); if the text is meant, put it in quotes: "true"`,
			`e.yaml:5: allowedCallers: is a string; give a list of namespaces ([] allows nobody), or leave the key out to say nothing`}},
		{"the same in JSON", "e.json", "{\n\"name\": 12,\n\"description\": null,\n\"targetNamespace\": [\"a\"],\n\"taskQueue\": true,\n\"allowedCallers\": [\n1]}\n", []string{
			`e.json:2: name: is a number (12); if the text is meant, put it in quotes: "12"`,
			`e.json:3: description: has no value; write "" to clear the description, or leave the key out to keep the one on the server`,
			`e.json:4: targetNamespace: is a list; give a string`,
			`e.json:5: taskQueue: is a boolean (true); if the text is meant, put it in quotes: "true"`,
			`e.json:7: allowedCallers[0]: is a number (1); if the text is meant, put it in quotes: "1"`}},
		{"a list that is none", "e.yaml", "endpoints: tools\n", []string{
			`e.yaml:1: endpoints: is a string; give a list of endpoints, each with the keys name, description, targetNamespace, taskQueue, allowedCallers`}},
		{"a name with an underscore", "e.yaml", strings.Replace(valid, "tools", "my_tools", 1), []string{
			`e.yaml:1: name: is "my_tools"; use letters, digits and hyphens, at least two characters, beginning with a letter and not ending with a hyphen`}},
		{"a long name", "e.yaml", strings.Replace(valid, "tools", strings.Repeat("n", 201), 1), []string{
			`e.yaml:1: name: has 201 bytes; at most 200 are allowed`}},
		{"a long description", "e.yaml", valid + "description: " + strings.Repeat("d", 20000) + "\n", []string{
			`e.yaml:4: description: takes 20030 bytes as the server stores it; at most 20000 are allowed, so shorten it and link to the rest`}},
		{"a long task queue", "e.yaml", strings.Replace(valid, "taskQueue: q", "taskQueue: "+strings.Repeat("q", 1001), 1), []string{
			`e.yaml:3: taskQueue: has 1001 bytes; at most 1000 are allowed`}},
		{"a reserved task queue", "e.yaml", strings.Replace(valid, "taskQueue: q", "taskQueue: /_sys/q/1", 1), []string{
			`e.yaml:3: taskQueue: begins with /_sys/, which is kept for Temporal's own queues; give the queue's public name`}},
		{"a block scalar where one line is meant", "e.yaml", "name: tools\ntargetNamespace: |\n  platform\ntaskQueue: \"a\\tb\"\n", []string{
			`e.yaml:2: targetNamespace: is "platform\n"; remove the space around it`,
			`e.yaml:4: taskQueue: is "a\tb"; remove the control character`}},
		{"NUL bytes", "e.yaml", "name: tools\ndescription: \"a\\0b\"\ntargetNamespace: platform\ntaskQueue: \"q\\0\"\n", []string{
			`e.yaml:2: description: contains a NUL byte; remove it`,
			`e.yaml:4: taskQueue: contains a NUL byte; remove it`}},
		{"a caller given twice", "e.yaml", valid + "allowedCallers:\n  - a\n  - b\n  - a\n", []string{
			`e.yaml:7: allowedCallers[2]: is "a" a second time; keep one`}},
		{"a merge key", "e.yaml", valid + "<<: {name: x}\n", []string{
			"e.yaml:4: <<: is not a key of an endpoint; those are name, description, targetNamespace, taskQueue, allowedCallers"}},
		{"mistakes all over a file", "e.yaml", `endpoints:
  - name: tools
    targetNamespace: platform
  - nonsense
  - name: tools
    targetNamespace: platform
    taskQueue: q
    colour: red
version: 1
---
name: tools
taskQueue: 7
targetNamespace: platform
`, []string{
			"e.yaml:2: endpoints[0].taskQueue: is missing; give the task queue on which the workers poll",
			"e.yaml:4: endpoints[1]: is a string; an endpoint is a mapping with the keys name, description, targetNamespace, taskQueue, allowedCallers",
			"e.yaml:5: endpoints[2].name: is \"tools\", which is also the name at line 2; a server has one endpoint of a name, so rename or remove one",
			"e.yaml:8: endpoints[2].colour: is not a key of an endpoint; those are name, description, targetNamespace, taskQueue, allowedCallers",
			`e.yaml:9: version: stands beside "endpoints"; move it into an endpoint of the list, or remove it`,
			"e.yaml:11: name: is \"tools\", which is also the name at line 2; a server has one endpoint of a name, so rename or remove one",
			`e.yaml:12: taskQueue: is a number (7); if the text is meant, put it in quotes: "7"`}},
		{"two lists", "e.yaml", "endpoints: []\nendpoints: []\n", []string{
			"e.yaml:2: endpoints: is given twice; make it one list"}},
		{"nothing", "e.yaml", "# only a comment\n", []string{
			"e.yaml: describes no endpoint; give one, or a list of them under endpoints"}},
		{"an empty list", "e.yaml", "endpoints: []\n", []string{
			"e.yaml: describes no endpoint; give one, or a list of them under endpoints"}},
		{"a list without its key", "e.yaml", "- name: tools\n", []string{
			"e.yaml:1: is a list; an endpoint is a mapping with the keys name, description, targetNamespace, taskQueue, allowedCallers"}},
		{"broken YAML after a mistake", "e.yaml", "name: a\ntargetNamespace: platform\ntaskQueue: q\n---\nname: [\n", []string{
			`e.yaml:1: name: is "a"; use letters, digits and hyphens, at least two characters, beginning with a letter and not ending with a hyphen`,
			"e.yaml:5: is not valid YAML: did not find expected node content"}},
		{"broken JSON", "e.json", "{\"name\": \"tools\",\n  \"x\" 1}", []string{
			"e.json:2: is not valid JSON: invalid character '1' after object key"}},
		{"JSON that ends early", "e.json", "{\"name\": \"tools\",\n", []string{
			"e.json:2: is not valid JSON: it ends in the middle"}},
		{"two JSON values", "e.json", "{}\n{}", []string{
			"e.json:2: is not valid JSON: there is more after the first value; JSON has no documents, so use a list under endpoints"}},
		{"YAML in a JSON file", "e.json", valid, []string{
			"e.json:1: is not valid JSON: invalid character 'a' in literal null (expecting 'u')"}},
		{"another encoding", "e.yaml", "name: \xff\n", []string{
			"e.yaml: is not UTF-8; save it in that encoding"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			specs, err := endpoints.Parse(test.file, []byte(test.data))
			require.Nil(t, specs)
			var invalid *endpoints.InvalidSpecError
			require.ErrorAs(t, err, &invalid)
			var got []string
			for _, problem := range invalid.Problems {
				got = append(got, problem.String())
			}
			require.Equal(t, test.want, got)
			for _, line := range test.want {
				require.ErrorContains(t, err, line)
			}
		})
	}
}

func TestNamesAreJudgedByTheServersRule(t *testing.T) {
	for name, valid := range map[string]bool{
		"ab": true, "a1": true, "A-b-9": true, "a--b": true, strings.Repeat("n", 200): true,
		"a": false, "": false, "1a": false, "-a": false, "a-": false, "a_b": false, "a.b": false, "ä1": false, "a b": false, "ab\n": false,
	} {
		err := endpoints.Validate([]endpoints.Spec{{Name: name, TargetNamespace: "n", TaskQueue: "q"}})
		require.Equal(t, valid, err == nil, "%q: %v", name, err)
	}
}

func TestTheLongestDescriptionIsTheOneTheServerStillTakes(t *testing.T) {
	fake := newFakeOperator()
	var longest string
	for n := 20000; ; n-- {
		longest = strings.Repeat("d", n)
		spec := described(tools("mcp"), longest)
		if endpoints.Validate([]endpoints.Spec{spec}) == nil {
			_, err := endpoints.ApplyTo(t.Context(), fake, spec, endpoints.Options{})
			require.NoError(t, err)
			break
		}
	}
	require.Equal(t, 20000, fake.stored(t, "tools").GetSpec().GetDescription().Size())
}

func TestValidateNamesTheSpecByItsPlace(t *testing.T) {
	good := endpoints.Spec{Name: "tools", TargetNamespace: "n", TaskQueue: "q"}
	bad := endpoints.Spec{Name: "tools", TargetNamespace: "n", Description: text("\xff")}
	require.NoError(t, endpoints.Validate(nil))
	require.NoError(t, endpoints.Validate([]endpoints.Spec{good}))
	require.EqualError(t, endpoints.Validate([]endpoints.Spec{good, bad}), `invalid endpoint spec: 3 problems:
  endpoints[1].description: is not valid UTF-8; protobuf strings must be
  endpoints[1].taskQueue: is missing; give the task queue on which the workers poll
  endpoints[1].name: is "tools", which is also the name at endpoints[0].name; a server has one endpoint of a name, so rename or remove one`)
	require.EqualError(t, endpoints.Validate([]endpoints.Spec{{Name: "tools", TargetNamespace: "n"}}),
		"invalid endpoint spec: taskQueue: is missing; give the task queue on which the workers poll")
}

func TestASpecInsideAnotherFileIsReadAsStrictly(t *testing.T) {
	type config struct {
		Port      int              `yaml:"port"`
		Endpoints []endpoints.Spec `yaml:"endpoints"`
	}
	var good config
	require.NoError(t, yaml.Unmarshal([]byte("port: 1\nendpoints:\n  - name: tools\n    targetNamespace: n\n    taskQueue: q\n"), &good))
	require.Equal(t, []endpoints.Spec{{Name: "tools", TargetNamespace: "n", TaskQueue: "q"}}, good.Endpoints)

	var bad config
	err := yaml.Unmarshal([]byte("port: x\nendpoints:\n  - name: t\n    targetNamespace: n\n    queue: q\n  - 7\n"), &bad)
	var typeError *yaml.TypeError
	require.ErrorAs(t, err, &typeError)
	require.Equal(t, []string{
		"line 1: cannot unmarshal !!str `x` into int",
		"line 5: queue: is not a key of an endpoint; those are name, description, targetNamespace, taskQueue, allowedCallers",
		`line 3: name: is "t"; use letters, digits and hyphens, at least two characters, beginning with a letter and not ending with a hyphen`,
		"line 3: taskQueue: is missing; give the task queue on which the workers poll",
		"line 6: is a number; an endpoint is a mapping with the keys name, description, targetNamespace, taskQueue, allowedCallers",
	}, typeError.Errors)
}

func TestReadFileReadsWhatParseParses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "endpoints.yaml")
	_, err := endpoints.ReadFile(path)
	require.ErrorIs(t, err, os.ErrNotExist)

	require.NoError(t, os.WriteFile(path, []byte("name: tools\ntargetNamespace: n\ntaskQueue: q\n"), 0o600))
	specs, err := endpoints.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, []endpoints.Spec{{Name: "tools", TargetNamespace: "n", TaskQueue: "q"}}, specs)

	require.NoError(t, os.WriteFile(path, []byte("name: t\n"), 0o600))
	_, err = endpoints.ReadFile(path)
	require.ErrorContains(t, err, path+":1: name: ")
}

func FuzzParseNeverPanicsAndReturnsOnlyValidSpecs(f *testing.F) {
	f.Add("name: tools\ntargetNamespace: n\ntaskQueue: q\n")
	f.Add(`{"endpoints": [{"name": "tools"}, null, 1]}`)
	f.Add("endpoints: &a [*a]\n---\n? [x]\n: y\n<<: *a\n")
	f.Fuzz(func(t *testing.T, data string) {
		specs, err := endpoints.Parse("e", []byte(data))
		if err == nil {
			require.NotEmpty(t, specs)
			require.NoError(t, endpoints.Validate(specs))
		} else {
			var invalid *endpoints.InvalidSpecError
			require.ErrorAs(t, err, &invalid)
			require.NotEmpty(t, invalid.Problems)
		}
	})
}
