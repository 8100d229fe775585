// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"io"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestPace checks that paced data takes its time, and that the probe reports the pace.
func TestPace(t *testing.T) {
	a, b := connPair(t, Options{})
	const pace, n = 40 * unit.Mbps, 2_000_000 // 0.4 s, but Linux sends ten segments at once, of 64 KB here
	if err := a.Pace(pace); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	go func() { _, _ = a.Write(make([]byte, n)) }()
	if _, err := io.CopyN(io.Discard, b, n); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("%d bytes took %v at %v", n, took, pace)
	}
	if h, err := a.Probe(); err != nil || h.PacingLimit != pace {
		t.Errorf("%v, %v", h.PacingLimit, err)
	}
	if h, err := b.Probe(); err != nil || h.Received != n {
		t.Errorf("received %d, %v", h.Received, err)
	}
	if err := a.Pace(0); err != nil {
		t.Fatal(err)
	}
	if h, _ := a.Probe(); h.PacingLimit != 0 {
		t.Errorf("the pace stays %v", h.PacingLimit)
	}
}
