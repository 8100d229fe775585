// Package base is the lowest layer: leaves that all layers above use, and that know
// none of them. No byte of an app passes here.
//
//	unit        bytes, rates, energies with their names
//	fault       errors with a kind, and a hint for people
//	span        sets of integers as ranges
//	event       what will happen in a simulation, in the order of its time
//	text        text of others, made safe for terminals
//	userfile    files and sockets, with the rights of the user who owns them
//	config, store, identity  settings, state that survives restarts, keys and trust
//	dialpolicy  which addresses may be connected to for others
//	backoff     how long to wait before the next attempt
//	loglimit    logs that strangers cannot fill
package base
