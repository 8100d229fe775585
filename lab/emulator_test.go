// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRuntimeMonitor: the thread found is one of this process, and gets the scheduling.
func TestRuntimeMonitor(t *testing.T) {
	tid, ok := runtimeMonitor()
	if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(tid)); !ok || tid == os.Getpid() || err != nil {
		t.Fatalf("thread %d, %v, %v", tid, ok, err)
	}
	ordinary := unix.SchedAttr{Size: unix.SizeofSchedAttr}
	realtime := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: fifoPriority}
	defer func() { _ = unix.SchedSetAttr(tid, &ordinary, 0) }()
	if err := unix.SchedSetAttr(tid, &realtime, 0); err != nil {
		t.Skip("this test needs the right to real-time priority (root, or RLIMIT_RTPRIO): ", err)
	}
	if err := unix.SchedSetAttr(tid, &ordinary, 0); err != nil {
		t.Fatal(err)
	}
	raiseRuntimeMonitor(&realtime)
	if got, err := unix.SchedGetAttr(tid, 0); err != nil || got.Policy != unix.SCHED_FIFO || got.Priority != fifoPriority {
		t.Errorf("%+v, %v", got, err)
	}
}
