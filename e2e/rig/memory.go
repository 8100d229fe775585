// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"mpbond/base/unit"
)

// NewMemoryGroup makes a cgroup, version 1 or 2, with a memory limit. It returns a command prefix
// that runs a program in it.
func NewMemoryGroup(t testing.TB, limit unit.Bytes) (within []string) {
	t.Helper()
	for _, g := range []struct{ root, file string }{{"/sys/fs/cgroup", "memory.max"},
		{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}} {
		dir, err := os.MkdirTemp(g.root, "mpbond-test")
		if err != nil {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, g.file), os.O_WRONLY, 0) // absent without the memory controller
		if err == nil {
			_, err = fmt.Fprint(f, int64(limit))
			f.Close()
		}
		if err == nil {
			t.Cleanup(func() {
				// fails until the kernel has seen its processes end
				Eventually(t, func() error { return os.Remove(dir) })
			})
			t.Logf("the server's cgroup is %s", dir)
			return []string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(dir, "cgroup.procs")}
		}
		_ = os.Remove(dir)
	}
	t.Skip("cannot make a cgroup with a memory limit here")
	return nil
}
