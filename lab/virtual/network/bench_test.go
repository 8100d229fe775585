// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"mpbond/base/unit"
)

// BenchmarkMegabyte runs one megabyte over random stable networks, bonded.
func BenchmarkMegabyte(b *testing.B) {
	for i := range b.N {
		n, _ := Generate(uint64(i%50)+1, Limits{Class: "stable"})
		RunBond(n, "auto", &Workload{Size: unit.MB, Streams: 1, Objects: 1}, Options{})
	}
}
