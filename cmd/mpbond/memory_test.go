// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"testing/fstest"
)

// TestUsableMemory checks that the least limit of the machine and of all cgroups above applies.
func TestUsableMemory(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	machine := file("MemTotal:        1024 kB\nMemFree: 1 kB\n")
	for name, c := range map[string]struct {
		files fstest.MapFS
		want  int64
	}{
		"nothing is known": {fstest.MapFS{}, 0},
		"the machine's":    {fstest.MapFS{"proc/meminfo": machine}, 1 << 20},
		"a unit's": {fstest.MapFS{"proc/meminfo": machine,
			"proc/self/cgroup": file("0::/system.slice/mpbond.service\n"),
			"sys/fs/cgroup/system.slice/mpbond.service/memory.max": file("512000\n"),
			"sys/fs/cgroup/system.slice/memory.max":                file("max\n")}, 512000},
		"that of all units": {fstest.MapFS{"proc/meminfo": machine,
			"proc/self/cgroup": file("0::/system.slice/mpbond.service\n"),
			"sys/fs/cgroup/system.slice/mpbond.service/memory.max": file("max\n"),
			"sys/fs/cgroup/system.slice/memory.high":               file("300000\n")}, 300000},
		"a container's": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("0::/\n"),
			"sys/fs/cgroup/memory.max": file("400000\n")}, 400000},
		"version 1": {fstest.MapFS{"proc/meminfo": machine, "proc/self/cgroup": file("5:cpu:/x\n4:memory:/docker/x\n"),
			"sys/fs/cgroup/memory/memory.limit_in_bytes": file("200000\n")}, 200000},
		"no sense": {fstest.MapFS{"proc/meminfo": file("MemTotal: much\n"), "proc/self/cgroup": file("0::/../..\n"),
			"sys/fs/cgroup/memory.max": file("-1\n")}, 0},
	} {
		if got := usableMemory(c.files); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}
