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
	maxUnknown  = 8 // of them, callers whose key is not trusted
	// refusalLifetime is how long a refusal is listed after it came last: longer than
	// any wait between two attempts.
	refusalLifetime = 15 * time.Minute
	// maxLogged is how many lines about strangers are logged in a minute.
	maxLogged = 6
)

// LogAgain is how often a trouble that goes on is logged.
const LogAgain = time.Hour

// Record says that a device was refused, here or there, for the same reason since
// a time.
type Record struct {
	Key     string // of who is at the other end: what it is listed by
	Device  string // its name, "" for a stranger
	Address string // that it called from, or was called at
	// Here reports whether this device refused the other one; else it was refused.
	Here        bool
	Reason      string
	Hint        string // what to do, where Reason does not say it
	Since, Last time.Time
	Count       int

	logged time.Time
}

// List holds the refusals that go on. The zero value is empty. Safe for concurrent
// use; a nil List holds nothing.
type List struct {
	mu     sync.Mutex
	all    []Record
	minute time.Time // when lines were last counted from
	lines  int
}

// Note takes a refusal of now into the list, and reports whether it is worth a
// line in the log: it is new, has another reason, or went on for an hour.
func (l *List) Note(r Record, now time.Time) (log bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropOld(now)
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

// countLogLine counts a line about a stranger. mu must be held.
func (l *List) countLogLine(now time.Time) bool {
	if now.Sub(l.minute) >= time.Minute {
		l.minute, l.lines = now, 0
	}
	l.lines++
	return l.lines <= maxLogged
}

// dropOld drops what did not come again. mu must be held.
func (l *List) dropOld(now time.Time) {
	l.all = slices.DeleteFunc(l.all, func(r Record) bool { return now.Sub(r.Last) > refusalLifetime })
}

// makeRoom drops the refusal that came longest ago if there is no room for another
// one: a stranger's, unless only trusted devices are left. It reports whether there is
// room: a stranger takes none from a trusted device. mu must be held.
func (l *List) makeRoom(unknown bool) bool {
	oldest, unknownCount := -1, 0
	for i, r := range l.all {
		if r.Device == "" {
			unknownCount++
		}
		if oldest < 0 || (r.Device == "") != (l.all[oldest].Device == "") && r.Device == "" || (r.Device == "") == (l.all[oldest].Device == "") && r.Last.Before(l.all[oldest].Last) {
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

// Forget drops the refusal of a device here, or by it: the two came together.
func (l *List) Forget(key string, here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(r Record) bool { return r.Key == key && r.Here == here })
}

// Refusals returns what goes on now, the newest last, by name.
func (l *List) Refusals(now time.Time) []Record {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dropOld(now)
	list := slices.Clone(l.all)
	slices.SortStableFunc(list, func(a, b Record) int { return strings.Compare(a.Device, b.Device) })
	return list
}
