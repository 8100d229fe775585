// SPDX-License-Identifier: Apache-2.0

package server

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/probe"
)

// The server keeps reports of helpers that cannot reach their primary (wire.Report) for the
// primary. Their senders are not authenticated: a signature proves only possession of the key, and
// only the primary knows whether that is the key of its helper. The server knows whether an
// trusted device has joined from a report's source address, as through its helpers.
const (
	maxReports     = 6                // for one primary: what fits into one line of a measurement
	reportLifetime = 30 * time.Minute // a helper repeats it every ten minutes while it is true
)

// storedReport is a report with its time and source.
type storedReport struct {
	wire.Report
	at              time.Time
	source          netip.Prefix
	fromKnownSource bool // a trusted device has joined from that source
}

// reportStore keeps reports of helpers for trusted devices: one of each helper, at most maxReports
// for one device, for reportLifetime. Reports for devices that are no longer trusted stay until
// the end. Safe for concurrent use.
type reportStore struct {
	isTrusted func(identity.PublicKey) bool

	mu       sync.Mutex
	byDevice map[identity.PublicKey][]storedReport // for devices, oldest first
}

func newReportStore(isTrusted func(identity.PublicKey) bool) *reportStore {
	return &reportStore{isTrusted: isTrusted, byDevice: map[identity.PublicKey][]storedReport{}}
}

// acceptReport stores the report that comes on an HS-path instead of a subflow. Checking its
// signature waits for the caller's turn, as handshakes do. left reports whether one came.
func (s *reportStore) acceptReport(link *pipe.HSPath, v *tcp.Slot) (left func() bool) {
	came := false
	link.OnReport(func(f wire.Report) {
		if came || !v.AwaitTurn() {
			return
		}
		came = true
		s.storeReport(storedReport{f, time.Now(), v.Source(), v.IsSourceProved()})
	})
	return func() bool { return came }
}

// storeReport stores a valid report for a trusted device.
func (s *reportStore) storeReport(r storedReport) {
	to := identity.PublicKey(r.To)
	if !s.isTrusted(to) || !identity.PublicKey(r.From).Verify(r.Signed(), r.Sig) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(s.byDevice[to], func(k storedReport) bool { return r.at.Sub(k.at) > reportLifetime })
	if i := slices.IndexFunc(list, func(k storedReport) bool { return k.From == r.From }); i >= 0 {
		if r.Unix <= list[i].Unix {
			s.byDevice[to] = list
			return // a copy, sent again by somebody else
		}
		list = slices.Delete(list, i, i+1)
	}
	list = append(list, r)
	if len(list) > maxReports {
		i := evictionIndex(list)
		list = slices.Delete(list, i, i+1)
	}
	s.byDevice[to] = list
}

// reportsFor returns the stored reports for a device.
func (s *reportStore) reportsFor(device identity.PublicKey, now time.Time) (list []probe.Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.byDevice[device] {
		if age := now.Sub(k.at); age <= reportLifetime {
			list = append(list, probe.Report{Frame: k.AppendPayload(nil), AgeS: age.Seconds()})
		}
	}
	return list
}

// evictionIndex returns the report of a list, oldest first, to remove: one from an unknown source,
// if any; of these, one of the source with the most reports; of these, the oldest.
func evictionIndex(list []storedReport) (least int) {
	from := map[netip.Prefix]int{}
	for _, k := range list {
		from[k.source]++
	}
	for i, k := range list {
		l := list[least]
		if k.fromKnownSource != l.fromKnownSource && l.fromKnownSource ||
			k.fromKnownSource == l.fromKnownSource && from[k.source] > from[l.source] {
			least = i
		}
	}
	return least
}
