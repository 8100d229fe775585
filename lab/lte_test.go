// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/lab/lte"
	"mpbond/pbe/cell"
)

// Two devices in one network, and one in another network with a second carrier. Wired parts have 10
// ms.
const mobileTopology = `
[node.phone]
[node.server]
[link.a]
ends = ["phone", "server"]
delay = "10ms"
lte = {network = "one", rnti = 0x4601, signal = "18dB", error_rate = 2e-6, queue = "400KB"}
[link.b]
ends = ["phone", "server"]
delay = "10ms"
lte = {network = "one", rnti = 0x4602, signal = "18dB", error_rate = 2e-6, queue = "400KB"}
[link.c]
ends = ["phone", "server"]
delay = "10ms"
lte = {network = "two", rnti = 0x4603, signal = "18dB", error_rate = 2e-6, queue = "400KB"}
[lte.one]
carriers = [{prb = 25, control = 0.4}]
[lte.two]
carriers = [{prb = 15, control = 0.4}, {prb = 6, control = 0.4}]
`

// saturatedRate returns the model's rate in virtual time, in bytes a subframe, for the first of
// several users that always have data to send.
func saturatedRate(t *testing.T, top *Topology, network string, users int) float64 {
	t.Helper()
	cfg, all, err := top.LTE[network].buildConfig(top, network)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Users = cfg.Users[:users]
	sources := make([]lte.Source, users)
	for i := range cfg.Users {
		cfg.Users[i].SINR = func(int64) float64 { return all[i].signal.At(0) }
		cfg.Users[i].Buffer = 0
	}
	n := lte.New(cfg)
	const warm, length = 1000, 20_000
	var before unit.Bytes
	for i := range warm + length {
		if i == warm {
			before = n.Truth(0).Delivered
		}
		for u := range sources {
			sources[u].Offer(n, u, 0)
		}
		for _, o := range n.Step(nil, nil) {
			sources[o.User].Recycle(o.Item)
		}
	}
	return float64(n.Truth(0).Delivered-before) / length
}

// lteRecord is what a network sent.
type lteRecord struct {
	truth map[string]map[int64]TruthLine // by user and number
	est   map[int64]cell.Estimate
}

// lteCondition is a condition of users in a subframe. Its done is closed once it has held for
// lteLength subframes after the first lteWarm, one after the other.
type lteCondition struct {
	lastUser    string // whose line of a subframe comes last
	is          func(at func(user string) TruthLine) bool
	begin, last int64
	done        chan struct{}
}

// Subframes that a comparison with the model needs, and those before it.
const (
	lteWarm   = 300
	lteLength = 2000
)

func newLTECondition(lastUser string, is func(at func(user string) TruthLine) bool) *lteCondition {
	return &lteCondition{lastUser: lastUser, is: is, begin: -1, last: -1, done: make(chan struct{})}
}

// copyCellSubframe counts a subframe.
func (c *lteCondition) addSubframe(n int64, at func(user string) TruthLine) {
	switch {
	case !c.is(at):
		c.begin = -1
		return
	case c.begin < 0 || c.last != n-1:
		c.begin = n
	}
	if c.last = n; n-c.begin == lteWarm+lteLength {
		select {
		case <-c.done:
		default:
			close(c.done)
		}
	}
}

// wait waits until the condition has held for long enough, however slow the machine is.
func (c *lteCondition) wait(t *testing.T, what string) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: the queues were never full for %d subframes", what, lteWarm+lteLength)
	}
}

// recordNetwork records a network until end is called, and checks conditions meanwhile.
func recordNetwork(
	t *testing.T,
	st LTEStats,
	rnti cell.RNTI,
	carriers int,
	conditions ...*lteCondition,
) (end func() lteRecord) {
	t.Helper()
	h := lteRecord{map[string]map[int64]TruthLine{}, map[int64]cell.Estimate{}}
	var conns []net.Conn
	var done []chan struct{}
	for path, read := range map[string]func(net.Conn){
		st.Truth: func(c net.Conn) {
			lines := json.NewDecoder(c)
			for l := (TruthLine{}); lines.Decode(&l) == nil; {
				if h.truth[l.User] == nil {
					h.truth[l.User] = map[int64]TruthLine{}
				}
				h.truth[l.User][l.Number] = l
				for _, c := range conditions {
					if c.lastUser == l.User {
						c.addSubframe(l.Number, func(user string) TruthLine { return h.truth[user][l.Number] })
					}
				}
			}
		},
		st.Messages: func(c net.Conn) {
			r, err := cell.NewReader(c)
			if err != nil {
				t.Error(err)
				return
			}
			m, ids := cell.NewMonitor(), []cell.ID{}
			for i := range carriers {
				m.AddCell(cell.ID(i), rnti, cell.DefaultErrorRate)
				ids = append(ids, cell.ID(i))
			}
			f := cell.NewFusion(ids...)
			for {
				s, err := r.Read()
				if err != nil {
					return
				}
				f.Add(s, func(row *cell.Row) {
					m.Add(row)
					h.est[row.Number] = m.Estimate()
				})
			}
		},
	} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); read(c) }()
		conns, done = append(conns, c), append(done, ended)
	}
	return func() lteRecord {
		for i, c := range conns {
			c.Close()
			<-done[i]
		}
		return h
	}
}

// longest returns the longest run of subframes in which holds is true for all users. It skips the
// first lteWarm, since the model's users have been busy for as long.
func (h lteRecord) longest(holds func(at func(user string) TruthLine) bool) (from, to int64) {
	var numbers []int64
	for _, lines := range h.truth {
		numbers = slices.Sorted(maps.Keys(lines))
	}
	begin, last := int64(-1), int64(-1)
	for _, n := range numbers {
		switch {
		case !holds(func(user string) TruthLine { return h.truth[user][n] }):
			begin = -1
			continue
		case begin < 0 || last != n-1:
			begin = n
		}
		if last = n; last-begin-lteWarm > to-from {
			from, to = begin+lteWarm, last
		}
	}
	return from, to
}

// TestLTELink runs TCP over devices of two networks and compares with the model in virtual time, by
// subframes, which do not depend on the load of the machine. It compares the rate while queues are
// never empty, of one user and of two; a second carrier; and the capacity by control messages with
// the ground truth.
func TestLTELink(t *testing.T) {
	t.Parallel()
	l := startLab(t, mobileTopology, Options{})
	serveInNode(t, l, "server", false, "test-serve")
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	s, err := l.Stats(true)
	if err != nil {
		t.Fatal(err)
	}
	const full = 30_000 // more than one subframe carries
	alone := newLTECondition("b", func(at func(string) TruthLine) bool {
		return at("a").Waiting > full && at("b").Waiting == 0
	})
	share := newLTECondition("b", func(at func(string) TruthLine) bool {
		return at("a").Waiting > full && at("b").Waiting > full
	})
	carriers := newLTECondition("c", func(at func(string) TruthLine) bool {
		return at("c").Waiting > full && at("c").Carriers == 2
	})
	ends := []func() lteRecord{recordNetwork(t, s.LTE[0], 0x4601, 1, alone, share),
		recordNetwork(t, s.LTE[1], 0x4603, 2, carriers)}
	clients := map[string]*exec.Cmd{}
	for _, link := range []string{"a", "b", "c"} {
		addr, err := l.Topology.Addr("server", link)
		if err != nil {
			t.Fatal(err)
		}
		clients[link], _ = startCommand(t, l, "phone", "test-fetch", addr.String(), "10m")
	}
	share.wait(t, "two share")
	carriers.wait(t, "two carriers")
	if err := clients["b"].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	alone.wait(t, "alone")
	heard := map[string]lteRecord{"one": ends[0](), "two": ends[1]()}
	if s, err = l.Stats(false); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, network, user string
		users               int
		condition           *lteCondition
	}{
		{"alone", "one", "a", 1, alone},
		{"two share", "one", "a", 2, share},
		{"the other", "one", "b", 2, share},
		{"two carriers", "two", "c", 1, carriers},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := heard[c.network]
			from, to := h.longest(c.condition.is)
			if to-from < lteLength {
				t.Fatalf("the queues were full for only %d subframes", to-from)
			}
			lines := h.truth[c.user]
			got, want := float64(lines[to].Delivered-lines[from].Delivered)/float64(to-from),
				saturatedRate(t, l.Topology, c.network, c.users)
			if math.Abs(got/want-1) > 0.03 {
				t.Errorf("%.0f bytes a subframe in %d, the model gives %.0f", got, to-from, want)
			}
			if c.user == "b" { // no monitor estimates for this user
				return
			}
			var off []float64
			for n := from; n < to; n += 10 {
				truth := 0.0 // over the monitor's window
				for k := n - 39; k <= n; k++ {
					truth += float64(lines[k].Physical) / 40
				}
				off = append(off, math.Abs(float64(h.est[n].Physical)/truth-1))
			}
			slices.Sort(off)
			t.Logf("%.0f bytes a subframe in %d, the model gives %.0f; capacity off by %.3f (median), %.3f (p95)", got,
				to-from, want, off[len(off)/2], off[len(off)*95/100])
			if off[len(off)/2] > 0.05 {
				t.Errorf("the capacity by control messages is %.3f off in the median", off[len(off)/2])
			}
		})
	}
	for _, link := range []string{"a", "b", "c"} {
		down := s.Link(link).Lines[Downlink]
		if truth := heard[map[string]string{"a": "one", "b": "one", "c": "two"}[link]].truth[link]; len(truth) == 0 ||
			down.Count.Delivered.Bytes < 1_000_000 || down.Delays.Packets != down.Count.Delivered.Packets {
			t.Errorf("%s: %+v of %d subframes", link, down, len(truth))
		}
		if d := down.Delays; d.P50 < 10*time.Millisecond+subframeLength/2 || d.P50 > d.P95 || d.P95 > d.P99 ||
			d.P99 > d.Max {
			t.Errorf("%s: delays %+v", link, d)
		}
	}
}

// A recording ends with a whole subframe and a whole line.
func TestRecord(t *testing.T) {
	t.Parallel()
	l := startLab(t, mobileTopology, Options{})
	if err := l.Record(t.Context(), "three", nil, nil); err == nil {
		t.Error("there is no such network")
	}
	dir := t.TempDir()
	messages, err1 := os.Create(filepath.Join(dir, "messages"))
	truth, err2 := os.Create(filepath.Join(dir, "truth"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	recorded := make(chan error, 1)
	go func() { recorded <- l.Record(ctx, "two", messages, truth) }()
	waittest.Until(t, "data in both files", func() bool {
		m, err1 := messages.Stat()
		n, err2 := truth.Stat()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return m.Size() > 0 && n.Size() > 0
	})
	cancel()
	if err := <-recorded; err != nil {
		t.Fatal(err)
	}
	if _, err := messages.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	r, err := cell.NewReader(messages)
	if err != nil || r.PRB != [cell.MaxCells]uint8{15, 6} {
		t.Fatalf("%v, %v", r, err)
	}
	last, count := int64(-1), 0
	for ; err == nil; count++ {
		var s cell.Subframe
		if s, err = r.Read(); err == nil && s.Cell == 0 {
			if last >= 0 && s.Number != last+1 {
				t.Fatalf("%d after %d", s.Number, last)
			}
			last = s.Number
		}
	}
	if err != io.EOF || count < 2 || r.Self != 0x4603 {
		t.Errorf("%d subframes of %#x, then %v", count, uint16(r.Self), err)
	}
	b, err := os.ReadFile(truth.Name())
	if err != nil || len(b) == 0 || b[len(b)-1] != '\n' {
		t.Errorf("%d bytes of truth, %v", len(b), err)
	}
}
