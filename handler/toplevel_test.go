package handler

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheIDOfAnAnswerIsFoundWhereverItStands(t *testing.T) {
	for line, want := range map[string]string{
		`{"jsonrpc":"2.0","id":7,"result":{"content":[{"id":8,"type":"te`:     "7",
		`{"result":{"id":8,"text":"\"id\":9, }{ \\"},"jsonrpc":"2.0","id":7}`: "7",
		`{ "id" : 7 , "error" : [`: "7",
		`{"error":{},"id":7`:       "7",
		`{"id":7`:                  "",
		`{"id":7,"level":"info","msg":"request started"`: "",
		`{"id":null,"result":`:                           "",
		`{"id":7.5,"result":`:                            "",
		`{"id":"a\"b","result":`:                         "",
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"id":2},"id":2`: "",
		`{"params":{"id":2},"method":"m"`:                                            "",
		`{"result":{"id":2}}`:                                                        "",
		`[{"id":2}]`:                                                                 "",
		`{"id":{"a":1},"result":`:                                                    "",
		`{"id":` + strings.Repeat("1", 100) + `,"result":`:                           "",
		`server ready, "id":2`:                                                       "",
		`}}}]]"id":3`:                                                                "",
		``:                                                                           "",
	} {
		for _, size := range []int{1, 3, 1000} {
			var s topLevel
			for rest := line; rest != ""; {
				n := min(size, len(rest))
				s.feed([]byte(rest[:n]))
				rest = rest[n:]
			}
			id, ok := s.answerID()
			assert.Equal(t, want != "", ok, line)
			if ok {
				assert.Equal(t, want, id, line)
			}
		}
	}
}
