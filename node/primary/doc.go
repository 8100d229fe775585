// Package primary is the role on the device whose apps are carried: it keeps
// the bond with the server, joins a direct subflow for each of its own
// interfaces and a helped one for each helper that calls, and hands out
// streams to package intercept. It stands between intercept and endpoint.
//
// Primary wires these types, each of which has its own state, lock, files and tests. None
// refers back to Primary; what one needs of another it gets as a value, or as a function that
// New hands in.
//
//	Policy         the policy in force: how each connection of an app is carried   policy*.go
//	sessions       the bond with the server, its streams, subflows and classes     session.go, subflows.go
//	  classTable   what rules treat alike, and which subflows it may use           classes.go
//	subflowSupervisor  opens subflows, keeps them, retries, withdraws them             keeper.go, direct.go, helped.go, pipes.go
//	demand         wakes apps that wait, and keepers that back off                 demand.go
//	uplinks        which interfaces carry subflows                                 uplinks.go
//	helperPool     the helpers that call, and their pipes                          helperpool.go, helper.go
//	standings      whether a device may carry anything, and in which tier          standings.go
//	troubles       why a device has no subflow, and who refuses whom               troubles.go
//	serverPeer     which server, by the trust file                                 serverpeer.go
//	places         what subflows carried where this device has been                places.go
//	radioMeters    what the radios of helpers took                                 energy.go
//	owners         which app a stream belongs to                                   owner.go
//	appStreams     which stream carries an app's connection                        apps.go
//
// # Lock order
//
// A lock may be taken while another one is held only from left to right:
//
//	helperPool → helper → pipes and links
//	helperPool → standings
//	sessions → standings
//	sessions → demand
//	sessions, appStreams → endpoint
//	sessions → links
//	helperPool, sessions, standings, serverPeer → trust file
//	standings → caps
//
// The locks of demand, uplinks, troubles, radioMeters, places and Policy are taken last.
// Callbacks into another type, such as uplinks.keep, troubles.changed or demand.busy, are
// called without the caller's lock; sessions.endUnwanted and sessions.describeSubflows call theirs
// with it.
package primary
