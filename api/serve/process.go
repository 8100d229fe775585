// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"os"
	"runtime"
	runtimemetrics "runtime/metrics"
	"strconv"
	"strings"
)

// processMetric is a metric with one sample.
type processMetric struct {
	metric
	sample
}

func newProcessGauge(name, help string, v float64) processMetric {
	return processMetric{metric{name: name, help: help}, sample{value: v}}
}

func newCounter(name, help string, v float64) processMetric {
	return processMetric{metric{name: name, help: help, counter: true}, sample{value: v}}
}

// processMetrics returns the metrics of the Go runtime and of this process, with the names of
// Prometheus's own library. Those of the process need /proc.
func processMetrics() []processMetric {
	values := []runtimemetrics.Sample{
		{Name: "/sched/goroutines:goroutines"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	runtimemetrics.Read(values)
	of := func(i int) float64 { return float64(values[i].Value.Uint64()) }
	return append([]processMetric{
		{
			metric{name: "go_info", help: "Always 1; the label is the version of Go.", labels: []string{"version"}},
			sample{1, []string{runtime.Version()}},
		},
		newProcessGauge("go_goroutines", "Number of goroutines.", of(0)),
		newProcessGauge(
			"go_memstats_heap_alloc_bytes",
			"Bytes of objects on the heap, including those not yet collected.",
			of(1),
		),
		newProcessGauge("go_memstats_sys_bytes", "Bytes that the Go runtime took from the system.", of(2)),
		newCounter("go_memstats_alloc_bytes_total", "Bytes allocated on the heap so far.", of(3)),
		newCounter("go_gc_cycles_total", "Garbage collections so far.", of(4)),
	}, procMetrics()...)
}

// clockTicks is USER_HZ, the unit of process times in /proc: 100 on every processor that we build
// for.
const clockTicks = 100

// procMetrics returns metrics from /proc/self; nil without it.
func procMetrics() (list []processMetric) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return nil
	}
	// Fields of proc(5) from the third one on: the second, the program's name, ends in ")".
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	at := func(number int) float64 {
		if number-3 >= len(fields) {
			return 0
		}
		v, _ := strconv.ParseFloat(fields[number-3], 64)
		return v
	}
	list = append(
		list,
		newCounter(
			"process_cpu_seconds_total",
			"Processor time of this process so far.",
			(at(14)+at(15))/clockTicks,
		),
		newProcessGauge("process_threads", "Threads of this process.", at(20)),
		newProcessGauge("process_virtual_memory_bytes", "Virtual memory of this process.", at(23)),
		newProcessGauge("process_resident_memory_bytes", "Resident memory of this process.",
			at(24)*float64(os.Getpagesize())),
	)
	if boot, ok := readProcValue("/proc/stat", "btime"); ok {
		list = append(
			list,
			newProcessGauge(
				"process_start_time_seconds",
				"Start time of this process since the epoch.",
				boot+at(22)/clockTicks,
			),
		)
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		list = append(list, newProcessGauge("process_open_fds", "Open file descriptors.", float64(len(open))))
	}
	if most, ok := readProcValue("/proc/self/limits", "Max open files"); ok {
		list = append(list, newProcessGauge("process_max_fds", "Most file descriptors that may be open.", most))
	}
	return list
}

// readProcValue returns the first number of the line that begins with name.
func readProcValue(file, name string) (v float64, ok bool) {
	data, _ := os.ReadFile(file) // without the file there is no value
	for line := range strings.Lines(string(data)) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			if fields := strings.Fields(rest); len(fields) > 0 {
				v, err := strconv.ParseFloat(fields[0], 64)
				return v, err == nil
			}
		}
	}
	return 0, false
}
