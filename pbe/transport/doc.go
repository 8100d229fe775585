// SPDX-License-Identifier: Apache-2.0

// Package transport is a reliable, ordered byte stream over UDP with an exchangeable congestion
// controller (pbe/cc). A receiver that measures its mobile cells reports their capacity in every
// acknowledgement. Programs pass it to package subflow, as a Transport, in place of package tcp:
// end-to-end TLS runs inside it as inside TCP.
//
//	subflow ─ Conn ─ engine (no I/O) ─ Endpoint (one socket, batches) ─ network
//
// The engine consists of parts that are independent of each other:
//
//	sender         unacknowledged bytes of the stream, and the peer's window
//	receiver       reassembly of the stream, and our window
//	lossDetector   packets in flight, round trips, losses, probe timeouts (RFC 9002)
//	ackTracker     packets received, and when an ACK is due (RFC 9000 section 13.2)
//	radioFeedback  reports of the cells in both directions
//	pacer          when the next packet may be sent
//	mtuSearch      length of packets (RFC 8899)
//	liveness       keep-alives, and timeouts for a silent peer
//	closing        the end of the connection, and its CLOSE packets (RFC 9000 section 10.2)
//
// # Security
//
// The TLS inside encrypts the stream and authenticates the ends. This package does neither again.
// TLS cannot protect packets: one forged acknowledgement, end or byte of the stream would end the
// connection. So every packet after the first two is authenticated but not encrypted. A tag covers
// the whole packet: AES-128-GMAC, the tag of AES-GCM over additional data only, which costs half of
// encryption. Its keys come from an X25519 exchange for this connection alone. An observer sees
// what TCP shows too, offsets and acknowledgements. With PBE-CC it also sees the capacity of the
// receiver's cells.
//
//   - Spoofed, damaged and malformed packets fail at their tag before anything else is read.
//   - Replayed packets have duplicate numbers, or numbers too old to check, which count as
//     duplicates.
//   - A third party cannot end a connection. ICMP is ignored. A RESET needs a token that was masked
//     when it was sent.
//   - A forged source address attracts little traffic. Every answer to an unknown sender is shorter
//     than its packet. A connection follows its peer to another address only after path validation.
//     Unconfirmed connections are few, and fewer for one address.
//   - There is one version and no negotiation to attack. Other versions get no answer, and the
//     first packets are part of the keys.
//
// The exchange itself is unauthenticated: an attacker that can intercept packets during the
// exchange can stay in between. It can then do what anyone on the path of a TCP connection can do:
// delay, drop and end. TLS detects that the attacker is not the peer. Otherwise the attacker only
// relays what it can neither read nor modify.
//
// CLOSE ends a connection and is repeated for three probe timeouts. A server that has lost its
// state answers with RESET. A client that vanishes is given up after 45 s of silence, or after
// Options.UserTimeout without an acknowledgement.
//
// # Limits
//
// A server notices only by silence that a client has vanished. Each WELCOME costs a client an
// X25519 computation, so an observer of the HELLO can cause work with forged ones. See
// docs/explanation/pbe.md.
package transport
