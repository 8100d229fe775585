// SPDX-License-Identifier: Apache-2.0

// Package node is the layer of the running roles.
//
//	app ─ intercept ─ primary ─ endpoint ══ subflows ══ endpoint ─ server ─ Internet
//	                      ╚═ pipe ═ helper ═ HS-path ══════╝
//
//	primary, helper, server  the three roles
//	intercept  accepts connections of apps: proxies, `mpbond run`, TUN
//	endpoint   the goroutines that drive one bond
//	choice     lets policy choose subflows, for endpoint
//	status     converts the state of an endpoint to the types of the API
//	dial       connects a subflow to the server, over UDP or TCP
//	probe      measures one subflow on request
//	refusal    distinguishes refusals from other errors and lists current ones
//	doctor     diagnoses problems and bottlenecks, in sentences
//
// Roles communicate only over the network. This layer imports control, core, api, link and base.
package node
