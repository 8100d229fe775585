// SPDX-License-Identifier: Apache-2.0

package cc

import (
	"math/rand/v2"
	"testing"
)

func TestExtreme(t *testing.T) {
	for _, less := range []bool{false, true} {
		r := rand.New(rand.NewPCG(1, 2))
		e := windowedExtreme{keepsLeast: less}
		var list []extremeSample
		at := int64(0)
		for range 5000 {
			at += r.Int64N(4)
			p := extremeSample{at, r.Int64N(100)}
			list = append(list, p)
			e.addSampleAt(p.position, p.value, 20)
			want := p.value
			for _, q := range list {
				if q.position >= at-20 && (q.value < want) == less && q.value != want {
					want = q.value
				}
			}
			if e.extremeValue() != want {
				t.Fatalf("less %v at %d: %d, want %d", less, at, e.extremeValue(), want)
			}
		}
	}
	var e windowedExtreme
	if !e.hasNoSamples() || e.extremeValue() != 0 {
		t.Error("an empty one has a value")
	}
}
