// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/dsp/fourier"
)

// TestFFT compares the transform with gonum's, for all sizes.
func TestFFT(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	for _, size := range []int{128, 256, 512, 1024, 1536, 2048} {
		f, in, x := newFFT(size), make([]complex128, size), make([]complex128, size)
		for i := range in {
			in[i] = complex(rnd.NormFloat64(), rnd.NormFloat64())
			x[f.order[i]] = in[i]
		}
		f.transformInPlace(x)
		for i, want := range fourier.NewCmplxFFT(size).Coefficients(nil, in) {
			if cmplx.Abs(x[i]-want) > 1e-9 {
				t.Errorf("%d: element %d is %v, want %v", size, i, x[i], want)
			}
		}
	}
}

// BenchmarkFFT compares the transform with gonum's.
func BenchmarkFFT(b *testing.B) {
	for _, n := range []int{512, 1024, 1536, 2048} {
		x := make([]complex128, n)
		for i := range x {
			x[i] = complex(float64(i%7), float64(i%5))
		}
		y := make([]complex128, n)
		g := fourier.NewCmplxFFT(n)
		b.Run(fmt.Sprint("gonum/", n), func(b *testing.B) {
			for b.Loop() {
				g.Coefficients(y, x)
			}
		})
		f := newFFT(n)
		b.Run(fmt.Sprint("own/", n), func(b *testing.B) {
			for b.Loop() {
				copy(y, x)
				f.transformInPlace(y)
			}
		})
	}
}
