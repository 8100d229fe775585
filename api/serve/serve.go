// SPDX-License-Identifier: Apache-2.0

// Package serve serves the local API of a running mpbond: HTTP over a unix socket that only its
// owner can open. A role passes functions that describe and change it.
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
//	tcp.go       the same over TCP, for clients with a token, and the web console
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

// Role is what the API serves. Errors of its functions are faults. A nil function is answered as
// fault.Unsupported. All must be safe for concurrent use.
type Role struct {
	// Status returns the state of a role; if why is set, with decisions.
	Status func(why bool) api.Status
	// Subflows lists further subflows than those of bonds, at a helper.
	Subflows func() []api.BondSubflow
	Streams  func() []api.BondStream
	Flows    func() []api.BondFlow // datagram flows
	// MoveSubflow moves a subflow to the pipe at an address.
	MoveSubflow func(bond string, subflow uint32, pipe string) error
	// CloseSubflow and ResetStream end a subflow or stream of a bond.
	CloseSubflow func(bond string, subflow uint32) error
	ResetStream  func(bond string, id uint64) error
	// ChangeStream changes how a stream is carried.
	ChangeStream func(bond string, id uint64, c api.StreamChange) error
	// MarkChunk applies an announced chunk.
	MarkChunk func(api.Chunk) error
	// SetFacts sets facts of this device.
	SetFacts func(api.Facts) error
	// Handoffs returns the handoffs of this device's mobile links.
	Handoffs func() api.Handoffs
	// Invitations creates pairing codes, and Pairings pairs by the codes of others.
	Invitations *api.InvitationManager
	Pairings    *api.PairingManager
	// Devices changes the trusted devices.
	Devices *api.DeviceManager
	// Policy manages the policy.
	Policy *api.PolicyManager
	// Usage returns what links carried.
	Usage func() api.Usage
	// Advice returns forecasts for transfers.
	Advice func(api.AdviceRequest) (api.Advice, error)
	// PastForecasts returns how right forecasts were.
	PastForecasts func() api.PastForecasts
	// ForgetHistory removes what is remembered of destinations, and past forecasts.
	ForgetHistory func() error
	// Feed has the events; nil: there are none.
	Feed *Feed
	// History has the values of plots; nil: none are kept.
	History *History
}

// Run serves on l until ctx ends, then returns nil. It always closes l.
func Run(ctx context.Context, l net.Listener, r Role) error { return runHTTPServer(ctx, l, Handler(r)) }

// runHTTPServer serves h on l until ctx ends.
func runHTTPServer(ctx context.Context, l net.Listener, h http.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler:           limitBodyTime(h),
		ReadHeaderTimeout: readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
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

// limitBodyTime bounds the time of a request body, even if nothing reads it: the rest of a body is
// read before the connection is used again. Without a body the connection may be quiet, as during
// events.
func limitBodyTime(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
		}
		h.ServeHTTP(w, r)
	})
}
