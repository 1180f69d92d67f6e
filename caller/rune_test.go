package caller

import (
	"encoding/json"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestARuneTakesAsManyBytesInASummaryAsEncodingJSONMakesOfIt(t *testing.T) {
	for r := range rune(unicode.MaxLatin1) {
		if !unicode.IsPrint(r) {
			continue
		}
		encoded, err := json.Marshal(string(r))
		require.NoError(t, err)
		assert.Equal(t, len(encoded)-2, encodedLen(r), "%q", r)
	}
}
