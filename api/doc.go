// Package api is what a running mpbond tells and takes over its local HTTP
// interface. It stands beside the data path, which knows nothing of it: a role
// hands over functions that describe it, and `mpbond status`, `mpbond events`,
// the console and scripts ask.
//
//	api.go     one mpbond at one moment: types, names and units of the JSON
//	lists.go   devices, pipes, subflows and streams one by one, and events
//	trouble.go why something does not work
//	facts.go   battery, heat and link of a device
//	pairing.go codes by which devices are paired
//	plots.go   values over time, for pictures
//	usage.go   what links carried, by day and month
//	socket.go  where: the socket, one per role and user
//	serve/     the HTTP server: OpenAPI, problems, events, metrics
//	client/    the same from the other side
//	console/   the web console: a page over all of this
//
// The JSON is a contract: within /v2 fields are added, never renamed, removed
// or given another unit. Sizes are in bytes, rates in bits per second, delays
// in milliseconds, and each name ends in its unit.
//
// It imports base.
package api
