package endpoints

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// ReadFile reads the endpoint specs in a YAML or JSON file; see [Parse] for what it may contain. A file that cannot
// be read gives the error of [os.ReadFile], a file with mistakes an [*InvalidSpecError].
func ReadFile(path string) ([]Spec, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read endpoint specs: %w", err)
	}
	return Parse(path, data)
}

// Parse reads endpoint specs from YAML or JSON: a document is either one endpoint or a mapping with the single key
// "endpoints" that holds a list of them. Several YAML documents may follow one another. file names the source in
// errors; if it ends in ".json" the data must be JSON, otherwise either will do.
//
// Reading is strict. Unknown and repeated keys, missing values, values of a wrong type, values that a Temporal server
// would refuse, and names that occur twice are errors; the returned [*InvalidSpecError] has all of them, each with its
// line, its key and what would be right. At least one endpoint must be there.
func Parse(file string, data []byte) ([]Spec, error) {
	var (
		specs    []Spec
		names    []Problem // where the name of each spec stands, for duplicates
		problems []Problem
	)
	add := func(node *yaml.Node, key string) {
		spec, found := decodeSpec(node)
		if key != "" {
			prefixKeys(found, key)
		}
		problems = append(problems, found...)
		specs = append(specs, spec)
		names = append(names, nameAt(resolve(node), key))
	}

	documents, syntax := parseDocuments(file, data)
	for _, document := range documents {
		root := resolve(document)
		list := valueOf(root, keyEndpoints)
		if list == nil {
			add(root, "")
			continue
		}
		for i := 0; i < len(root.Content); i += 2 {
			if key := root.Content[i]; resolve(key).Value != keyEndpoints {
				problems = append(problems, Problem{Line: key.Line, Key: resolve(key).Value,
					Message: fmt.Sprintf("stands beside %q; move it into an endpoint of the list, or remove it", keyEndpoints)})
			} else if root.Content[i+1] != list {
				problems = append(problems, Problem{Line: key.Line, Key: keyEndpoints, Message: "is given twice; make it one list"})
			}
		}
		items := resolve(list)
		if items.Kind != yaml.SequenceNode {
			problems = append(problems, Problem{Line: list.Line, Key: keyEndpoints,
				Message: fmt.Sprintf("is %s; give a list of endpoints, each with the keys %s", kindOf(items), strings.Join(specKeys, ", "))})
			continue
		}
		for i, item := range items.Content {
			add(item, fmt.Sprintf("%s[%d]", keyEndpoints, i))
		}
	}
	problems = append(problems, duplicateNames(specs, func(i int) Problem { return names[i] })...)
	problems = append(problems, syntax...)
	if len(specs) == 0 && len(problems) == 0 {
		problems = append(problems, Problem{Message: "describes no endpoint; give one, or a list of them under " + keyEndpoints})
	}
	if len(problems) > 0 {
		for i := range problems {
			problems[i].File = file
		}
		slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
		return nil, &InvalidSpecError{Problems: problems}
	}
	return specs, nil
}

// valueOf finds the first value of a key in a mapping, or nil.
func valueOf(node *yaml.Node, key string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if resolve(node.Content[i]).Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// nameAt is where the name of an endpoint stands, without a message.
func nameAt(node *yaml.Node, prefix string) Problem {
	at := Problem{Line: node.Line, Key: keyName}
	if prefix != "" {
		at.Key = prefix + "." + keyName
	}
	if name := valueOf(node, keyName); name != nil {
		at.Line = name.Line
	}
	return at
}

// parseDocuments turns YAML or JSON into one node for each document that has content. What it could read before a
// syntax error is returned beside the error, so that its mistakes are reported together.
//
// JSON is parsed as JSON although YAML claims to contain it: the YAML library refuses the surrogate pairs that many
// JSON writers emit and folds characters such as U+2028 inside strings.
func parseDocuments(file string, data []byte) ([]*yaml.Node, []Problem) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		return nil, []Problem{{Message: "is not UTF-8; save it in that encoding"}}
	}
	if strings.EqualFold(filepath.Ext(file), ".json") || json.Valid(data) {
		node, err := jsonNode(data)
		if err != nil {
			return nil, []Problem{*err}
		}
		return []*yaml.Node{node}, nil
	}

	var documents []*yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return documents, []Problem{yamlSyntax(err)}
		}
		if len(document.Content) == 0 {
			continue
		}
		root := document.Content[0]
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			continue // nothing between two "---"
		}
		documents = append(documents, root)
	}
}

var yamlErrorLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// yamlSyntax takes the line out of the library's message, so that it stands where the others have theirs.
func yamlSyntax(err error) Problem {
	message := err.Error()
	p := Problem{Message: "is not valid YAML: " + yamlErrorLine.ReplaceAllString(message, "")}
	if match := yamlErrorLine.FindStringSubmatch(message); match != nil {
		p.Line, _ = strconv.Atoi(match[1])
	}
	return p
}
