// SPDX-License-Identifier: Apache-2.0

// Package lab emulates networks, so that bonds can be measured without radios. It stands beside the
// data path: it runs the real mpbond (or curl, or any other program) as processes in network
// namespaces. No part of the product imports it.
//
//	Topology (TOML or Triangle) ─ Up ─▶ daemon: namespaces, addresses, TUN pairs
//	                                       │      one real-time thread moves packets
//	  Command, exec ── nsenter ───────────▶│      (shaper decides when, per line)
//	  Set, Start, Stats ── socket ────────▶│
//
// Measurements are built on it:
//
//	Experiment ─▶ RunSpec ─ Run ─▶ for each transfer: Scheme on a Bench ─▶ Result (package exp evaluates them)
//
// A lab lives in one background process, the daemon. It holds the namespaces by open files only,
// never by mounts, so that the kernel frees them when the daemon dies. A second process, the guard,
// waits for that and kills what still runs inside.
package lab
