// Package serve answers the local API of a running mpbond: HTTP over a unix
// socket that only its owner can open. It stands between a role, which hands
// over functions that describe and change it, and the clients.
//
//	serve.go     the server, its limits, what a role hands over
//	routes.go    the resources, and their OpenAPI description
//	problem.go   errors as application/problem+json (RFC 9457)
//	describe.go  comments of the Go types as descriptions
//	feed.go      changes, kept for a while
//	usage.go     what links carried, as JSON and as a table
//	events.go    changes as server-sent events
//	metrics.go   GET /metrics
//	history.go   rates of the last minute and hour
//	plots.go     the same as pictures
//	qr.go        the code for pairing as a picture
//	tcp.go       all of it over TCP, for those who know a token, with the web console
package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"mpbond/api"
)

// Limits of the API server.
const (
	readTimeout     = 5 * time.Second // for the header, and again for the body
	writeTimeout    = 5 * time.Second // of an answer, and of each event
	idleTimeout     = time.Minute
	maxHeader       = 16 << 10
	maxBody         = 4 << 10
	maxText         = 2 << 20 // of a body with a text of 1 MB, as JSON
	shutdownTimeout = time.Second
)

// Role is what the API serves. Errors of its functions are faults; a function
// that is nil is answered as fault.Unsupported. All are called from many
// goroutines.
type Role struct {
	// Status tells what a role does now; with why, also why.
	Status func(why bool) api.Status
	// Subflows lists what Describe's bonds do not tell, at a helper.
	Subflows func() []api.BondSubflow
	Streams  func() []api.BondStream
	Flows    func() []api.BondFlow // of datagrams
	// MoveSubflow has one go on over the pipe at an address.
	MoveSubflow func(bond string, path uint32, pipe string) error
	// CloseSubflow and ResetStream end one, by its bond and number.
	CloseSubflow func(bond string, path uint32) error
	ResetStream  func(bond string, id uint64) error
	// ChangeStream has one treated otherwise.
	ChangeStream func(bond string, id uint64, c api.StreamChange) error
	// MarkChunk takes a chunk mark.
	MarkChunk func(api.Chunk) error
	// SetFacts takes what an app or script knows of this device.
	SetFacts func(api.Facts) error
	// Invitations makes codes for pairing, and Pairer is told those of others.
	Invitations *api.InvitationManager
	Pairings    *api.PairingManager
	// Devices changes which devices are trusted.
	Devices *api.DeviceManager
	// Policy keeps the policy.
	Policy *api.PolicyManager
	// Usage tells what links carried.
	Usage func() api.Usage
	// Feed has the changes; nil: there are none to tell.
	Feed *Feed
	// History has values for plots; nil: none are kept.
	History *History
}

// Run answers on l until ctx ends, then returns nil. It closes l in any case.
func Run(ctx context.Context, l net.Listener, r Role) error { return runServer(ctx, l, Handler(r)) }

func runServer(ctx context.Context, l net.Listener, h http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{Handler: limitBodyTime(h), ReadHeaderTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, BaseContext: func(net.Listener) context.Context { return ctx }}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		budget, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
		defer cancel()
		if srv.Shutdown(budget) != nil {
			_ = srv.Close()
		}
	})
	err := srv.Serve(limitConns(l))
	if !stop() { // ctx has ended
		<-stopped
	}
	_ = srv.Close()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("API: %w", err)
}

// limitBodyTime bounds how long a body may take, also one that nobody reads: what is
// left of it is awaited before the connection is used again. Without a body the
// connection may be quiet: events go on.
func limitBodyTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
		}
		h.ServeHTTP(w, r)
	})
}
