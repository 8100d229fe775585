// Package transport is a reliable, ordered byte stream over UDP whose congestion
// controller can be exchanged (pbe/cc), so that a receiver that knows its cells
// tells the sender in every acknowledgement. It is made to stand under subflow, in
// the place of package tcp: end-to-end TLS runs inside it as inside TCP.
//
//	subflow ─ Conn ─ engine (no I/O) ─ Endpoint (one socket, batches) ─ network
//
// The engine is made of parts that know nothing of each other:
//
//	sender         bytes written and not acknowledged, and the peer's window
//	receiver       bytes put in order, and our window
//	lossDetector   packets in flight, round trips, losses, probe timeouts (RFC 9002)
//	ackTracker     packets received, and when an ACK is due (RFC 9000 section 13.2)
//	radioFeedback  reports of the cells in both directions
//	pacer          when the next packet may leave
//	mtuSearch      how long packets may be (RFC 8899)
//	liveness       silence: keep-alives, and giving the peer up
//	closing        the end, and who must still be sent it (RFC 9000 section 10.2)
//
// # What is protected, and what is not
//
// What the stream says and who the ends are is the business of the TLS inside, and
// is not done twice. TLS cannot protect the packets: a single one with a false
// acknowledgement, a false end or a byte of the stream that is not the sender's
// would end the connection. So each packet after the first two is authenticated,
// and not encrypted: a tag over all of it (AES-128-GMAC, the tag of AES-GCM over
// nothing but additional data; half the work of encrypting, which TLS has done),
// with keys of an X25519 exchange made for this connection alone. Who looks on
// sees what is seen of TCP too, offsets and acknowledgements, and besides, with
// PBE-CC, the capacity of the receiver's cells.
//
//   - Spoofed, damaged and malformed packets fail at their tag, before anything
//     else is looked at.
//   - Replayed packets have numbers that were there already, or that are too old to
//     tell, which count as the same.
//   - No packet of a stranger ends a connection: ICMP is not listened to, and a RESET of
//     who has forgotten it counts only with a token that was masked when it was told.
//   - Nobody who does not receive at an address makes us send much to it: each answer
//     to a stranger is shorter than what it answers, a connection follows its peer to
//     another address only when that has answered from there, and connections that
//     nobody has confirmed are few, and fewer for one address.
//   - There is one version, and no negotiation to meddle with: other versions get no
//     answer, and the first packets are part of the keys.
//
// The exchange itself is of strangers: whoever can take packets off the path while
// it is made can stand in between. He then can do what who is on the path of a TCP
// connection can always do, delay, drop, end; TLS finds out that he is not the peer,
// or else carries through him what he can neither read nor alter.
//
// An end is told by CLOSE, again for three probe timeouts. Who sends to a server that has lost
// its state is told by RESET; a client that vanishes is given up after 45 s of silence,
// or Options.UserTimeout of no acknowledgement.
//
// # Limits
//
// A client that vanishes without a word is noticed by its server only when it has been
// silent for long. Each WELCOME costs who dials an X25519, so that who sees the HELLO can
// make work. See docs/explanation/pbe.md.
package transport
