// SPDX-License-Identifier: Apache-2.0

// Package onload is the parent of the packages that carry whole items over several devices
// without a bonding server, as 3GOL and COMBINE do (docs/howto/onload.md).
//
//	mpbond get, play, put ─▶ fetch, playlist, upload: know how to carry one item
//	                              │ Task
//	                          transfer: runs the loop ◀─ orders ─ board: assigns items to devices
//	                              │ JobRunner, one per running item
//	                              └─▶ interfaces of this device, or relay on a helper ─▶ web server
//
//	board     decides which device carries which item or range; no input or output
//	transfer  runs the items of a board over the devices: starts, supervises, retries, gives up
//	fetch, playlist, upload, page  downloads, videos, uploads, photos from a browser
//	relay     carries connections of trusted primaries over a helper
//	allowance, permit, dataplan  limit how much a helper may carry
//	simulate  runs a board in virtual time
//
// It imports control, link and base, and does not depend on bonds.
package onload
