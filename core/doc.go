// SPDX-License-Identifier: Apache-2.0

// Package core is the layer that decides which subflow carries which byte. It has no sockets,
// clocks or goroutines: callers pass in the time and received frames, and take the frames to send.
// So a thousand transfers run in virtual time within seconds.
//
//	app ─ Write ─▶ bond ─ sched chooses a subflow ─▶ NextSegment ─▶ frames to link/subflow
//	app ◀─ Read ── bond ◀─ reassembly ◀──────────── ReceiveFrame ◀─ frames of link/subflow
//	                └─▶ trace: one event for each decision
//
//	bond   streams, datagram flows, acknowledgements, reinjection, reassembly
//	sched  schedulers: PAMS and others for comparison
//	trace  events with reasons, in memory and in files
//
// It imports link (frames and estimates, also pure) and base.
package core
