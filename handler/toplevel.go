package handler

import "strconv"

// topLevel finds the ID of a JSON-RPC answer in a line that cannot be decoded,
// because it is too long to be kept or is not JSON to its end. It sees the line
// in parts, and keeps nothing of it but what it looks for.
type topLevel struct {
	depth    int
	inString bool
	escaped  bool
	isKey    bool // the next string at depth 1 is a member's name
	inValue  bool // at depth 1, after the colon of "id"

	token  []byte // the member's name, or the ID's value, as far as it is short
	key    string
	id     []byte
	method bool
	answer bool
}

const longestToken = 64

// feed scans the next part of the line.
func (s *topLevel) feed(part []byte) {
	for _, b := range part {
		if s.inString {
			s.keep(b)
			switch {
			case s.escaped:
				s.escaped = false
			case b == '\\':
				s.escaped = true
			case b == '"':
				s.inString = false
				if s.depth == 1 && s.isKey {
					s.key = string(s.token[:max(0, len(s.token)-1)])
					s.method = s.method || s.key == "method"
					s.answer = s.answer || s.key == "result" || s.key == "error"
				}
			}
			continue
		}
		switch b {
		case '"':
			s.inString = true
			if s.depth == 1 && s.isKey {
				s.token = s.token[:0]
				continue
			}
			s.keep(b)
		case '{', '[':
			s.depth++
			s.isKey = s.depth == 1 && b == '{'
		case '}', ']':
			s.endValue()
			s.depth--
		case ':':
			if s.depth == 1 && s.isKey {
				s.isKey = false
				s.inValue = s.key == "id"
				s.token = s.token[:0]
			}
		case ',':
			s.endValue()
			s.isKey = s.depth == 1
		case ' ', '\t', '\r', '\n':
		default:
			s.keep(b)
		}
	}
}

func (s *topLevel) keep(b byte) {
	if s.depth == 1 && len(s.token) < longestToken {
		s.token = append(s.token, b)
	}
}

func (s *topLevel) endValue() {
	if s.depth == 1 && s.inValue {
		s.id = append(s.id[:0], s.token...)
		s.inValue = false
	}
}

// answerID returns the ID in JSON, if the line is an answer to a request of ours:
// the SDK numbers them.
func (s *topLevel) answerID() (string, bool) {
	if s.depth == 1 && s.inValue && len(s.token) > 0 {
		s.endValue() // the line ends in it
	}
	_, err := strconv.ParseUint(string(s.id), 10, 63)
	return string(s.id), err == nil && s.answer && !s.method
}
