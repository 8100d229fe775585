// SPDX-License-Identifier: Apache-2.0

// Package link is the layer that carries bytes between two devices.
//
//	core/bond ─ frames ─▶ subflow ═ TLS, end to end ═▶ subflow ─▶ core/bond
//	                         │                            │
//	                        tcp  (direct)                tcp
//	                        pipe (helped) ── helper ──── tcp
//
//	wire      every frame, its layout and its bounds (pure)
//	congestion  the choice between CUBIC and BBR for a TCP hop (pure)
//	estimate  throughput, delay and bytes in flight of a subflow (pure)
//	subflow   frames over one connection, in TLS
//	pipe      the connection between a primary and its helper
//	tcp       TCP sockets with small unsent queues; admission of connections
//	udpsock   UDP sockets
//	splice    bytes between two connections, in order or with a reset
//	discovery, pairing  how devices find and come to trust each other
//
// It imports base.
package link
