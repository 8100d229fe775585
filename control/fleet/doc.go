// SPDX-License-Identifier: Apache-2.0

// Package fleet lets several servers serve the same devices. They share records in an engine, the Store: the
// devices, unused invitations, the state of each server, and what each has carried for each device.
//
//	operator ──signs──▶ invitations, rulings, list of servers ──▶ Store ◀──▶ Member of each server ──▶ node/server
//	primary ◀──offer: the signed list, and which servers run── server
//
// The operator's key is on no server and not in the engine. What only the operator may decide carries its signature:
// which servers belong to the fleet (ServerList), who may join (Invitation), and what becomes of a device later
// (Ruling). A device proves that it knew the code of its invitation. So neither an engine's operator nor a stolen
// server can add devices or servers; docs/explanation/security.md says what they can do.
//
//	store.go      what an engine must do; filestore and natsstore do it
//	signed.go     documents with the fleet's signature
//	documents.go  what is signed, and what the records hold
//	member.go     a server's membership
//	directory.go  what a server knows of the fleet, also without the engine
//	codes.go      one use of each invitation
//	counts.go     what servers carry for devices, counted once
//	states.go     which servers run
//	operator.go   what the operator does
//	view.go       what an engine holds, for the operator
//	joined.go     the fleet that a primary has joined
//	cells.go      what permit services share of mobile cells
//	late.go       an engine that does not answer when it is opened
package fleet
