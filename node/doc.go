// Package node is the layer of the running roles.
//
//	app ─ intercept ─ primary ─ endpoint ══ subflows ══ endpoint ─ server ─ Internet
//	                      ╚═ pipe ═ helper ═ HS-path ══════╝
//
//	primary, helper, server  the three roles
//	intercept  how connections of apps are taken: proxies, `mpbond run`, TUN
//	endpoint   the goroutines that drive one bond
//	choice     policy's choice of subflows, for endpoint
//	status     the state of an endpoint, in the types of the API
//	dial       the connection of a subflow to the server, over UDP or TCP
//	probe      what one subflow carries, measured on request
//	refusal    which errors are refusals, and which there were lately
//	doctor     what is wrong, or limits the rate, in sentences
//
// Roles know of each other only what crosses the network. This layer imports control,
// core, api, link and base.
package node
