// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/pbe/flow"
)

// The lab starts its own binary as daemon, guard and sink, which is the test binary in tests. It
// also contains the small programs that tests run in nodes.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		if err := testProgram(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "lt") // short: a socket's path has 108 bytes at most
	if err != nil {
		panic(err)
	}
	os.Setenv("XDG_RUNTIME_DIR", dir)
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func testProgram(args []string) error {
	switch args[0] {
	case "daemon":
		return RunDaemon(os.Stdin, os.Stdout)
	case "guard":
		return RunGuard(os.Stdin, args[1])
	case "sink":
		return RunSink(context.Background(), args[1])
	case "relay":
		return Relay(context.Background(), args[1], args[2], len(args) > 3)
	case "streams": // --streams N URL
		n, _ := strconv.Atoi(args[2])
		return Streams{URL: args[3], N: n}.Run(context.Background(), os.Stdout, os.Stderr)
	case "proxy":
		return RunProxy(context.Background(), args[1])
	case "player":
		return testPlayer(args[1:])
	case "exchange":
		return RunExchange(context.Background(), args[1], args[2])
	case "app": // SPEC [--mptcp] [--socks5-hostname ADDRESS]
		var c AppClient
		if err := json.Unmarshal([]byte(args[1]), &c); err != nil {
			return err
		}
		c.MPTCP = slices.Contains(args[2:], "--mptcp")
		if i := slices.Index(args, "--socks5-hostname"); i > 0 {
			c.SOCKS = args[i+1]
		}
		return c.Run(context.Background(), os.Stdin, os.Stdout)
	case "probe":
		return RunProbe(args[1:])
	case "flow-sink":
		return flow.Sink(context.Background(), flow.CellListener{})
	case "flow-source": // --length L --seed N CONTROLLER@ADDRESS…
		return testFlows(args[2], args[5:])
	case "test-up": // brings up a lab, prints a line and waits
		t, err := Triangle("8")
		if err != nil {
			return err
		}
		if _, err := Up(t, Options{Name: args[1], EndWithProcess: true}); err != nil {
			return err
		}
		fmt.Println("up")
		select {}
	case "test-serve": // sends zeros to each connection
		l, err := net.Listen("tcp4", ":99")
		if err != nil {
			return err
		}
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			go func() { _, _ = io.Copy(c, zeroReader{}); c.Close() }()
		}
	case "test-fetch": // prints the bytes received after each 100 ms
		return testFetch(args[1], args[2])
	case "test-echo": // answers each datagram
		c, err := net.ListenPacket("udp4", ":98")
		if err != nil {
			return err
		}
		buf := make([]byte, 2048)
		for {
			n, from, err := c.ReadFrom(buf)
			if err != nil {
				return err
			}
			_, _ = c.WriteTo(buf[:n], from)
		}
	case "test-ping": // ADDR COUNT: prints each round trip in ns, -1 for none
		return testPing(args[1])
	}
	return fmt.Errorf("unknown test program %q", args)
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { return len(p), nil }

func testFetch(addr, duration string) error {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return err
	}
	c, err := net.Dial("tcp4", addr+":99")
	if err != nil {
		return err
	}
	buf, total, start, next := make([]byte, 1<<16), 0, time.Now(), 100*time.Millisecond
	for time.Since(start) < d {
		_ = c.SetReadDeadline(start.Add(next))
		n, err := c.Read(buf)
		total += n
		if time.Since(start) >= next {
			fmt.Println(total)
			next += 100 * time.Millisecond
		} else if err != nil {
			return err
		}
	}
	return nil
}

func testPing(addr string) error {
	c, err := net.Dial("udp4", addr+":98")
	if err != nil {
		return err
	}
	for i := range 20 {
		msg := binary.BigEndian.AppendUint64(nil, uint64(i))
		start := time.Now()
		if _, err := c.Write(append(msg, make([]byte, 1464)...)); err != nil {
			return err
		}
		_ = c.SetReadDeadline(start.Add(500 * time.Millisecond))
		if _, err := c.Read(make([]byte, 2048)); err != nil {
			fmt.Println(-1)
			continue
		}
		fmt.Println(time.Since(start).Nanoseconds())
	}
	return nil
}

// needLab skips a test where namespaces and TUN devices are not available.
func needLab(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root (network namespaces and /dev/net/tun)")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun")
	}
	if _, err := exec.LookPath("nsenter"); err != nil {
		t.Skip("needs nsenter (package util-linux)")
	}
}

// startLab brings up a topology for the test.
func startLab(t *testing.T, text string, o Options) *Lab {
	t.Helper()
	needLab(t)
	top, err := ParseTopology([]byte(text), ".")
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.EndWithProcess = fmt.Sprintf("t%d", time.Now().UnixNano()%1e9), true
	l, err := Up(top, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(l.dir); errors.Is(err, os.ErrNotExist) {
			return // down already
		}
		if err := l.Down(); err != nil {
			t.Errorf("down: %v", err)
		}
	})
	return l
}

// startCommand runs this test binary as one of its small programs in a node. The program is killed
// with the test.
func startCommand(t *testing.T, l *Lab, node string, argv ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd, err := l.Command(context.Background(), node, append([]string{"/proc/self/exe", "lab"}, argv...)...)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range cmd.Args {
		if a == "/proc/self/exe" {
			cmd.Args[i] = exe
		}
	}
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd, out
}

// serveInNode starts a program that listens on a port, and waits until it does.
func serveInNode(t *testing.T, l *Lab, node string, udp bool, argv ...string) {
	t.Helper()
	cmd, _ := startCommand(t, l, node, argv...)
	table, state := "tcp", "0A"
	if udp {
		table, state = "udp", "07"
	}
	waittest.Until(t, fmt.Sprint(argv, " listens"), func() bool {
		// This order matters: a program that still enters the node sees other sockets.
		link, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", cmd.Process.Pid, table))
		return strings.Contains(string(b), " "+state+" ") && !strings.Contains(link, "nsenter")
	})
}

func parseNumbers(t *testing.T, out *bytes.Buffer) (n []float64) {
	t.Helper()
	for line := range strings.Lines(out.String()) {
		var v float64
		if _, err := fmt.Sscan(line, &v); err != nil {
			t.Fatalf("output %q", out)
		}
		n = append(n, v)
	}
	return n
}

const pairTopology = `
[node.a]
[node.b]
[link.l]
ends = ["a", "b"]
`

// watchDisturbances measures what the machine adds to delays from now on. The returned function
// returns the most that it can have added to one delay, and to a whole measurement: the lateness of
// the emulator, and the waits of programs for a processor. Tests add it to their bounds, so that
// they hold on any machine and say the same on an idle one.
func watchDisturbances(t *testing.T, l *Lab) (end func() (once, inAll time.Duration)) {
	t.Helper()
	starved := starvation.beginPeriod()
	return func() (time.Duration, time.Duration) {
		t.Helper()
		s, err := l.Stats(false)
		if err != nil {
			t.Fatal(err)
		}
		p := starved()
		return s.Lateness.Max + p.worst, s.Lateness.Max + p.sum
	}
}

// TCP reaches 99 % of the payload of 10 Mbit/s and follows the schedule, which starts with the
// transfer: 2 Mbit/s from 2 s on, a black hole from 3 s to 3.4 s.
func TestTCPGoodput(t *testing.T) {
	t.Parallel()
	l := startLab(t, pairTopology+`rate="10Mbit/s"
delay="5ms"
schedule=["at 2s: rate 2Mbit/s"]
outages=["3s+400ms"]`, Options{})
	serveInNode(t, l, "b", false, "test-serve")
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	disturbances := watchDisturbances(t, l)
	cmd, out := startCommand(t, l, "a", "test-fetch", "10.77.1.2", "3500ms")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, out)
	}
	n := parseNumbers(t, out)
	_, inAll := disturbances()
	if len(n) < 33 {
		t.Fatalf("%d samples", len(n))
	}
	mbit := func(from, to int) float64 { return (n[to-1] - n[from-1]) * 8 / (float64(to-from) * 1e5) }
	// A sample may be one packet off at each end. What the machine delays may come in another part.
	if got, want := mbit(5, 15), 10*1448.0/1500; math.Abs(got/want-1) > .01+.003+inAll.Seconds() { // of a second
		t.Errorf("TCP gets %.3f Mbit/s of 10, want %.3f; delays of %v in all", got, want, inAll)
	}
	if got, want := mbit(22, 28), 2*1448.0/1500; math.Abs(got-want) > .05*want+10*inAll.Seconds()/.6 {
		t.Errorf("after the change TCP gets %.3f Mbit/s, want %.3f; delays of %v in all", got, want, inAll)
	}
	if got := n[32] - n[30]; got > float64((10 * unit.Mbps).Bytes(max(0, inAll-50*time.Millisecond))) {
		t.Errorf("%.0f bytes came through the outage; delays of %v in all", got, inAll)
	}
	s, _ := l.Stats(false)
	if s.Link("l").Lines[Downlink].Count.OutageDrops.Packets == 0 {
		t.Error("the outage lost nothing")
	}
	if q := s.Link("l").Lines[Downlink].Count; q.QueueDrops.Packets == 0 || q.MaxQueued > DefaultQueue(10*unit.Mbps) {
		t.Errorf("cubic should fill the queue of %v and drop: %+v", DefaultQueue(10*unit.Mbps), q)
	}
}

// Round trips are twice the delay plus two serialisations, and Set changes one direction.
func TestDelay(t *testing.T) {
	t.Parallel()
	l := startLab(t, pairTopology+"rate=\"12Mbit/s\"\ndelay=\"10ms\"", Options{Pcap: t.TempDir()})
	serveInNode(t, l, "b", true, "test-echo")
	for _, c := range []struct {
		set  []string
		want time.Duration
	}{{nil, 22 * time.Millisecond}, {[]string{"delay=20ms", "rate=6Mbit/s"}, 33 * time.Millisecond}} {
		if c.set != nil {
			if err := l.Set("l", "up", c.set...); err != nil {
				t.Fatal(err)
			}
		}
		disturbances := watchDisturbances(t, l)
		cmd, out := startCommand(t, l, "a", "test-ping", "10.77.1.2")
		if err := cmd.Wait(); err != nil {
			t.Fatal(err, out)
		}
		least := math.Inf(1)
		for _, v := range parseNumbers(t, out) {
			if v >= 0 {
				least = min(least, v)
			}
		}
		once, _ := disturbances()
		if off := time.Duration(least) - c.want; off < 0 || off > 2*time.Millisecond+2*once {
			t.Errorf("round trip %v with %v, want %v; delays of up to %v", time.Duration(least), c.set, c.want, once)
		}
	}
	for _, bad := range []error{l.Set("m", "", "rate=1"), l.Set("l", "left", "rate=1"), l.Set("l", "", "rate=x"),
		l.Set("l", "")} {
		if bad == nil {
			t.Error("a bad Set was taken")
		}
	}
	if _, err := l.Command(context.Background(), "nowhere", "true"); err == nil {
		t.Error("a command in no node was taken")
	}
}

func TestPcap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l := startLab(t, pairTopology+"delay=\"1ms\"", Options{Pcap: dir})
	serveInNode(t, l, "b", true, "test-echo")
	cmd, out := startCommand(t, l, "a", "test-ping", "10.77.1.2")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err, out)
	}
	if _, err := l.sendDaemonRequest(request{Op: "down"}); err != nil {
		t.Fatal(err)
	}
	if err := waitRemoved(l.dir); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"a", "b"} {
		f, err := os.Open(filepath.Join(dir, "l."+end+".pcap"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := pcapgo.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		udp := 0
		for {
			data, _, err := r.ReadPacketData()
			if err != nil {
				break
			}
			if len(data) == 1500 && data[0]>>4 == 4 && data[9] == 17 {
				udp++
			}
		}
		if udp != 40 {
			t.Errorf("capture at %s has %d datagrams, want 40", end, udp)
		}
	}
}

func TestExec(t *testing.T) {
	t.Parallel()
	l := startLab(t, pairTopology, Options{})
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": -1} {
		cmd, err := l.Command(context.Background(), "a", "sh", "-c", script)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Errorf("%q exits with %d, want %d", script, got, want)
		}
	}
	cmd, _ := l.Command(context.Background(), "b", "sh", "-c",
		`pwd; grep -c ' a$' /etc/hosts; ls /sys/fs/cgroup | head -1; cat /proc/sys/net/ipv4/tcp_congestion_control; `+
			`echo "$@"`,
		"sh", "x y", "")
	out, err := cmd.CombinedOutput()
	wd, _ := os.Getwd()
	lines := strings.Split(string(out), "\n")
	if err != nil || len(lines) < 5 || lines[0] != wd || lines[1] != "2" || lines[3] != "cubic" || lines[4] != "x y " {
		t.Errorf("in b: %v, %q", err, out)
	}
}

// isAlive reports whether a process runs and is not a zombie.
func isAlive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z")
}

func waitExited(t *testing.T, pid int, what string) {
	t.Helper()
	waittest.Until(t, what+" has exited", func() bool { return !isAlive(pid) })
}

// TestNothingLeaks takes labs down in every way. The processes inside, their namespaces and the
// runtime directory must be gone.
func TestNothingLeaks(t *testing.T) {
	for _, how := range []string{"down", "kill -9 daemon", "kill -9 owner", "daemon and guard"} {
		t.Run(how, func(t *testing.T) {
			needLab(t)
			t.Parallel()
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprintf("leak%d", time.Now().UnixNano()%1e9)
			owner := exec.Command(exe, "lab", "test-up", name)
			out, err := owner.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := owner.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = owner.Process.Kill(); _ = owner.Wait() }()
			if _, err := fmt.Fscan(out, new(string)); err != nil {
				t.Fatal(err)
			}
			l, err := Open(name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Up(l.Topology, Options{Name: name}); err == nil || !strings.Contains(err.Error(),
				"up already") {
				t.Fatalf("a second lab of the same name: %v", err)
			}
			inside, err := l.Command(context.Background(), "web", "sh", "-c", "trap '' TERM INT HUP; echo in; "+
				"sleep 1000; true")
			if err != nil {
				t.Fatal(err)
			}
			inside.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			said, _ := inside.StdoutPipe()
			if err := inside.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fscan(said, new(string)); err != nil {
				t.Fatal(err)
			}
			go func() { _ = inside.Wait() }()
			switch how {
			case "down":
				err = l.Down()
			case "kill -9 daemon":
				err = syscall.Kill(l.info.PID, syscall.SIGKILL)
			case "kill -9 owner":
				err = owner.Process.Kill()
			case "daemon and guard":
				killChildren(t, l.info.PID)
				err = syscall.Kill(l.info.PID, syscall.SIGKILL)
			}
			if err != nil {
				t.Fatal(err)
			}
			waitExited(t, l.info.PID, "the daemon")
			if how == "daemon and guard" { // the next lab cleans up
				if _, err := Open(name); err == nil {
					t.Fatal("a dead lab opens")
				}
				_ = syscall.Kill(-inside.Process.Pid, syscall.SIGKILL) // with its child
				if l, err = Up(l.Topology, Options{Name: name, EndWithProcess: true}); err != nil {
					t.Fatalf("up after a crash: %v", err)
				}
				if err := l.Down(); err != nil {
					t.Fatal(err)
				}
			}
			if err := waitRemoved(l.dir); err != nil {
				t.Fatal(err)
			}
			waitExited(t, inside.Process.Pid, "the program inside")
		})
	}
}

// killChildren kills the guard of a daemon.
func killChildren(t *testing.T, daemon int) {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range stats {
		b, _ := os.ReadFile(f)
		var pid, ppid int
		i := strings.LastIndexByte(string(b), ')')
		if i < 0 {
			continue
		}
		if _, err := fmt.Sscanf(string(b), "%d", &pid); err != nil {
			continue
		}
		if _, err := fmt.Sscanf(string(b[i+4:]), "%d", &ppid); err == nil && ppid == daemon {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			waitExited(t, pid, "the guard")
		}
	}
}
