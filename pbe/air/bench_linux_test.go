// SPDX-License-Identifier: Apache-2.0

package air

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// processor returns the processor time of this process.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkListen decodes carriers from a file each at full speed. It reports how long a
// millisecond of all of them takes after the search, in real time and in processor time. Both are
// below 1 if decoding keeps up. Set the number of processors with GOMAXPROCS; -cpu comes after the
// first run.
func BenchmarkListen(b *testing.B) {
	for _, c := range []struct{ prb, rate, carriers int }{{50, 15_360_000, 1}, {100, 30_720_000, 1},
		{50, 15_360_000, 6}, {100, 30_720_000, 6}} {
		b.Run(fmt.Sprintf("%dPRB/%d", c.prb, c.carriers), func(b *testing.B) {
			const subframes, before = 200, 80
			name := filepath.Join(b.TempDir(), "cell.sc16")
			var raw []byte
			for _, s := range onAir(b, c.prb, c.rate, subframes, 20) {
				raw = binary.LittleEndian.AppendUint16(raw, uint16(int16(real(s)*4096)))
				raw = binary.LittleEndian.AppendUint16(raw, uint16(int16(imag(s)*4096)))
			}
			if err := os.WriteFile(name, raw, 0o600); err != nil {
				b.Fatal(err)
			}
			var inputs []Input
			for range c.carriers {
				inputs = append(inputs, Input{Source: name, Rate: c.rate})
			}
			var wall, used time.Duration
			var n int
			for b.Loop() {
				var from time.Time
				var usedFrom time.Duration
				heard := 0
				if err := Listen(b.Context(), inputs, func(*Subframe) {
					if heard++; heard == before*c.carriers {
						from, usedFrom = time.Now(), processor(b)
					}
				}); err != nil {
					b.Fatal(err)
				}
				wall, used, n = wall+time.Since(from), used+processor(b)-usedFrom, n+heard/c.carriers-before
			}
			b.ReportMetric(wall.Seconds()*1000/float64(n), "ms/ms")
			b.ReportMetric(used.Seconds()*1000/float64(n), "processor-ms/ms")
		})
	}
}

// BenchmarkInput decodes and measures a subframe's samples.
func BenchmarkInput(b *testing.B) {
	for f := CF32; int(f) < len(formatTable); f++ {
		for _, rate := range []int{15_360_000, 30_720_000} {
			raw := make([]byte, rate/1000*f.Size())
			for i := range raw {
				raw[i] = byte(i * 7919 >> 4)
			}
			var out []complex64
			b.Run(fmt.Sprint(f, "/", rate), func(b *testing.B) {
				for b.Loop() {
					out = f.Decode(out[:0], raw)
				}
			})
			var m levelMeter
			b.Run(fmt.Sprint("meter/", rate), func(b *testing.B) {
				for b.Loop() {
					m.addSamples(out)
				}
			})
		}
	}
}
