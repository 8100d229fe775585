package cc

// Names are all controllers, PBE-CC first, as in cc.New.
var Names = []string{"pbe", "bbr", "cubic", "copa", "allegro", "vivace", "sprout", "verus"}

// New makes the controller of a name, nil if there is none; seed is for those that
// draw. PBE-CC's is a *PBE. "copa:0.1" is Copa with that δ, which is not among Names.
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
