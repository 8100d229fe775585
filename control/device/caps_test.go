// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

// capsOf returns Caps for a test, and the text of its notifications.
func capsOf(u *Usage, self string, caps map[string]policy.Caps) (*Caps, *strings.Builder) {
	var changes strings.Builder
	return NewCaps(u, meaning(map[string]CapTarget{self: {}}), func() map[string]policy.Caps {
		all := map[string]policy.Caps{}
		for name, c := range caps {
			all[name] = c
		}
		return all
	}, func(name string, of CapTarget, before, now policy.Allowance) {
		fmt.Fprintf(&changes, "%s %v-%v; ", of.Link, before.Level, now.Level)
	}), &changes
}

// meaning has some names mean what it says, and others links.
func meaning(names map[string]CapTarget) func(string) CapTarget {
	return func(name string) CapTarget {
		if b, ok := names[name]; ok {
			return b
		}
		return CapTarget{Link: name}
	}
}

func linkTarget(name string) CapTarget { return CapTarget{Link: name} }

func TestCaps(t *testing.T) {
	u, clock, _ := newUsage(t)
	limits := map[string]policy.Caps{"wwan0": {Daily: 10e6}, "phone": {Monthly: 1e9}, "somebody": {Daily: 1e6}}
	c, changes := capsOf(u, "phone", limits)
	lte, other, pipe, wifi := &fakeConn{local: "10.0.0.1:1"}, &fakeConn{local: "10.0.0.1:2"},
		&fakeConn{local: "10.0.0.1:3"}, &fakeConn{local: "10.0.0.2:1"}
	lte.open(u, policy.ForHSPath)
	other.open(u, policy.ForDirect)
	pipe.open(u, policy.ForPipe)
	wifi.open(u, policy.ForHSPath)
	step := func(wantChanges string, wantWindow unit.Bytes) {
		t.Helper()
		changes.Reset()
		c.enforceAll()
		if changes.String() != wantChanges {
			t.Errorf("got %q, want %q", changes, wantChanges)
		}
		if lte.window != wantWindow || other.window != wantWindow {
			t.Errorf("windows of %d and %d, want %d", lte.window, other.window, wantWindow)
		}
		if pipe.window+wifi.window > 0 || pipe.aborted || wifi.aborted {
			t.Errorf("others are limited: %+v, %+v", pipe, wifi)
		}
	}
	in := []string{" none-fine", "wwan0 none-fine", "somebody none-fine"}
	c.enforceAll()
	for _, want := range in {
		if !strings.Contains(changes.String(), want+";") {
			t.Errorf("got %q, not %q", changes, want)
		}
	}
	lte.in, other.out, pipe.in = 3e6, 2e6, 1e9
	step("", (9_950_000-5_000_000)/4/2)
	wifi.in = 500e6
	other.in = 3e6
	step("wwan0 fine-warned; ", (9_950_000-8_000_000)/4/2)
	if a := c.AllowanceOf(linkTarget("wwan0")); a.Level != policy.CapWarned || a.Used != 8e6 {
		t.Errorf("%v", a)
	}
	lte.in = 5e6
	step("wwan0 warned-reached; ", (9_950_000-8_000_000)/4/2)
	if !lte.aborted || !other.aborted {
		t.Error("connections go on though the cap is used up")
	}
	if a, b, none := c.AllowanceOf(linkTarget("wwan0")), c.AllowanceOf(linkTarget("wlan0")),
		c.AllowanceOf(CapTarget{}); a.Level != policy.CapReached || b.Level != policy.CapFine || b.Cap != 1e9 || none != b {
		t.Errorf("%v, %v, %v", a, b, none)
	}
	u.removeCountedConn(lte)
	u.removeCountedConn(other)
	step("", lte.window)
	limits["wwan0"] = policy.Caps{Daily: 20e6} // raised
	step("wwan0 reached-fine; ", lte.window)
	limits["wwan0"] = policy.Caps{Daily: 10e6}
	step("wwan0 fine-reached; ", lte.window)
	*clock = clock.Add(time.Hour) // the next day
	step("wwan0 reached-fine; ", lte.window)

	again := &fakeConn{local: "10.0.0.1:9", in: 9e6}
	again.open(u, policy.ForHSPath)
	step("wwan0 fine-warned; ", lte.window)
	if again.window != 950_000/4 {
		t.Errorf("a window of %d", again.window)
	}
	again.minRTT = 5 * time.Millisecond
	if step("", lte.window); again.window != 950_000/40 {
		t.Errorf("with a round trip of 5 ms a window of %d", again.window)
	}
	delete(limits, "wwan0") // and none any more
	step("wwan0 warned-none; ", lte.window)
	if again.window < 1<<29 {
		t.Errorf("it stays limited to %d", again.window)
	}
	wifi.in += 600e6
	changes.Reset()
	c.enforceAll()
	if changes.String() != " fine-reached; " || !wifi.aborted || !again.aborted || pipe.aborted {
		t.Errorf("all links: got %q, %+v, %+v, %+v", changes, wifi, again, pipe)
	}
	if list := c.ListAllowances(); len(list) != 2 || list["phone"].Level != policy.CapReached ||
		list["somebody"].Level != policy.CapFine {
		t.Errorf("%v", list)
	}
	if a := (*Caps)(nil).AllowanceOf(linkTarget("wwan0")); a.Level != policy.CapFree {
		t.Errorf("of nobody: %v", a)
	}
}

// TestCheckEnforced: a cap of an unknown name, or on a system that counts nothing, is reported as
// not enforced.
func TestCheckEnforced(t *testing.T) {
	for _, c := range []struct {
		name           string
		counts, listed bool
		want           map[string]error
	}{
		{"Linux", true, true, map[string]error{"laptop": nil, "wlan0": nil, "usb0": nil, "wwna0": ErrNoLink}},
		{"another system", false, true, map[string]error{"laptop": errNotCounted, "wlan0": errNotCounted,
			"usb0": errNotCounted, "wwna0": ErrNoLink}},
		{"interfaces are kept from it", true, false, map[string]error{"laptop": nil, "wlan0": errNotCounted, "usb0": nil,
			"wwna0": errNotCounted}},
	} {
		u, _, _ := newUsage(t)
		u.countsBytes = c.counts
		u.interfaces = func() ([]net.Interface, error) {
			if !c.listed {
				return nil, errors.New("permission denied")
			}
			return []net.Interface{{Name: "lo"}, {Name: "wlan0"}}, nil
		}
		gone := &fakeConn{in: 1, device: "usb0"}
		gone.open(u, policy.ForHSPath)
		u.removeCountedConn(gone)
		caps, _ := capsOf(u, "laptop", nil)
		for name, want := range c.want {
			if err := caps.CheckEnforced(name); err != want {
				t.Errorf("%s: %s: %v, want %v", c.name, name, err, want)
			}
		}
	}
	u, _, _ := newUsage(t)
	u.interfaces = func() ([]net.Interface, error) { return nil, errors.New("permission denied") }
	caps, _ := capsOf(u, "laptop", nil)
	if err := caps.CheckEnforced("laptop"); err != errNotCounted {
		t.Errorf("before anything was counted: %v", err)
	}
}

// TestCapsOfAllNames: each name of this device has caps of all its links, and what
// says less holds.
func TestCapsOfAllNames(t *testing.T) {
	u, _, _ := newUsage(t)
	limits := map[string]policy.Caps{"laptop": {Daily: 10e6}, "desk": {Daily: 5e6}, "wlan0": {Daily: 7e6}}
	c := NewCaps(u, meaning(map[string]CapTarget{"laptop": {}, "desk": {}}),
		func() map[string]policy.Caps { return limits }, nil)
	for link, want := range map[string]policy.Volume{"": 5e6, "wlan0": 5e6, "wwan0": 5e6} {
		if a := c.AllowanceOf(CapTarget{Link: link}); a.Cap != want {
			t.Errorf("%q: %v, want a cap of %v", link, a, want)
		}
	}
	delete(limits, "desk")
	for link, want := range map[string]policy.Volume{"": 10e6, "wlan0": 7e6, "wwan0": 10e6} {
		if a := c.AllowanceOf(CapTarget{Link: link}); a.Cap != want {
			t.Errorf("%q: %v, want a cap of %v", link, a, want)
		}
	}
}

// TestCapsInTime: a connection that begins suddenly is ended near the cap, also
// one that was not there when the link was looked at, and one over a link that
// may carry nothing at once.
func TestCapsInTime(t *testing.T) {
	const limit = 20e6
	for _, k := range []struct {
		before      unit.Bytes // carried by another one
		late        bool       // it opens between two looks
		least, most unit.Bytes
	}{{0, false, 19_800_000, limit}, {19e6, true, 19_800_000, limit}, {limit, true, limit, limit}} {
		synctest.Test(t, func(t *testing.T) {
			u, _, _ := newUsage(t)
			past := &fakeConn{local: "10.0.0.1:1", in: k.before}
			past.open(u, policy.ForHSPath)
			u.removeCountedConn(past)
			c, _ := capsOf(u, "", map[string]policy.Caps{"wwan0": {Daily: limit}})
			ctx, end := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { c.Run(ctx) })
			f := &fakeConn{local: "10.0.0.1:2"}
			if !k.late {
				f.open(u, policy.ForHSPath)
			}
			time.Sleep(10*time.Second + lookAt)
			if k.late {
				f.open(u, policy.ForHSPath)
				synctest.Wait()
			}
			const step = time.Millisecond
			rate := 100 * unit.Mbps
			for aborted := false; !aborted; {
				u.mu.Lock()
				if aborted = f.aborted; !aborted {
					f.in += rate.Bytes(step)
				}
				u.mu.Unlock()
				time.Sleep(step)
				synctest.Wait()
				if f.in > 30e6 {
					t.Fatal("it is not ended")
				}
			}
			if sum := k.before + f.in; sum < k.least || sum > k.most {
				t.Errorf("%d before it: ended at %d", k.before, sum)
			}
			end()
			all.Wait()
		})
	}
}

// lookAt is between two looks at a link that carries nothing.
const lookAt = 500 * time.Millisecond

// TestOpenConnTriggersCheck: a new connection is checked at once.
func TestOpenConnTriggersCheck(t *testing.T) {
	u, _, _ := newUsage(t)
	for _, p := range []policy.Purpose{policy.ForPipe, policy.ForHSPath, policy.ForHSPath} {
		(&fakeConn{local: "10.0.0.1:1"}).open(u, p)
		if len(u.connOpened) != 1 {
			t.Errorf("%s: nothing is reported", p)
		}
	}
}

// TestCapsOfDevices: a cap of another device is of what goes between the two over all
// links: at a helper by the Internet, at a primary by pipes, which are not ended. What
// it is called does not matter to what it has used.
func TestCapsOfDevices(t *testing.T) {
	u, _, _ := newUsage(t)
	u.interfaces = func() ([]net.Interface, error) { return []net.Interface{{Name: "wwan0"}}, nil }
	laptop, phone := CapTarget{Peer: "L", Purpose: policy.ForHSPath}, CapTarget{Peer: "P", Purpose: policy.ForPipe}
	names := map[string]CapTarget{"laptop": laptop, "phone": phone, "wwan0": {Peer: "X", Purpose: policy.ForHSPath}}
	limits := map[string]policy.Caps{"laptop": {Daily: 10e6}, "phone": {Monthly: 20e6}}
	var changes strings.Builder
	c := NewCaps(u, meaning(names), func() map[string]policy.Caps { return maps.Clone(limits) },
		func(name string, of CapTarget, before, now policy.Allowance) {
			if now.Level == policy.CapReached || before.Level == policy.CapReached {
				fmt.Fprintf(&changes, "%s %s %v-%v; ", name, of.Peer, before.Level, now.Level)
			}
		})
	for name, want := range map[string]CapTarget{"laptop": laptop, "phone": phone, "wwan0": {Link: "wwan0"},
		"usb0": {Link: "usb0"}} {
		if got := c.capTargetOfName(name); got != want {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
	step := func(want string) {
		t.Helper()
		changes.Reset()
		if c.enforceAll(); changes.String() != want {
			t.Errorf("got %q, want %q", changes.String(), want)
		}
	}
	open := func(p policy.Purpose, local, peer string) *fakeConn {
		f := &fakeConn{local: local, peer: peer}
		f.open(u, p)
		return f
	}
	lte, wifi := open(policy.ForHSPath, "10.0.0.1:1", "L"), open(policy.ForHSPath, "10.0.0.2:1", "L")
	other, ownPipe := open(policy.ForHSPath, "10.0.0.1:2", "M"), open(policy.ForPipe, "10.0.0.2:2", "L")
	pipe := open(policy.ForPipe, "10.0.0.2:3", "P")
	other.in, ownPipe.in, lte.in, wifi.out, pipe.in = 1e9, 1e9, 4e6, 1e6, 10e6
	step("")
	if w := unit.Bytes(9_950_000-5_000_000) / 4 / 2; lte.window != w || wifi.window != w ||
		pipe.window != (19_900_000-10_000_000)/4 || other.window+ownPipe.window > 0 {
		t.Errorf("windows of %d and %d, by the pipe %d; of others %d and %d", lte.window, wifi.window, pipe.window,
			other.window, ownPipe.window)
	}
	for b, want := range map[CapTarget]string{laptop: "fine", phone: "fine",
		{Peer: "M", Purpose: policy.ForHSPath}: "none", linkTarget("wlan0"): "none", {}: "none"} {
		if a := c.AllowanceOf(b); a.Level.String() != want {
			t.Errorf("%+v: %v", b, a)
		}
	}
	for name, want := range map[string]error{"laptop": nil, "phone": nil, "tablet": ErrNoLink} {
		if err := c.CheckEnforced(name); err != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	wifi.out, pipe.in = 6e6, 20e6
	changes.Reset()
	c.enforceAll()
	for _, want := range []string{"laptop L fine-reached; ", "phone P fine-reached; "} {
		if !strings.Contains(changes.String(), want) {
			t.Errorf("got %q, not %q", changes.String(), want)
		}
	}
	if !lte.aborted || !wifi.aborted || other.aborted || ownPipe.aborted || pipe.aborted {
		t.Errorf("ended: %v and %v, others %v, %v and %v", lte.aborted, wifi.aborted, other.aborted, ownPipe.aborted,
			pipe.aborted)
	}
	if pipe.window != 1 {
		t.Errorf("the pipe has a window of %d", pipe.window)
	}
	limits["phone"] = policy.Caps{Monthly: 1e9} // raised
	if step("phone P reached-fine; "); pipe.window < 1<<29 {
		t.Errorf("the pipe stays limited to %d", pipe.window)
	}
	u.removeCountedConn(lte)
	u.removeCountedConn(wifi)

	// It is called otherwise, which gives it nothing.
	delete(names, "laptop")
	names["notebook"] = laptop
	step("laptop L reached-none; ")
	limits["notebook"] = policy.Caps{Daily: 10e6}
	step("notebook L none-reached; ")
	if a := c.AllowanceOf(laptop); a.Level != policy.CapReached || a.Used != 10e6 {
		t.Errorf("%v", a)
	}
	if err := c.CheckEnforced("laptop"); err != ErrNoLink {
		t.Errorf("what nobody is called any more: %v", err)
	}
}

// TestCapsOfUnknown: a connection of an unknown peer may soon count, so it is checked often.
func TestCapsOfUnknown(t *testing.T) {
	u, _, _ := newUsage(t)
	c := NewCaps(u, meaning(map[string]CapTarget{"laptop": {Peer: "L", Purpose: policy.ForHSPath}}),
		func() map[string]policy.Caps { return map[string]policy.Caps{"laptop": {Daily: 1e6}} },
		func(string, CapTarget, policy.Allowance, policy.Allowance) {})
	f := &fakeConn{local: "10.0.0.1:1"}
	for peer, soon := range map[string]bool{"": true, "M": false, "L": true} {
		for _, p := range []policy.Purpose{policy.ForHSPath, policy.ForPipe} {
			f.peer = peer
			f.open(u, p)
			if again := c.enforceAll(); again < 100*time.Millisecond != (soon && p == policy.ForHSPath) {
				t.Errorf("%s of %q: looked at again after %v", p, peer, again)
			}
			u.removeCountedConn(f)
		}
	}
}

// TestCapsWithoutClock: while the clock has not been set, the day of the last bytes counts, not all
// days as one.
func TestCapsWithoutClock(t *testing.T) {
	u, clock, _ := newUsage(t)
	c, _ := capsOf(u, "", map[string]policy.Caps{"wwan0": {Daily: 10e6, Monthly: 1e9, ResetDay: 21}})
	f := &fakeConn{local: "10.0.0.1:1"}
	f.open(u, policy.ForHSPath)
	is := func(day, want string) {
		t.Helper()
		when, err := time.Parse(time.DateOnly, day)
		if err != nil {
			t.Fatal(err)
		}
		*clock = when.Add(10 * time.Minute)
		if got := c.AllowanceOf(linkTarget("wwan0")); got.String() != want {
			t.Errorf("on %s: %v, want %s", day, got, want)
		}
	}
	f.in = 1e6
	is("1970-01-01", "1 MB of the daily cap of 10 MB used, until 1970-01-02 00:00")
	is("1970-01-02", "1 MB of the daily cap of 10 MB used, until 1970-01-02 00:00")
	f.in += 990e6
	is("2026-11-20", "the daily cap of 10 MB is used up, until 2026-11-21 00:00")
	f.in += 3e6
	is("2026-11-21", "3 MB of the daily cap of 10 MB used, until 2026-11-22 00:00")
	f.in += 4e6
	is("1970-01-01", "7 MB of the daily cap of 10 MB used, until 2026-11-22 00:00")
	f.in += 5e6
	is("1970-01-03", "the daily cap of 10 MB is used up, until 2026-11-22 00:00")
}

// TestCapsMonth: a link without a monthly cap has the months of all links.
func TestCapsMonth(t *testing.T) {
	u, clock, _ := newUsage(t)
	c, _ := capsOf(u, "phone", map[string]policy.Caps{"phone": {Monthly: 1e9, ResetDay: 15},
		"wwan0": {Monthly: 1e9, ResetDay: 21}, "eth0": {Monthly: 1e9}, "wlan0": {Daily: 1e9}})
	other, _ := capsOf(u, "laptop", map[string]policy.Caps{"wlan0": {Daily: 1e9}})
	for _, k := range []struct {
		caps       *Caps
		link, want string
	}{{c, "wwan0", "2026-11-21"}, {c, "eth0", "2026-11-01"}, {c, "wlan0", "2026-11-15"}, {c, "usb0", "2026-11-15"},
		{other, "wlan0", "2026-11-01"}, {nil, "wlan0", "2026-11-01"}} {
		if from, _ := k.caps.AccountingPeriod(k.link, *clock); from.Format(time.DateOnly) != k.want {
			t.Errorf("%s: from %v, want %s", k.link, from, k.want)
		}
	}
}
