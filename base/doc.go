// SPDX-License-Identifier: Apache-2.0

// Package base is the lowest layer: packages that all layers use and that import none of them. No
// user data passes here.
//
//	unit        bytes, rates, energies with their names
//	fault       errors with a kind, and a hint for people
//	span        sets of integers as ranges
//	event       an event queue in virtual time, for simulations
//	text        makes untrusted text safe for terminals
//	userfile    files and sockets, with the rights of their owner
//	config, store, identity  settings, state that survives restarts, keys and trust
//	dialpolicy  addresses to which others may be connected
//	backoff     delays between attempts
//	loglimit    rate limits for logs that unknown callers could fill
package base
