// Package server is the role at the far end: it accepts subflows of enrolled
// devices, keeps their bonds, and connects streams to their destinations. It
// stands between package endpoint and the Internet.
//
//	         handshake    sessions         server, dest
//	subflow ═ handshakes ═ bond (endpoint) ═ stream ── destination
//	           callers      limit           packets ─ datagrams
//
//	server.go     Server, which wires the others; configuration; streams
//	control.go    the state for the api, and what it may end
//	handshake.go  handshakes: connections, until they are subflows
//	callers.go    callerLog: who calls the port, and whom it refused
//	reports.go    reportStore: reports of helpers, for their primaries
//	sessions.go   sessionTable: the bonds of all devices
//	limit.go      accountTable: what each device takes over all its bonds
//	dest.go       destinations: where devices may be connected
//	packets.go    packetRelay: one flow of datagrams
//	measure.go    answers to measurements of a subflow
//
// # Locks
//
// Each type locks for itself. sessionTable.mu is held while locks of a bond, account.mu,
// accountTable.mu and the trust file's are taken, in no order among these; packetRelay.mu
// while that of its bond is. All others (handshakes.mu, callerLog.mu, reportStore.mu) are
// held alone.
package server
