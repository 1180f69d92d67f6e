package endpoints

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	nexuspb "go.temporal.io/api/nexus/v1"
	"go.temporal.io/api/operatorservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Endpoint is an endpoint as the server has it. It points either at workers (TargetNamespace and TaskQueue) or at an
// external URL.
type Endpoint struct {
	// Name that workflows use.
	Name string `json:"name"`
	// ID that the server gave it.
	ID string `json:"id"`
	// Version counts the server's writes of this endpoint, from 1.
	Version int64 `json:"version"`
	// Description is the Markdown, "" if there is none or if it cannot be read.
	Description string `json:"description,omitempty"`
	// UnreadableDescription says how the stored description is encoded when it is not plain JSON text, for example
	// because a codec encrypted it. Normally "".
	UnreadableDescription string `json:"unreadableDescription,omitempty"`
	// TargetNamespace and TaskQueue are where the workers poll; "" with an external target.
	TargetNamespace string `json:"targetNamespace,omitempty"`
	TaskQueue       string `json:"taskQueue,omitempty"`
	// TargetURL is the external target, an experimental feature of the server that specs do not cover.
	TargetURL string `json:"targetURL,omitempty"`
	// Created is zero when the server does not say; server v1.32.1 forgets it when an endpoint is updated.
	Created time.Time `json:"created,omitzero"`
	// LastModified is zero for an endpoint that was never updated.
	LastModified time.Time `json:"lastModified,omitzero"`
}

// List reads all endpoints of the server, page by page, sorted by name. Endpoints that come or go while it reads may or
// may not be among them.
func List(ctx context.Context, client operatorservice.OperatorServiceClient, options Options) ([]Endpoint, error) {
	return list(ctx, clientService{client}, options)
}

func list(ctx context.Context, service service, options Options) ([]Endpoint, error) {
	stored, err := newOperator(service, options).all(ctx)
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	listed := make([]Endpoint, 0, len(stored))
	for _, endpoint := range stored {
		listed = append(listed, fromAPI(endpoint))
	}
	slices.SortFunc(listed, func(a, b Endpoint) int { return cmp.Compare(a.Name, b.Name) })
	return listed, nil
}

func fromAPI(stored *nexuspb.Endpoint) Endpoint {
	spec := stored.GetSpec()
	endpoint := Endpoint{
		Name:            spec.GetName(),
		ID:              stored.GetId(),
		Version:         stored.GetVersion(),
		TargetNamespace: spec.GetTarget().GetWorker().GetNamespace(),
		TaskQueue:       spec.GetTarget().GetWorker().GetTaskQueue(),
		TargetURL:       spec.GetTarget().GetExternal().GetUrl(),
		Created:         timeOf(stored.GetCreatedTime()),
		LastModified:    timeOf(stored.GetLastModifiedTime()),
	}
	if markdown, ok := decodeDescription(spec.GetDescription()); ok {
		endpoint.Description = markdown
	} else {
		endpoint.UnreadableDescription = unreadable(spec.GetDescription())
	}
	return endpoint
}

func unreadable(payload *commonpb.Payload) string {
	return fmt.Sprintf("%d bytes that are not plain text (encoding %q)", len(payload.GetData()), encodingOf(payload))
}

// timeOf is the zero time for an absent timestamp, where AsTime says 1970.
func timeOf(timestamp *timestamppb.Timestamp) time.Time {
	if timestamp == nil {
		return time.Time{}
	}
	return timestamp.AsTime()
}
