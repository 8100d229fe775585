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

// Caps bound what a link may carry by the Internet, or one device for another, both
// directions together. 0 is no cap.
type Caps struct {
	// Daily and Monthly are what it may carry in a day and in a month, like "2GB".
	Daily   Volume `toml:"daily_cap"`
	Monthly Volume `toml:"monthly_cap"`
	// ResetDay is when a month begins, 1 to 31; 0 is 1.
	ResetDay int `toml:"reset_day"`
	// WarnAt is the share of a cap at which it is warned of; 0 is 80 %.
	WarnAt Share `toml:"warn_at"`
	// StopAt is the share at which the link is stopped, above WarnAt; 0 is 99.5 %.
	StopAt Share `toml:"stop_at"`
}

// HasCap reports whether there is a cap.
func (c Caps) HasCap() bool { return c.Daily > 0 || c.Monthly > 0 }

// checkValues reports what cannot be, and under which key.
func (c Caps) checkValues() (key string, err error) {
	switch {
	case c.ResetDay < 0 || c.ResetDay > 31:
		return "reset_day", fmt.Errorf("its reset_day is %d; days are 1 to 31", c.ResetDay)
	case c.ResetDay != 0 && c.Monthly == 0:
		return "reset_day", errors.New("its reset_day is of a monthly cap, and there is none: set monthly_cap")
	case c.WarnAt != 0 && !c.HasCap():
		return "warn_at", errors.New("its warn_at is of a cap, and there is none: set daily_cap or monthly_cap")
	case c.StopAt != 0 && !c.HasCap():
		return "stop_at", errors.New("its stop_at is of a cap, and there is none: set daily_cap or monthly_cap")
	}
	if warn, stop := c.Thresholds(); warn >= stop {
		key = "stop_at"
		if c.StopAt == 0 {
			key = "warn_at"
		}
		return key, fmt.Errorf("it would be warned of at %v of a cap, and is stopped at %v: set warn_at below stop_at", warn, stop)
	}
	return "", nil
}

// Thresholds are WarnAt and StopAt, or what holds where they are left out.
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

// Period is the period of accounting that a time is in.
func (c Caps) Period(now time.Time) (from, until time.Time) { return Month(now, max(c.ResetDay, 1)) }

// Volume is a size as providers write it: MB and GB are 10^6 and 10^9 bytes.
type Volume unit.Bytes

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Volume) UnmarshalText(t []byte) error {
	text := strings.TrimSpace(string(t))
	digits := strings.TrimRight(text, "kKMGTBi ")
	scale := map[string]float64{"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[strings.TrimSpace(text[len(digits):])]
	n, err := strconv.ParseFloat(digits, 64)
	if bytes := n * scale; err != nil || scale == 0 || !(bytes >= minCap && bytes <= math.MaxInt64/4) {
		return fmt.Errorf("%q is no size such as \"500MB\" or \"10GB\" (10^9 bytes), of at least 1 MB", t)
	}
	*v = Volume(n * scale)
	return nil
}

// minCap is the least that can be kept to within 1 %.
const minCap = 1e6

func (v Volume) String() string { return unit.Bytes(v).Decimal() }

// Share is a part of a whole, written like "80%".
type Share float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Share) UnmarshalText(t []byte) error {
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(string(t), "%")), 64)
	if err != nil || !strings.HasSuffix(string(t), "%") || !(n >= 1 && n <= 100) {
		return fmt.Errorf("%q is no share from \"1%%\" to \"100%%\"", t)
	}
	*s = Share(n / 100)
	return nil
}

// Percent is a share of 100.
func (s Share) Percent() float64 { return math.Round(float64(s)*1e6) / 1e4 }

func (s Share) String() string { return strconv.FormatFloat(s.Percent(), 'f', -1, 64) + " %" }

// CapLevel is how far a link is from its caps.
type CapLevel uint8

// Levels.
const (
	CapFree    CapLevel = iota // there is none
	CapFine                    // less than WarnAt is used
	CapWarned                  // more is
	CapReached                 // it may carry nothing more
)

func (l CapLevel) String() string {
	return [...]string{"none", "fine", "warned", "reached"}[min(l, CapReached)]
}

// Tuning.
const (
	// defaultWarnAt is WarnAt where nothing is said.
	defaultWarnAt = 0.8
	// defaultStopAt is StopAt where nothing is said: what is on its way then still
	// comes.
	defaultStopAt = 0.995
)

// Allowance is what a link may still carry, by the cap that is nearest or, of
// those that are reached, lasts longest.
type Allowance struct {
	Level     CapLevel
	Period    string     // "daily" or "monthly": which cap
	Cap       Volume     // that
	Used      unit.Bytes // of it
	Room      unit.Bytes // until the link is stopped, by whichever cap comes first; 0 once it is
	Until     time.Time  // the period ends
	StopBytes unit.Bytes // the link is stopped when so much of Cap is used
}

// Evaluate says what a link may still carry that has carried so much today and in
// this month.
func (c Caps) Evaluate(now time.Time, today, month unit.Bytes) Allowance {
	_, endOfDay := Today(now)
	_, endOfMonth := c.Period(now)
	warn, stop := c.Thresholds()
	a := Allowance{}
	for _, k := range []Allowance{{Period: "daily", Cap: c.Daily, Used: today, Until: endOfDay}, {Period: "monthly", Cap: c.Monthly, Used: month, Until: endOfMonth}} {
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
		if k.Level > a.Level || k.Level == a.Level && (k.Level == CapReached && k.Until.After(a.Until) || k.Level < CapReached && k.Room < a.Room) {
			a = k
		}
		a.Room = room
	}
	return a
}

// Stricter is the one of two that says less.
func Stricter(a, b Allowance) Allowance {
	if b.Level > a.Level || b.Level == a.Level && b.Level != CapFree && b.Room < a.Room {
		return b
	}
	return a
}

func (a Allowance) String() string {
	if a.Level == CapFree {
		return "it has no cap"
	}
	until := a.Until.Format("2006-01-02 15:04")
	switch {
	case a.Level != CapReached:
		return fmt.Sprintf("%v of the %s cap of %v are used, until %s", Volume(a.Used), a.Period, a.Cap, until)
	case float64(a.StopBytes) < defaultStopAt*float64(a.Cap)-1:
		return fmt.Sprintf("%v of the %s cap of %v are used, and it stops at %v, until %s", Volume(a.Used), a.Period, a.Cap, Volume(a.StopBytes), until)
	}
	return fmt.Sprintf("the %s cap of %v is used up, until %s", a.Period, a.Cap, until)
}

// How a cap is kept to. A link is looked at so often that little of what is left
// is carried between two looks, whatever begins meanwhile; and so much at most is
// let be on its way as is a part of what is left.
const (
	maxCheckInterval  = time.Second           // where nothing is carried, or much is left
	minCheckInterval  = 5 * time.Millisecond  // while something is carried
	idleCheckInterval = 20 * time.Millisecond // the least while nothing is
	// checkDivisor of what is left is carried at most between two looks.
	checkDivisor = 8
	// suddenRate is how quickly a link may begin to carry something: 200 Mbit/s.
	suddenRate = 200 * unit.Mbps
	// windowThreshold is what is left when less is let be on its way; before it TCP's
	// own windows are smaller than that.
	windowThreshold = 64 * unit.MB
	windowDivisor   = 4
	minWindow       = 4 * unit.KB
)

// Enforcement says how to keep to the cap of a link that carries so much now: how soon
// to look again, and how much its connections may have on its way to here, all
// together; 0 is as much as they like.
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
