// SPDX-License-Identifier: Apache-2.0

package device

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// radios are those of newUsage's interfaces.
func radios(link string, _ bool) wire.Radio {
	return map[string]wire.Radio{"wwan0": wire.RadioCellular, "wlan0": wire.RadioWiFi}[link]
}

// joules are those of rows, by their peers.
func joules(t *testing.T, u *Usage) map[string]unit.Joules {
	t.Helper()
	list, err := u.List()
	if err != nil {
		t.Error(err)
	}
	m := map[string]unit.Joules{}
	for _, r := range list {
		m[r.Link+" "+r.Peer] += r.Joules
	}
	return m
}

func near(a, b unit.Joules) bool { return math.Abs(float64(a-b)) < 0.001 }

// TestEnergy: a radio's energy is shared by the records that used it, its tail belongs to the last
// ones. The file has it when the radio sleeps, and a restart continues from there.
func TestEnergy(t *testing.T) {
	u, clock, _ := newUsage(t)
	u.MeterRadios(radios)
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	// of before energy was counted
	old := `{"day":"2026-11-20","link":"wwan0","purpose":"hs-path","peer":"p","down":7,"up":8}` + "\n"
	if err := os.WriteFile(file, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := u.OpenFile(file); err != nil {
		t.Fatal(err)
	}
	p, q := &fakeConn{local: "10.0.0.1:1", peer: "p"}, &fakeConn{local: "10.0.0.1:2", peer: "q"}
	cable := &fakeConn{local: "10.0.0.3:1", device: "eth0", peer: "p"}
	pipe := &fakeConn{local: "10.0.0.2:1", peer: "p"}
	for _, c := range []*fakeConn{p, q, cable} {
		c.open(u, policy.ForHSPath)
	}
	pipe.open(u, policy.ForPipe)
	second := func(looks int) {
		for range looks {
			*clock = clock.Add(time.Second)
			u.CountNow()
		}
	}
	second(3)
	if got := joules(t, u); len(got) != 1 || got["wwan0 p"] != 0 {
		t.Errorf("without bytes %v", got)
	}
	p.in, q.out, cable.in, pipe.in = 375_000, 125_000, 1<<30, 1<<20
	second(1)
	// Promotion, half a second of carrying, and what each byte takes: three quarters
	// of it are p's.
	first := unit.Joules(0.31491 + 0.5*1.28804 + 3*0.05197 + 0.43839)
	got := joules(t, u)
	if !near(got["wwan0 p"], first*3/4) || !near(got["wwan0 q"], first/4) {
		t.Errorf("of %v: %v", first, got)
	}
	if e := got["wlan0 p"]; e < 1 || e > 1.3 { // 8.4 Mbit at 0.137 J each
		t.Errorf("a pipe over WiFi took %v", e)
	}
	if e, is := got["eth0 p"]; e != 0 || !is {
		t.Errorf("a cable took %v", e)
	}
	p.in += 125_000
	*clock = clock.Add(time.Second / 4)
	u.CountNow()
	var changedAt []int // looks at which the file changed
	for n := range 20 {
		if *clock = clock.Add(time.Second); u.CountNow() {
			changedAt = append(changedAt, n)
		}
	}
	if !slices.Equal(changedAt, []int{11}) {
		t.Errorf("the file changed at looks %v, not only when the radio falls asleep", changedAt)
	}
	all := first*3/4 + 0.25*1.28804 + 0.05197 + 1.06*11.576
	if got := joules(t, u); !near(got["wwan0 p"], all) || !near(got["wwan0 q"], first/4) {
		t.Errorf("with the tail %v, want %v", got, all)
	}
	if text := kept(t, file); !strings.Contains(text, `"peer":"p","down":500000,"up":0,"joules":13.8`) {
		t.Errorf("the file has %s", text)
	}
	want := []RadioUse{{"wlan0", wire.RadioWiFi, u.RadioUsage()[0].Joules}, {"wwan0", wire.RadioCellular, all + first/4}}
	if got := u.RadioUsage(); len(got) != 2 || got[0] != want[0] || !near(got[1].Joules, want[1].Joules) {
		t.Errorf("%+v, want %+v", got, want)
	}

	q.out += 52
	second(2)
	u.Close() // before the tail has ended
	v, _, _ := newUsage(t)
	if err := v.OpenFile(file); err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	before, _ := u.List()
	after, _ := v.List()
	if !slices.Equal(before, after) || !near(joules(t, v)["wwan0 q"], first/4+0.31491+0.0644+0.0002+1.06) {
		t.Errorf("after a restart %+v, was %+v", after, before)
	}
	if len(v.RadioUsage()) != 0 {
		t.Error("this process has used a radio")
	}
}

// kept returns the contents of a file.
func kept(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// TestEnergyChanges: a tail over midnight counts for the day before. A link whose kind changes
// starts anew. A link without a radio has no energy.
func TestEnergyChanges(t *testing.T) {
	u, clock, _ := newUsage(t)
	kind := wire.RadioCellular
	u.MeterRadios(func(link string, internet bool) wire.Radio {
		if !internet {
			t.Errorf("%s carries HS-paths", link)
		}
		return kind
	})
	c := &fakeConn{local: "10.0.0.1:1", peer: "p"}
	c.open(u, policy.ForHSPath)
	look := func() []policy.UsageRecord {
		list, err := u.List()
		if err != nil {
			t.Error(err)
		}
		return list
	}
	*clock = clock.Add(59*time.Minute + 54*time.Second)
	look()
	*clock = clock.Add(time.Second)
	c.in = 125_000
	look()
	*clock = clock.Add(time.Minute)
	if list := look(); len(list) != 1 || list[0].Joules < 12 || list[0].Joules > 14 {
		t.Errorf("a tail at midnight: %+v", list)
	}
	kind = wire.RadioNone
	c.in = 2e9
	if list := look(); len(list) != 2 || list[1].Joules != 0 || len(u.RadioUsage()) != 0 {
		t.Errorf("a cable now: %+v, %v", list, u.RadioUsage())
	}
	var none policy.UsageRecord
	if u, _, _ := newUsage(t); u.RadioUsage() != nil || none.Validate() == nil {
		t.Error("a radio of nobody")
	}
	for _, j := range []unit.Joules{-1, unit.Joules(math.NaN())} {
		if (policy.UsageRecord{Day: "2026-11-21", Link: "x", Purpose: policy.ForHSPath, Joules: j}).Validate() == nil {
			t.Errorf("a row of %v", j)
		}
	}
}

// TestTailsAreKept: what a tail took until another row has the radio carry something is
// in the file too.
func TestTailsAreKept(t *testing.T) {
	u, clock, _ := newUsage(t)
	u.MeterRadios(radios)
	file := filepath.Join(t.TempDir(), "usage.jsonl")
	if err := u.OpenFile(file); err != nil {
		t.Fatal(err)
	}
	p, q := &fakeConn{local: "10.0.0.1:1", peer: "p"}, &fakeConn{local: "10.0.0.1:2", peer: "q"}
	for _, c := range []*fakeConn{p, q} {
		c.open(u, policy.ForHSPath)
	}
	for second, in := range []unit.Bytes{0, 125_000, 0, 0, 0} {
		*clock = clock.Add(time.Second)
		if p.in += in; second == 4 {
			q.in += 125_000
		}
		u.CountNow()
	}
	u.Close()
	v, _, _ := newUsage(t)
	if err := v.OpenFile(file); err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	before, _ := u.List()
	after, _ := v.List()
	if !slices.Equal(before, after) || len(after) != 2 {
		t.Errorf("after a restart %+v, was %+v", after, before)
	}
}
