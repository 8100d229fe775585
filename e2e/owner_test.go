// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
	"mpbond/node/intercept"
)

// TestOwners: the primary reports the process of each connection, by proxy, run or TUN, even while
// no rule needs it: the program or label on this machine, the address of another device. The server
// knows none.
func TestOwners(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	n.startServices()
	primary, server := n.NewClient("primary", "primary"), n.NewClient("server", "server")
	n.prepareTUN()
	at, err := n.Lab.Topology.Addr("primary", "pipe1")
	if err != nil {
		t.Fatal(err)
	}
	proxy := "http://" + at.String() + ":1080"
	n.startTUN("--proxy", proxy[len("http://"):])
	begin := func(node string, argv ...string) {
		cmd := n.Command(node, argv...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait() // its error is the signal
		})
	}
	download := []string{"curl", "-sS", "-o", "/dev/null", "--limit-rate", "100k",
		fmt.Sprintf("http://web/%d", int64(1)<<33)}
	run := func(argv []string, flags ...string) []string {
		return append(append(append([]string{n.Mpbond, "run"}, flags...), "--"), argv...)
	}
	begin("primary", append(download, "-x", proxy)...)
	begin("primary", download...)
	begin("helper1", append(download, "-x", proxy)...)
	begin("primary", run(download)...)
	begin("primary", run(download, "--label", "x")...)
	begin("primary", run([]string{"sh", "-c", `"$@" && exec sleep 60`, "sh", os.Args[0], "lab", "probe", "echo",
		net.JoinHostPort(n.web4, echoPort)}, "--label", "y")...)
	far, err := n.Lab.Topology.Addr("helper1", "pipe1")
	if err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, func() error {
		count := map[string]int{}
		list, err := primary.Streams(t.Context())
		for _, s := range list {
			program := s.Program[strings.LastIndexByte(s.Program, '/')+1:]
			count[fmt.Sprintf("%s, program %q of %q, label %q", s.App, program, s.User, s.Label)]++
		}
		if err != nil || count[`curl, program "curl" of "root", label ""`] != 3 ||
			count[`x, program "curl" of "root", label "x"`] != 1 ||
			count["from "+far.String()+`, program "" of "", label ""`] != 1 {
			return fmt.Errorf("%v, %v, of %+v", count, err, list)
		}
		return nil
	})
	rig.Eventually(t, func() error {
		list, err := primary.Flows(t.Context())
		for _, f := range list {
			if f.App == "y" && f.Label == "y" && f.Program != "" && f.UpBytes > 0 && f.DownBytes > 0 {
				return nil
			}
		}
		return fmt.Errorf("flows: %+v, %v", list, err)
	})
	if out := n.Must("primary", n.Mpbond, "status", "--why"); !strings.Contains(out, " of x (/") ||
		!strings.Contains(out, " of curl (/") {
		t.Errorf("the status has no owners of streams:\n%s", out)
	}
	var list []api.BondStream
	rig.Eventually(t, func() (err error) {
		if list, err = server.Streams(t.Context()); err == nil && len(list) < 5 {
			err = fmt.Errorf("%+v", list)
		}
		return err
	})
	for _, s := range list {
		if s.AppInfo != (api.AppInfo{}) {
			t.Errorf("the server knows the owner of a stream: %+v", s)
		}
	}
}

// unownedDialer dials without an app, so that no owner of its streams is looked up.
type unownedDialer struct{ intercept.Dialer }

// DialStream dials with a context that names no app.
func (d unownedDialer) DialStream(_ context.Context, dest string) (net.Conn, error) {
	return d.Dialer.DialStream(context.Background(), dest)
}

// BenchmarkSetup measures the time of a new SOCKS5 connection to its first byte: 500 connections,
// in turn with 500 whose owner is not looked up. Each stays open until 100 more have begun, so that
// lookups overlap.
func BenchmarkSetup(b *testing.B) {
	w := newTestbed(b)
	w.startAll()
	ways := []string{"asked", "unasked"}
	var proxies []string
	for _, d := range []intercept.Dialer{w.p, unownedDialer{w.p}} {
		ln, err := intercept.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		edge, done := intercept.New(intercept.Config{Dialer: d}), make(chan error, 1)
		go func() { done <- edge.ServeProxy(ln) }()
		b.Cleanup(func() {
			edge.Close()
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
		proxies = append(proxies, ln.Addr().String())
	}
	ask := wire.AddrFrom(netip.MustParseAddrPort(w.web.addr)).Append([]byte("\x05\x01\x00\x05\x01\x00"))
	ask = append(ask, "get 1\n"...)
	var took [2][]time.Duration
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for i := 0; b.Loop(); i++ {
		way := i / 500 % 2
		start := time.Now()
		c, err := net.Dial("tcp", proxies[way])
		if err != nil {
			b.Fatal(err)
		}
		if _, err = c.Write(ask); err == nil {
			_, err = io.ReadFull(c, make([]byte, 2+10+1))
		}
		if err != nil {
			b.Fatal(err)
		}
		took[way] = append(took[way], time.Since(start))
		if open = append(open, c); len(open) > 100 {
			open[0].Close()
			open = open[1:]
		}
	}
	for way, list := range took {
		if slices.Sort(list); len(list) > 0 {
			b.ReportMetric(float64(list[len(list)/2].Microseconds()), ways[way]+"-µs")
			b.ReportMetric(float64(list[len(list)*99/100].Microseconds()), ways[way]+"-p99-µs")
		}
	}
}
