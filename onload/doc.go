// Package onload is the layer that moves whole items over several devices without a
// bonding server, as 3GOL and COMBINE do (docs/onload.md).
//
//	mpbond get, play, put ─ fetch, playlist, upload ─ board chooses a device for each item
//	                                 └─▶ relay on a helper ─▶ web server
//
//	board     which device carries which item or range (pure)
//	fetch, playlist, upload, page  downloads, videos, uploads, photos from a browser
//	relay     connections that a helper carries for those it trusts
//	allowance, permit, dataplan  how much a helper may carry
//	simulate  items in virtual time
//
// It imports control, link and base, and knows nothing of bonds.
package onload
