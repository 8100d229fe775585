// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/probe"
)

func newReport(by *identity.Key, to identity.PublicKey) wire.Report {
	f := wire.Report{To: to, From: by.Public(), Unix: 1_800_000_000, Code: wire.CodeTimeout, Address: "192.0.2.1:7602"}
	f.Sig = by.Sign(f.Signed())
	return f
}

func newTestKey(t *testing.T) *identity.Key {
	t.Helper()
	k, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// storeFor returns a store for reports to one device.
func storeFor(primary *identity.Key) *reportStore {
	return newReportStore(func(k identity.PublicKey) bool { return k == primary.Public() })
}

// TestReports: reports for a trusted device are kept for a while, a few, one of each helper;
// others are not.
func TestReports(t *testing.T) {
	primary := newTestKey(t)
	s := storeFor(primary)
	now, phone, unknown := time.Now(), newTestKey(t), newTestKey(t)
	count := func(at time.Time, want int) {
		t.Helper()
		if got := s.reportsFor(primary.Public(), at); len(got) != want {
			t.Errorf("%d reports, want %d", len(got), want)
		}
	}
	keep := func(f wire.Report, at time.Time) { s.storeReport(storedReport{Report: f, at: at}) }
	keep(newReport(phone, primary.Public()), now)
	keep(newReport(phone, primary.Public()), now.Add(time.Second))
	count(now, 1)
	forged := newReport(unknown, primary.Public())
	forged.From = phone.Public()
	keep(forged, now)
	keep(newReport(phone, unknown.Public()), now)
	count(now, 1)
	for range 3 * maxReports {
		keep(newReport(newTestKey(t), primary.Public()), now)
	}
	count(now, maxReports)
	count(now.Add(reportLifetime+time.Minute), 0)
	if len(s.byDevice) != 1 {
		t.Errorf("reports for %d devices are kept", len(s.byDevice))
	}
}

// TestReportsOfUnknownDevices: reports of unknown devices do not displace that of a helper, at all if a
// device has joined from its address, else unless they come from as many addresses as there are
// reports.
func TestReportsOfUnknownDevices(t *testing.T) {
	for _, c := range []struct {
		name    string
		proved  bool
		sources int // of the unknown devices
	}{{"a helper's address that is known", true, 100}, {"one that is not", false, maxReports - 1}} {
		t.Run(c.name, func(t *testing.T) {
			primary := newTestKey(t)
			s := storeFor(primary)
			phone, now := newTestKey(t), time.Now()
			at := func(last int) netip.Prefix {
				return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(last)}), 32)
			}
			s.storeReport(storedReport{newReport(phone, primary.Public()), now, at(200), c.proved})
			for i := range 100 {
				s.storeReport(
					storedReport{
						newReport(newTestKey(t), primary.Public()),
						now.Add(time.Duration(i) * time.Second),
						at(1 + i%c.sources),
						false,
					},
				)
			}
			// repeated by an unknown device
			s.storeReport(storedReport{newReport(phone, primary.Public()), now.Add(time.Minute), at(1), false})
			kept := s.byDevice[primary.Public()]
			if c.proved &&
				!slices.ContainsFunc(
					kept,
					func(k storedReport) bool { return k.From == phone.Public() && k.fromKnownSource },
				) {
				t.Error("a helper's report lost its protection when an unknown device repeated it")
			}
			if !slices.ContainsFunc(kept, func(k storedReport) bool { return k.From == phone.Public() }) ||
				len(kept) != maxReports {
				t.Errorf("of %d reports none is the helper's", len(kept))
			}
		})
	}
}

// TestReportsFitTheLine: the longest reports fit into the line of 4 KB for the device.
func TestReportsFitTheLine(t *testing.T) {
	primary := newTestKey(t)
	s := storeFor(primary)
	for range maxReports {
		by := newTestKey(t)
		f := newReport(by, primary.Public())
		f.Address = strings.Repeat("x", wire.MaxDest)
		f.Sig = by.Sign(f.Signed())
		s.storeReport(storedReport{Report: f, at: time.Now()})
	}
	b, err := json.Marshal(
		probe.About{
			Reports: s.reportsFor(primary.Public(), time.Now()),
			Names:   strings.Repeat("x", 200),
			Seen:    "[2001:db8::1]:65535",
		},
	)
	if err != nil || len(b) > 4096 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestReportIsLeft: a helper leaves a report over its own connection, and the log does not show a
// refused connection.
func TestReportIsLeft(t *testing.T) {
	s, primary, stop := startServer(t, time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := tcp.Dial(ctx, s.Addr().String(), tcp.Options{})
	if err == nil {
		err = pipe.LeaveReport(ctx, conn, "phone", newReport(newTestKey(t), primary.Public()))
	}
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "a report", func() bool {
		return len(s.reports.reportsFor(primary.Public(), time.Now())) > 0
	})
	if log := stop(); strings.Contains(log, "refused") {
		t.Errorf("it logs %s", log)
	}
}

// TestCopied: two bonds of one device that have subflows at once for long show a copied key; a
// restart, and a doctor beside its primary, do not.
func TestCopied(t *testing.T) {
	s, primary, log := newServer(t, Default)
	defer s.ln.Close()
	key, now := primary.Public(), time.Unix(1_800_000_000, 0)
	a, b := &session{name: "laptop"}, &session{name: "laptop"}
	s.sessions.bonds[bondKey{key, wire.BondID{1}}], s.sessions.bonds[bondKey{key, wire.BondID{2}}] = a, b
	used := map[*session]bool{a: true, b: true}
	look := func(after time.Duration, want bool) {
		t.Helper()
		s.sessions.detectCopies(now.Add(after), func(b *session) bool { return used[b] })
		if got := s.sessions.isKeyCopied(key, now.Add(after)); got != want {
			t.Errorf("after %v: %v", after, got)
		}
	}
	look(0, false)
	look(minCopyTime-1, false)
	used[b] = false // that was a restart
	look(minCopyTime, false)
	used[b] = true
	look(minCopyTime+time.Second, false)
	look(2*minCopyTime+2*time.Second, true)
	look(3*minCopyTime, true)
	if n := strings.Count(log.String(), "two running mpbond use the same"); n != 2 { // of each bond once
		t.Errorf("it warns %d times", n)
	}
	delete(s.sessions.bonds, bondKey{key, wire.BondID{2}})
	look(4*minCopyTime, false)
}
