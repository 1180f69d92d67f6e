package endpoints

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a Temporal server with its default settings (service/frontend/nexus_endpoint_client.go and
// common/dynamicconfig/constants.go, server v1.32.1). A server that was configured more strictly refuses more, and
// says so.
const (
	maxNameBytes        = 200   // limit.endpointNameMaxLength
	maxDescriptionBytes = 20000 // limit.endpointDescriptionMaxSize: the whole payload
	maxIDBytes          = 1000  // limit.maxIDLength: namespaces, task queues

	// Names of internal task queues; the server refuses them as targets.
	reservedTaskQueuePrefix = "/_sys/"
)

// The server's own rule, which is narrower than the comment on EndpointSpec.name in the API.
var endpointName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9\-]*[a-zA-Z0-9]$`)

// Problem is one mistake in a spec.
type Problem struct {
	// File is the name given to [Parse]. "" for a spec that was built in Go.
	File string
	// Line counts from 1. 0 when the spec was built in Go.
	Line int
	// Key is the path to the value, such as "endpoints[1].taskQueue". "" when the document as a whole is wrong.
	Key string
	// Message says what is wrong and what would be right.
	Message string
}

// String is "file:line: key: message", without the parts that are unknown.
func (p Problem) String() string {
	var parts []string
	switch {
	case p.File != "" && p.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", p.File, p.Line))
	case p.File != "":
		parts = append(parts, p.File)
	case p.Line > 0:
		parts = append(parts, fmt.Sprintf("line %d", p.Line))
	}
	if p.Key != "" {
		parts = append(parts, p.Key)
	}
	return strings.Join(append(parts, p.Message), ": ")
}

// InvalidSpecError lists every mistake found in a spec or a file of specs, in the order of the file. It is what
// [Parse], [ReadFile], [Validate], [Apply] and [Render] return for a spec that cannot be right on any server.
type InvalidSpecError struct {
	// Problems is never empty.
	Problems []Problem
}

// Error has one line for each problem.
func (e *InvalidSpecError) Error() string {
	if len(e.Problems) == 1 {
		return "invalid endpoint spec: " + e.Problems[0].String()
	}
	lines := []string{fmt.Sprintf("invalid endpoint spec: %d problems:", len(e.Problems))}
	for _, p := range e.Problems {
		lines = append(lines, "  "+p.String())
	}
	return strings.Join(lines, "\n")
}

// Validate checks specs against the rules of a Temporal server with default settings, and that no two have the same
// name. The error is an [*InvalidSpecError] with all mistakes. Use it for specs that were built in Go or decoded as
// part of another file; [Parse] has checked what it returns.
func Validate(specs []Spec) error {
	var problems []Problem
	for i, spec := range specs {
		found := spec.problems()
		if len(specs) > 1 {
			prefixKeys(found, fmt.Sprintf("%s[%d]", keyEndpoints, i))
		}
		problems = append(problems, found...)
	}
	problems = append(problems, duplicateNames(specs, func(i int) Problem {
		return Problem{Key: fmt.Sprintf("%s[%d].%s", keyEndpoints, i, keyName)}
	})...)
	if len(problems) > 0 {
		return &InvalidSpecError{Problems: problems}
	}
	return nil
}

// duplicateNames reports every spec whose name an earlier one has. at says where the name of a spec stands.
func duplicateNames(specs []Spec, at func(i int) Problem) []Problem {
	var problems []Problem
	first := map[string]int{}
	for i, spec := range specs {
		if spec.Name == "" {
			continue // reported as missing
		}
		j, seen := first[spec.Name]
		if !seen {
			first[spec.Name] = i
			continue
		}
		p, earlier := at(i), at(j)
		where := earlier.Key
		if earlier.Line > 0 {
			where = fmt.Sprintf("line %d", earlier.Line)
		}
		p.Message = fmt.Sprintf("is %q, which is also the name at %s; a server has one endpoint of a name, so rename or remove one", spec.Name, where)
		problems = append(problems, p)
	}
	return problems
}

// prefixKeys turns "name" into "endpoints[1].name".
func prefixKeys(problems []Problem, prefix string) {
	for i := range problems {
		if problems[i].Key == "" {
			problems[i].Key = prefix
		} else {
			problems[i].Key = prefix + "." + problems[i].Key
		}
	}
}

// problems checks the values of one spec, with keys but without file and line.
func (s Spec) problems() []Problem {
	var problems []Problem
	refuse := func(key, format string, args ...any) {
		problems = append(problems, Problem{Key: key, Message: fmt.Sprintf(format, args...)})
	}

	switch {
	case s.Name == "":
		refuse(keyName, "is missing; give the name that workflows will call, such as tools")
	case len(s.Name) > maxNameBytes:
		refuse(keyName, "has %d bytes; at most %d are allowed", len(s.Name), maxNameBytes)
	case !endpointName.MatchString(s.Name):
		refuse(keyName, "is %q; use letters, digits and hyphens, at least two characters, beginning with a letter and not ending with a hyphen", s.Name)
	}

	if s.Description != nil {
		if complaint := textComplaint(*s.Description); complaint != "" {
			refuse(keyDescription, "%s", complaint)
		} else if payload, err := encodeDescription(*s.Description); err != nil {
			refuse(keyDescription, "cannot be encoded: %v", err)
		} else if size := payload.Size(); size > maxDescriptionBytes {
			refuse(keyDescription, "takes %d bytes as the server stores it; at most %d are allowed, so shorten it and link to the rest", size, maxDescriptionBytes)
		}
	}

	if complaint := idComplaint(s.TargetNamespace, "give the namespace in which the workers poll"); complaint != "" {
		refuse(keyTargetNamespace, "%s", complaint)
	}
	if complaint := idComplaint(s.TaskQueue, "give the task queue on which the workers poll"); complaint != "" {
		refuse(keyTaskQueue, "%s", complaint)
	} else if strings.HasPrefix(s.TaskQueue, reservedTaskQueuePrefix) {
		refuse(keyTaskQueue, "begins with %s, which is kept for Temporal's own queues; give the queue's public name", reservedTaskQueuePrefix)
	}

	for i, caller := range s.AllowedCallers {
		key := fmt.Sprintf("%s[%d]", keyAllowedCallers, i)
		if complaint := idComplaint(caller, "give a namespace, or remove the entry"); complaint != "" {
			refuse(key, "%s", complaint)
		} else if slices.Contains(s.AllowedCallers[:i], caller) {
			refuse(key, "is %q a second time; keep one", caller)
		}
	}
	return problems
}

// textComplaint says why text can reach no server, or "".
func textComplaint(text string) string {
	switch {
	case !utf8.ValidString(text):
		return "is not valid UTF-8; protobuf strings must be"
	case strings.ContainsRune(text, 0):
		// The server would take it, but no command line can carry it: the rendered commands could not say the same.
		return "contains a NUL byte; remove it"
	}
	return ""
}

// idComplaint says why id cannot name a namespace or a task queue, or "". ask says what to give when it is missing.
//
// The server itself would accept space around a name and control characters in it. Both are always a slip here, such
// as a YAML block scalar with its newline, and lead to an endpoint that no worker ever serves.
func idComplaint(id, ask string) string {
	if id == "" {
		return "is missing; " + ask
	}
	if complaint := textComplaint(id); complaint != "" {
		return complaint
	}
	switch {
	case len(id) > maxIDBytes:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(id), maxIDBytes)
	case strings.TrimSpace(id) != id:
		return fmt.Sprintf("is %q; remove the space around it", id)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Sprintf("is %q; remove the control character", id)
	}
	return ""
}
