// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of a List.
const (
	maxRefusals = 32
	maxUnknown  = 8 // of these, from unknown keys
	// refusalLifetime is how long a refusal is listed after it last occurred. It exceeds any wait
	// between two attempts.
	refusalLifetime = 15 * time.Minute
	// maxLogged bounds the log lines about unknown devices in a minute.
	maxLogged = 6
)

// LogAgain is how often a lasting trouble is logged.
const LogAgain = time.Hour

// Record is a refusal of a device, by this device or by the other one, for one reason.
type Record struct {
	Key     string // identifies the other end in a List
	Device  string // its name, "" if unknown
	Address string // where it called from or was called
	// Here is set if this device refused the other one; otherwise the other device refused.
	Here        bool
	Reason      string
	Hint        string // what to do, unless Reason tells
	Since, Last time.Time
	Count       int

	logged time.Time
}

// List holds current refusals. The zero value is empty. Safe for concurrent use; a nil List holds
// nothing.
type List struct {
	mu     sync.Mutex
	all    []Record
	minute time.Time // start of the minute in which lines are counted
	lines  int
}

// Note adds a refusal that occurred now. It reports whether to log it: it is new, has another
// reason, or was last logged an hour ago.
func (l *List) Note(r Record, now time.Time) (log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropOldRefusals(now)
	i := slices.IndexFunc(l.all, func(o Record) bool { return o.Key == r.Key && o.Here == r.Here })
	if i < 0 {
		if !l.makeRoom(r.Device == "") {
			return l.countLogLine(now)
		}
		r.Since = now
		l.all = append(l.all, r)
		i = len(l.all) - 1
	}
	o := &l.all[i]
	if o.Reason != r.Reason {
		o.Since, o.Count, o.logged = now, 0, time.Time{}
	}
	o.Device, o.Address, o.Reason, o.Hint, o.Last = r.Device, r.Address, r.Reason, r.Hint, now
	o.Count++
	if now.Sub(o.logged) < LogAgain || r.Device == "" && !l.countLogLine(now) {
		return false
	}
	o.logged = now
	return true
}

// countLogLine counts a log line about an unknown device and reports whether it is within the
// limit. mu must be held.
func (l *List) countLogLine(now time.Time) bool {
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.lines = now, 0
	}
	l.lines++
	return l.lines <= maxLogged
}

// dropOldRefusals removes refusals that did not occur again. mu must be held.
func (l *List) dropOldRefusals(now time.Time) {
	l.all = slices.DeleteFunc(l.all, func(r Record) bool { return now.Sub(r.Last) > refusalLifetime })
}

// makeRoom reports whether there is room for one more refusal. If need be, it removes the oldest
// one of an unknown device or, without one, of a trusted device. Unknown devices never displace
// trusted ones. mu must be held.
func (l *List) makeRoom(unknown bool) bool {
	oldest, unknownCount := -1, 0
	for i, r := range l.all {
		if r.Device == "" {
			unknownCount++
		}
		if oldest < 0 || (r.Device == "") != (l.all[oldest].Device == "") && r.Device == "" ||
			(r.Device == "") == (l.all[oldest].Device == "") && r.Last.Before(l.all[oldest].Last) {
			oldest = i
		}
	}
	if unknown && unknownCount == 0 && len(l.all) >= maxRefusals {
		return false
	}
	if len(l.all) >= maxRefusals || unknown && unknownCount >= maxUnknown {
		l.all = slices.Delete(l.all, oldest, oldest+1)
	}
	return true
}

// Forget removes the refusal of a device by this one, if here is set, else of this device by it.
// Call it when the two have connected.
func (l *List) Forget(key string, here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(r Record) bool { return r.Key == key && r.Here == here })
}

// Refusals returns the current refusals, sorted by name and then by age, newest last.
func (l *List) Refusals(now time.Time) []Record {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropOldRefusals(now)
	list := slices.Clone(l.all)
	slices.SortStableFunc(list, func(a, b Record) int { return strings.Compare(a.Device, b.Device) })
	return list
}
