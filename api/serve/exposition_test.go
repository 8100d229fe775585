// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os"
	"testing"
	"time"
)

// TestExposition: labels are sorted and escaped, duplicates are kept once, and a metric without
// samples is omitted.
func TestExposition(t *testing.T) {
	var e exposition
	e.addMetric(metric{name: "none", help: "x"}, nil)
	e.addMetric(
		metric{name: "a_total", help: "back\\slash\nand line", counter: true, labels: []string{"z", "b"}},
		[]sample{
			{1, []string{"1", "quo\"te"}},
			{2, []string{"1", "quo\"te"}},
			{0.5, []string{"2", "back\\slash\x1b[2J"}},
		},
	)
	e.addMetric(metric{name: "g", help: "h"}, []sample{{1e21, nil}})
	const want = `# HELP a_total back\\slash\nand line
# TYPE a_total counter
a_total{b="quo\"te",z="1"} 1
a_total{b="back\\slash?[2J",z="2"} 0.5
# HELP g h
# TYPE g gauge
g 1e+21
`
	if got := e.buf.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestProcessMetrics compares /proc with what this process knows of itself.
func TestProcessMetrics(t *testing.T) {
	got := map[string]float64{}
	for _, m := range processMetrics() {
		got[m.name] = m.value
	}
	if got["go_goroutines"] < 2 || got["go_memstats_sys_bytes"] < got["go_memstats_heap_alloc_bytes"] ||
		got["go_memstats_heap_alloc_bytes"] == 0 {
		t.Errorf("%v", got)
	}
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc here")
	}
	began := time.Unix(int64(got["process_start_time_seconds"]), 0)
	if since := time.Since(began); since < -2*time.Second || since > time.Hour || got["process_open_fds"] < 3 ||
		got["process_max_fds"] < got["process_open_fds"] ||
		got["process_resident_memory_bytes"] < 1<<20 ||
		got["process_virtual_memory_bytes"] < got["process_resident_memory_bytes"] ||
		got["process_threads"] < 1 {
		t.Errorf("began %v: %v", began, got)
	}
}
