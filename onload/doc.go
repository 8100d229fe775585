// Package onload is the layer that moves whole items over several devices without a
// bonding server, as 3GOL and COMBINE do (docs/howto/onload.md).
//
//	mpbond get, play, put ─▶ fetch, playlist, upload: what is wanted, and how one item is carried
//	                              │ Task
//	                          transfer: one loop ◀─ orders ─ board: which device carries what
//	                              │ Carrier, one for each item under way
//	                              └─▶ own lines, and relay on each helper ─▶ web server
//
//	board     which device carries which item or range (pure)
//	transfer  runs the items of a board over the devices: starts, watches, retries, gives up
//	fetch, playlist, upload, page  downloads, videos, uploads, photos from a browser
//	relay     connections that a helper carries for those it trusts
//	allowance, permit, dataplan  how much a helper may carry
//	simulate  items in virtual time
//
// It imports control, link and base, and knows nothing of bonds.
package onload
