// Package estimate turns what is measured about a subflow's hops into the
// numbers that schedulers compare: throughput, one-way delay, backlog and
// from them the pipe-aware delay, PAD. It stands between the probes of
// package subflow and the choices of package sched, and is pure: no clock,
// no sockets.
package estimate
