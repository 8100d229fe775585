// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"fmt"
	"math"
)

// Temperature is in tenths of a kelvin. Its zero means unknown: no measured device is that cold.
type Temperature uint16

const zeroCelsius = 2732 // 273.15 K, rounded up, for both directions

// Celsius converts °C to a Temperature, to a tenth of a degree. Values below -100 °C or above 200
// °C are implausible and count as unknown.
func Celsius(c float64) Temperature {
	if !(c >= -100 && c <= 200) {
		return 0
	}
	return Temperature(math.Round(c*10)) + zeroCelsius
}

// Celsius returns the temperature in °C, to a tenth of a degree.
func (t Temperature) Celsius() float64 { return (float64(t) - zeroCelsius) / 10 }

// String returns a text such as "31.5 °C".
func (t Temperature) String() string {
	if t == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.3g °C", t.Celsius())
}

// Level is a percentage plus one, so that its zero means unknown.
type Level uint8

// Percent converts a percentage, which it limits to 0 to 100, to a Level. NaN is unknown.
func Percent(v float64) Level {
	if math.IsNaN(v) {
		return 0
	}
	return Level(math.Round(min(max(v, 0), 100))) + 1
}

// Known reports whether the level is known.
func (l Level) Known() bool { return l > 0 }

// Percent returns the percentage, 0 to 100; 0 if unknown.
func (l Level) Percent() int { return max(int(l)-1, 0) }

// String returns a text such as "80 %".
func (l Level) String() string {
	if !l.Known() {
		return "not known"
	}
	return fmt.Sprintf("%d %%", l.Percent())
}
