// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestParseMPTCP checks the options of kernel MPTCP.
func TestParseMPTCP(t *testing.T) {
	for variant, want := range map[string]*mptcpScheme{
		"":                             {},
		"own":                          {noHelpers: true, ownLinks: true},
		"own:first=wwan0":              {noHelpers: true, ownLinks: true, firstLink: "wwan0"},
		"own:first=wwan0:cc=lia":       {noHelpers: true, ownLinks: true, firstLink: "wwan0", congestion: "lia"},
		"direct":                       {noHelpers: true},
		"direct:subflows=2":            {noHelpers: true, secondSubflow: true},
		"direct:subflows=2:cc=bbr":     {noHelpers: true, secondSubflow: true, congestion: "bbr"},
		"helpers=2":                    {maxHelpers: 2},
		"cc=olia":                      {congestion: "olia"},
		"own:subflows=2":               nil,
		"own:direct":                   nil,
		"first=wwan0":                  nil,
		"own:first=":                   nil,
		"helpers=0":                    nil,
		"helpers=2:own":                nil,
		"cc=":                          nil,
		"cc=lia:cc=bbr":                nil,
		"cc=lia:own":                   nil,
		"direct:subflows=2:subflows=2": nil,
		"subflows=2":                   nil,
		"own:":                         nil,
	} {
		got, err := parseMPTCPScheme(variant)
		if (err == nil) != (want != nil) || want != nil && !reflect.DeepEqual(got, want) {
			t.Errorf("mptcp:%s: %+v, %v, want %+v", variant, got, err, want)
		}
	}
}

// TestCoupledIsFair has an MPTCP connection of two subflows and a TCP connection share a link of 10
// Mbit/s for 20 s. Uncoupled, MPTCP takes almost twice what TCP does; coupled no more than TCP (RFC 6356).
// Chance decides about a quarter, and seldom more.
func TestCoupledIsFair(t *testing.T) {
	needTransfers(t)
	if err := CheckScheme("mptcp:cc=lia"); err != nil {
		t.Skip(err)
	}
	for scheme, bounds := range map[string][2]float64{
		"mptcp:direct:subflows=2:cc=reno":  {1.2, 3.5},
		"mptcp:direct:subflows=2:cc=lia":   {0.1, 1.35},
		"mptcp:direct:subflows=2:cc=olia":  {0.1, 1.35},
		"mptcp:direct:subflows=2:cc=balia": {0.1, 1.35},
	} {
		top, err := Triangle("10")
		if err != nil {
			t.Fatal(err)
		}
		// Windows find their shares within seconds, and packets of one connection do not always meet the
		// full queue.
		ps := top.Link["ps"]
		ps.Delay, ps.Queue, ps.Jitter = "5ms", "40KB", "4ms"
		top.Sysctl = map[string]string{"net.ipv4.tcp_rmem": "4096 4194304 16777216"}
		ratio := shareLink(t, top, scheme)
		t.Logf("%s has %.2f times as much as TCP", scheme, ratio)
		if ratio < bounds[0] || ratio > bounds[1] {
			t.Errorf("%s has %.2f times as much as TCP, want %v", scheme, ratio, bounds)
		}
	}
}

// shareLink downloads by a scheme of kernel MPTCP and by TCP at once for 20 s, and returns the ratio of
// what they got.
func shareLink(t *testing.T, top *Topology, name string) float64 {
	t.Helper()
	ctx := context.Background()
	l, err := Up(top, Options{Name: fmt.Sprintf("t%d", time.Now().UnixNano()%1e9), EndWithProcess: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Down(); err != nil {
			t.Error(err)
		}
	}()
	b := newBenchInLab(l, 1)
	if err := b.prepareDir(); err != nil {
		t.Fatal(err)
	}
	const size = 100 * unit.MB
	if _, _, err := b.MakeFile(size); err != nil {
		t.Fatal(err)
	}
	scheme, err := newSchemeByName(name)
	if err != nil {
		t.Fatal(err)
	}
	defer b.StopAll()
	defer func() {
		if err := scheme.Stop(ctx, b); err != nil {
			t.Error(err)
		}
	}()
	if err := scheme.Start(ctx, b); err != nil {
		t.Fatal(err)
	}
	type got struct {
		bytes float64
		err   error
	}
	download := func(to chan got, wrapper ...string) {
		// curl fails since it ends by the limit.
		argv := slices.Concat([]string{"sh", "-c", `"$@"; true`, "sh"}, wrapper, []string{"curl", "-sS", "--noproxy", "",
			"-o", "/dev/null", "-w", "%{size_download}", "--max-time", "20", b.fileURLForSize(size)})
		out, err := b.Run(ctx, "primary", argv...)
		n, err2 := strconv.ParseFloat(strings.TrimSpace(out), 64)
		to <- got{n, errors.Join(err, err2)}
	}
	mptcp, tcp := make(chan got), make(chan got)
	go download(mptcp, "mptcpize", "run")
	go download(tcp)
	x, y := <-mptcp, <-tcp
	if x.err != nil || y.err != nil || y.bytes == 0 {
		t.Fatal(x, y)
	}
	return x.bytes / y.bytes
}

// TestFallbacks checks how many connections may fall back to TCP.
func TestFallbacks(t *testing.T) {
	const data = "MPCapableDataFallback"
	one, clean, lossy := fallbackShare(false, true), fallbackShare(true, true), fallbackShare(true, false)
	for _, c := range []struct {
		counters    map[string]int64
		connections int64
		share       int64
		outages, ok bool
	}{
		{nil, 1, one, false, true},
		{map[string]int64{data: 1}, 1, one, false, false},
		{map[string]int64{data: 1}, 100, one, false, false},
		{map[string]int64{data: 1}, 1, lossy, false, false},
		{map[string]int64{data: 6, "InfiniteMapRx": 4}, 100, clean, false, true},
		{map[string]int64{data: 6, "InfiniteMapRx": 5}, 100, clean, false, false},
		{map[string]int64{data: 30, "InfiniteMapRx": 20}, 100, lossy, false, true},
		{map[string]int64{data: 30, "InfiniteMapRx": 21}, 100, lossy, false, false},
		{map[string]int64{synFallback: 20}, 30, lossy, false, true}, // 20 of 50
		{map[string]int64{synFallback: 31}, 30, lossy, false, false},
		{map[string]int64{synFallback: 1}, 1, one, false, false},
		{map[string]int64{synFallback: 1}, 1, one, true, true},
		{map[string]int64{synFallback: 1, data: 1}, 2, one, true, false},
	} {
		want := c.counters[data] + c.counters["InfiniteMapRx"] + c.counters[synFallback]
		n, err := checkFallbacks(func(name string) int64 { return c.counters[name] }, c.connections, c.share, c.outages)
		if n != want || (err == nil) != c.ok {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
	for outages, want := range map[string]bool{"": false, "2s+1s": true} {
		top, err := Triangle("8/10/5")
		if err != nil {
			t.Fatal(err)
		}
		if outages != "" {
			top.Link["ps"].Outages = []string{outages}
		}
		if got := top.hasOutages(); got != want {
			t.Errorf("outages %q: %v", outages, got)
		}
	}
}
