// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// Unlimited is the rate of a line that does not shape. (With a rate of zero nothing passes, and the
// queue stays.)
const Unlimited = unit.Rate(math.MaxInt64)

// maxOthers bounds Setting.Others: more users than a cell schedules at once. The value is our
// choice.
const maxOthers = 1000

// GrantBytes is what one line of a mahimahi trace lets pass. Source: mahimahi's mm-link manual,
// "each line is one MTU-sized (1500 byte) packet delivery opportunity".
const GrantBytes unit.Bytes = 1500

// Setting is the behavior of a line at one moment.
type Setting struct {
	Rate   unit.Rate     // of IP bytes; Unlimited, or 0 to hold the queue
	Delay  time.Duration // one way, after the last bit has left the queue
	Jitter time.Duration // maximum extra delay of a packet, uniformly distributed
	Loss   float64       // share of packets lost after the queue, 0 to 1
	// Reorder is the share of packets, 0 to 1, that overtake up to reorderBy packets in flight.
	Reorder float64
	Queue   unit.Bytes // drop-tail limit, including the packet being sent
	Outage  bool       // black hole: all packets are lost silently
	Others  int        // only of a cell: users besides its lines
}

// Change changes some fields of a Setting at a time. Nil fields keep their value.
type Change struct {
	At      time.Duration
	Rate    *unit.Rate
	Delay   *time.Duration
	Jitter  *time.Duration
	Loss    *float64
	Reorder *float64
	Queue   *unit.Bytes
	Outage  *bool
	Others  *int
}

// Apply returns s with the change.
func (c Change) Apply(s Setting) Setting {
	setIfGiven(&s.Rate, c.Rate)
	setIfGiven(&s.Delay, c.Delay)
	setIfGiven(&s.Jitter, c.Jitter)
	setIfGiven(&s.Loss, c.Loss)
	setIfGiven(&s.Reorder, c.Reorder)
	setIfGiven(&s.Queue, c.Queue)
	setIfGiven(&s.Outage, c.Outage)
	setIfGiven(&s.Others, c.Others)
	return s
}

// setIfGiven assigns *v unless v is nil.
func setIfGiven[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// Set parses one property into the change. key is rate, delay, jitter, loss, reorder, queue or
// outage, or others of a cell.
func (c *Change) Set(key, value string) error {
	value = strings.TrimSpace(value)
	switch strings.TrimSpace(key) {
	case "rate":
		r := Unlimited
		if value != "unlimited" {
			var err error
			if r, err = unit.ParseRate(value); err != nil {
				return err
			}
		}
		c.Rate = &r
	case "delay":
		return setDuration(&c.Delay, key, value)
	case "jitter":
		return setDuration(&c.Jitter, key, value)
	case "loss":
		return setPacketShare(&c.Loss, key, value)
	case "reorder":
		return setPacketShare(&c.Reorder, key, value)
	case "queue":
		v, err := unit.ParseBytes(value)
		if err != nil {
			return err
		}
		c.Queue = &v
	case "outage":
		v := value == "on" || value == "true"
		if !v && value != "off" && value != "false" {
			return fmt.Errorf("outage %q: write on or off", value)
		}
		c.Outage = &v
	case "others":
		v, err := strconv.Atoi(value)
		if err != nil || v < 0 || v > maxOthers {
			return fmt.Errorf("others %q: write a number up to %d", value, maxOthers)
		}
		c.Others = &v
	default:
		return fmt.Errorf("unknown property %q (rate, delay, jitter, loss, reorder, queue, outage; others of a cell)", key)
	}
	return nil
}

// setDuration parses the duration of a property into dst.
func setDuration(dst **time.Duration, key, value string) error {
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return fmt.Errorf("%s %q: write it like 25ms", key, value)
	}
	*dst = &d
	return nil
}

// setPacketShare parses the share of a property into dst.
func setPacketShare(dst **float64, key, value string) error {
	v, err := parseShare(value)
	if err != nil {
		return fmt.Errorf("%s %w", key, err)
	}
	*dst = &v
	return nil
}

// parseShare parses a share of packets, "0.01" or "1%".
func parseShare(s string) (float64, error) {
	num, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(num, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("%q: write a share from 0 to 1, or 1%%", s)
	}
	return v, nil
}

// ParseChange parses "at 2s: rate 1Mbit/s, delay 40ms". A "=" may follow the name of a property
// instead of the space.
func ParseChange(s string) (Change, error) {
	at, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s), "at "), ":")
	d, err := time.ParseDuration(strings.TrimSpace(at))
	if !ok || err != nil || d < 0 {
		return Change{}, fmt.Errorf("change %q: write it like \"at 2s: rate 1Mbit/s\"", s)
	}
	c := Change{At: d}
	for _, part := range strings.Split(rest, ",") {
		part = strings.TrimSpace(part)
		i := strings.IndexAny(part, " =")
		if i < 0 {
			return Change{}, fmt.Errorf("change %q: %q has no value (write it like \"at 2s: rate 1Mbit/s\")", s, part)
		}
		if err := c.Set(part[:i], strings.TrimLeft(part[i:], " =")); err != nil {
			return Change{}, fmt.Errorf("change %q: %w", s, err)
		}
	}
	return c, nil
}

// Track is a list of changes in order of time. With a Loop above zero it repeats after that time.
type Track struct {
	Changes []Change
	Loop    time.Duration
}

// HasOutage reports whether a track has a black hole.
func (p Program) HasOutage() bool {
	return slices.ContainsFunc(p.Tracks, func(t Track) bool {
		return slices.ContainsFunc(t.Changes, func(c Change) bool { return c.Outage != nil && *c.Outage })
	})
}

// Outage returns the track of one black hole.
func Outage(from, length time.Duration) Track {
	on, off := true, false
	return Track{Changes: []Change{{At: from, Outage: &on}, {At: from + length, Outage: &off}}}
}

// Program is the behavior of a line over time. Times of tracks and grants count from the line's
// time zero (Line.Start). Before it, Base applies, except that grants run from time 0 of the line's
// clock.
type Program struct {
	Base   Setting
	Tracks []Track
	// Grants, if any, replace the rate. At each of these times GrantBytes may leave the queue. They
	// ascend, are less than GrantLoop, and repeat every GrantLoop.
	Grants    []time.Duration
	GrantLoop time.Duration
}

// Check returns an error if the program does not suit a line.
func (p Program) Check() error {
	for _, t := range p.Tracks {
		if slices.ContainsFunc(t.Changes, func(c Change) bool { return c.Others != nil }) {
			return fmt.Errorf("others: only a cell has other users")
		}
	}
	return p.checkTimes()
}

// checkTimes returns an error if times are not in order or exceed a loop.
func (p Program) checkTimes() error {
	for _, t := range p.Tracks {
		if !slices.IsSortedFunc(t.Changes, func(a, b Change) int { return int(a.At - b.At) }) {
			return fmt.Errorf("changes must be in order of time")
		}
		if n := len(t.Changes); t.Loop > 0 && n > 0 && t.Changes[n-1].At >= t.Loop {
			return fmt.Errorf("change at %v is after its loop of %v", t.Changes[n-1].At, t.Loop)
		}
	}
	if n := len(p.Grants); n > 0 && p.Grants[n-1] >= p.GrantLoop {
		return fmt.Errorf("a trace must be longer than the time of its last grant")
	}
	return nil
}

const never = time.Duration(math.MaxInt64)

// programPlayer plays a program. Times are relative to its zero.
type programPlayer struct {
	program    *Program
	setting    Setting
	nextChange []int           // by track: index of its next change
	loopStart  []time.Duration // by track: when its current loop began
	playing    bool
}

// newProgramPlayer returns a stopped player.
func newProgramPlayer(p *Program) programPlayer {
	return programPlayer{
		program:    p,
		setting:    p.Base,
		nextChange: make([]int, len(p.Tracks)),
		loopStart:  make([]time.Duration, len(p.Tracks)),
	}
}

// peekChange returns the time and track of the next change. Without one the time is never and the
// track -1.
func (pl *programPlayer) peekChange() (time.Duration, int) {
	at, track := never, -1
	if !pl.playing {
		return at, track
	}
	for i, t := range pl.program.Tracks {
		if n := pl.nextChange[i]; n < len(t.Changes) && pl.loopStart[i]+t.Changes[n].At < at {
			at, track = pl.loopStart[i]+t.Changes[n].At, i
		}
	}
	return at, track
}

// applyNextChange makes the next change of a track.
func (pl *programPlayer) applyNextChange(track int) {
	t := pl.program.Tracks[track]
	pl.setting = t.Changes[pl.nextChange[track]].Apply(pl.setting)
	if pl.nextChange[track]++; pl.nextChange[track] == len(t.Changes) && t.Loop > 0 {
		pl.nextChange[track], pl.loopStart[track] = 0, pl.loopStart[track]+t.Loop
	}
}

// grantAfter returns the time of the first grants at or after t.
func (p *Program) grantAfter(t time.Duration) time.Duration {
	if t < 0 {
		t = 0
	}
	turn := t / p.GrantLoop * p.GrantLoop
	i, _ := slices.BinarySearch(p.Grants, t-turn)
	if i == len(p.Grants) {
		i, turn = 0, turn+p.GrantLoop
	}
	return turn + p.Grants[i]
}

// countGrantsAt returns the number of grants at time t, which must be from grantAfter.
func (p *Program) countGrantsAt(t time.Duration) (n int) {
	i, _ := slices.BinarySearch(p.Grants, t%p.GrantLoop)
	for ; i < len(p.Grants) && p.Grants[i] == t%p.GrantLoop; i++ {
		n++
	}
	return n
}

// Capacity adds up the bytes that a program allows, for bounds.
type Capacity struct {
	player     programPlayer
	doneUntil  time.Duration
	total      float64
	grantIndex int // grants counted so far
	lines      int // lines of a cell that share its rate with others; 0: a line's program
}

// NewCapacity starts at the program's time zero.
func NewCapacity(p *Program) *Capacity {
	c := &Capacity{player: newProgramPlayer(p)}
	c.player.playing = true
	return c
}

// BytesUntil returns how many bytes can be delivered by t after time zero, without queue limit and
// delay. t must not decrease from call to call.
func (c *Capacity) BytesUntil(t time.Duration) float64 {
	for {
		at, track := c.player.peekChange()
		if at > t {
			break
		}
		c.addBytesUntil(at)
		c.player.applyNextChange(track)
	}
	c.addBytesUntil(t)
	return c.total
}

// addBytesUntil adds the bytes of the current setting up to t.
func (c *Capacity) addBytesUntil(t time.Duration) {
	s, p := c.player.setting, c.player.program
	share := 1 - s.Loss
	if s.Outage {
		share = 0
	}
	if len(p.Grants) > 0 {
		for ; c.nextGrantTime() < t; c.grantIndex++ {
			c.total += share * float64(GrantBytes)
		}
	} else if t > c.doneUntil {
		c.total += share * c.rateForLines(s.Rate) / 8 * (t - c.doneUntil).Seconds()
	}
	c.doneUntil = max(c.doneUntil, t)
}

// nextGrantTime returns the time of the next grant to count.
func (c *Capacity) nextGrantTime() time.Duration {
	p := c.player.program
	n := len(p.Grants)
	return time.Duration(c.grantIndex/n)*p.GrantLoop + p.Grants[c.grantIndex%n]
}
