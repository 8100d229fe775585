// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"runtime"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// BenchmarkCost measures the processor time of both engines for each data packet at 1 Gbit/s and an
// RTT of 100 ms, with some packets in a thousand lost. It uses no tags and no system calls. A run
// lasts a second or more of virtual time.
func BenchmarkCost(b *testing.B) {
	for name, perMille := range map[string]int{"loss 0": 0, "loss 0.1 %": 1, "loss 1 %": 10} {
		b.Run(name, func(b *testing.B) {
			l := newLossyLine(perMille)
			for l.at < 2*time.Second {
				l.step() // until all memory is there
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			from := l.e[0].counts.packets
			used := cpuTime()
			for l.e[0].counts.packets-from < uint64(b.N) {
				l.step()
			}
			used = cpuTime() - used
			runtime.ReadMemStats(&after)
			n := float64(l.e[0].counts.packets - from)
			b.ReportMetric(float64(used)/n, "ns/packet")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/packet")
			b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/packet")
			b.ReportMetric(0, "ns/op")
			if got := unit.RateOf(unit.Bytes(l.e[1].receiver.readOffset), l.at-time.Second); got < 300*unit.Mbps {
				b.Errorf("%v only", got)
			}
		})
	}
}

// lossyLine connects two engines by a link of 1 Gbit/s. It advances in steps of 0.1 ms and copies
// each packet.
type lossyLine struct {
	e      [2]*engine
	at     time.Duration
	ms     int
	count  int
	lose   int               // of a thousand packets
	pipes  [2][][]linePacket // by step, modulo the delay
	buf    []byte
	stream []byte
	free   [][]byte // memory of packets that arrived
}

// linePacket is a packet in flight.
type linePacket struct {
	number uint64
	frames []byte
}

func newLossyLine(perMille int) *lossyLine {
	l := &lossyLine{at: time.Second, lose: perMille, stream: make([]byte, 1<<20), buf: make([]byte, 0, 2000)}
	for i := range l.e {
		l.e[i] = newConnEngine(pacedWindow{fixedWindow{cc.NewCUBIC(), 13 * unit.MB}}, 28)
		l.e[i].mtu = mtuSearch{size: 1472, fixed: true}
		l.e[i].liveness.lastReceived, l.e[i].liveness.lastSent = l.at, l.at
		l.e[i].receiver.window, l.e[i].receiver.maxData, l.e[i].sender.maxData = maxWindow, maxWindow, maxWindow
		l.pipes[i] = make([][]linePacket, 500)
	}
	return l
}

// pacedWindow paces at the rate of the link.
type pacedWindow struct{ fixedWindow }

func (p pacedWindow) Limits(now time.Duration) cc.Limits {
	return cc.Limits{Window: p.window, Rate: 990 * unit.Mbps}
}

func (l *lossyLine) step() {
	l.at += 100 * time.Microsecond
	l.ms++
	for i, e := range l.e {
		due := &l.pipes[1-i][l.ms%500] // sent 50 ms ago
		for _, p := range *due {
			if err := e.handlePacketFrames(l.at, p.number, p.frames); err != nil {
				panic(err)
			}
			l.free = append(l.free, p.frames)
		}
		e.handleTimers(l.at)
	}
	l.e[0].sender.writeToBuffer(l.stream[:max(0, 1<<20-int(l.e[0].sender.unsentBytes()))])
	for n := 1; n > 0; {
		n, _ = l.e[1].readAvailable(l.at, l.stream)
	}
	for i, e := range l.e {
		to := l.pipes[i][l.ms%500][:0]
		for {
			b, number, ok := e.appendPacket(l.at, l.buf[:0])
			if !ok {
				break
			}
			if l.count++; i == 0 && l.count*7919%1000 < l.lose {
				continue
			}
			var frames []byte
			if n := len(l.free); n > 0 {
				frames, l.free = l.free[n-1], l.free[:n-1]
			}
			to = append(to, linePacket{number, append(frames[:0], b...)})
		}
		l.pipes[i][l.ms%500] = to
	}
}
