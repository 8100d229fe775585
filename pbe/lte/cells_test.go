// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"reflect"
	"testing"
)

// TestCells checks that FindCells returns both of two cells at one frequency, the stronger one
// first, one cell alone, and none in noise.
func TestCells(t *testing.T) {
	const n = 40
	mixed := shortSignalOf(9, n, 30)
	for i, s := range shortSignalOf(301, n, 30) {
		mixed[i] += 0.6 * s // 4.4 dB weaker
	}
	for name, c := range map[string]struct {
		samples []complex64
		want    []int
	}{"two": {mixed, []int{9, 301}}, "one": {shortSignalOf(9, n, 20), []int{9}},
		"noise": {gaussianNoise(n*subframeLen(128), 1), nil}, "nothing": {nil, nil}} {
		all, err := FindCells(1_920_000, c.samples)
		var got []int
		for _, x := range all {
			got = append(got, x.ID)
		}
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
	if _, err := FindCells(1_000_000, nil); err == nil {
		t.Error("at a rate that is none of LTE's")
	}
}
