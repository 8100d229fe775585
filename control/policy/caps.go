// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// Caps bound the bytes, in both directions together, that a link may carry over the Internet, or
// that one device may carry for another. 0 means no cap.
type Caps struct {
	// Daily and Monthly are the most bytes of a day and of a month, like "2GB".
	Daily   Volume `toml:"daily_cap"`
	Monthly Volume `toml:"monthly_cap"`
	// ResetDay is the day on which a month begins, 1 to 31; 0 means 1.
	ResetDay int `toml:"reset_day"`
	// WarnAt is the share of a cap that causes a warning; 0 means 80 %.
	WarnAt Share `toml:"warn_at"`
	// StopAt is the share of a cap that stops the link, above WarnAt; 0 means 99.5 %.
	StopAt Share `toml:"stop_at"`
}

// HasCap reports whether a cap is set.
func (c Caps) HasCap() bool { return c.Daily > 0 || c.Monthly > 0 }

// checkValues returns the first invalid key and what is wrong with it.
func (c Caps) checkValues() (key string, err error) {
	switch {
	case c.ResetDay < 0 || c.ResetDay > 31:
		return "reset_day", fmt.Errorf("reset_day is %d: use 1 to 31", c.ResetDay)
	case c.ResetDay != 0 && c.Monthly == 0:
		return "reset_day", errors.New("reset_day needs a monthly cap: set monthly_cap")
	case c.WarnAt != 0 && !c.HasCap():
		return "warn_at", errors.New("warn_at needs a cap: set daily_cap or monthly_cap")
	case c.StopAt != 0 && !c.HasCap():
		return "stop_at", errors.New("stop_at needs a cap: set daily_cap or monthly_cap")
	}
	if warn, stop := c.Thresholds(); warn >= stop {
		key = "stop_at"
		if c.StopAt == 0 {
			key = "warn_at"
		}
		return key, fmt.Errorf("warn_at is %v and stop_at is %v: set warn_at below stop_at",
			warn, stop)
	}
	return "", nil
}

// Thresholds returns WarnAt and StopAt, or their defaults.
func (c Caps) Thresholds() (warn, stop Share) {
	warn, stop = defaultWarnAt, defaultStopAt
	if c.WarnAt != 0 {
		warn = c.WarnAt
	}
	if c.StopAt != 0 {
		stop = c.StopAt
	}
	return warn, stop
}

// Period returns the accounting period that contains now.
func (c Caps) Period(now time.Time) (from, until time.Time) { return Month(now, max(c.ResetDay, 1)) }

// Volume is a number of bytes in units as providers use them: MB and GB are 10^6 and 10^9 bytes.
type Volume unit.Bytes

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Volume) UnmarshalText(t []byte) error {
	text := strings.TrimSpace(string(t))
	digits := strings.TrimRight(text, "kKMGTBi ")
	scale := map[string]float64{"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 1 << 20, "GiB": 1 << 30,
		"TiB": 1 << 40}[strings.TrimSpace(text[len(digits):])]
	n, err := strconv.ParseFloat(digits, 64)
	if bytes := n * scale; err != nil || scale == 0 || !(bytes >= minCap && bytes <= math.MaxInt64/4) {
		return fmt.Errorf("%q is not a size: use at least 1 MB, like \"500MB\" or \"10GB\" (10^9 bytes)", t)
	}
	*v = Volume(n * scale)
	return nil
}

// minCap is the smallest cap that can be enforced to within 1 %.
const minCap = 1e6

func (v Volume) String() string { return unit.Bytes(v).Decimal() }

// Share is a part of a whole, written like "80%".
type Share float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Share) UnmarshalText(t []byte) error {
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(string(t), "%")), 64)
	if err != nil || !strings.HasSuffix(string(t), "%") || !(n >= 1 && n <= 100) {
		return fmt.Errorf("%q is not a share: use \"1%%\" to \"100%%\"", t)
	}
	*s = Share(n / 100)
	return nil
}

// Percent returns the share in percent.
func (s Share) Percent() float64 { return math.Round(float64(s)*1e6) / 1e4 }

func (s Share) String() string { return strconv.FormatFloat(s.Percent(), 'f', -1, 64) + " %" }

// CapLevel says how close a link is to its caps.
type CapLevel uint8

// Levels.
const (
	CapFree    CapLevel = iota // no cap
	CapFine                    // less than WarnAt is used
	CapWarned                  // WarnAt or more is used
	CapReached                 // it may carry nothing more
)

func (l CapLevel) String() string {
	return [...]string{"none", "fine", "warned", "reached"}[min(l, CapReached)]
}

// Default thresholds.
const (
	// defaultWarnAt replaces a missing WarnAt.
	defaultWarnAt = 0.8
	// defaultStopAt replaces a missing StopAt. It leaves room for bytes in flight.
	defaultStopAt = 0.995
)

// Allowance is how much a link may still carry under its nearest cap. Of several reached caps the
// one that lasts longest counts.
type Allowance struct {
	Level     CapLevel
	Period    string     // "daily" or "monthly"
	Cap       Volume     // the cap of that period
	Used      unit.Bytes // bytes used of it
	Room      unit.Bytes // bytes left until any cap stops the link; 0 once it is stopped
	Until     time.Time  // end of the period
	StopBytes unit.Bytes // use of Cap at which the link is stopped
}

// Evaluate returns the allowance of a link that has carried the given bytes today and this month.
func (c Caps) Evaluate(now time.Time, today, month unit.Bytes) Allowance {
	_, endOfDay := Today(now)
	_, endOfMonth := c.Period(now)
	warn, stop := c.Thresholds()
	a := Allowance{}
	for _, k := range []Allowance{{Period: "daily", Cap: c.Daily, Used: today, Until: endOfDay},
		{Period: "monthly", Cap: c.Monthly, Used: month, Until: endOfMonth}} {
		if k.Cap <= 0 {
			continue
		}
		k.StopBytes = unit.Bytes(math.Round(float64(k.Cap) * float64(stop)))
		k.Room = max(k.StopBytes-k.Used, 0)
		switch {
		case k.Room == 0:
			k.Level = CapReached
		case float64(k.Used) >= float64(warn)*float64(k.Cap):
			k.Level = CapWarned
		default:
			k.Level = CapFine
		}
		room := k.Room
		if a.Level != CapFree {
			room = min(room, a.Room)
		}
		if k.Level > a.Level || k.Level == a.Level && (k.Level == CapReached && k.Until.After(a.Until) ||
			k.Level < CapReached && k.Room < a.Room) {
			a = k
		}
		a.Room = room
	}
	return a
}

// Stricter returns the allowance that permits less.
func Stricter(a, b Allowance) Allowance {
	if b.Level > a.Level || b.Level == a.Level && b.Level != CapFree && b.Room < a.Room {
		return b
	}
	return a
}

func (a Allowance) String() string {
	if a.Level == CapFree {
		return "no cap"
	}
	until := a.Until.Format("2006-01-02 15:04")
	switch {
	case a.Level != CapReached:
		return fmt.Sprintf("%v of the %s cap of %v used, until %s", Volume(a.Used), a.Period, a.Cap, until)
	case float64(a.StopBytes) < defaultStopAt*float64(a.Cap)-1:
		return fmt.Sprintf("%v of the %s cap of %v used, stops at %v, until %s", Volume(a.Used), a.Period, a.Cap,
			Volume(a.StopBytes), until)
	}
	return fmt.Sprintf("the %s cap of %v is used up, until %s", a.Period, a.Cap, until)
}

// Enforcement of caps. A link is checked often enough that between two checks it carries little of
// its room, even if a transfer starts meanwhile. Bytes in flight to this device are bounded to a
// part of the room.
const (
	maxCheckInterval  = time.Second           // idle, or much room
	minCheckInterval  = 5 * time.Millisecond  // while the link carries bytes
	idleCheckInterval = 20 * time.Millisecond // minimum while the link is idle
	// At most room/checkDivisor is carried between two checks.
	checkDivisor = 8
	// suddenRate is the rate at which an idle link may start to carry bytes.
	suddenRate = 200 * unit.Mbps
	// Receive windows are limited when less room than windowThreshold is left. Above it TCP's own
	// windows are smaller than the limit.
	windowThreshold = 64 * unit.MB
	windowDivisor   = 4
	minWindow       = 4 * unit.KB
	// On a busy machine a check may come maxLateness late. Until then at most half of the room is
	// carried.
	maxLateness = 100 * time.Millisecond
)

// Enforcement returns how to enforce the cap of a link that now carries rate: when to check again,
// and a bound on the bytes in flight to this device over all its connections; 0 means no bound.
func (a Allowance) Enforcement(rate unit.Rate) (again time.Duration, window unit.Bytes) {
	if a.Level == CapFree || a.Level == CapReached {
		return maxCheckInterval, 0
	}
	again = max(suddenRate.Time(a.Room/checkDivisor), idleCheckInterval)
	if rate > 0 {
		again = min(again, max(rate.Time(a.Room/checkDivisor), minCheckInterval))
	}
	if a.Room < windowThreshold {
		window = max(a.Room/windowDivisor, minWindow)
	}
	return min(again, maxCheckInterval), window
}

// ConnWindow returns the bound on the bytes in flight over one of several connections, of a bound
// from Enforcement for all of them. rtt is the round trip of the connection over empty queues; 0:
// unknown. In each round trip a connection carries what its window holds, so a short one gets less.
func (a Allowance) ConnWindow(window unit.Bytes, conns int, rtt time.Duration) unit.Bytes {
	if rtt > 0 {
		perLateness := unit.Bytes(float64(a.Room) / 2 * float64(rtt) / float64(maxLateness))
		window = min(window, max(perLateness, minWindow))
	}
	return max(window/unit.Bytes(conns), 1)
}
