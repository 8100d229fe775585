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

// Any reports whether there is a cap.
func (c Caps) Any() bool { return c.Daily > 0 || c.Monthly > 0 }

// check reports what cannot be, and under which key.
func (c Caps) check() (key string, err error) {
	switch {
	case c.ResetDay < 0 || c.ResetDay > 31:
		return "reset_day", fmt.Errorf("its reset_day is %d; days are 1 to 31", c.ResetDay)
	case c.ResetDay != 0 && c.Monthly == 0:
		return "reset_day", errors.New("its reset_day is of a monthly cap, and there is none: set monthly_cap")
	case c.WarnAt != 0 && !c.Any():
		return "warn_at", errors.New("its warn_at is of a cap, and there is none: set daily_cap or monthly_cap")
	case c.StopAt != 0 && !c.Any():
		return "stop_at", errors.New("its stop_at is of a cap, and there is none: set daily_cap or monthly_cap")
	}
	if warn, stop := c.Levels(); warn >= stop {
		key = "stop_at"
		if c.StopAt == 0 {
			key = "warn_at"
		}
		return key, fmt.Errorf("it would be warned of at %v of a cap, and is stopped at %v: set warn_at below stop_at", warn, stop)
	}
	return "", nil
}

// Levels are WarnAt and StopAt, or what holds where they are left out.
func (c Caps) Levels() (warn, stop Share) {
	warn, stop = usualWarning, usualStop
	if c.WarnAt != 0 {
		warn = c.WarnAt
	}
	if c.StopAt != 0 {
		stop = c.StopAt
	}
	return warn, stop
}

// Month is the period of accounting that a time is in.
func (c Caps) Month(now time.Time) (from, until time.Time) { return Month(now, max(c.ResetDay, 1)) }

// Volume is a size as providers write it: MB and GB are 10^6 and 10^9 bytes.
type Volume unit.Bytes

// UnmarshalText implements encoding.TextUnmarshaler.
func (v *Volume) UnmarshalText(t []byte) error {
	text := strings.TrimSpace(string(t))
	digits := strings.TrimRight(text, "kKMGTBi ")
	scale := map[string]float64{"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[strings.TrimSpace(text[len(digits):])]
	n, err := strconv.ParseFloat(digits, 64)
	if bytes := n * scale; err != nil || scale == 0 || !(bytes >= leastCap && bytes <= math.MaxInt64/4) {
		return fmt.Errorf("%q is no size such as \"500MB\" or \"10GB\" (10^9 bytes), of at least 1 MB", t)
	}
	*v = Volume(n * scale)
	return nil
}

// leastCap is the least that can be kept to within 1 %.
const leastCap = 1e6

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
	// usualWarning is WarnAt where nothing is said.
	usualWarning = 0.8
	// usualStop is StopAt where nothing is said: what is on its way then still
	// comes.
	usualStop = 0.995
)

// Allowance is what a link may still carry, by the cap that is nearest or, of
// those that are reached, lasts longest.
type Allowance struct {
	Level  CapLevel
	Period string     // "daily" or "monthly": which cap
	Cap    Volume     // that
	Used   unit.Bytes // of it
	Room   unit.Bytes // until the link is stopped, by whichever cap comes first; 0 once it is
	Until  time.Time  // the period ends
	Stop   unit.Bytes // the link is stopped when so much of Cap is used
}

// Judge says what a link may still carry that has carried so much today and in
// this month.
func (c Caps) Judge(now time.Time, today, month unit.Bytes) Allowance {
	_, endOfDay := Today(now)
	_, endOfMonth := c.Month(now)
	warn, stop := c.Levels()
	a := Allowance{}
	for _, k := range []Allowance{{Period: "daily", Cap: c.Daily, Used: today, Until: endOfDay}, {Period: "monthly", Cap: c.Monthly, Used: month, Until: endOfMonth}} {
		if k.Cap <= 0 {
			continue
		}
		k.Stop = unit.Bytes(math.Round(float64(k.Cap) * float64(stop)))
		k.Room = max(k.Stop-k.Used, 0)
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

// Worse is the one of two that says less.
func Worse(a, b Allowance) Allowance {
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
	case float64(a.Stop) < usualStop*float64(a.Cap)-1:
		return fmt.Sprintf("%v of the %s cap of %v are used, and it stops at %v, until %s", Volume(a.Used), a.Period, a.Cap, Volume(a.Stop), until)
	}
	return fmt.Sprintf("the %s cap of %v is used up, until %s", a.Period, a.Cap, until)
}

// How a cap is kept to. A link is looked at so often that little of what is left
// is carried between two looks, whatever begins meanwhile; and so much at most is
// let be on its way as is a part of what is left.
const (
	lookRest  = time.Second           // where nothing is carried, or much is left
	lookLeast = 5 * time.Millisecond  // while something is carried
	lookIdle  = 20 * time.Millisecond // the least while nothing is
	// lookShare of what is left is carried at most between two looks.
	lookShare = 8
	// suddenly is how quickly a link may begin to carry something: 200 Mbit/s.
	suddenly = 200 * unit.Mbps
	// windowFrom is what is left when less is let be on its way; before it TCP's
	// own windows are smaller than that.
	windowFrom  = 64 * unit.MB
	windowShare = 4
	windowLeast = 4 * unit.KB
)

// Watch says how to keep to the cap of a link that carries so much now: how soon
// to look again, and how much its connections may have on its way to here, all
// together; 0 is as much as they like.
func (a Allowance) Watch(rate unit.Rate) (again time.Duration, window unit.Bytes) {
	if a.Level == CapFree || a.Level == CapReached {
		return lookRest, 0
	}
	again = max(suddenly.Time(a.Room/lookShare), lookIdle)
	if rate > 0 {
		again = min(again, max(rate.Time(a.Room/lookShare), lookLeast))
	}
	if a.Room < windowFrom {
		window = max(a.Room/windowShare, windowLeast)
	}
	return min(again, lookRest), window
}
