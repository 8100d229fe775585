// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// BenchmarkSegment carries stream bytes from Write to Read over two subflows, and the ACKs
// back, and counts what each segment costs.
func BenchmarkSegment(b *testing.B) {
	now := start
	var ends [2]*Bond
	for i := range ends {
		ends[i] = New(Config{OpensStreams: i == 0})
		for id := range wire.SubflowID(2) {
			ends[i].AddSubflow(id+1, false, now)
		}
	}
	s, err := ends[0].OpenStream("a:1")
	if err != nil {
		b.Fatal(err)
	}
	var far *Stream
	text, buf, segments := make([]byte, 64<<10), make([]byte, 0, 128<<10), 0
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		for sent, read := 0, 0; read < len(text); now = now.Add(100 * time.Microsecond) {
			sent += s.Write(text[sent:])
			for i, e := range ends {
				e.Tick(now)
				for id := range wire.SubflowID(2) {
					e.ObserveLocalHop(id+1, now, estimate.Hop{SRTT: 20 * time.Millisecond, MinRTT: 20 * time.Millisecond,
						Rate: 100 * unit.Mbps, Cwnd: 1 << 20, MSS: 1448})
					e.MarkIdle(id + 1)
				}
				for {
					id, seg := e.NextSegment(now, buf[:0])
					if id == 0 {
						break
					}
					segments++
					e.BeginSegment(id)
					if err := eachFrame(seg, func(t wire.Type, payload []byte) error {
						return ends[1-i].ReceiveFrame(id, t, payload,
							now)
					}); err != nil {
						b.Fatal(err)
					}
				}
			}
			if far == nil {
				far = ends[1].AcceptStream()
			}
			for far != nil {
				n, _ := far.Read(text)
				if n == 0 {
					break
				}
				read += n
			}
		}
	}
	b.ReportMetric(float64(segments)/float64(b.N), "segments/op")
}
