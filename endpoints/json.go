package endpoints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// jsonNode parses exactly one JSON value into the tree that the YAML library would make of it, so that one strict
// reader serves both. Repeated keys stay in the tree, for that reader to refuse.
func jsonNode(data []byte) (*yaml.Node, *Problem) {
	p := jsonParser{data: data, decoder: json.NewDecoder(bytes.NewReader(data))}
	p.decoder.UseNumber()
	node, err := p.value()
	if err == nil {
		if _, extra := p.decoder.Token(); !errors.Is(extra, io.EOF) {
			err = errors.New("there is more after the first value; JSON has no documents, so use a list under " + keyEndpoints)
		}
	}
	if err != nil {
		return nil, p.problem(err)
	}
	return node, nil
}

type jsonParser struct {
	data    []byte
	decoder *json.Decoder
	depth   int

	// Lines are counted as they come: each once.
	counted, line int
}

// maxDepth is more than any spec has, and less than would cost the stack.
const maxDepth = 100

func (p *jsonParser) value() (*yaml.Node, error) {
	token, err := p.decoder.Token()
	if err != nil {
		return nil, err
	}
	// No JSON token spans lines, so the line where it ends is the line where it begins.
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: p.lineAt(p.decoder.InputOffset())}
	switch token := token.(type) {
	case json.Delim:
		if p.depth++; p.depth > maxDepth {
			return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
		}
		defer func() { p.depth-- }()
		node.Kind = yaml.SequenceNode
		if token == '{' {
			node.Kind = yaml.MappingNode
		}
		for p.decoder.More() {
			// The members of an object arrive as key, value, key, value: the order of a mapping's Content.
			child, err := p.value()
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		if _, err := p.decoder.Token(); err != nil {
			return nil, err
		}
	case string:
		node.Tag, node.Value = "!!str", token
	case json.Number:
		node.Tag, node.Value = "!!float", token.String()
	case bool:
		node.Tag, node.Value = "!!bool", fmt.Sprint(token)
	case nil:
		node.Tag, node.Value = "!!null", "null"
	}
	return node, nil
}

// lineAt is the line of an offset, from 1.
func (p *jsonParser) lineAt(offset int64) int {
	end := min(int(offset), len(p.data))
	if end < p.counted {
		p.counted, p.line = 0, 0
	}
	p.line += bytes.Count(p.data[p.counted:end], []byte("\n"))
	p.counted = end
	return 1 + p.line
}

func (p *jsonParser) problem(err error) *Problem {
	offset := p.decoder.InputOffset()
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err, offset = errors.New("it ends in the middle"), int64(len(p.data))
	}
	return &Problem{Line: p.lineAt(offset), Message: "is not valid JSON: " + err.Error()}
}
