// SPDX-License-Identifier: Apache-2.0

// Package core is the layer that decides which byte goes where. It holds no sockets,
// clocks or goroutines: callers pass in the time and the frames that arrived, and take the
// frames to send. So a thousand transfers run in virtual time within seconds.
//
//	app ─ Write ─▶ bond ─ sched chooses a subflow ─▶ Next ─▶ frames to link/subflow
//	app ◀─ Read ── bond ◀─ reassembly ◀──────────── Receive ◀─ frames of link/subflow
//	                └─▶ trace: one event for each decision
//
//	bond   streams, datagram flows, acknowledgements, reinjection, reassembly
//	sched  the schedulers: PAMS and those it is compared with
//	trace  events with their reasons, in memory and as files
//
// It imports link (frames and estimates, which are pure as well) and base.
package core
