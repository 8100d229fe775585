// SPDX-License-Identifier: Apache-2.0

// Package control is the layer that decides what may be used: which devices, which interfaces, and
// which subflows for which app. It knows nothing of the bytes that these carry.
//
//	battery, temperature, caps, rules ─▶ facts, device ─▶ policy ─▶ node/primary opens and closes subflows
//
//	policy  rules for apps, destinations and devices; energy; shares of links (pure)
//	device  network interfaces: their traffic and the programs that use them
//	facts   battery, temperature, radio and cost of the device itself
//	fleet   several servers for the same devices: what they share in an engine, and who may decide what
//
// It imports api (the types of its results), link and base.
package control
