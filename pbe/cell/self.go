// SPDX-License-Identifier: Apache-2.0

package cell

import "mpbond/base/unit"

// Tuning of selfCheck, in subframes.
const (
	// checkInterval is the time between two comparisons. An RNTI is stale after staleChecks of them in a row.
	checkInterval = 10
	staleChecks   = 2
	// collisionInterval is the time between two searches for another RNTI that fits better, while this one
	// explains what arrives: the network may have given it to another device.
	collisionInterval = 200
	// maxFailedSearches is how many searches in vain drop the lag that was measured.
	maxFailedSearches = 30
	// otherWindow is the time over which the rate of other apps is measured, minOtherPart what is reported.
	otherWindow  = 400
	minOtherPart = 0.1
)

// selfCheck compares what arrives with the grants to this device's RNTI.
type selfCheck struct {
	finder *finder
	find   bool // another RNTI that fits is used
	stale  bool
	next   int64 // subframe of the next comparison
	search int64 // subframe of the next search although nothing is wrong
	failed int   // comparisons in a row in which the RNTI did not explain what arrived
	missed int   // searches in vain since then
}

// CompareArrivals makes the monitor compare what arrives (AddArrival) with the grants to this device. The
// network gives a device another RNTI with each connection (36.331 section 5.3.3). One that is stale makes the
// device's own data those of another, and so halves the estimate. With find, an RNTI that is unknown or stale is
// replaced by the one whose blocks arrive here.
func (m *Monitor) CompareArrivals(find bool) { m.check = &selfCheck{finder: newFinder(), find: find} }

// AddArrival counts bytes of packets, with headers, that reached this device at the time of a subframe: when
// its message arrived, or a constant time before or after. It does nothing without CompareArrivals.
func (m *Monitor) AddArrival(number int64, size unit.Bytes) {
	if m.check != nil {
		m.check.finder.addArrival(number, size)
	}
}

// Self returns the device's RNTI, 0 if it is unknown.
func (m *Monitor) Self() RNTI { return m.self }

// IsSelfStale reports that the device's RNTI is stale: its grants do not explain what arrives.
func (m *Monitor) IsSelfStale() bool { return m.check.isStale() }

// OtherRate returns the rate at which the device receives what AddArrival does not count, over the last 0.4 s: that
// of other apps. It is 0 without CompareArrivals, and below a tenth of all that the device receives.
func (m *Monitor) OtherRate() unit.Rate {
	if m.check == nil || m.check.stale || !m.self.IsUser() {
		return 0
	}
	f := m.check.finder
	end := f.newest - settleTime - maxLag
	begin := end - otherWindow
	if begin < settleTime || !f.hasHeard(begin, end) {
		return 0
	}
	f.predictReleases([2]RNTI{m.self}, begin, end)
	all := float64(f.release[end-begin]) / 8 * (1 - Overhead)
	other := all - float64(f.sumArrived(begin+int64(f.lag), end+int64(f.lag)))
	if other < minOtherPart*all {
		return 0
	}
	return rateFromSubframe(8 * other / otherWindow)
}

// isStale reports whether the grants to the RNTI do not explain what arrives.
func (s *selfCheck) isStale() bool { return s != nil && s.stale }

// forget starts anew with another RNTI.
func (s *selfCheck) forget() {
	if s != nil {
		s.stale, s.failed, s.missed = false, 0, 0
	}
}

// compareRow adds a row and returns the RNTI that the device has now.
func (s *selfCheck) compareRow(r *Row, self RNTI) RNTI {
	if r.Number <= s.finder.newest {
		s.next, s.search = 0, 0
	}
	s.finder.addRow(r)
	if r.Number < s.next {
		return self
	}
	s.next = r.Number + checkInterval
	known := self.IsUser()
	if known {
		switch yes, decided := s.finder.explains(self); {
		case !decided:
			return self
		case yes:
			s.forget()
		default:
			s.failed++
			s.stale = s.stale || s.failed >= staleChecks
		}
	}
	if !s.find || known && !s.stale && (s.failed > 0 || r.Number < s.search) {
		return self
	}
	s.search = r.Number + collisionInterval
	found := s.finder.find(self, s.stale)
	if found == 0 {
		if s.missed++; s.missed%maxFailedSearches == 0 && (s.stale || !known) {
			s.finder.hasLag = false
		}
		// A search takes some milliseconds.
		s.next += checkInterval * min(int64(s.missed/maxFailedSearches), 20)
		return self
	}
	s.forget()
	return found
}
