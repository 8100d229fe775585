// SPDX-License-Identifier: Apache-2.0

package lab

import "testing"

// TestFallbacks checks how many connections may fall back to TCP.
func TestFallbacks(t *testing.T) {
	for _, c := range []struct {
		counters    map[string]int64
		connections int64
		lossy, ok   bool
	}{
		{nil, 1, false, true},
		{map[string]int64{"MPCapableDataFallback": 1}, 1, false, false},
		{map[string]int64{"MPCapableDataFallback": 1}, 100, false, false},
		{map[string]int64{"MPCapableDataFallback": 1}, 1, true, false},
		{map[string]int64{"MPCapableDataFallback": 6, "InfiniteMapRx": 4}, 100, true, true},
		{map[string]int64{"MPCapableDataFallback": 6, "InfiniteMapRx": 5}, 100, true, false},
	} {
		want := c.counters["MPCapableDataFallback"] + c.counters["InfiniteMapRx"]
		n, err := checkFallbacks(func(name string) int64 { return c.counters[name] }, c.connections, c.lossy)
		if n != want || (err == nil) != c.ok {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
}
