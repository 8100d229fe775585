package unit

import (
	"fmt"
	"math"
)

// Temperature is in tenths of a kelvin, so that its zero can stand for "not
// known": nothing that we measure is that cold.
type Temperature uint16

const zeroCelsius = 2732 // 273.15 K, rounded up once for both directions

// Celsius makes a Temperature of °C, to a tenth of a degree. What nothing that
// works can have, below -100 °C or above 200 °C, is not known.
func Celsius(c float64) Temperature {
	if !(c >= -100 && c <= 200) {
		return 0
	}
	return Temperature(math.Round(c*10)) + zeroCelsius
}

// Celsius is the temperature in °C, to a tenth of a degree.
func (t Temperature) Celsius() float64 { return (float64(t) - zeroCelsius) / 10 }

// String is like "31.5 °C".
func (t Temperature) String() string {
	if t == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.3g °C", t.Celsius())
}

// Level is a share in percent, 0 to 100, and more: its zero stands for "not
// known", so that it counts from 1.
type Level uint8

// Percent makes a Level of a share of 100. What is less than 0 or more than 100
// is taken as the nearer of these, and what is no number as not known.
func Percent(v float64) Level {
	if math.IsNaN(v) {
		return 0
	}
	return Level(math.Round(min(max(v, 0), 100))) + 1
}

// Known reports whether there is a share.
func (l Level) Known() bool { return l > 0 }

// Percent is the share, 0 to 100; 0 where it is not known.
func (l Level) Percent() int { return max(int(l)-1, 0) }

// String is like "80 %".
func (l Level) String() string {
	if !l.Known() {
		return "not known"
	}
	return fmt.Sprintf("%d %%", l.Percent())
}
