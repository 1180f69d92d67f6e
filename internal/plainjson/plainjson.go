// Package plainjson is JSON as it is: without escapes that only HTML needs, and not
// encoded anew where it is there already.
package plainjson

import (
	"bytes"
	"encoding/json"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// Marshal is [json.Marshal] that leaves <, > and & alone: escaped they take six bytes
// each, and a page of HTML would no longer fit.
func Marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// Payload is data as a Temporal payload. A payload converter would encode it anew, with
// the escapes; a codec still sees it.
func Payload(data json.RawMessage) converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
		Data:     data,
	})
}
