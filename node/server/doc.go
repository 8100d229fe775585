// SPDX-License-Identifier: Apache-2.0

// Package server is the role at the far end. It accepts subflows of trusted devices, keeps their
// bonds, and connects streams to their destinations. It stands between package endpoint and
// the Internet.
//
//	         handshake    sessions         server, dest
//	subflow ═ handshakes ═ bond (endpoint) ═ stream ── destination
//	           callers      limit           packets ─ datagrams
//
//	server.go     Server, which wires the others; configuration; streams
//	control.go    state and actions for the API
//	handshake.go  handshakes: turns connections into subflows
//	callers.go    callerLog: counts callers and stores refusals
//	reports.go    reportStore: reports of helpers, for their primaries
//	sessions.go   sessionTable: the bonds of all devices
//	limit.go      accountTable: what each device uses over all its bonds
//	dest.go       destinations: where devices may connect
//	packets.go    packetRelay: one flow of datagrams
//	measure.go    measurements of a subflow
//
// # Locks
//
// Each type has its own lock. While sessionTable.mu is held, the locks of a bond, account.mu,
// accountTable.mu and the trust file's lock may be taken, in no order among these. While
// packetRelay.mu is held, the lock of its bond may be taken. All others (handshakes.mu,
// callerLog.mu, reportStore.mu) are held alone.
package server
