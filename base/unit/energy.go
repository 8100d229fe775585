// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"fmt"
	"math"
)

// Joules is an amount of energy.
type Joules float64

// Milliwatts is a power, in the unit in which those of radios are published.
type Milliwatts float64

// EnergyOver returns the energy of that power over a number of seconds.
func (p Milliwatts) EnergyOver(seconds float64) Joules { return Joules(float64(p) * seconds / 1e3) }

// String returns an energy as people read it: "1.9 J", "12.3 mJ", "5.4 kJ".
func (j Joules) String() string {
	switch a := math.Abs(float64(j)); {
	case a < 1 && j != 0:
		return formatShort(float64(j)*1e3) + " mJ"
	case a >= 1e3:
		return formatShort(float64(j)/1e3) + " kJ"
	}
	return formatShort(float64(j)) + " J"
}

// String returns a power: "1060 mW".
func (p Milliwatts) String() string { return fmt.Sprintf("%s mW", formatShort(float64(p))) }
