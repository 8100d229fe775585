// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/lab/shaper"
	"mpbond/pbe/cell"
)

const goodTopology = `
seed = 7
[sysctl]
"net.ipv4.tcp_congestion_control" = "bbr"
[node.a]
routes = ["default via x"]
[node.b]
forward = true
[node.c]
routes = ["10.0.0.0/8 via y"]
[link.x]
ends = ["a", "b"]
rate = "8Mbit/s"
delay = "25ms"
loss = "1%"
schedule = ["at 2s: rate 1Mbit/s", "at 3s: delay 40ms, jitter 1ms"]
outages = ["5s+500ms"]
[link.x.down]
rate = "20Mbit/s"
trace = "t.csv"
[link.y]
ends = ["b", "c"]
addresses = [["10.1.0.1/24"], ["10.1.0.2/24", "fd00::2/64"]]
`

func TestParseTopology(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t.csv"), []byte("0,3Mbit/s\n1,4Mbit/s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	top, err := ParseTopology([]byte(goodTopology), dir)
	if err != nil {
		t.Fatal(err)
	}
	up, err := top.Link["x"].Program(Uplink)
	want := shaper.Setting{Rate: 8 * unit.Mbps, Delay: 25 * time.Millisecond, Loss: .01, Queue: 100_000}
	if err != nil || up.Base != want || len(up.Tracks) != 2 || len(up.Tracks[0].Changes) != 2 {
		t.Errorf("up is %+v, %v", up, err)
	}
	down, err := top.Link["x"].Program(Downlink)
	if err != nil || down.Base.Rate != 3*unit.Mbps || len(down.Tracks) != 3 || down.Tracks[0].Loop != 2*time.Second {
		t.Errorf("down is %+v, %v", down, err)
	}
	if !top.Link["x"].Shaped() || top.Link["y"].Shaped() {
		t.Error("x is shaped and y is not")
	}
	routes, err := top.nodeRoutes("a")
	if err != nil || len(routes) != 5 {
		t.Errorf("a has routes %v, %v; want to 3 addresses of y, and 2 defaults", routes, err)
	}
	if routes, _ := top.nodeRoutes("c"); len(routes) != 3 {
		t.Errorf("c has routes %v; want to x's two IPv4 addresses only (b has no IPv6 on y), and 10.0.0.0/8", routes)
	}
}

func TestBadTopologies(t *testing.T) {
	two := "[node.a]\n[node.b]\n[link.l]\nends=[\"a\",\"b\"]\n"
	for _, c := range []struct{ text, says string }{
		{"", "no nodes"},
		{"[node.a]\nfast = true\n", `line 2: unknown key "node.a.fast"`},
		{"[node.a]\nforward = \"yes\"\n", "line 2"},
		{"[node.a\n", "line 1"},
		{"[node.1a]\n", "a name is"},
		{"[node.a]\n[link.l]\nends=[\"a\",\"b\"]\n", `no node "b"`},
		{"[node.a]\n[link.l]\nends=[\"a\",\"a\"]\n", "two different"},
		{"[node.a]\n[link.l]\nends=[\"a\"]\n", ""},
		{two + "rate=\"fast\"\n", `rate "fast"`},
		{two + "loss=\"2\"\n", "share from 0 to 1"},
		{two + "delay=\"-1ms\"\n", "write it like 25ms"},
		{two + "schedule=[\"2s rate\"]\n", "at 2s: rate 1Mbit/s"},
		{two + "schedule=[\"at 2s: rate 1\", \"at 1s: rate 2\"]\n", "order of time"},
		{two + "schedule=[\"at 2s: rate 1\"]\nloop=\"1s\"\n", "after its loop"},
		{two + "outages=[\"2s\"]\n", "start+length"},
		{two + "trace=\"nowhere\"\n", "no such file"},
		{two + "addresses=[[\"10.0.0.1\"],[]]\n", "prefix length"},
		{two + "[link.this-name-is-too-long]\nends=[\"a\",\"b\"]\n", "a name is"},
		{"[node.a]\nroutes=[\"default by l\"]\n[node.b]\n[link.l]\nends=[\"a\",\"b\"]\n", "default via LINK"},
		{"[node.a]\nroutes=[\"default via m\"]\n", `no link "m"`},
		{"[node.a]\nnat=[\"m\"]\n", `no link "m"`},
		{two + "schedule=[\"at 2s: others 1\"]\n", "others: only a cell has other users"},
		{two + "promotion=\"600ms\"\n", "tail \"\": promotion and tail belong together"},
		{two + "promotion=\"0s\"\ntail=\"9s\"\n", "promotion \"0s\""},
		{two + "promotion=\"1s\"\ntail=\"9s\"\ncell=\"c\"\nqueue=\"1MB\"\n[cell.c]\nrate=\"1Mbit/s\"\n",
			"in a cell or mobile network"},
		{two + "[link.l.up]\npromotion=\"1s\"\n", "unknown key \"link.l.up.promotion\""},
		{two + "rate=\"1Mbit/s\"\ncell=\"c\"\n", `no cell "c"`},
		{two + "cell=\"c\"\n[cell.c]\nrate=\"1Mbit/s\"\n", "needs a queue"},
		{two + "[cell.c]\nothers=2\n", "needs a rate"},
		{two + "[cell.c]\nrate=\"1Mbit/s\"\nothers=-1\n", "others \"-1\""},
		{two + "[cell.c]\nrate=\"1Mbit/s\"\n[cell.c.down]\nrate=\"1Mbit/s\"\nschedule=[\"at 2s: delay 1s\"]\n",
			"cell c, down: a cell can change only"},
		{lteTable("", `carriers=[{prb=51}]`), "prb 51"},
		{lteTable("", `carriers=[{prb=50, layers=3}]`), "layers 3"},
		{lteTable("", `carriers=[{prb=50, control=-1}]`), "control -1"},
		{lteTable("", `carriers=[{prb=50, width=1}]`), "unknown key \"lte.t.width\""},
		{lteTable("", ``), "write 1 to 8"},
		{lteTable("", "carriers=[{prb=50}]\nscheduler=\"best\""), "scheduler \"best\""},
		{lteTable("cell=\"c\"\nqueue=\"1MB\"\nlte={network=\"t\", rnti=0x4601, signal=\"18dB\"}",
			"carriers=[{prb=50}]\n[cell.c]\nrate=\"1Mbit/s\""), "cannot be in a cell"},
		{lteTable("[link.l.lte]\nnetwork=\"u\"\nrnti=0x4601\nsignal=\"18dB\"", "carriers=[{prb=50}]"),
			"no network \"u\""},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nsignal=\"18dB\"", "carriers=[{prb=50}]"), "rnti 0x0"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=70000\nsignal=\"18dB\"", "carriers=[{prb=50}]"), "line 7"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601", "carriers=[{prb=50}]"), "write one of signal"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18\"", "carriers=[{prb=50}]"), "signal \"18\""},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"",
			"carriers=[{prb=50}]\nsamples={snr=\"loud\"}"), "samples: signal \"loud\""},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"",
			"carriers=[{prb=50}]\nsamples={offset=9000}"), "offset 9000"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"\nwalk=[]", "carriers=[{prb=50}]"),
			"write one of signal"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\ntrace=\"nowhere\"", "carriers=[{prb=50}]"),
			"no such file"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"\nerror_rate=0.5", "carriers=[{prb=50}]"),
			"error_rate 0.5"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"\nqueue=\"1KB\"", "carriers=[{prb=50}]"),
			"a packet must fit"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"\ncarriers=[1]", "carriers=[{prb=50}]"),
			"carriers [1]"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0xE000\nsignal=\"18dB\"",
			"carriers=[{prb=50}]\n[lte.t.user.x]\nsignal=\"1dB\""), "same rnti 0xe000"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"\nrates=[\"0s: 5Mbit/s\"]",
			"carriers=[{prb=50}]"), "write one of signal"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nrates=[\"5Mbit/s\"]", "carriers=[{prb=50}]"),
			"write it like \"1.5s: 20Mbit/s\""},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nrates=[\"0s: 5Mbit/s\"]\ncarriers=[0,1]",
			"carriers=[{prb=50}, {prb=50}]"), "has carrier 0 only"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nrates=[\"0s: 5Mbit/s\"]",
			"carriers=[{prb=50}]\nsamples={}"), "l: samples"},
		{lteTable("[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nrecording=\"nowhere\"", "carriers=[{prb=50}]"),
			"no such file"},
		{lteTable("", "carriers=[{prb=50}]\n[lte.t.user.x]\nsignal=\"1dB\"\non=\"1s\""), "both on and off"},
		{lteTable("", "carriers=[{prb=50}]\n[lte.t.user.x]\nsignal=\"1dB\"\nrate=\"0\""), "rate \"0\""},
		{lteTable("", "carriers=[{prb=50}]\n[lte.t.user.l]\nsignal=\"1dB\""), "a link has that name"},
		{two + "[cell.c]\nrate=\"1Mbit/s\"\ndelay=\"1s\"\n", `unknown key "cell.c.delay"`},
	} {
		_, err := ParseTopology([]byte(c.text), ".")
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("topology %q: error %v, want one with %q", c.text, err, c.says)
		}
	}
	for _, bad := range []string{"", "8/10", "8/10/5/3", "8/10/5,10", "x", "0", "8/-1/5", "8/10/5+"} {
		if _, err := Triangle(bad); err == nil {
			t.Errorf("links %q were accepted", bad)
		}
	}
}

// lteTable returns a topology with one link and a network t.
func lteTable(link, network string) string {
	return "[node.a]\n[node.b]\n[link.l]\nends=[\"a\",\"b\"]\n" + link + "\n[lte.t]\n" + network
}

// A topology's settings become the configuration of package lte.
func TestLTE(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "walk.csv"), []byte("0,-85\n2,-105\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	top, err := ParseTopology([]byte(lteTable(`delay="25ms"
[link.l.lte]
network="t"
rnti=0x4601
trace="walk.csv"
loop="4s"
error_rate=2e-6
queue="500KB"
[link.m]
ends=["a","b"]
lte={network="t", rnti=0x4602, signal="-100dBm", carriers=[1]}`, `carriers=[{prb=50, control=0.4}, {prb=100, layers=1}]
scheduler="proportional"
[lte.t.user.full]
walk=["1s: 5dB", "2s: 15dB"]
[lte.t.user.burst]
signal="10dB"
rate="60Mbit/s"
on="4s"
off="2s"`)), dir)
	if err != nil {
		t.Fatal(err)
	}
	cfg, users, err := top.LTE["t"].buildConfig(top, "t")
	if err != nil {
		t.Fatal(err)
	}
	if want := []lte.CellConfig{{PRB: 50, Layers: 2, Control: 0.4}, {PRB: 100, Layers: 1}}; !slices.Equal(cfg.Cells,
		want) || cfg.Scheduler != lte.ProportionalFair {
		t.Errorf("carriers %+v, %v", cfg.Cells, cfg.Scheduler)
	}
	for i, want := range []struct {
		name  string
		rnti  cell.RNTI
		sinr  float64 // at 1.5 s
		cells []int
		queue unit.Bytes
		rate  unit.Rate
	}{
		{"l", 0x4601, 10, []int{0, 1}, 500 * unit.KB, -1},
		{"m", 0x4602, 10, []int{1}, 750 * unit.KB, -1},
		{"burst", 0xE000, 10, []int{0, 1}, 7_500_000, 60 * unit.Mbps},
		{"full", 0xE001, 10, []int{0, 1}, 0, 0},
	} {
		u, rate := users[i], unit.Rate(-1)
		if u.source != nil {
			rate = u.source.Rate
		}
		if u.name != want.name || u.RNTI != want.rnti || u.signal.At(1500*time.Millisecond) != want.sinr ||
			!slices.Equal(u.Cells, want.cells) || u.Buffer != want.queue || rate != want.rate {
			t.Errorf("user %d is %+v, want %+v", i, u, want)
		}
	}
	if !top.Link["m"].Shaped() {
		t.Error("m is no veth")
	}
	// the highest rate
	if u, cfg, err := top.airUserOf("l"); err != nil ||
		math.Abs(float64(peakRate(u, cfg))/((36_696*2+75_376)*1000*(1-cell.Overhead))-1) > 1e-6 {
		t.Errorf("at most %v, %v", peakRate(u, cfg), err)
	}
}

// TestDetailed: a detailed network has the parts of package lte, unless a setting or a recording says otherwise.
func TestDetailed(t *testing.T) {
	top, err := ParseTopology([]byte(lteTable("delay=\"25ms\"\n[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\nsignal=\"18dB\"",
		`carriers=[{prb=50}]
detailed=true
[lte.t.user.bus]
rates=["0s: 5Mbit/s"]
[lte.t.user.x]
signal="9dB"`)), ".")
	if err != nil {
		t.Fatal(err)
	}
	n := top.LTE["t"]
	cfg, _, err := n.buildConfig(top, "t")
	if err != nil || !cfg.CarriersByUse || cfg.Scheduler != lte.ProportionalFair || !cfg.Cells[0].Groups {
		t.Fatalf("%+v, %v", cfg, err)
	}
	for i, want := range [][2]bool{{true, true}, {true, false}, {true, false}} { // l, bus, x
		if got := [2]bool{cfg.Users[i].Adapts, cfg.Users[i].Sleeps}; got != want {
			t.Errorf("user %d adapts and sleeps: %v, want %v", i, got, want)
		}
	}
	air := &emulatedLink{name: "l"}
	station, err := newBaseStation("t", n, top, []*emulatedLink{air})
	if err != nil || air.grants == nil {
		t.Errorf("a link of a detailed network needs no grants: %v", err)
	}
	s := station.signalOf(0)
	if a, b, c := s(0), s(1), s(2); a == b && b == c {
		t.Error("the signal does not fade")
	}
	n.Scheduler = "equal"
	if cfg, _, err = n.buildConfig(top, "t"); err != nil || cfg.Scheduler != lte.EqualShare {
		t.Errorf("scheduler %v, %v", cfg.Scheduler, err)
	}
	n.Detailed, n.Scheduler = false, ""
	if cfg, _, err = n.buildConfig(top, "t"); err != nil || cfg.Users[0].Adapts || cfg.Users[0].Sleeps ||
		cfg.CarriersByUse || cfg.Cells[0].Groups {
		t.Errorf("%+v, %v", cfg, err)
	}
	air = &emulatedLink{name: "l"}
	if station, err = newBaseStation("t", n, top, []*emulatedLink{air}); err != nil || air.grants != nil ||
		station.signalOf(0)(0) != station.signalOf(0)(1) {
		t.Errorf("a simple network has details: %v", err)
	}
}

// TestRecordedDevice: rates and a recording take the place of the signal, also in the link's capacity.
func TestRecordedDevice(t *testing.T) {
	dir := t.TempDir()
	// 23 packets in the first 100 ms and 22 in the second.
	lines := ""
	for i := range 45 {
		lines += fmt.Sprintln(i * 200 / 45)
	}
	lines += "200\n" // the last step is incomplete
	if err := os.WriteFile(filepath.Join(dir, "bus.down"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{`recording="bus.down"`, `rates=["0s: 2.76Mbit/s", "100ms: 2.64Mbit/s"]
loop="200ms"`} {
		top, err := ParseTopology([]byte(lteTable("delay=\"25ms\"\n[link.l.lte]\nnetwork=\"t\"\nrnti=0x4601\n"+text,
			"carriers=[{prb=50}, {prb=25}]")), dir)
		if err != nil {
			t.Fatal(err)
		}
		_, users, err := top.LTE["t"].buildConfig(top, "t")
		if err != nil || len(users[0].Cells) != 1 {
			t.Fatalf("%s: %+v, %v", text, users, err)
		}
		r := users[0].recording
		if a, b := r.At(50*time.Millisecond), r.At(350*time.Millisecond); a != 2760*unit.Kbps || b != 2640*unit.Kbps {
			t.Errorf("%s: %v, then %v", text, a, b)
		}
		line, err := top.newFluidLine("b", "l")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := line.lineBytesUntil(time.Second), 2.7e6/8; math.Abs(got/want-1) > 0.01 {
			t.Errorf("%s: %v bytes in a second, want %v", text, got, want)
		}
	}
}

func TestTriangle(t *testing.T) {
	top, err := Triangle("8/10/5+3,12/6")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(top.Nodes(), " ") + ": " + strings.Join(top.Links(),
		" "); got != "helper1 helper2 primary server web: core hs1 hs2 pipe1 pipe1b pipe2 ps" {
		t.Error(got)
	}
	if got := top.Helpers(); len(got) != 2 {
		t.Errorf("helpers %v", got)
	}
	p, err := top.Link["hs2"].Program(Downlink)
	if err != nil || p.Base.Rate != 12*unit.Mbps || p.Base.Delay != 35*time.Millisecond {
		t.Errorf("hs2 is %+v, %v", p, err)
	}
	for _, bad := range []string{"hs9.rate=1", "hs1", "hs1.rate", "core.rate=1", "hs1.left.rate=1", "hs1.speed=1"} {
		if err := top.AddChange(time.Second, bad); err == nil {
			t.Errorf("change %q was taken", bad)
		}
	}
}

func TestExample(t *testing.T) {
	top, err := LoadTopology("example.toml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LoadTopology("nowhere.toml"); err == nil {
		t.Error("a missing file was loaded")
	}
	if got := strings.Join(top.Links(), " "); got != "core lte mobile tethered umts wifi" {
		t.Error(got)
	}
}

func FuzzTopology(f *testing.F) {
	f.Add(strings.ReplaceAll(goodTopology, `trace = "t.csv"`, ""))
	f.Add("[node.a]\n[node.b]\n[link.l]\nends=[\"a\",\"b\"]\naddresses=[[\"::1/0\"],[]]")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "trace") {
			t.Skip("would open files")
		}
		top, err := ParseTopology([]byte(s), ".")
		if err != nil {
			return
		}
		for _, n := range top.Nodes() {
			if _, err := top.nodeRoutes(n); err != nil {
				t.Errorf("a topology that was taken has a bad route: %v", err)
			}
		}
		_ = top.hostsFileText()
	})
}
