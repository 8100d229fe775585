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
	finder     *finder
	mayReplace bool // another RNTI that fits is used
	found      RNTI // the last one that was found
	stale      bool
	nextCheck  int64 // subframe of the next comparison
	nextSearch int64 // subframe of the next search although nothing is wrong
	failed     int   // comparisons in a row in which the RNTI did not explain what arrived
	searches   int   // in vain since then
}

// CompareArrivals makes the monitor compare what arrives (AddArrival) with the grants to this device. The
// network gives a device another RNTI with each connection (36.331 section 5.3.3). One that is stale makes the
// device's own data those of another, and so halves the estimate. With mayReplace, an RNTI that is unknown or stale
// is replaced by the one whose blocks arrive here. It needs 20 KB within 0.3 s, so half a megabit a second.
func (m *Monitor) CompareArrivals(mayReplace bool) {
	m.check = &selfCheck{finder: newFinder(), mayReplace: mayReplace}
}

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
	if begin < settleTime || !f.hasReceived(begin, end) {
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

// startAnew starts anew with another RNTI.
func (s *selfCheck) startAnew() {
	if s != nil {
		s.stale, s.failed, s.searches = false, 0, 0
	}
}

// compareRow adds a row and returns the RNTI that the device has now.
func (s *selfCheck) compareRow(r *Row, self RNTI) RNTI {
	if r.Number <= s.finder.newest {
		s.nextCheck, s.nextSearch = 0, 0
	}
	s.finder.addRow(r)
	if r.Number < s.nextCheck {
		return self
	}
	s.nextCheck = r.Number + checkInterval
	known := self.IsUser()
	if known {
		switch yes, decided := s.finder.explains(self); {
		case !decided:
			s.failed = 0
		case yes:
			s.startAnew()
			s.finder.learnLag(self)
		default:
			s.failed++
			s.stale = s.stale || s.failed >= staleChecks
		}
	}
	// A source names its modem's RNTI; only one that was found may have been another device's.
	doubts := s.found == self && s.failed == 0 && r.Number >= s.nextSearch
	if !s.mayReplace || known && !s.stale && !doubts {
		return self
	}
	s.nextSearch = r.Number + collisionInterval
	found := s.finder.findRNTI(self, s.stale)
	if found == 0 || s.stale && found == self { // its own blocks of before still fit
		if s.searches++; s.searches%maxFailedSearches == 0 && (s.stale || !known) {
			s.finder.hasLag = false
		}
		// A search takes some milliseconds.
		s.nextCheck += checkInterval * min(int64(s.searches/maxFailedSearches), 20)
		return self
	}
	s.startAnew()
	s.found = found
	return found
}
