// SPDX-License-Identifier: Apache-2.0

// Package helper is the role of a device that shares its Internet link. A pipe is a local
// connection to a primary, an HS-path the connection from this helper to the server. The helper
// offers itself to primaries over pipes. For each subflow that a primary requests, it connects the
// HS-path to the server and relays between the two. It stands in the data path between the
// pipe.Link of the primary and the pipe.HSPath of the server, and sees only ciphertext. Words in
// lower case are files:
//
//	           calls, waiting, targets,       serve    hspath
//	primary ══ primaries, find ═══════ pipe ─ relay ─ HS-path ══ server
//	                                     relays, report
//
//	helper.go     Helper, which wires the others; configuration
//	serve.go      requests of primaries: to open or to resume a subflow
//	status.go     the state for the API
//
// Pipes to primaries:
//
//	primaries.go  primaryList: primaries of the configuration and the trust file
//	find.go       finder: primaries on the local networks
//	targets.go    targetSet: addresses of primaries, and what became of the attempts to dial them
//	calls.go      pipeCaller: dials (calls) primaries, keeps a pipe waiting at each, dials again with
//	              back-off, and records why one refused
//	waiting.go    waitingPipes: pipes that no primary uses yet
//	trouble.go    troubleReporter: reports unreachable primaries to a server
//	address.go    addressWatch: detects lost addresses and sleep
//
// Subflows of primaries:
//
//	access.go     serverAccess: the servers that may be reached
//	caps.go       capChecker: the owner's caps
//	hspath.go     serverDialer: the HS-path, over TCP or UDP
//	relays.go     relayTable: the relayed subflows
//	relay.go      relay: one subflow, two hops and the buffers between
//	report.go     reporter: reports to senders about the hop that they cannot see
//	share.go      linkShare: the owner's traffic has priority
//
// This device:
//
//	facts.go      deviceFacts: battery, temperature, link, and suspension by them
//	announce.go   announcer: sends these facts to primaries
//
// # Locks
//
// Each type has its own lock and holds it only while it reads or changes its own fields. These
// locks are held while another one is taken, in this order:
//
//	announcer.sending  before announcer.mu, deviceFacts.mu and the trust file's lock;
//	                   it alone is held while something is sent
//	linkShare.mu       before the locks of a pipe.Link, and of a primary in this process
//	subflow.mu         before the locks of a pipe.Link
//	deviceFacts.mu     before those of package policy (the owner's limits)
//
// All others (relayTable.mu, targetSet.mu, target.mu, finder.mu, waitingPipes.mu, wakeSignal.mu,
// serverAccess.mu) are held alone.
package helper
