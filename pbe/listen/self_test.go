// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// blockBytes is what a block of a testDecoder carries, in one packet.
const blockBytes = 25 * 600 / 8 * unit.Bytes(100) / 107

// TestStaleRNTI: the network gives the device another RNTI. With a configured one, the reports say at once that they do
// not hold, and so does the state, until the RNTI is right again. Otherwise the new one is found.
func TestStaleRNTI(t *testing.T) {
	for _, given := range []cell.RNTI{me, 0} {
		synctest.Test(t, func(t *testing.T) {
			var found []string
			l, src := startListener(t, Config{RNTI: given, OnFound: func(r cell.RNTI) {
				found = append(found, fmt.Sprintf("%#x", uint16(r)))
			}})
			f := l.Flow()
			defer f.Close()
			var last cc.CellFeedback
			conn := <-src.opened
			defer conn.Close()
			st := newTestDecoder(t, conn)
			receive := func() { last = f.OnPacket(0, 0, 40*ms, blockBytes) }
			writeSubframes(t, st, me, time.Second, receive)
			if last.TransportRate == 0 || last.Invalid || l.State().Self != me || l.State().Silent != nil {
				t.Fatalf("given %#x: %+v, %+v", given, last, l.State())
			}
			writeSubframes(t, st, me+1, 300*ms, receive)
			s := l.State()
			if given != 0 {
				if !last.Invalid || last.TransportRate != 0 || s.Silent == nil || !strings.Contains(s.Silent.Error(), "stale") {
					t.Errorf("renamed: %+v, %v", last, s.Silent)
				}
				writeSubframes(t, st, me, 300*ms, receive)
				if s := l.State(); last.Invalid || s.Silent != nil {
					t.Errorf("right again: %+v, %v", last, s.Silent)
				}
				return
			}
			if last.Invalid || last.TransportRate == 0 || s.Self != me+1 || !s.Found {
				t.Errorf("renamed: %+v, RNTI %#x, found %v", last, s.Self, s.Found)
			}
			writeSubframes(t, st, me+1, 300*ms, receive)
			want := []string{fmt.Sprintf("%#x", uint16(me)), fmt.Sprintf("%#x", uint16(me+1))}
			if !slices.Equal(found, want) {
				t.Errorf("reported %v, want %v", found, want)
			}
		})
	}
}
