// Package helper is the role of a device that shares its network path: it
// offers itself to primaries over pipes, and for each subflow that one asks for
// connects the HS-path to the server and relays between the two. It stands in
// the data path between the pipe Link of the primary and the one of the server,
// and sees ciphertext only.
//
//	           calls, waiting, targets,       serve    hspath
//	primary ══ primaries, find ═══════ pipe ─ relay ─ HS-path ══ server
//	                                     relays, report
//
//	helper.go     Helper, which wires the others; configuration
//	serve.go      what a primary asks of a pipe: a subflow, or to resume one
//	status.go     the state for the api
//
// Pipes to primaries:
//
//	primaries.go  primaryList: the primaries that the configuration and the trust file name
//	find.go       finder: primaries on the local networks
//	targets.go    targetSet: their addresses, and what became of calls there
//	calls.go      pipeCaller: pipes, kept ready and called again; refusals
//	waiting.go    waitingPipes: pipes that no primary uses yet
//	trouble.go    troubleReporter: primaries that do not answer, reported to a server
//	address.go    addressWatch: what becomes of connections whose address is lost
//
// Subflows of primaries:
//
//	access.go     serverAccess: the servers that may be reached
//	caps.go       capChecker: the owner's caps
//	hspath.go     serverDialer: the HS-path, over TCP or UDP
//	relays.go     relayTable: the subflows that are relayed
//	relay.go      relay: one subflow, two hops and the buffers between
//	report.go     reporter: what the senders learn about the hop that they cannot see
//	share.go      linkShare: the owner's traffic goes first
//
// This device:
//
//	facts.go      deviceFacts: battery, heat and link, and whether they suspend it
//	announce.go   announcer: these, sent to primaries
//
// # Locks
//
// Each type locks for itself, and only while it reads or changes its own fields. These locks
// are held while another one is taken, in this order:
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
