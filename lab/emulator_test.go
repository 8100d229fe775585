// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/lab/lte"
	"mpbond/lab/shaper"
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

// TestGrants: what reaches the end of an uplink leaves in order once it has been granted blocks, not before.
func TestGrants(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	e := &emulator{base: time.Now().Add(-time.Hour)}
	l := &emulatedLink{name: "air", tunFDs: [2]int{-1, int(w.Fd())}, grants: &grantQueue{uplink: lte.NewUplink(1)}}
	if _, ok := e.deliverGranted(l); ok {
		t.Error("something is due")
	}
	later := 2 * time.Hour
	for i, at := range []time.Duration{time.Minute, time.Minute, later, later} {
		p := shaper.Packet{Size: 1, Data: append(e.takeBuffer()[:0], byte(i))}
		l.grants.held = append(l.grants.held, heldPacket{p, at})
	}
	if next, ok := e.deliverGranted(l); !ok || next != later || l.grants.first != 2 {
		t.Errorf("next %v, %v, %d delivered", next, ok, l.grants.first)
	}
	got := make([]byte, 10)
	if n, err := r.Read(got); err != nil || string(got[:n]) != "\x00\x01" {
		t.Errorf("delivered %q, %v", got[:n], err)
	}
	if l.delays[Uplink].n != 2 {
		t.Errorf("%d delays counted", l.delays[Uplink].n)
	}
	if _, ok := (&emulator{}).deliverGranted(&emulatedLink{}); ok {
		t.Error("a link without grants waits")
	}
}
