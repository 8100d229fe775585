// SPDX-License-Identifier: Apache-2.0

// Package api is the contract of the local HTTP API of a running mpbond. It stands beside the data
// path, which does not use it: a role passes functions that describe and change it, and `mpbond
// status`, `mpbond events`, the console and scripts are clients.
//
//	api.go     one mpbond at one moment: types, names and units of the JSON
//	lists.go   devices, pipes, subflows and streams one by one, and events
//	trouble.go why something does not work
//	facts.go   battery, heat and link of a device
//	handoffs.go handoffs of its mobile links
//	pairing.go codes by which devices are paired
//	plots.go   values over time, for pictures
//	usage.go   what links carried, by day and month
//	advice.go  which links a transfer would use, and what others would take
//	socket.go  where: the socket, one per role and user
//	serve/     the HTTP server: OpenAPI, problems, events, metrics
//	client/    the same from the other side
//	console/   the web console: a page over all of this
//
// The JSON is a contract: within /v2 fields are added, never renamed, removed or given another
// unit. Sizes are in bytes, rates in bits per second, delays in milliseconds, and each name ends in
// its unit.
//
// It imports base.
package api
