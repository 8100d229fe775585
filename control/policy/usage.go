// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"time"

	"mpbond/base/unit"
)

// Purpose says what a connection is for, in the accounting of bytes.
type Purpose string

// Purposes.
const (
	// ForDirect is a direct subflow at its primary, over a local link.
	ForDirect Purpose = "direct"
	// ForHSPath is the HS-path of a helped subflow at its helper.
	ForHSPath Purpose = "hs-path"
	// ForOnload is a connection that a helper makes for an onloading primary.
	ForOnload Purpose = "onload"
	// ForSubflow is a subflow at the server, direct or helped.
	ForSubflow Purpose = "subflow"
	// ForPipe is a pipe at either end, or a connection between an onloading primary and its helper.
	// It stays on the local network and costs no allowance.
	ForPipe Purpose = "pipe"
)

// UsesInternet reports whether bytes of that purpose cross the Internet and so count against the
// caps of links.
func (p Purpose) UsesInternet() bool { return p != ForPipe }

// CountsAs reports whether bytes of purpose p count as bytes of purpose of: ForOnload counts as
// ForHSPath, since a helper carries both for a primary.
func (p Purpose) CountsAs(of Purpose) bool { return p == of || p == ForOnload && of == ForHSPath }

// UsageRecord counts what one link carried on one day, for one purpose and one device. It counts
// bytes of IP packets, retransmissions included. It is a line of the usage file.
type UsageRecord struct {
	Day     string     `json:"day"`  // YYYY-MM-DD, local time
	Link    string     `json:"link"` // name of the network interface
	Purpose Purpose    `json:"purpose"`
	Peer    string     `json:"peer,omitempty"` // ID of the device at the other end, "" if unknown
	Down    unit.Bytes `json:"down"`           // received
	Up      unit.Bytes `json:"up"`             // sent
	// Joules is the energy of the link's radio by EnergyMeter. While the radio served several
	// purposes it is shared by bytes. 0 for an unknown radio.
	Joules unit.Joules `json:"joules,omitempty"`
}

// Validate returns an error if the record is impossible.
func (u UsageRecord) Validate() error {
	if _, err := time.Parse(time.DateOnly, u.Day); err != nil {
		return err
	}
	switch u.Purpose {
	case ForDirect, ForHSPath, ForOnload, ForSubflow, ForPipe:
	default:
		return fmt.Errorf("unknown purpose %q", u.Purpose)
	}
	if u.Down < 0 || u.Up < 0 || !(u.Joules >= 0) || u.Link == "" {
		return errors.New("impossible values")
	}
	return nil
}

// firstDay is earlier than any use of this program. A clock before it has not been set.
const firstDay = "2026-01-01"

// DayOf returns the day that bytes at a time count for, in the time's location. last is the latest
// day with bytes, "" if none. A device with a clock that has not been set counts for last.
func DayOf(now time.Time, last string) string {
	if day := now.Format(time.DateOnly); day >= firstDay || last == "" {
		return day
	}
	return last
}

// CapTime returns the time for which caps are evaluated: now, or noon of DayOf if that is another
// day.
func CapTime(now time.Time, last string) time.Time {
	day := DayOf(now, last)
	noon, err := time.ParseInLocation(time.DateOnly+" 15", day+" 12", now.Location())
	if err != nil || day == now.Format(time.DateOnly) {
		return now
	}
	return noon
}

// Month returns the accounting period that contains now, in its location: from a reset day, 1 to
// 31, to the next. In a shorter month the period begins on the last day. until is the first moment
// of the next period.
func Month(now time.Time, resetDay int) (from, until time.Time) {
	if from = resetDate(now, 0, resetDay); from.After(now) {
		return resetDate(now, -1, resetDay), from
	}
	return from, resetDate(now, 1, resetDay)
}

// resetDate returns the start of the reset day, months after the month of now.
func resetDate(now time.Time, months, day int) time.Time {
	y, m, _ := now.Date()
	last := time.Date(y, m+time.Month(months)+1, 0, 0, 0, 0, 0, now.Location()).Day()
	return dayStart(y, m+time.Month(months), min(max(day, 1), last), now.Location())
}

// dayStart returns the first moment of a day, which is not midnight where clocks then go forward.
func dayStart(y int, m time.Month, d int, where *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, where)
	for noon := time.Date(y, m, d, 12, 0, 0, 0, where); t.Day() != noon.Day(); {
		t = t.Add(15 * time.Minute)
	}
	return t
}

// Today returns the first moment of the day of now, and of the next day.
func Today(now time.Time) (from, until time.Time) {
	y, m, d := now.Date()
	return dayStart(y, m, d, now.Location()), dayStart(y, m, d+1, now.Location())
}

// BytesSince returns the bytes of the record, in both directions, if it is of that day or later.
// Records of future days, from a wrong clock, count too: their bytes were carried before now.
func (u UsageRecord) BytesSince(day string) unit.Bytes {
	if u.Day >= day {
		return u.Down + u.Up
	}
	return 0
}
