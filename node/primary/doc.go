// SPDX-License-Identifier: Apache-2.0

// Package primary is the role on the device with the apps. It keeps the bond with the
// server, joins a direct subflow for each interface of this device and a helped one for each
// connected helper, and opens streams for package intercept. It stands between intercept and
// endpoint.
//
// Primary wires these types. Each has its own state, lock, files and tests. None refers back to
// Primary: what a type needs of another it gets as a value, or as a function from New.
//
//	Policy             how each connection of an app is carried         policy*.go
//	bondHolder         the bond, its streams, subflows and classes      session.go, subflows.go
//	  classTable       traffic classes and their allowed subflows       classes.go
//	subflowSupervisor  opens, retries and withdraws subflows            supervisor.go, direct.go,
//	                                                                    helped.go, pipes.go
//	demand             wakes waiting apps and supervisors               demand.go
//	uplinks            which interfaces carry subflows                  uplinks.go
//	helperPool         connected helpers and their pipes                helperpool.go, helper.go
//	deviceStates       whether a device may carry, and in which tier    states.go
//	handoffWatch       forecasts of handoffs between mobile cells       handoffs.go
//	troubleLog         why a device has no subflow, and refusals        troubles.go
//	serverPeer         the server, by the trust file                    serverpeer.go
//	locationMemory     what subflows carried at each location           locations.go
//	historyMemory      what apps moved from and to destinations         history.go
//	placeRates         what endpoints know of these locations           advice.go
//	radioMeters        the energy that radios of helpers spent          energy.go
//	appFinder          which app a stream belongs to                    appfinder.go
//	appStreams         which stream carries an app's connection         apps.go
//
// # Lock order
//
// While a lock is held, another one may be taken only from left to right:
//
//	helperPool → helper → pipes and links
//	helperPool → deviceStates
//	bondHolder → deviceStates
//	bondHolder → demand
//	bondHolder, appStreams → endpoint
//	bondHolder → links
//	helperPool, bondHolder, deviceStates, serverPeer → trust file
//	deviceStates → caps
//	endpoint → historyMemory
//
// The locks of demand, uplinks, troubleLog, handoffWatch, radioMeters, locationMemory, historyMemory and Policy
// are taken last. Callbacks into another type, such as uplinks.supervise, troubleLog.onChange or
// demand.hasOpenStreams, are called without the caller's lock. bondHolder.endUnwanted and
// bondHolder.addSubflowDetails call theirs with it.
package primary
