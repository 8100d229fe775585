// Package pbe is the layer of PBE-CC: congestion control from measurements of the
// control channel of mobile cells (docs/explanation/pbe.md). It can be deleted without touching the
// bond, which uses its transport like any other.
//
//	antenna or modem ─▶ source, air ─▶ lte ─▶ listen ─▶ cell ─▶ cc ─▶ transport ═ UDP ═▶
//
//	cell, cc   capacity of a device in its cells; controllers (pure)
//	lte        control messages from samples of the air (pure)
//	census     users and their shares of a cell (pure)
//	source, air, listen  where samples and messages come from
//	transport  a reliable connection over UDP, paced by a controller
//	flow       bulk flows for comparisons
//
// It imports link and base.
package pbe
