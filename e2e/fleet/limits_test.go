// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
)

var (
	limitMemory unit.Bytes
	limitTime   = flag.Duration("limits.time", time.Second, "and measure each state for this time")
)

func init() {
	flag.Func("limits", "run TestLimits with a server that has this much memory and a processor of its own, like 4GB; "+
		"needs root and two processors", func(s string) (err error) {
		limitMemory, err = unit.ParseBytes(s)
		return err
	})
}

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
// this test again in a process of which that is true, with a command prefix.
func runFromManyAddresses(t *testing.T, prefix ...string) bool {
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
	argv := slices.Concat([]string{"-n", "sh", "-c", rules.String()}, prefix,
		[]string{os.Args[0], "-test.run", "^" + t.Name() + "$"})
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

// The server's own bounds (docs/explanation/memory.md): the part of its memory limit that its bonds may hold, the parts
// of that for devices, and for these and their streams; and what each of them counts.
const (
	bondShare              = 1. / 2
	deviceShare, openShare = 7. / 8, 15. / 16
	deviceCost, socketCost = 128 * unit.KB, 32 * unit.KB
)

const (
	// smallMemory is the memory limit of a server for 300 devices.
	smallMemory = 88 * unit.MB
	// firstDevices is the number of devices that download, and that open streams at a server with room for more.
	firstDevices = 16
	// atOnce is how many devices call at once: the server bounds those of one address.
	atOnce = 8
)

// limitCrowd is a crowd of light devices at one server, which has a limit of memory.
type limitCrowd struct {
	*crowd
	ctx    context.Context
	name   string     // of the server
	limit  unit.Bytes // of its memory
	light  []*lightDevice
	trust  *identity.Trust // empty
	source string          // address of a server that sends without end
	codes  []string        // unused
}

// TestLimits fills one server with streams and another one with devices, until they refuse more. It checks that they do
// so by a word, that what is open goes on, that they stay within their memory and that new devices use another server
// of the fleet. With -limits it measures what devices, streams and traffic cost servers of that size, and the engine.
func TestLimits(t *testing.T) {
	l := &limitCrowd{limit: smallMemory}
	newPrefix := func() []string { return []string{"env", "GOMEMLIMIT=" + strconv.FormatInt(int64(smallMemory), 10)} }
	if limitMemory > 0 {
		if runtime.NumCPU() < 2 && os.Getenv(manyVariable) == "" {
			t.Skip("needs two processors: one for the servers")
		}
		if !runFromManyAddresses(t, "taskset", "-c", fmt.Sprintf("1-%d", max(runtime.NumCPU()-1, 1))) {
			return
		}
		l.limit = limitMemory / 5 * 4 // as a server sets it
		newPrefix = func() []string { return append(rig.NewMemoryGroup(t, limitMemory), "taskset", "-c", "0") }
	}
	l.crowd, l.ctx = newCrowd(t, []string{"eu1", "eu2"}, map[string][]string{"eu1": newPrefix(), "eu2": newPrefix()})
	l.source = l.startStreamServer(sourceProgram)
	var err error
	if l.trust, err = identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml")); err != nil {
		t.Fatal(err)
	}
	few, all := *l, *l
	few.name, all.name = "eu2", "eu1"
	t.Cleanup(few.closeBonds)
	t.Cleanup(all.closeBonds)
	if err := few.admit(firstDevices); err != nil {
		t.Fatal(err)
	}
	few.fillWithStreams()
	few.measureRate()
	all.fillWithDevices()
	all.fillWithStreams()
	all.measureRate()
	all.checkNewDevices()
}

// closeBonds ends all bonds, so that the test's goroutines end.
func (l *limitCrowd) closeBonds() {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	var g sync.WaitGroup
	for _, d := range l.light {
		g.Go(func() { d.endpoint.Close(gone) })
	}
	g.Wait()
}

// admit lets up to n more devices in, with their pairing, until the server refuses one. It returns the refusal.
func (l *limitCrowd) admit(n int) (refusal error) {
	l.Helper()
	var mu sync.Mutex
	var g sync.WaitGroup
	for range atOnce {
		g.Go(func() {
			for {
				mu.Lock()
				if n == 0 || refusal != nil || l.Failed() {
					mu.Unlock()
					return
				}
				n--
				code := l.takeCode()
				local := ""
				if os.Getenv(manyVariable) == "" {
					k := len(l.codes) // differs for each
					local = fmt.Sprintf("127.1.%d.%d", k/250, k%250+1)
				}
				mu.Unlock()
				d, server, err := pairLight(l.ctx, code, l.addresses[l.name], l.trust)
				if err == nil {
					err = d.join(l.ctx, l.addresses[l.name], local, server)
				}
				mu.Lock()
				switch {
				case err == nil:
					l.light = append(l.light, d)
				case isFull(err):
					refusal = err
				default:
					l.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	g.Wait()
	if l.Failed() {
		l.FailNow()
	}
	return refusal
}

// takeCode returns an unused code, and makes many at a time.
func (l *limitCrowd) takeCode() string {
	if len(l.codes) == 0 {
		l.devices = nil
		l.invite(500)
		for _, d := range l.devices {
			l.codes = append(l.codes, d.code)
		}
		l.devices = nil
	}
	code := l.codes[0]
	l.codes = l.codes[1:]
	return code
}

// fillWithDevices lets devices in until the server is full, and measures what they cost.
func (l *limitCrowd) fillWithDevices() {
	l.Helper()
	before := l.usedDuring(func() { time.Sleep(*limitTime) })
	var refusal error
	joining := l.usedDuring(func() {
		for refusal == nil {
			refusal = l.admit(1000)
		}
	})
	n := len(l.light)
	l.Logf("%d devices with one link, then: %v", n, refusal)
	l.Logf("they joined in %v: %.1f ms of the server's processor each", joining.took.Round(time.Second),
		joining.processor.Seconds()*1000/float64(n))
	want := float64(l.limit) * bondShare * deviceShare / float64(deviceCost)
	if f := float64(n); strings.Contains(refusal.Error(), "memory") && (f > want || f < want*0.95-atOnce) {
		l.Errorf("%d devices, by its bounds %.0f", n, want)
	}
	idle := l.usedDuring(func() { time.Sleep(*limitTime) })
	l.Logf("idle: %v of memory, %v without devices, %v for each; %.2f %% of a processor; %.1f requests a second to "+
		"the engine, %.1f without devices", idle.memory, before.memory, (idle.memory-before.memory)/unit.Bytes(n),
		idle.load()*100, idle.requestRate(), before.requestRate())
}

// fillWithStreams has the devices open streams in turn until the server refuses one, checks that all others carry
// bytes, and closes them.
func (l *limitCrowd) fillWithStreams() {
	l.Helper()
	before := l.usedDuring(func() {})
	var refusal error
	var opened int
	opening := l.usedDuring(func() {
		for refusal == nil {
			refusal = l.eachLight(func(d *lightDevice) error { return d.openStream(l.ctx, l.echo) })
		}
	})
	if !isFull(refusal) {
		l.Fatal(refusal)
	}
	for _, d := range l.light {
		opened += len(d.streams)
	}
	l.Logf("%d devices, %d streams, then: %v", len(l.light), opened, refusal)
	if opened == 0 {
		l.Fatal("a full server leaves no stream for the devices that it has")
	}
	l.Logf("opened in %v: %.2f ms of the server's processor each, %v of memory for each", opening.took.Round(time.Second),
		opening.processor.Seconds()*1000/float64(opened), (opening.memory-before.memory)/unit.Bytes(opened))
	room := float64(l.limit)*bondShare*openShare - float64(len(l.light))*float64(deviceCost)
	if n := float64(opened); strings.Contains(refusal.Error(), "memory") && n > room/float64(socketCost) {
		l.Errorf("%d streams, by its bounds %.0f", opened, room/float64(socketCost))
	}
	asking := l.usedDuring(func() {
		for end := time.Now().Add(*limitTime); ; {
			if err := l.eachLight(func(d *lightDevice) error {
				for _, s := range d.streams {
					if err := echoes(s); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				l.Fatal("an open stream of a full server: ", err)
			}
			if time.Now().After(end) {
				return
			}
		}
	})
	l.Logf("all streams send single bytes: %.1f requests a second to the engine", asking.requestRate())
	peak := l.memoryOf("VmHWM:") - l.memoryOf("RssFile:") // the kernel takes back what is of files
	if l.Logf("the server took %v of memory at most, its limit is %v", peak, l.limit); peak > l.limit*5/4 {
		l.Error("more than there is")
	}
	for _, d := range l.light {
		d.closeStreams()
	}
	l.awaitNoStreams()
}

// awaitNoStreams waits until the server has no streams.
func (l *limitCrowd) awaitNoStreams() {
	l.Helper()
	rig.Eventually(l, func() error {
		st, err := l.Status(l.name, "server")
		for _, b := range st.Bonds {
			if b.Streams > 0 {
				return fmt.Errorf("%d streams are open", b.Streams)
			}
		}
		return err
	})
}

// eachLight calls f for all light devices, some at once, until it fails for one.
func (l *limitCrowd) eachLight(f func(*lightDevice) error) (failed error) {
	var mu sync.Mutex
	var g sync.WaitGroup
	next := 0
	for range atOnce {
		g.Go(func() {
			for {
				mu.Lock()
				if next == len(l.light) || failed != nil {
					mu.Unlock()
					return
				}
				d := l.light[next]
				next++
				mu.Unlock()
				if err := f(d); err != nil {
					mu.Lock()
					failed = cmp.Or(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	g.Wait()
	return failed
}

// checkNewDevices checks that the full server reports that it is, and that primaries use the other one.
func (l *limitCrowd) checkNewDevices() {
	l.Helper()
	if err := l.admit(1); !isFull(err) || !strings.Contains(err.Error(), "full") {
		l.Errorf("one more device: %v", err)
	}
	rig.Eventually(l, func() error {
		out, err := l.Run("operator", l.Mpbond, "fleet", "status")
		if err == nil && !strings.Contains(out, " full ") {
			err = errors.New(out)
		}
		return err
	})
	l.invite(4)
	l.enroll(l.ctx)
	for _, d := range l.devices {
		if name := serverOf(d); name != "eu2" {
			l.Errorf("a new device uses %s", name)
		}
	}
}

// used is what a server and the engine used during some time.
type used struct {
	took, processor time.Duration // processor: of the server
	requests        int64         // to the engine
	memory          unit.Bytes    // of the server at the end
}

// load returns the share of one processor.
func (u used) load() float64 { return u.processor.Seconds() / u.took.Seconds() }

func (u used) requestRate() float64 { return float64(u.requests) / u.took.Seconds() }

// usedDuring measures what the server uses during f.
func (l *limitCrowd) usedDuring(f func()) used {
	l.Helper()
	began := time.Now()
	processor, requests := l.processorTime(), l.requests()
	f()
	return used{time.Since(began), l.processorTime() - processor, l.requests() - requests, l.memoryOf("VmRSS:")}
}

func (c *crowd) requests() int64 {
	c.Helper()
	n, err := c.engine.Requests()
	if err != nil {
		c.Fatal(err)
	}
	return n
}

// processorTime returns the processor time that the server has used.
func (l *limitCrowd) processorTime() time.Duration {
	l.Helper()
	_, after, _ := strings.Cut(l.readProc("stat"), ") ") // fields 14 and 15 are ticks in user mode and in the kernel
	fields := strings.Fields(after)
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	kernel, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+kernel) * time.Second / 100
}

// memoryOf returns the memory of the server in a line of its status, VmRSS: or VmHWM:.
func (l *limitCrowd) memoryOf(line string) unit.Bytes {
	l.Helper()
	_, after, _ := strings.Cut(l.readProc("status"), line)
	kb, err := strconv.ParseInt(strings.Fields(after + " -")[0], 10, 64)
	if err != nil {
		l.Fatal(err)
	}
	return unit.Bytes(kb) << 10
}

// readProc reads a file of /proc about the server.
func (l *limitCrowd) readProc(name string) string {
	l.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(l.servers[l.name].Cmd.Process.Pid), name))
	if err != nil {
		l.Fatal(err) // it has ended
	}
	return string(b)
}

// measureRate has the first devices download for a while.
func (l *limitCrowd) measureRate() {
	l.Helper()
	var sum atomic.Int64
	carrying := l.usedDuring(func() {
		end := time.Now().Add(*limitTime)
		var g sync.WaitGroup
		for _, d := range l.light[:firstDevices] {
			g.Go(func() {
				s, err := d.endpoint.Dial(l.source, wire.ModeBond, 0)
				if err != nil {
					l.Error(err)
					return
				}
				defer s.Close()
				_ = s.SetDeadline(end)
				n, err := io.Copy(io.Discard, s)
				if !errors.Is(err, os.ErrDeadlineExceeded) || n == 0 {
					l.Errorf("a download received %d bytes, then: %v", n, err)
				}
				sum.Add(n)
			})
		}
		g.Wait()
	})
	l.awaitNoStreams()
	carried := float64(sum.Load())
	l.Logf("%d of %d devices download: %.0f Mbit/s with %.0f %% of a processor; %.2f s of it for each GB, so %.0f "+
		"Mbit/s with a whole one", firstDevices, len(l.light), carried*8/1e6/carrying.took.Seconds(), carrying.load()*100,
		carrying.processor.Seconds()*1e9/carried, carried*8/1e6/carrying.processor.Seconds())
}
