// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"math"
	"testing"
)

func TestTemperature(t *testing.T) {
	for _, c := range []float64{-100, -0.1, 0, 0.1, 36.6, 45, 200} {
		if got := Celsius(c); got == 0 || got.Celsius() != c {
			t.Errorf("%v °C becomes %d, %v", c, got, got.Celsius())
		}
	}
	for _, c := range []float64{-273.15, -101, 201, math.NaN(), math.Inf(1)} {
		if got := Celsius(c); got != 0 {
			t.Errorf("%v °C becomes %v", c, got)
		}
	}
	if s := Celsius(31.5).String(); s != "31.5 °C" {
		t.Error(s)
	}
}

func TestLevel(t *testing.T) {
	for v, want := range map[float64]int{-5: 0, 0: 0, 0.4: 0, 79.5: 80, 100: 100, 250: 100} {
		if l := Percent(v); !l.Known() || l.Percent() != want {
			t.Errorf("%v becomes %v", v, l)
		}
	}
	if l := Percent(math.NaN()); l.Known() || l.Percent() != 0 || l.String() != "not known" {
		t.Errorf("NaN becomes %v", l)
	}
}
