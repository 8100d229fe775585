// SPDX-License-Identifier: Apache-2.0

// Package network compares schedulers over random networks in virtual time. It drives two real
// bonds of core/bond over links with rates, delays, jitter, queues and losses, TCP at packet level
// and helpers, as node/endpoint and node/helper drive them over sockets. The same
// networks also carry plain TCP over each path alone, and have bounds that no scheme can beat. The
// package is pure: a seed gives the same result each time.
//
//	primary ══ tcpEnd ── line ── tcpEnd ══════════════════════════════════════ server   direct
//	primary ══ tcpEnd ── line ── tcpEnd ═ helper ═ tcpEnd ── line ── tcpEnd ══ server   helped
//
// ══ is a bond with its TLS records and frames, ── a TCP connection in packets.
//
//	sim.go          events and timers
//	link.go         a link: rates, queue, delay, jitter, loss
//	tcp*.go         tcpEnd, one end of a TCP connection: sender, acknowledgements and losses, receiver
//	congestion.go   controllers of pbe/cc as Linux runs them
//	channel.go      TLS records and frames over TCP
//	helper.go       the connection split, its buffer and its reports
//	bonded.go       a bond over these
//	join.go         handshakes of subflows
//	driver.go       workloads
//	app.go          apps at both ends of a bond
//	plain.go        apps over plain TCP
//	run.go          a run
//	network.go, generate.go, bound.go, compare.go   what is compared, and how
package network
