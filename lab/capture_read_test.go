// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestReadCapture reads a capture of headers whose last packet is half written.
func TestReadCapture(t *testing.T) {
	top, err := Triangle("8/10/5")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c, err := newCapture(dir, 4, top)
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	for _, p := range []string{"abcdef", "gh", "ijklmn"} {
		c.observePacket("ps", 0, []byte(p))
	}
	if err := c.closeFiles(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, captureName("ps", top.Link["ps"].Ends[0]))
	read := func(since time.Time) (all []string) {
		packets, err := readCapture(file, "ps", since)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packets {
			if p.link != "ps" || p.at.Before(before) || p.at.After(time.Now()) {
				t.Errorf("%+v", p)
			}
			all = append(all, string(p.data))
		}
		return all
	}
	if got := read(before); !slices.Equal(got, []string{"abcd", "gh", "ijkl"}) {
		t.Errorf("%q", got)
	}
	if got := read(time.Now().Add(time.Hour)); len(got) != 0 {
		t.Errorf("of the future: %q", got)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		if err := os.WriteFile(file, whole[:len(whole)-1-n], 0o644); err != nil {
			t.Fatal(err)
		}
		if got := read(before); !slices.Equal(got, []string{"abcd", "gh"}) {
			t.Errorf("without the last %d bytes: %q", 1+n, got)
		}
	}
	if err := os.WriteFile(file, bytes.Repeat([]byte{7}, 100), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readCapture(file, "ps", before); err == nil {
		t.Error("a file that is no capture is read")
	}
}

// TestHeldSteps: what waits at the end of a step counts, also while no packet comes.
func TestHeldSteps(t *testing.T) {
	l := &HeldLog{}
	for _, x := range []struct {
		at time.Duration // of a packet
		n  unit.Bytes    // that waited before it
	}{{10 * time.Millisecond, 0}, {99 * time.Millisecond, 5}, {100 * time.Millisecond, 7}, {350 * time.Millisecond, 9},
		{360 * time.Millisecond, 0}} {
		l.extendTo(x.at, x.n)
	}
	if want := []unit.Bytes{7, 9, 9}; !slices.Equal(l.Bytes, want) {
		t.Errorf("%v, want %v", l.Bytes, want)
	}
}
