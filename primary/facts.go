package primary

import (
	"mpbond/device/facts"
	"mpbond/identity"
	"mpbond/wire"
)

// factsCame takes what a helper tells of itself.
func (p *Primary) factsCame(helper identity.PublicKey, f wire.Facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := p.helpers[helper]; slot != nil && slot.facts != f {
		slot.facts = f
	}
}

// FactsChanged takes what is known of this device itself.
func (p *Primary) FactsChanged(f facts.Facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facts = f
}

// FactsOf is what a helper has told of itself.
func (p *Primary) FactsOf(helper identity.PublicKey) wire.Facts {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := p.helpers[helper]; slot != nil {
		return slot.facts
	}
	return wire.Facts{}
}
