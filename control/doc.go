// SPDX-License-Identifier: Apache-2.0

// Package control is the layer that says what may be used: which devices, which
// interfaces, and which subflows for which app. It opens and closes subflows, and knows
// nothing of the bytes in them.
//
//	battery, heat, caps, rules ─▶ facts, device ─▶ policy ─▶ node/primary opens and closes subflows
//
//	policy  rules for apps, destinations, devices; energy; shares of links (pure)
//	device  network interfaces: which there are, what they carry, who uses them
//	facts   battery, heat, radio and cost of the device itself
//
// It imports api (the types that it reports), link and base.
package control
