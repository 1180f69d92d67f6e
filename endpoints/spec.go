package endpoints

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// The keys of a spec, as they are written in YAML and JSON and named in errors and in [Change.Field].
const (
	keyName            = "name"
	keyDescription     = "description"
	keyTargetNamespace = "targetNamespace"
	keyTaskQueue       = "taskQueue"
	keyAllowedCallers  = "allowedCallers"

	// keyEndpoints holds the list when a document describes several endpoints.
	keyEndpoints = "endpoints"
)

var specKeys = []string{keyName, keyDescription, keyTargetNamespace, keyTaskQueue, keyAllowedCallers}

// Spec is what an operator wants of one Nexus endpoint. In YAML:
//
//	name: tools
//	description: |
//	  # MCP tools of the platform team
//	targetNamespace: platform
//	taskQueue: mcp
//	allowedCallers: [orders, billing]
//
// A spec says nothing about what it leaves out: a nil Description or nil AllowedCallers leaves the server's value
// alone, and only a stated empty value clears it.
//
// Reading is strict ([Parse], and [Spec.UnmarshalYAML] for a spec inside another YAML file). A Spec built in Go is
// checked by [Validate], which [Apply] and [Render] call.
type Spec struct {
	// Name is what workflows pass to workflow.NewNexusClient. It is unique on the server, matches
	// ^[a-zA-Z][a-zA-Z0-9\-]*[a-zA-Z0-9]$ and has at most 200 bytes. Renaming is not possible here: another name is
	// another endpoint.
	Name string `json:"name"`

	// Description is Markdown for the Temporal UI. nil leaves the stored description alone; "" clears it. With its
	// encoding it may have at most 20,000 bytes.
	Description *string `json:"description,omitempty"`

	// TargetNamespace is the namespace whose workers serve the endpoint. Temporal Cloud wants the namespace ID
	// ("name.account").
	TargetNamespace string `json:"targetNamespace"`

	// TaskQueue is the queue in TargetNamespace on which those workers poll.
	TaskQueue string `json:"taskQueue"`

	// AllowedCallers are the namespaces whose workflows may call the endpoint. nil says nothing; an empty list allows
	// nobody. Only Temporal Cloud enforces it: see [Options.AcceptUnenforcedCallers].
	AllowedCallers []string `json:"allowedCallers,omitzero"`
}

// UnmarshalYAML reads a spec that is part of another YAML document, as strictly as [Parse]: unknown keys, values of a
// wrong type and values that the server would refuse are errors. All of them are reported at once, in a
// [yaml.TypeError], with their lines, so that the decoder can add them to those of the rest of the document. Names
// that occur twice are the business of [Validate], which sees all specs together.
func (s *Spec) UnmarshalYAML(node *yaml.Node) error {
	spec, problems := decodeSpec(node)
	if len(problems) == 0 {
		*s = spec
		return nil
	}
	typeError := &yaml.TypeError{}
	for _, p := range problems {
		typeError.Errors = append(typeError.Errors, p.String())
	}
	return typeError
}

// decodeSpec reads one endpoint and checks its values. It never stops at the first mistake.
func decodeSpec(node *yaml.Node) (Spec, []Problem) {
	node = resolve(node)
	if node.Kind != yaml.MappingNode {
		return Spec{}, []Problem{{
			Line:    node.Line,
			Message: fmt.Sprintf("is %s; an endpoint is a mapping with the keys %s", kindOf(node), strings.Join(specKeys, ", ")),
		}}
	}

	var (
		spec     Spec
		problems []Problem
		lines    = map[string]int{} // where each key stands, for problems found later
		unread   = map[string]bool{}
	)
	refuse := func(line int, key, format string, args ...any) {
		problems = append(problems, Problem{Line: line, Key: key, Message: fmt.Sprintf(format, args...)})
		unread[key] = true
	}
	readString := func(key string, value *yaml.Node) string {
		value = resolve(value)
		switch {
		case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!str":
			return value.Value
		case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null" && key == keyDescription:
			refuse(value.Line, key, `has no value; write "" to clear the description, or leave the key out to keep the one on the server`)
		case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null":
			refuse(value.Line, key, "has no value; give a string")
		case value.Kind == yaml.ScalarNode:
			refuse(value.Line, key, "is %s (%s); if the text is meant, put it in quotes: %q", kindOf(value), value.Value, value.Value)
		default:
			refuse(value.Line, key, "is %s; give a string", kindOf(value))
		}
		return ""
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := resolve(node.Content[i]).Value, node.Content[i+1]
		if first, seen := lines[key]; seen {
			refuse(node.Content[i].Line, key, "is given twice, first on line %d; keep one", first)
			continue
		}
		lines[key] = node.Content[i].Line
		switch key {
		case keyName:
			spec.Name = readString(key, value)
		case keyDescription:
			description := readString(key, value)
			spec.Description = &description
		case keyTargetNamespace:
			spec.TargetNamespace = readString(key, value)
		case keyTaskQueue:
			spec.TaskQueue = readString(key, value)
		case keyAllowedCallers:
			list := resolve(value)
			if list.Kind != yaml.SequenceNode {
				refuse(value.Line, key, "is %s; give a list of namespaces ([] allows nobody), or leave the key out to say nothing", kindOf(list))
				continue
			}
			spec.AllowedCallers = []string{} // a stated empty list is not the same as none
			for j, item := range list.Content {
				itemKey := fmt.Sprintf("%s[%d]", key, j)
				lines[itemKey] = item.Line
				spec.AllowedCallers = append(spec.AllowedCallers, readString(itemKey, item))
			}
		default:
			refuse(node.Content[i].Line, key, "is not a key of an endpoint; those are %s", strings.Join(specKeys, ", "))
		}
	}

	for _, p := range spec.problems() {
		if unread[p.Key] {
			continue // its value was refused already: one mistake, one message
		}
		p.Line = node.Line
		if line, ok := lines[p.Key]; ok {
			p.Line = line
		}
		problems = append(problems, p)
	}
	return spec, problems
}

// resolve follows a YAML alias to what it stands for.
func resolve(node *yaml.Node) *yaml.Node {
	for node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	return node
}

// kindOf says in words what a node holds.
func kindOf(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch node.ShortTag() {
	case "!!str":
		return "a string"
	case "!!null":
		return "empty"
	case "!!int", "!!float":
		return "a number"
	case "!!bool":
		return "a boolean"
	case "!!timestamp":
		return "a date"
	}
	return "a value with the tag " + node.ShortTag()
}
