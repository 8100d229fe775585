// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
)

// missingForTUN returns why `mpbond primary --tun` does not work here; "" if it does.
func missingForTUN() string {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	f.Close()
	if os.Geteuid() != 0 {
		return "it requires root"
	}
	return ""
}

// missingForRun returns what redirection lacks: rights, nftables or control groups; "" if nothing.
func missingForRun() string {
	if os.Geteuid() != 0 {
		return "it requires root"
	}
	c, err := nftables.New()
	if err == nil {
		_, err = c.ListTables()
	}
	if err != nil {
		return "nftables: " + err.Error()
	}
	b, _ := os.ReadFile("/proc/filesystems")
	if !strings.Contains(string(b), "\tcgroup2\n") {
		return "the kernel has no cgroup2"
	}
	return ""
}

func startCPUUsage() cpuUsage {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return cpuUsage{time.Now(), time.Duration(r.Utime.Nano() + r.Stime.Nano())}
}
