// SPDX-License-Identifier: Apache-2.0

package cc

// Names lists the controllers that New knows, PBE-CC first.
var Names = []string{"pbe", "bbr", "cubic", "copa", "allegro", "vivace", "sprout", "verus"}

// New returns a new controller, or nil if the name is unknown. seed is for controllers with random
// choices. For PBE-CC the result is a *PBE. "copa:0.1" is Copa with that δ; it is not in Names.
func New(name string, seed uint64) Controller {
	switch name {
	case "pbe":
		return NewPBE(seed)
	case "bbr":
		return NewBBR(seed)
	case "cubic":
		return NewCUBIC()
	case "copa":
		return NewCopa(0)
	case "copa:0.1":
		return NewCopa(0.1)
	case "allegro":
		return NewAllegro(seed)
	case "vivace":
		return NewVivace(seed)
	case "sprout":
		return NewSprout()
	case "verus":
		return NewVerus()
	}
	return nil
}
