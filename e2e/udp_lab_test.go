// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"mpbond/e2e/rig"
)

// pingResult is what a ping prints: round trips in ms of datagrams sent every 20 ms.
type pingResult struct {
	Sent, Came, Twice int
	P50, P95          float64
	Gap               float64 // longest time without an answer
}

// runPing sends n numbered datagrams to addr, one every 20 ms, and prints its result.
func runPing(addr, n string) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	c, err := net.Dial("udp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	sent := make([]time.Time, count)
	start := time.Now()
	go func() {
		for i := range count {
			time.Sleep(time.Until(start.Add(time.Duration(i) * 20 * time.Millisecond)))
			_, _ = c.Write(binary.BigEndian.AppendUint64(make([]byte, 0, 100), uint64(time.Now().UnixNano())<<16|uint64(i)))
		}
	}()
	out := pingResult{Sent: count}
	var times []float64
	b, last := make([]byte, 100), start
	for len(times) < count {
		_ = c.SetReadDeadline(start.Add(time.Duration(count)*20*time.Millisecond + time.Second))
		if k, err := c.Read(b); err != nil || k != 8 {
			break
		}
		v, now := binary.BigEndian.Uint64(b), time.Now()
		i := int(v & 0xffff)
		if !sent[i].IsZero() {
			out.Twice++
			continue
		}
		sent[i] = now
		at := uint64(now.UnixNano())<<16>>16 - v>>16
		times = append(times, float64(at)/1e6)
		out.Gap = max(out.Gap, float64(now.Sub(last).Microseconds())/1000)
		last = now
	}
	slices.Sort(times)
	if out.Came = len(times); out.Came > 0 {
		out.P50, out.P95 = times[out.Came/2], times[out.Came*95/100]
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// runPing runs a ping of the web server's node over the bond.
func (n *network) runPing(count int) (p pingResult) {
	n.Helper()
	out := n.Must("primary", n.Mpbond, "run", "--", os.Args[0], "lab", "ping", n.web4+":"+echoPort, strconv.Itoa(count))
	if err := json.Unmarshal([]byte(out), &p); err != nil {
		n.Fatalf("%s: %v", out, err)
	}
	return p
}

// TestDatagramsInTheLab: a ping by `mpbond run` works over an unused bond, beside a download, and
// while its link becomes a black hole. Its times are those of the machine too: they are bounded
// where no other test runs, with -patient. TestDatagramsBesideBulk of core/bond bounds them in
// virtual time.
func TestDatagramsInTheLab(t *testing.T) {
	if !*slowTests {
		t.Parallel()
	}
	n := newNetworkWithoutRace(t, rig.Triangle(t, "8/10/5"))
	n.startServices()
	alone := n.runPing(50)
	t.Logf("unused bond: %+v", alone)
	bulk := n.Command("primary", "curl", "-sS", "-x", "socks5h://127.0.0.1:1080", "-o", "/dev/null",
		fmt.Sprintf("http://%s/%d", n.web4, 6*mb))
	if err := bulk.Start(); err != nil {
		t.Fatal(err)
	}
	beside := n.runPing(150)
	t.Logf("beside a download: %+v", beside)
	if err := bulk.Wait(); err != nil {
		t.Error(err)
	}
	go func() {
		time.Sleep(time.Second) // of the ping's 4: when does not matter
		_ = n.Lab.Set("ps", "", "outage=on")
	}()
	cut := n.runPing(200)
	t.Logf("PS-path cut: %+v", cut)
	if err := n.Lab.Set("ps", "", "outage=off"); err != nil {
		t.Error(err)
	}
	for name, p := range map[string]pingResult{"unused": alone, "beside": beside, "cut": cut} {
		if p.Twice > 0 || p.Came < p.Sent*8/10 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	if *slowTests && (beside.P95 > alone.P50+400 || cut.Gap > 2000) {
		t.Errorf("p95 of %v ms beside a download, %v ms without answers when the link is cut", beside.P95, cut.Gap)
	}
}
