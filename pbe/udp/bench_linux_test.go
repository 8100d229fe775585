package udp

import (
	"io"
	"syscall"
	"testing"
	"time"
)

// BenchmarkLoopback sends as fast as it goes, in packets as Ethernet has them and in
// those of the loopback. Gbit/cpu-s is by the processor time of both ends together.
func BenchmarkLoopback(b *testing.B) {
	for name, size := range map[string]int{"1472": 1472, "8952": maxPayload} {
		b.Run(name, func(b *testing.B) {
			c, s := two(b, Options{})
			for _, x := range []*Conn{c, s} {
				x.mu.Lock()
				x.e.mtu = mtuSearch{size: size, fixed: true}
				x.mu.Unlock()
			}
			buf := make([]byte, 64<<10)
			go func() {
				for {
					if err := c.WaitWritable(); err != nil {
						return
					}
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			}()
			in := make([]byte, len(buf))
			b.SetBytes(int64(len(buf)))
			before := cpu()
			for b.Loop() {
				if _, err := io.ReadFull(s, in); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(b.N)*float64(len(buf))*8/1e9/(cpu()-before).Seconds(), "Gbit/cpu-s")
			c.mu.Lock()
			b.ReportMetric(float64(c.e.counts.lost)/float64(c.e.counts.packets)*100, "%lost")
			c.mu.Unlock()
		})
	}
}

// cpu is the processor time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
