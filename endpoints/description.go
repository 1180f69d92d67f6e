package endpoints

import (
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/converter"
)

// The API wants a "Markdown description serialized as a single JSON string" (nexus/v1 EndpointSpec.description). The
// Temporal CLI, Temporal Cloud's tools and the Terraform provider all store that as a json/plain payload, which the
// default data converter makes of a string; the UI renders it.

// encodeDescription is the payload for a description. No description is no payload.
func encodeDescription(markdown string) (*commonpb.Payload, error) {
	if markdown == "" {
		return nil, nil
	}
	return converter.GetDefaultDataConverter().ToPayload(markdown)
}

// decodeDescription is the Markdown in a payload. ok is false when it holds something else, such as text that a codec
// has encrypted: it can be neither compared nor shown.
func decodeDescription(payload *commonpb.Payload) (markdown string, ok bool) {
	if payload == nil {
		return "", true
	}
	if encodingOf(payload) != converter.MetadataEncodingJSON {
		return "", false
	}
	err := converter.GetDefaultDataConverter().FromPayload(payload, &markdown)
	return markdown, err == nil
}

func encodingOf(payload *commonpb.Payload) string {
	return string(payload.GetMetadata()[converter.MetadataEncoding])
}
