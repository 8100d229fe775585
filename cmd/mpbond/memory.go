// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory limits the Go heap to 80 % of the usable memory, unless GOMEMLIMIT is set. The rest
// is for what the kernel holds for this process.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if n := usableMemory(os.DirFS("/")); n > 0 {
		debug.SetMemoryLimit(n / 5 * 4)
	}
}

// usableMemory returns the least of the machine's memory and the limits of this process's cgroups,
// as the files below root say. It returns 0 if it is unknown.
func usableMemory(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	note := func(n int64, err error) {
		if err == nil && n > 0 {
			least = min(least, n)
		}
	}
	if line, ok := findPrefixedLine(root, "proc/meminfo", "MemTotal:"); ok {
		kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64)
		note(kb<<10, err)
	}
	limit := func(base, group, file string) {
		for dir := path.Join("/", group); ; dir = path.Dir(dir) {
			if b, err := fs.ReadFile(root, path.Join(base, dir, file)); err == nil {
				note(strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)) // "max" is none
			}
			if dir == "/" {
				return
			}
		}
	}
	if group, ok := findPrefixedLine(root, "proc/self/cgroup", "0::"); ok { // version 2
		limit("sys/fs/cgroup", group, "memory.max")
		limit("sys/fs/cgroup", group, "memory.high")
	}
	if b, err := fs.ReadFile(root, "proc/self/cgroup"); err == nil { // version 1
		for line := range strings.Lines(string(b)) {
			if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && f[1] == "memory" {
				limit("sys/fs/cgroup/memory", f[2], "memory.limit_in_bytes")
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// findPrefixedLine returns the rest of the first line of a file that begins with a prefix.
func findPrefixedLine(root fs.FS, name, prefix string) (string, bool) {
	f, err := root.Open(name)
	if err != nil {
		return "", false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), prefix); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}
