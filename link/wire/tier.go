// SPDX-License-Identifier: Apache-2.0

package wire

import "fmt"

// Tier is the rank in which a subflow's link is used. It crosses the network as one byte: the list
// is append-only.
type Tier uint8

// Tiers.
const (
	TierPrimary   Tier = iota // used whenever it helps
	TierSecondary             // used while the primary links are full or none works
	TierBackup                // used while no other link works
	tierCount
)

var tierNames = [tierCount]string{TierPrimary: "primary", TierSecondary: "secondary", TierBackup: "backup"}

func (t Tier) String() string {
	if t < tierCount {
		return tierNames[t]
	}
	return fmt.Sprintf("tier %d", uint8(t))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (t *Tier) UnmarshalText(text []byte) error {
	for i, name := range tierNames {
		if name == string(text) {
			*t = Tier(i)
			return nil
		}
	}
	return fmt.Errorf("%q is not a tier: use primary, secondary or backup", text)
}

// readTier reads a Tier.
func (p *parser) readTier() Tier {
	t := Tier(p.readByte())
	p.bad = p.bad || t >= tierCount
	return t
}
