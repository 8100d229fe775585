// Package lab emulates networks, so that bonds can be measured without radios.
// It stands beside the data path: it runs the real mpbond (or curl, or any
// other program) as processes in network namespaces and is imported by no part
// of the product.
//
//	Topology (TOML or House) ─ Up ─▶ daemon: namespaces, addresses, TUN pairs
//	                                    │      one real-time thread moves packets
//	  Command, exec ── nsenter ────────▶│      (shaper decides when, per line)
//	  Set, Start, Stats ── socket ─────▶│
//
// Measurements are built on that:
//
//	Experiment ─▶ Plan ─ Run ─▶ for each transfer: Scheme on a Bench ─▶ Result (package exp judges them)
//
// A lab lives in one background process, the daemon. It holds the namespaces
// by open files only, never by mounts, so that the kernel takes them back when
// it dies. A second process, the guard, waits for that death and ends what
// still runs inside.
package lab
