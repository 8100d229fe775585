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

// Reports of helpers that cannot reach their primary (wire.Report) are kept for it here.
// Nobody has proved who left one: a signature proves only that one who has that key did,
// and the primary alone knows whether the key is a helper's of its own. What the server
// knows is whether an enrolled device has joined by the address that a report came from, as
// it does by its helpers.
const (
	maxReports     = 6                // for one primary: what fits into the line that tells it of them
	reportLifetime = 30 * time.Minute // a helper repeats it each ten, while it is true
)

// storedReport is a report, when it came and whence.
type storedReport struct {
	wire.Report
	at              time.Time
	source          netip.Prefix
	fromKnownSource bool // a device has proved its identity by that source
}

// reportStore keeps reports of helpers for enrolled devices: one of each helper, at most
// maxReports for one device, for reportLifetime. It owns them; those for devices that are not
// enrolled any more stay until the end. Methods may be called by any goroutine.
type reportStore struct {
	enrolled func(identity.PublicKey) bool

	mu       sync.Mutex
	byDevice map[identity.PublicKey][]storedReport // for devices, oldest first
}

func newReportStore(enrolled func(identity.PublicKey) bool) *reportStore {
	return &reportStore{enrolled: enrolled, byDevice: map[identity.PublicKey][]storedReport{}}
}

// acceptReport keeps the report that comes on an HS-path instead of a subflow. Checking
// its signature takes the caller's turn, as the work of a handshake does. left reports
// whether one came.
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

// storeReport keeps a report for a device that is enrolled.
func (s *reportStore) storeReport(r storedReport) {
	to := identity.PublicKey(r.To)
	if !s.enrolled(to) || !identity.PublicKey(r.From).Verify(r.Signed(), r.Sig) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.DeleteFunc(s.byDevice[to], func(k storedReport) bool { return r.at.Sub(k.at) > reportLifetime })
	if i := slices.IndexFunc(list, func(k storedReport) bool { return k.From == r.From }); i >= 0 {
		if r.Unix <= list[i].Unix {
			s.byDevice[to] = list
			return // a copy of it, sent again by another
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

// reportsFor returns the reports that are kept for a device.
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

// evictionIndex returns the one of a list, the oldest first, that makes room for the others:
// one whose source has not proved itself, if there is such a one; of these one of the source
// that has left most; of these the oldest.
func evictionIndex(list []storedReport) (least int) {
	from := map[netip.Prefix]int{}
	for _, k := range list {
		from[k.source]++
	}
	for i, k := range list {
		l := list[least]
		if k.fromKnownSource != l.fromKnownSource && l.fromKnownSource || k.fromKnownSource == l.fromKnownSource && from[k.source] > from[l.source] {
			least = i
		}
	}
	return least
}
