package endpoints

// What [Apply], [List] and [Delete] do, on a service that is not behind a generated client.
var (
	ApplyTo    = apply
	ListFrom   = list
	DeleteFrom = remove
)
