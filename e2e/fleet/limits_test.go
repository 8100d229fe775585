// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mpbond/base/unit"
)

var (
	limitDevices = flag.Int("limits", 20, "run TestLimits with this number of devices; many need root")
	limitStreams = flag.Int("limits.streams", 5, "with this number of streams each")
	limitTime    = flag.Duration("limits.time", 2*time.Second, "and measure each state for this time")
)

// maxAtOneAddress is the number of devices that a server accepts in time from one address, which it bounds.
const maxAtOneAddress = 150

// manyHost is the address of the servers where each connection to it has an address of its own. Bytes over loopback
// addresses would not be counted.
const manyHost = "10.77.0.1"

// manyVariable is in the environment there.
const manyVariable = "MPBOND_TEST_ADDRESSES"

// serverHost returns the address of the servers.
func serverHost() string {
	if os.Getenv(manyVariable) != "" {
		return manyHost
	}
	return "127.0.0.1"
}

// runFromManyAddresses reports whether each connection of this process has an address of its own. If not, it runs
// this test again in a process of which that is true.
func runFromManyAddresses(t *testing.T) bool {
	if os.Getenv(manyVariable) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root: so many devices need an address each")
	}
	var rules strings.Builder
	rules.WriteString("ip link set lo up && ip addr add " + manyHost + " dev lo && " +
		"ip route add local 10.78.0.0/16 dev lo && nft -f - <<END\n" +
		"table ip test { chain out { type nat hook postrouting priority 100; policy accept;\n" +
		"ip daddr " + manyHost + " snat to numgen inc mod 1000 map { ")
	for i := range 1000 {
		fmt.Fprintf(&rules, "%d : 10.78.%d.%d, ", i, i/250, i%250+1)
	}
	rules.WriteString("} ; }; }\nEND\nexec \"$0\" \"$@\"")
	argv := []string{"-n", "sh", "-c", rules.String(), os.Args[0], "-test.run", "^" + t.Name() + "$"}
	for _, a := range os.Args[1:] {
		if !strings.HasPrefix(a, "-test.run") {
			argv = append(argv, a)
		}
	}
	cmd := exec.Command("unshare", argv...)
	cmd.Env = append(os.Environ(), manyVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // sh and unshare become the test
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	return false
}

// TestLimits measures what one server of a fleet needs for idle devices, open streams and traffic, and what all that
// costs the engine. It fails if a device gets no service.
func TestLimits(t *testing.T) {
	if *limitDevices > maxAtOneAddress && !runFromManyAddresses(t) {
		return
	}
	c, ctx := newCrowd(t, []string{"eu1"})
	before := c.usedDuring(func() { time.Sleep(*limitTime) })
	c.invite(*limitDevices)
	joining := c.usedDuring(func() { c.enroll(ctx) })
	n := len(c.devices)
	t.Logf("%d devices joined in %v: %.1f ms of the server's processor each", n, joining.took.Round(time.Second),
		joining.processor.Seconds()*1000/float64(n))
	idle := c.usedDuring(func() { time.Sleep(*limitTime) })
	t.Logf("idle: %v of memory, %v without devices, so %v for each; %.2f %% of a processor; %.1f requests a second to "+
		"the engine, %.1f without devices", idle.memory, before.memory, (idle.memory-before.memory)/unit.Bytes(n),
		idle.load()*100, idle.requestRate(), before.requestRate())
	opening := c.usedDuring(func() {
		c.eachDevice(func(d *crowdDevice) error {
			for range *limitStreams {
				s, err := c.openStream(ctx, d)
				if err != nil {
					return err
				}
				d.streams = append(d.streams, s)
			}
			return nil
		})
	})
	streams := n * *limitStreams
	t.Logf("%d streams opened in %v: %.2f ms of the server's processor each, %v of memory for each", streams,
		opening.took.Round(time.Second), opening.processor.Seconds()*1000/float64(streams),
		(opening.memory-idle.memory)/unit.Bytes(streams))
	asking := c.usedDuring(func() { // all devices send and get a byte, over and over
		for end := time.Now().Add(*limitTime); time.Now().Before(end); {
			c.eachDevice(func(d *crowdDevice) error { return echoes(d.streams[0]) })
		}
	})
	t.Logf("all devices send single bytes: %.1f requests a second to the engine", asking.requestRate())
	var carried unit.Bytes
	carrying := c.usedDuring(func() { carried = c.carry(ctx, *limitTime) })
	t.Logf("16 devices download: %.0f Mbit/s with the devices on the same processors; %.2f s of the server's "+
		"processor for each GB, so %.0f Mbit/s for each processor that it has to itself",
		float64(carried)*8/1e6/carrying.took.Seconds(), carrying.processor.Seconds()*1e9/float64(carried),
		float64(carried)*8/1e6/carrying.processor.Seconds())
}

// used is what the server and the engine used during some time.
type used struct {
	took, processor time.Duration // processor: of the server
	requests        int64         // to the engine
	memory          unit.Bytes    // of the server at the end
}

// load returns the share of one processor.
func (u used) load() float64 { return u.processor.Seconds() / u.took.Seconds() }

func (u used) requestRate() float64 { return float64(u.requests) / u.took.Seconds() }

// usedDuring measures what the only server uses during f.
func (c *crowd) usedDuring(f func()) used {
	c.Helper()
	began := time.Now()
	processor, requests := c.processorTime(), c.requests()
	f()
	return used{time.Since(began), c.processorTime() - processor, c.requests() - requests, c.memory()}
}

func (c *crowd) requests() int64 {
	c.Helper()
	n, err := c.engine.Requests()
	if err != nil {
		c.Fatal(err)
	}
	return n
}

// processorTime returns the processor time that the servers have used.
func (c *crowd) processorTime() (sum time.Duration) {
	c.Helper()
	for _, s := range c.servers {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.Cmd.Process.Pid), "stat"))
		if err != nil {
			c.Fatal(err)
		}
		_, after, _ := strings.Cut(string(stat), ") ") // fields 14 and 15 are ticks in user mode and in the kernel
		fields := strings.Fields(after)
		user, _ := strconv.ParseInt(fields[11], 10, 64)
		kernel, _ := strconv.ParseInt(fields[12], 10, 64)
		sum += time.Duration(user+kernel) * time.Second / 100
	}
	return sum
}

// carry has some devices download for a while, and returns how much came.
func (c *crowd) carry(ctx context.Context, d time.Duration) (sum unit.Bytes) {
	c.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	go func() {
		piece := make([]byte, 256<<10)
		for {
			s, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer s.Close()
				for {
					if _, err := s.Write(piece); err != nil {
						return
					}
				}
			}()
		}
	}()
	end := time.Now().Add(d)
	var mu sync.Mutex
	var g sync.WaitGroup
	for _, device := range c.devices[:min(16, len(c.devices))] {
		g.Go(func() {
			s, err := device.primary.DialStream(ctx, l.Addr().String())
			if err != nil {
				c.Error(err)
				return
			}
			defer s.Close()
			_ = s.SetDeadline(end)
			n, err := io.Copy(io.Discard, s)
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				c.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			sum += unit.Bytes(n)
		})
	}
	g.Wait()
	return sum
}
