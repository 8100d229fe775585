// SPDX-License-Identifier: Apache-2.0

// Package pbe is the layer of PBE-CC: congestion control from measurements of the control channels
// of mobile cells (docs/explanation/pbe.md). The bond does not depend on it and uses its transport like any
// other.
//
//	antenna or modem ─▶ source, air ─▶ lte ─▶ listen ─▶ cell ─▶ cc ─▶ transport ═ UDP ═▶
//
//	cell, cc   capacity of a device in its cells; controllers (pure)
//	lte        control messages from IQ samples (pure)
//	census     users of a cell and their shares (pure)
//	source, air, listen  sources of samples and messages
//	transport  a reliable connection over UDP, paced by a controller
//	flow       bulk flows for comparisons
//
// It imports link and base.
package pbe
