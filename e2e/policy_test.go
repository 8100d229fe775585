// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/e2e/rig"
)

// TestPolicy: the real program applies rules in policy.toml, by destination and by program, however
// an app connects. An invalid file changes nothing and is reported.
func TestPolicy(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	n.startServices()
	file := filepath.Join(n.Dir, "primary", "policy.toml")
	status := func(t *testing.T) api.PolicyStatus {
		t.Helper()
		s, err := n.Status("primary", "primary")
		if err != nil {
			t.Fatal(err)
		}
		if s.Policy == nil {
			return api.PolicyStatus{}
		}
		return *s.Policy
	}
	// applyPolicy writes the file and waits until it was read, or refused.
	applyPolicy := func(t *testing.T, text string, sighup bool) {
		t.Helper()
		before := status(t)
		writeFile(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		if sighup {
			n.signalProcess("primary", syscall.SIGHUP)
		}
		rig.Eventually(t, func() error {
			if s := status(t); s.Loaded.Equal(before.Loaded) && s.Error == before.Error {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
	}
	page := "http://web/1000"
	socks := []string{"curl", "-gsSf", "--max-time", "60", "--socks5-hostname", "127.0.0.1:1080"}
	proxy := []string{"curl", "-gsS", "--max-time", "60", "-x", "http://127.0.0.1:1080", "-o", "/dev/null", "-w",
		"%{http_code}"}
	run := func(flags ...string) []string {
		return append(append([]string{n.Mpbond, "run"}, flags...), "--", "curl", "-gsSf", "--max-time", "60")
	}
	expectWorks := func(t *testing.T, what string, argv []string, url string) {
		t.Helper()
		if out, err := n.Run("primary", append(argv, url)...); err != nil || len(out) != 1000 {
			t.Errorf("%s: %d bytes, %v", what, len(out), err)
		}
	}
	expectFails := func(t *testing.T, what string, argv []string, url, why string) {
		t.Helper()
		if out, err := n.Run("primary", append(argv, url)...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %d bytes, %v, want an error with %q", what, len(out), err, why)
		}
	}
	expectWorks(t, "without a file", socks, page)

	applyPolicy(t, "[[rule]]\nname = 'no web'\nport = [80]\nmode = 'block'\n", false)
	expectFails(t, "SOCKS5", socks, page, "(97)")
	expectFails(t, "run", run(), page, "curl: (")
	if out, err := n.Run("primary", append(proxy, page)...); err != nil || out != "403" {
		t.Errorf("HTTP proxy: %q, %v", out, err)
	}
	if s := status(t); s.Rules != 1 || s.Blocked < 3 {
		t.Errorf("%+v", s)
	}

	applyPolicy(t, "[[rule]]\nmode = 'blok'\n", true)
	if s := status(t); !strings.Contains(s.Error, "policy.toml:2") || s.Rules != 1 {
		t.Errorf("a bad file: %+v", s)
	}
	expectFails(t, "with a bad file", socks, page, "(97)")
	if out := n.Must("primary", n.Mpbond, "status"); !strings.Contains(out, "blok") {
		t.Errorf("the status does not report the error:\n%s", out)
	}

	applyPolicy(t, "[[rule]]\nlabel = ['work']\nmode = 'block'\n[[rule]]\napp = ['curl']\ndomain = ['example.org']\n"+
		"mode = 'block'\n[[rule]]\napp = ['nginx']\nmode = 'block'\n", true)
	expectFails(t, "label", run("--label", "work"), page, "curl: (")
	expectWorks(t, "another label", run("--label", "play"), page)
	expectWorks(t, "no label", run(), page)
	expectFails(t, "app and domain", socks, "http://www.example.org/", "(97)")
	expectWorks(t, "app alone", socks, page)

	t.Run("datagrams", func(t *testing.T) {
		echo := net.JoinHostPort(n.web4, echoPort)
		probe := func(what string, flags ...string) (string, error) {
			return n.Run("primary", append(append([]string{n.Mpbond, "run"}, flags...), "--", os.Args[0], "lab", "probe", what,
				echo)...)
		}
		if out, err := probe("echo", "--label", "play"); err != nil {
			t.Error(out, err)
		}
		if out, err := probe("refused", "--label", "work"); err != nil || out == "" {
			t.Errorf("a label that is blocked: %q, %v", out, err)
		}
	})

	applyPolicy(t, fmt.Sprintf("default = 'deny'\n[[rule]]\naddress = ['%s', '%s']\nmode = 'direct'\n",
		n.web4, n.web6), false)
	before := status(t).Direct
	streams := func() int64 {
		s, err := n.Status("primary", "primary")
		if err != nil {
			t.Fatal(err)
		}
		return s.Bonds[0].StreamsTotal
	}
	carried := streams()
	expectWorks(t, "direct", socks, fmt.Sprintf("http://%s/1000", n.web4))
	expectWorks(t, "direct, IPv6", socks, fmt.Sprintf("http://[%s]/1000", n.web6))
	expectFails(t, "denied by default", socks, "http://other/", "(97)")
	if s := status(t); s.Direct != before+2 || streams() != carried {
		t.Errorf("%d went around the bond, %d through it", s.Direct-before, streams()-carried)
	}
}

// TestPolicyDevices: a rule that names devices applies in both directions, whether these devices
// work or not. A rule for a single subflow uses one.
func TestPolicyDevices(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	file := filepath.Join(n.Dir, "primary", "policy.toml")
	applyPolicy := func(t *testing.T, text string) {
		t.Helper()
		writeFile(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		rules := strings.Count(text, "[[rule]]")
		rig.Eventually(t, func() error {
			s, err := n.Status("primary", "primary")
			if err == nil && (s.Policy == nil || s.Policy.Rules != rules || s.Policy.Error != "") {
				err = fmt.Errorf("%+v", s.Policy)
			}
			return err
		})
	}
	deviceBytes := func(t *testing.T) map[string]int64 {
		t.Helper()
		s, err := n.Status("primary", "primary")
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]int64{}
		for _, p := range s.Bonds[0].Subflows {
			m[p.Device] += int64(p.RxBytes + p.TxBytes)
		}
		return m
	}
	upload := filepath.Join(n.Dir, "upload")
	writeNoise(t, upload, 2*mb)
	// moveData moves 2 MB down and up and returns the bytes that each device carried.
	moveData := func(t *testing.T) (laptop, phone int64) {
		t.Helper()
		before := deviceBytes(t)
		n.Must("primary", n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "30", "-o", "/dev/null",
			fmt.Sprintf("http://web/%d", 2*mb))
		n.Must("primary", n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "30", "-T", upload, "http://web/")
		after := deviceBytes(t)
		return after["laptop"] - before["laptop"], after["phone"] - before["phone"]
	}
	const much, little = 4 * mb, mb / 4
	applyPolicy(t, "[[rule]]\ndevice = ['phone']\n")
	if laptop, phone := moveData(t); laptop > little || phone < much {
		t.Errorf("by the phone only: %d bytes by the laptop, %d by the phone", laptop, phone)
	}
	checkDatagramsByPhone(t, n)
	applyPolicy(t, "[[rule]]\ndevice = ['laptop']\n[[rule]]\nmode='block'\n")
	if laptop, phone := moveData(t); laptop < much || phone > little {
		t.Errorf("by the laptop only: %d bytes by the laptop, %d by the phone", laptop, phone)
	}
	applyPolicy(t, "[[rule]]\nmode = 'single'\n")
	checkSingleSubflow(t, n)
	applyPolicy(t, "[[rule]]\ndevice = ['phone']\n[[rule]]\nmode='block'\n")
	n.helper.End(syscall.SIGTERM)
	n.Await(1)
	before := deviceBytes(t)["laptop"]
	app := n.Start("primary", n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "60", "-o", "/dev/null",
		fmt.Sprintf("http://web/%d", mb))
	select {
	case <-app.Done:
		t.Errorf("without the phone the download ended, %v", app.Err)
	case <-time.After(time.Second): // by the laptop it would take 0.2 s
	}
	n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	select {
	case <-app.Done:
	case <-time.After(rig.Patience):
		t.Error("the download does not continue when the phone is back")
	}
	if laptop := deviceBytes(t)["laptop"] - before; app.Err != nil || laptop > little {
		t.Errorf("waiting for the phone: %v, %d bytes by the laptop", app.Err, laptop)
	}
}

// checkSingleSubflow checks that the server sends a stream over one subflow at a time. Which one may
// change: when the machine stalls, a subflow may seem silent.
func checkSingleSubflow(t *testing.T, n *network) {
	t.Helper()
	server := n.NewClient("server", "server")
	x := n.startTransfer(fmt.Sprintf("http://web/%d?paced", mb/2)) // 2 s
	<-x.begun
	looks := 0
	for done := false; !done; {
		select {
		case <-x.done:
			done = true
		case <-time.After(50 * time.Millisecond): // polling interval
			list, err := server.Streams(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range list {
				if looks++; len(s.Down.Subflows) != 1 {
					t.Errorf("the server may send over the subflows %v", s.Down.Subflows)
				}
			}
		}
	}
	if x.err != nil || looks == 0 {
		t.Errorf("%v %s; looked %d times", x.err, &x.errs, looks)
	}
}

// checkDatagramsByPhone checks that both ends send a flow only on the phone's subflow.
func checkDatagramsByPhone(t *testing.T, n *network) {
	t.Helper()
	n.startServices()
	if out, err := n.Run("primary", n.Mpbond, "run", "--", os.Args[0], "lab", "probe", "echo",
		net.JoinHostPort(n.web4, echoPort)); err != nil {
		t.Fatal(out, err)
	}
	s, err := n.Status("primary", "primary")
	if err != nil {
		t.Fatal(err)
	}
	phone := map[uint32]bool{}
	for _, p := range s.Bonds[0].Subflows {
		phone[p.ID] = p.Device == "phone"
	}
	for _, end := range []string{"primary", "server"} {
		for news, err := range n.NewClient(end, end).Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if c := news.Change; c != nil && c.Kind == "flow_move" {
				if !phone[c.Subflow] {
					t.Errorf("at the %s datagrams go over subflow %d; by the phone: %v", end, c.Subflow, phone)
				}
				break
			}
		}
	}
}

// TestPolicyPriorities: two downloads by the real program share the links as their rules say. A
// high class leaves hardly anything to a low one, and weights are kept. The test compares the bytes
// of both at one moment, so it does not depend on the speed of the machine.
func TestPolicyPriorities(t *testing.T) {
	t.Parallel() // it compares bytes, not times
	n := newNetworkWithoutRace(t, rig.Triangle(t, "16/20/10"))
	file := filepath.Join(n.Dir, "primary", "policy.toml")
	c := n.NewClient("primary", "primary")
	applyPolicy := func(one, other string) {
		t.Helper()
		text := fmt.Sprintf("[[rule]]\nname='first'\naddress=['%s']\n%s\n[[rule]]\nname='second'\naddress=['%s']\n%s\n",
			n.web6, one, n.web4, other)
		writeFile(t, file+".new", text)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, func() error {
			p, err := c.Policy(t.Context())
			if err == nil && (p.Text != text || p.Refused != nil) {
				err = fmt.Errorf("%+v", p)
			}
			return err
		})
	}
	get := func(host string) *rig.Process {
		return n.Start("primary", n.Mpbond, "run", "--", "sh", "-c",
			fmt.Sprintf("curl -gsS -o /dev/null http://%s/%d || true", host, 60*mb))
	}
	// readProgress reads how much of both downloads has arrived.
	var one, other int64
	readProgress := func() []api.BondStream {
		list, err := c.Streams(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			switch s.Dest {
			case net.JoinHostPort(n.web6, "80"):
				one = int64(s.DownBytes)
			case net.JoinHostPort(n.web4, "80"):
				other = int64(s.DownBytes)
			}
		}
		return list
	}
	awaitProgress := func(what string, done func() bool) (int64, int64) {
		t.Helper()
		rig.Eventually(t, func() error {
			if readProgress(); !done() {
				return fmt.Errorf("%s: %d and %d bytes", what, one, other)
			}
			return nil
		})
		return one, other
	}
	// compareBytes returns the bytes of the second download for each byte of the first one, which
	// begins while the second loads. It compares while bytes begin to end of the first one arrive.
	// What was sent of the second one before must have arrived by then.
	compareBytes := func(begin, end int64) float64 {
		t.Helper()
		one, other = 0, 0
		second := get(n.web4)
		awaitProgress("the second begins", func() bool { return other > mb/2 })
		first := get("[" + n.web6 + "]")
		from, otherFrom := awaitProgress("the first begins", func() bool { return one > begin })
		to, otherTo := awaitProgress("the first goes on", func() bool { return one > end })
		t.Logf("%d bytes of the first arrived, meanwhile %d of the second", to-from, otherTo-otherFrom)
		for _, s := range readProgress() {
			if err := c.ResetStream(t.Context(), s.Bond, s.ID); err != nil {
				t.Error(err)
			}
		}
		for _, p := range []*rig.Process{first, second} {
			select {
			case <-p.Done:
			case <-time.After(rig.Patience):
				t.Fatal("a download does not end")
			}
		}
		return float64(otherTo-otherFrom) / float64(to-from)
	}
	applyPolicy("priority = \"high\"", "priority = \"low\"")
	if share := compareBytes(5*mb, 9*mb); share > 0.2 {
		t.Errorf("a low class gets %.2f times the bytes of a high one", share)
	}
	applyPolicy("weight = 3", "weight = 1")
	if share := compareBytes(5*mb, 21*mb); share < 0.28 || share > 0.4 {
		t.Errorf("weight 1 gets %.3f times the bytes of weight 3", share)
	}
}

// TestStreamClassIsChanged: the class of an open connection is changed at both ends, by the API and
// the command.
func TestStreamClassIsChanged(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	primary, server := n.NewClient("primary", "primary"), n.NewClient("server", "server")
	app := n.startTransfer(fmt.Sprintf("http://web/zeros/%d", int64(1)<<33))
	<-app.begun
	list, err := primary.Streams(t.Context())
	if err != nil || len(list) != 1 || list[0].Mode != "bond" || list[0].Priority != "normal" || list[0].Weight != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	s := list[0]
	deviceBytes := func() (laptop, phone int64, err error) {
		st, err := n.Status("primary", "primary")
		if err != nil || len(st.Bonds) == 0 {
			return 0, 0, fmt.Errorf("%d bonds, %v", len(st.Bonds), err)
		}
		for _, p := range st.Bonds[0].Subflows {
			if p.Device == "laptop" {
				laptop += int64(p.RxBytes)
			} else {
				phone += int64(p.RxBytes)
			}
		}
		return laptop, phone, nil
	}
	word := func(w string) *string { return &w }
	one, three := 1, 3
	for _, c := range []struct {
		what     string
		to       api.StreamChange
		mode     string
		priority string
		weight   int
		single   bool
	}{
		{"single", api.StreamChange{Mode: word("single")}, "bond", "normal", 1, true},
		{"another class", api.StreamChange{Priority: word("low"), Weight: &three}, "bond", "low", 3, true},
		{"redundant", api.StreamChange{Mode: word("redundant")}, "redundant", "low", 3, false},
		{"latency", api.StreamChange{Mode: word("latency")}, "latency", "low", 3, false},
		{"as at first", api.StreamChange{Mode: word("bond"), Priority: word("normal"), Weight: &one}, "bond", "normal", 1,
			false},
	} {
		if err := primary.ChangeStream(t.Context(), s.Bond, s.ID, c.to); err != nil {
			t.Fatal(c.what, err)
		}
		for _, at := range []*client.Client{primary, server} {
			rig.Eventually(t, func() error {
				list, err := at.Streams(t.Context())
				if err != nil || len(list) != 1 || list[0].Mode != c.mode || list[0].Priority != c.priority ||
					list[0].Weight != c.weight {
					return fmt.Errorf("%s: %+v, %v", c.what, list, err)
				}
				if by := list[0].Down.Subflows; at == server && (len(by) == 1) != c.single {
					return fmt.Errorf("%s: the server sends over %v", c.what, by)
				}
				return nil
			})
		}
		if c.what == "single" { // soon one device carries nearly all
			laptop, phone := int64(-1), int64(-1) // at the beginning of the 4 MB that are compared
			rig.Eventually(t, func() error {
				l, p, err := deviceBytes()
				if err != nil {
					return err
				}
				byLaptop, byPhone := l-laptop, p-phone
				if laptop < 0 || byLaptop < 0 || byPhone < 0 { // or a subflow was replaced
					laptop, phone = l, p
					return errors.New("not measured yet")
				}
				if byLaptop+byPhone >= 4*mb {
					if min(byLaptop, byPhone) <= mb/4 {
						return nil
					}
					laptop, phone = l, p
				}
				return fmt.Errorf("%d bytes by the laptop, %d by the phone", byLaptop, byPhone)
			})
		}
	}
	for _, at := range []*client.Client{primary, server} {
		n.awaitEvent(at, "the change", func(e api.Event) bool {
			return e.Kind == "stream_class_changed" && e.Stream == s.ID && e.Text == "latency"
		})
	}
	number := strconv.FormatUint(s.ID, 10)
	if text := n.Must("primary", n.Mpbond, "streams", number, "--mode", "redundant", "--priority",
		"high"); !strings.Contains(text, "redundant  high") {
		t.Errorf("streams: %s", text)
	}
	for want, c := range map[fault.Kind]error{
		fault.NotFound:    primary.ChangeStream(t.Context(), s.Bond, 9999, api.StreamChange{Mode: word("bond")}),
		fault.Unsupported: server.ChangeStream(t.Context(), s.Bond, s.ID, api.StreamChange{Mode: word("bond")}),
	} {
		if !fault.Is(c, want) {
			t.Errorf("%v, want %s", c, want)
		}
	}
	n.Must("primary", n.Mpbond, "streams", number, "--reset")
	<-app.done
	if text := n.Must("primary", n.Mpbond, "streams", "--json"); strings.TrimSpace(text) != "[]" {
		t.Errorf("streams: %s", text)
	}
}
