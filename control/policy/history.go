// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Bounds of History.
const (
	maxDestinations = 2048 // up to an eighth more may wait to be dropped
	// maxRemembered is how many of the latest messages of a destination count. After eight messages
	// of a new habit the median is one of them.
	maxRemembered = 15
)

const (
	// errorWeight is the weight of the latest message in a mean error.
	errorWeight = 0.2
	// maxHistoryError is the greatest mean error, in powers of two, with which sizes are expected:
	// half or double the size.
	maxHistoryError = 1.0
	// firstGuess is the size that is expected of a message before its first byte, where no history
	// says more: about what a sender writes at once.
	firstGuess = 16 * unit.KB
)

// History stores the sizes of messages from and to destinations, so that a choice need not wait
// until a transfer has shown its size. See Messages for what a message is. A destination is an opaque
// name of an app, a host and a direction, which reveals none of these. The JSON is the format of the
// primary's file. The zero History is empty.
type History struct {
	List map[string]*Destination `json:"destinations,omitempty"`
}

// Destination holds the latest messages of one destination.
type Destination struct {
	Last  time.Time    `json:"last"`
	Sizes []unit.Bytes `json:"sizes"` // oldest first
	// OwnError and PlainError are mean errors, in powers of two, of what was expected of earlier
	// messages: from the history, and without it, as many bytes again as had been sent.
	OwnError   float64 `json:"own_error"`
	PlainError float64 `json:"plain_error"`
	// BurstBegin is when the latest burst of requests began, and BurstLength how many it has. Intervals
	// are the times from the beginning of a burst to that of the next one, oldest first.
	BurstBegin  time.Time       `json:"burst_begin,omitzero"`
	BurstLength int             `json:"burst_length,omitempty"`
	Intervals   []time.Duration `json:"intervals_ns,omitempty"`
}

// Lookup returns what is known of a destination, nil if nothing is.
func (h *History) Lookup(name string) *Destination { return h.List[name] }

// Record adds a message of a size.
func (h *History) Record(now time.Time, name string, size unit.Bytes) {
	if size <= 0 || name == "" || len(name) > maxName {
		return
	}
	if h.List == nil {
		h.List = map[string]*Destination{}
	}
	d := h.List[name]
	if d == nil {
		d = &Destination{}
		h.List[name] = d
	}
	d.Last = now.Round(0) // as read from a file: without a monotonic clock
	d.recordErrors(size)
	d.Sizes = append(d.Sizes, size)
	if n := len(d.Sizes); n > maxRemembered {
		d.Sizes = slices.Delete(d.Sizes, 0, n-maxRemembered)
	}
	if len(h.List) > maxDestinations+maxDestinations/8 { // dropping some at a time is cheaper
		h.Trim(now)
	}
}

// The rhythm of a destination. Players fetch a segment of media each few seconds, often with several
// requests: for a connection, for video and for sound.
const (
	// Messages that begin within joinTime of the first one of a burst belong to it, up to maxJoined of
	// them. A player that fills its buffer makes more.
	joinTime  = messageGap
	maxJoined = 3
	// Two intervals agree if they differ by a factor of at most maxIntervalRatio.
	maxIntervalRatio = 1.25
	// A rhythm is within these bounds: programs that fetch one thing after the other seldom pause for
	// longer than the first, and players do not buffer more than the second.
	minRhythm, maxRhythm = time.Second, time.Minute
	// rhythmLength is how many intervals in a row must once have agreed.
	rhythmLength = 3
)

// RecordBegin records that a request begins, by whose destination messages of a name are known. It
// reports whether it recorded anything: it does not if no message of the name has ended yet.
func (h *History) RecordBegin(now time.Time, name string) (recorded bool) {
	d := h.List[name]
	if d == nil {
		return false
	}
	now = now.Round(0)
	since := now.Sub(d.BurstBegin)
	switch {
	case d.BurstBegin.IsZero():
	case since < 0: // the clock was set back
		d.Intervals = nil
	case since < joinTime && d.BurstLength < maxJoined:
		d.BurstLength++
		return true
	default:
		d.Intervals = append(d.Intervals, since)
		if n := len(d.Intervals); n > maxRemembered {
			d.Intervals = slices.Delete(d.Intervals, 0, n-maxRemembered)
		}
	}
	d.BurstBegin, d.BurstLength = now, 1
	return true
}

// Rhythm returns the interval at which bursts begin, if they did so at regular intervals once and the
// latest interval agrees with these. Else it is 0.
func (d *Destination) Rhythm() time.Duration {
	if d == nil || len(d.Intervals) == 0 {
		return 0
	}
	last := d.Intervals[len(d.Intervals)-1]
	if last < minRhythm || last > maxRhythm {
		return 0
	}
	inRow := 0
	for _, x := range d.Intervals {
		if ratio := float64(x) / float64(last); ratio > maxIntervalRatio || ratio < 1/maxIntervalRatio {
			inRow = 0
		} else if inRow++; inRow == rhythmLength {
			return last
		}
	}
	return 0
}

// NeededAt returns when the app needs the message that has size bytes so far, if the destination has a
// rhythm and remembers messages that are as long. Else it is zero: as soon as possible.
func (d *Destination) NeededAt(size unit.Bytes) time.Time {
	rhythm := d.Rhythm()
	if rhythm == 0 || size > maxSizeRatio*slices.Max(d.Sizes) {
		return time.Time{}
	}
	return d.BurstBegin.Add(NeededIn(rhythm))
}

// maxSizeRatio is how much longer than all before a message may be and still follow the rhythm.
const maxSizeRatio = 2

// NeededIn returns within which time the app needs a message, if the next one begins an interval later.
// A player that has the bytes in a third of the interval has time for a slower one.
func NeededIn(interval time.Duration) time.Duration { return interval / 3 }

// recordErrors records how wrong both expectations would have been of a message of a size: before
// its first byte, and whenever it had doubled.
func (d *Destination) recordErrors(size unit.Bytes) {
	own, plain, n := 0.0, 0.0, 0.0
	for sent := unit.Bytes(0); sent < size; sent = max(2*sent, firstGuess) {
		guess := max(sent, firstGuess)
		left := size - sent
		p := powersApart(guess, left)
		plain += p
		if more, known := d.typicalBeyond(sent); known {
			own += powersApart(more, left)
		} else {
			own += p
		}
		n++
	}
	d.PlainError += errorWeight * (plain/n - d.PlainError)
	if len(d.Sizes) > 0 { // else nothing was expected
		d.OwnError += errorWeight * (own/n - d.OwnError)
	}
}

// powersApart returns how many powers of two are between two sizes.
func powersApart(a, b unit.Bytes) float64 {
	return math.Abs(math.Log2(float64(max(a, 1)) / float64(max(b, 1))))
}

// typicalBeyond returns the median of what messages longer than sent had left then. known is false
// if there were none.
func (d *Destination) typicalBeyond(sent unit.Bytes) (more unit.Bytes, known bool) {
	var room [maxRemembered]unit.Bytes
	longer := room[:0]
	for _, size := range d.Sizes {
		if size > sent {
			longer = append(longer, size)
		}
	}
	if len(longer) == 0 {
		return 0, false
	}
	slices.Sort(longer)
	return longer[len(longer)/2] - sent, true
}

// ExpectBeyond returns how many bytes are expected of a message after sent ones, if such
// expectations were right, and better than those without a history. Else ok is false.
func (d *Destination) ExpectBeyond(sent unit.Bytes) (more unit.Bytes, ok bool) {
	if d == nil || len(d.Sizes) < 2 || d.OwnError >= d.PlainError {
		return 0, false
	}
	// The mean began with 0, before the second message. This much of its weight is of messages.
	if seen := 1 - math.Pow(1-errorWeight, float64(len(d.Sizes)-1)); d.OwnError > seen*maxHistoryError {
		return 0, false
	}
	return d.typicalBeyond(sent)
}

// Clone returns a copy that shares nothing with the history.
func (h *History) Clone() History {
	c := History{List: make(map[string]*Destination, len(h.List))}
	for name, d := range h.List {
		other := *d
		other.Sizes, other.Intervals = slices.Clone(d.Sizes), slices.Clone(d.Intervals)
		c.List[name] = &other
	}
	return c
}

// Trim drops malformed destinations, and those unseen for longest beyond the bound. Call it after
// reading a file.
func (h *History) Trim(now time.Time) {
	now = now.Round(0)
	for name, d := range h.List {
		if d == nil || !d.isWellFormed() || len(name) > maxName {
			delete(h.List, name)
		} else if d.Last.After(now) { // the clock was ahead
			d.Last = now
		}
		if d := h.List[name]; d != nil && d.BurstBegin.After(now) {
			d.BurstBegin = now
		}
	}
	keepLatest(h.List, maxDestinations, func(d *Destination) time.Time { return d.Last })
}

// isWellFormed reports whether what was read from a file can be one of Record.
func (d *Destination) isWellFormed() bool {
	const most = 64 // powers of two
	return len(d.Sizes) > 0 && len(d.Sizes) <= maxRemembered && slices.Min(d.Sizes) > 0 &&
		len(d.Intervals) <= maxRemembered && (len(d.Intervals) == 0 || slices.Min(d.Intervals) >= 0) &&
		d.OwnError >= 0 && d.OwnError < most && d.PlainError >= 0 && d.PlainError < most
}
