// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"testing"
	"time"
)

// The longest wait of any processor counts for all periods that run, and for no other.
func TestStarvation(t *testing.T) {
	var w starvationWatch
	first := w.watchLongestWait()
	second := w.watchLongestWait()
	w.addProcessorWait(70 * time.Millisecond)
	if got := second(); got < 70*time.Millisecond {
		t.Errorf("the second period: %v", got)
	}
	third := w.watchLongestWait()
	if got := first(); got < 70*time.Millisecond {
		t.Errorf("the first period: %v", got)
	}
	select {
	case <-w.stop:
		t.Error("the watchers ended before the last period")
	default:
	}
	third()
	if w.stop != nil || len(w.running) != 0 {
		t.Errorf("something still runs: %v", w.running)
	}
}

// Only the second number of a schedstat file counts; a kernel without it gives nothing.
func TestProcessorWait(t *testing.T) {
	for text, want := range map[string]time.Duration{"376818 4229006 2\n": 4229006, "": 0, "7": 0} {
		if got := parseProcessorWait(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if _, err := os.Stat("/proc/self/schedstat"); err == nil && processorWait(os.Getpid()) == 0 {
		t.Error("this process has never waited")
	}
}

// A silence lies between two packets; the time before the first does not count.
func TestSilence(t *testing.T) {
	var m silenceMeter
	for _, at := range []time.Duration{100, 103, 110, 112} {
		m.notePacketTime(at)
	}
	if m.longest != 7 {
		t.Errorf("%v", m.longest)
	}
}
