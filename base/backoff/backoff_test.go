// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	const least, most = 200 * time.Millisecond, 30 * time.Second
	var even, random Backoff
	want, shorter := least, false
	if d := After(0, least, most); d != least {
		t.Errorf("%v after no failure", d)
	}
	for i := range 12 {
		if d := even.Double(least, most); d != want || After(i+1, least, most) != want {
			t.Errorf("%v, and %v after %d failures, want %v", d, After(i+1, least, most), i+1, want)
		}
		d := random.Next(least, most)
		if d > want || d <= want*3/4 {
			t.Errorf("%v, want up to %v", d, want)
		}
		shorter = shorter || d < want
		want = min(2*want, most)
	}
	if !shorter {
		t.Error("devices call in step")
	}
	even.Reset()
	if d := even.Double(time.Second, time.Minute); d != time.Second {
		t.Errorf("%v after a reset", d)
	}
}

// TestBounds checks that the bounds of each call hold, whatever the earlier ones were.
func TestBounds(t *testing.T) {
	var b Backoff
	for i, c := range []struct{ least, most, want time.Duration }{
		{time.Second, time.Minute, time.Second}, {10 * time.Second, time.Minute, 10 * time.Second},
		{time.Second, time.Minute, 20 * time.Second},
		{time.Second, 5 * time.Second, 5 * time.Second}, {time.Second, time.Minute, 10 * time.Second},
		{2 * time.Second, time.Second, time.Second}, {0, 0, 0},
	} {
		if d := b.Double(c.least, c.most); d != c.want {
			t.Errorf("%d: %v, want %v", i, d, c.want)
		}
	}
	for range 10 {
		if d := b.Next(3, 3); d != 3 { // too short to shorten
			t.Errorf("%v", d)
		}
	}
}
