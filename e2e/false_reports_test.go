// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

var falseHelperRounds = flag.Int("false-helper-rounds", 1,
	"how often TestHelperReportsFalsely measures each helper, in turn")

// falseHelper is a helper that both other devices trust, and that reports falsely. It accepts all
// data, forwards little and reports any rate.
type falseHelper struct {
	key    *identity.Key
	claims unit.Rate // the rate that it reports
	passes unit.Rate // the rate that it forwards, each way
	all    sync.WaitGroup
}

// runFalseHelper runs a falseHelper until ctx ends. The directory home has its key and its trust
// file.
func runFalseHelper(ctx context.Context, home, claims, passes string) error {
	l := &falseHelper{}
	var err error
	if l.claims, err = unit.ParseRate(claims); err != nil {
		return err
	}
	if l.passes, err = unit.ParseRate(passes); err != nil {
		return err
	}
	if l.key, err = identity.LoadKey(filepath.Join(home, "device.key")); err != nil {
		return err
	}
	trust, err := identity.OpenTrust(filepath.Join(home, "trust.toml"))
	if err != nil {
		return err
	}
	for _, p := range trust.ByRole(identity.RolePrimary) {
		for _, addr := range p.Addresses {
			l.all.Go(func() { l.keepOffering(ctx, p, addr) })
		}
	}
	l.all.Wait()
	return nil
}

// keepOffering offers pipes to a primary, one after the other.
func (l *falseHelper) keepOffering(ctx context.Context, p identity.Peer, addr string) {
	for ctx.Err() == nil {
		if err := l.offerPipe(ctx, p, addr); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// offerPipe offers one pipe, waits until the primary takes it, and relays its subflow.
func (l *falseHelper) offerPipe(ctx context.Context, p identity.Peer, addr string) error {
	conn, err := pipe.TCP{}.Dial(ctx, addr)
	if err != nil {
		return err
	}
	o, err := pipe.NewOffer(ctx, conn, l.key.ClientConfig(p.Key, wire.PipeALPN), "phone")
	if err != nil {
		return err
	}
	q, err := o.Wait(ctx)
	if err != nil {
		return err
	}
	far, err := tcp.Dial(ctx, q.Server, tcp.Options{})
	if err != nil {
		return err
	}
	hs, err := pipe.DialHS(ctx, far, "phone", q.Key)
	if err != nil {
		return err
	}
	near, err := o.Accept(q, 0, wire.RadioNone)
	if err != nil {
		hs.Close()
		return err
	}
	l.all.Go(func() { l.relaySubflow(ctx, near, hs) })
	return nil
}

// relaySubflow forwards a subflow's bytes, both ways, until a hop ends.
func (l *falseHelper) relaySubflow(ctx context.Context, near, hs pipe.Hop) {
	end := sync.OnceFunc(func() { near.Close(); hs.Close() })
	defer context.AfterFunc(ctx, end)()
	var both sync.WaitGroup
	both.Go(func() { defer end(); l.relayHop(hs, near) })
	both.Go(func() { defer end(); l.relayHop(near, hs) })
	both.Wait()
}

// relayHop reads all that a hop sends and reports it as forwarded at once. It forwards at the rate
// passes.
func (l *falseHelper) relayHop(from, to pipe.Hop) {
	var received atomic.Uint64
	var mu sync.Mutex
	var waiting []byte
	done := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		const every = 20 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		var reported uint64
		for {
			select {
			case <-tick.C:
			case <-done:
				return
			}
			mu.Lock()
			n := min(len(waiting), int(l.passes.Bytes(every)))
			part := waiting[:n]
			waiting = waiting[n:]
			mu.Unlock()
			if _, err := to.Write(part); n > 0 && err != nil {
				_ = from.Close()
				return
			}
			if now := received.Load(); now != reported {
				reported = now
				_ = from.SendState(wire.HopState{Received: now, Forwarded: now, Rate: l.claims, RTT: time.Millisecond})
			}
		}
	})
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		mu.Lock()
		waiting = append(waiting, b[:n]...)
		mu.Unlock()
		received.Add(uint64(n))
		if err != nil {
			break
		}
	}
	close(done)
	both.Wait()
}

// TestHelperReportsFalsely: whatever a trusted helper reports and does, all bytes arrive. What it
// withholds is sent another way. The links have 8/10/5 Mbit/s. To measure:
//
//	go test ./e2e -run TestHelperReportsFalsely -v -false-helper-rounds 3
func TestHelperReportsFalsely(t *testing.T) {
	t.Parallel() // it compares times with those without a helper, which are far apart
	n := newNetworkWithoutRace(t, rig.Triangle(t, "8/10/5"))
	startFalseHelper := func(claims, passes string) func() {
		return func() { n.helper = n.Start("helper1", os.Args[0], "lab", "false-helper", claims, passes) }
	}
	startHonest := func(link, rate string) func() {
		return func() {
			n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
			if err := n.Lab.Set(link, "", "rate="+rate); err != nil {
				t.Fatal(err)
			}
		}
	}
	cases := []struct {
		name  string
		size  int64
		start func() // nil: there is no helper
		found bool   // the false report is detected: the direct subflow sends bytes again
	}{
		{"no helper, 6 MB", 6 * mb, nil, false},
		{"honest, 6 MB", 6 * mb, startHonest("pipe1", "5Mbit/s"), false},
		{"claims 900 Gbit/s, passes 200 kbit/s, 6 MB", 6 * mb, startFalseHelper("900Gbit/s", "200kbit/s"), true},
		{"no helper, 3 MB", 3 * mb, nil, false},
		{"honest, 3 MB", 3 * mb, startHonest("pipe1", "5Mbit/s"), false},
		{"claims 100 Mbit/s, passes 1 Mbit/s, 3 MB", 3 * mb, startFalseHelper("100Mbit/s", "1Mbit/s"), true},
		{"honest, pipe of 200 kbit/s, 3 MB", 3 * mb, startHonest("pipe1", "200kbit/s"), false},
		{"honest, HS-path of 200 kbit/s, 3 MB", 3 * mb, startHonest("hs1", "200kbit/s"), false},
	}
	n.stopHelper()
	took := make([][]string, len(cases))
	alone := map[int64]time.Duration{} // times without a helper, by size
	for range *falseHelperRounds {
		for i, c := range cases {
			want := 1
			if c.start != nil {
				want = 2
				c.start()
			}
			n.Await(want)
			before := n.resentBytes()
			begin := time.Now()
			got := n.downloadMetered(c.size)
			last := time.Since(begin)
			took[i] = append(took[i], fmt.Sprintf("%.2f s", last.Seconds()))
			if c.start == nil {
				alone[c.size] = last
			} else if bound := 2*alone[c.size] + 3*time.Second; last > bound {
				// Undetected false reports would take 3.5 to 17 times as long.
				t.Errorf("%s: %v, over twice as long as without a helper and 3 s more (%v)", c.name, last, bound)
			}
			again := n.resentBytes() - before
			took[i] = append(took[i], fmt.Sprintf("(longest gap %.2f s, %v sent again)", got.longest.Seconds(),
				unit.Bytes(again)))
			if c.found && again == 0 {
				t.Errorf("%s: nothing was sent again", c.name)
			}
			if c.start != nil {
				n.stopHelper()
			}
			for link, rate := range map[string]string{"pipe1": "5Mbit/s", "hs1": "10Mbit/s"} {
				if err := n.Lab.Set(link, "", "rate="+rate); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for i, c := range cases {
		t.Logf("%-45s %s", c.name, strings.Join(took[i], " "))
	}
}

// stopHelper ends the helper and waits until its subflow is gone.
func (n *network) stopHelper() {
	n.Helper()
	n.helper.End(syscall.SIGTERM)
	n.Await(1)
}

// resentBytes returns the bytes that the server has sent again on a second subflow.
func (n *network) resentBytes() (sum unit.Bytes) {
	n.Helper()
	s, err := n.Status("server", "server")
	if err != nil {
		n.Fatal(err)
	}
	for why, b := range s.Bonds[0].WastedBytes {
		if why != "duplicate_received" {
			sum += b
		}
	}
	return sum
}

// gapMeter measures the longest time in which nothing arrived.
type gapMeter struct {
	last    time.Time
	longest time.Duration
}

// Write implements io.Writer.
func (g *gapMeter) Write(p []byte) (int, error) {
	now := time.Now()
	g.longest = max(g.longest, now.Sub(g.last))
	g.last = now
	return len(p), nil
}

// downloadMetered downloads a file, checks it and returns its longest gap.
func (n *network) downloadMetered(size int64) *gapMeter {
	n.Helper()
	g := &gapMeter{last: time.Now()}
	cmd := n.Command("primary", "curl", "-sSf", "--max-time", "150", "--socks5-hostname", "127.0.0.1:1080",
		fmt.Sprintf("http://web/%d", size))
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.Fatal(err)
	}
	got, err := rig.Sum(io.TeeReader(out, g))
	if e := cmd.Wait(); err == nil {
		err = e
	}
	if want, _ := rig.Sum(rig.Noise(size)); err != nil || got != want {
		n.Fatalf("%s, want %s: %v %s", got, want, err, &errs)
	}
	return g
}
