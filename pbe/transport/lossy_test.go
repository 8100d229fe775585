// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestLossy: over real sockets, the stream arrives with the same SHA-256 and end, although the
// network loses, duplicates, reorders or damages packets, or all of that.
func TestLossy(t *testing.T) {
	for name, h := range map[string]networkFaults{
		"loss":        {lose: 0.02},
		"duplication": {double: 0.05},
		"reordering":  {overtake: 0.05},
		"corruption":  {damage: 0.02},
		"all":         {0.02, 0.05, 0.05, 0.02},
	} {
		t.Run(name, func(t *testing.T) {
			var n faultCounts
			c, s, sh := connectViaShim(t, h.mangle(1, &n))
			var all sync.WaitGroup
			for i, d := range [][2]*Conn{{c, s}, {s, c}} {
				sums := make(chan [sha256.Size]byte, 2)
				all.Go(func() {
					data := make([]byte, 512<<10+i)
					rand.NewChaCha8([32]byte{byte(i)}).Read(data)
					if _, err := d[0].Write(data); err != nil {
						t.Error(err)
					}
					d[0].CloseWrite()
					sums <- sha256.Sum256(data)
				})
				all.Go(func() {
					d[1].SetReadDeadline(time.Now().Add(testTimeout))
					got, err := io.ReadAll(d[1])
					if err != nil || len(got) != 512<<10+i {
						t.Errorf("direction %d: %d bytes, %v", i, len(got), err)
					}
					if sha256.Sum256(got) != <-sums {
						t.Errorf("direction %d: not what was written", i)
					}
				})
			}
			all.Wait()
			a, b := c.snapshotCounts(), s.snapshotCounts()
			first, _ := c.Probe()
			second, _ := s.Probe()
			sh.do(func() {
				if (h.lose > 0) != (n.lost > 0) || (h.double > 0) != (n.doubled > 0) ||
					(h.overtake > 0) != (n.overtaken > 0) || (h.damage > 0) != (n.damaged > 0) {
					t.Errorf("the network did %+v", n)
				}
			})
			if h.lose+h.damage > 0 && first.Retransmitted+second.Retransmitted == 0 || h.double > 0 &&
				a.duplicate+b.duplicate == 0 {
				t.Errorf("faults have no effect: %+v, %+v, %+v, %+v", a, b, first, second)
			}
		})
	}
}
