// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/google/nftables"
)

// missingTUN returns why `mpbond primary --tun` does not work here; "" if it does.
func missingTUN() string {
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

// missingRun returns what redirection lacks: rights, nftables or control groups; "" if nothing.
func missingRun() string {
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
