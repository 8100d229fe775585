package policy

import (
	"errors"
	"fmt"
	"time"

	"mpbond/base/unit"
)

// Purpose is what a connection is for, as far as its bytes are counted.
type Purpose string

// Purposes.
const (
	// ForDirect is a direct subflow at its primary, over an own link.
	ForDirect Purpose = "direct"
	// ForPath is the HS-path of a helped subflow at its helper.
	ForPath Purpose = "hs-path"
	// ForOnload is a connection that a helper makes for a primary which onloads.
	ForOnload Purpose = "onload"
	// ForSubflow is a subflow at the server, direct or helped.
	ForSubflow Purpose = "subflow"
	// ForPipe is a pipe, at both of its ends, or what an onloading primary and its
	// helper say to each other. It stays on the local network and
	// so costs nobody's allowance.
	ForPipe Purpose = "pipe"
)

// UsesInternet reports whether bytes of that purpose go by the Internet, so that
// they count against caps of links.
func (p Purpose) UsesInternet() bool { return p != ForPipe }

// CountsAs reports whether bytes of that purpose count where those of another do: what a
// helper carries for a primary is ForPath, and ForOnload too.
func (p Purpose) CountsAs(of Purpose) bool { return p == of || p == ForOnload && of == ForPath }

// UsageRecord is what one link carried on one day, for one purpose and one device, as
// bytes of IP packets: what was lost and sent again counts each time. It is a
// line of the file that keeps it.
type UsageRecord struct {
	Day     string     `json:"day"`  // YYYY-MM-DD, local time
	Link    string     `json:"link"` // name of the network interface
	Purpose Purpose    `json:"purpose"`
	Peer    string     `json:"peer,omitempty"` // ID of the device at the other end; "" if it did not tell
	Down    unit.Bytes `json:"down"`           // that came
	Up      unit.Bytes `json:"up"`             // that left
	// Joules are the link's radio's, as a Meter reckons: its own, and of what it
	// took while it carried for others too the share by bytes. 0 where no radio is
	// known.
	Joules unit.Joules `json:"joules,omitempty"`
}

// Validate tells what cannot be in a line of the file.
func (u UsageRecord) Validate() error {
	if _, err := time.Parse(time.DateOnly, u.Day); err != nil {
		return err
	}
	switch u.Purpose {
	case ForDirect, ForPath, ForOnload, ForSubflow, ForPipe:
	default:
		return fmt.Errorf("no purpose %q is known", u.Purpose)
	}
	if u.Down < 0 || u.Up < 0 || !(u.Joules >= 0) || u.Link == "" {
		return errors.New("it says what cannot be")
	}
	return nil
}

// firstDay is before the first day on which this can have run: an earlier clock
// has not been set.
const firstDay = "2026-01-01"

// DayOf is the day to count bytes for at a time, in its location. Last is the
// latest day for which there were any, "" if none: a device without a battery
// for its clock, which has not been set yet, counts for that one.
func DayOf(now time.Time, last string) string {
	if day := now.Format(time.DateOnly); day >= firstDay || last == "" {
		return day
	}
	return last
}

// CapTime is the time to judge caps at: now, or noon of the day that bytes are
// counted for while that is another one.
func CapTime(now time.Time, last string) time.Time {
	day := DayOf(now, last)
	noon, err := time.ParseInLocation(time.DateOnly+" 15", day+" 12", now.Location())
	if err != nil || day == now.Format(time.DateOnly) {
		return now
	}
	return noon
}

// Month is the period of accounting that a time is in, in its location: from a
// reset day, 1 to 31, to the next one. Where a month is shorter the period begins
// on its last day. Until is the first moment of the next period.
func Month(now time.Time, resetDay int) (from, until time.Time) {
	if from = resetDate(now, 0, resetDay); from.After(now) {
		return resetDate(now, -1, resetDay), from
	}
	return from, resetDate(now, 1, resetDay)
}

// resetDate is the beginning of the reset day, some months after that of now.
func resetDate(now time.Time, months, day int) time.Time {
	y, m, _ := now.Date()
	last := time.Date(y, m+time.Month(months)+1, 0, 0, 0, 0, 0, now.Location()).Day()
	return dayStart(y, m+time.Month(months), min(max(day, 1), last), now.Location())
}

// dayStart is the first moment of a day, which is not midnight where clocks go
// forward then.
func dayStart(y int, m time.Month, d int, where *time.Location) time.Time {
	t := time.Date(y, m, d, 0, 0, 0, 0, where)
	for noon := time.Date(y, m, d, 12, 0, 0, 0, where); t.Day() != noon.Day(); {
		t = t.Add(15 * time.Minute)
	}
	return t
}

// Today is the day that a time is in, and the first moment of the next one.
func Today(now time.Time) (from, until time.Time) {
	y, m, d := now.Date()
	return dayStart(y, m, d, now.Location()), dayStart(y, m, d+1, now.Location())
}

// BytesSince is what of it was carried from a day on, both ways.
// What was counted for later days than today, by a clock that was wrong, counts:
// it was carried, and before now.
func (u UsageRecord) BytesSince(day string) unit.Bytes {
	if u.Day >= day {
		return u.Down + u.Up
	}
	return 0
}
