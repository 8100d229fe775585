// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
)

func at(t *testing.T, text, zone string) time.Time {
	t.Helper()
	loc, err := time.LoadLocation(zone)
	if err != nil {
		t.Skip("no time zones here:", err)
	}
	when, err := time.ParseInLocation("2006-01-02 15:04:05", text, loc)
	if err != nil {
		t.Fatal(err)
	}
	return when
}

func TestMonth(t *testing.T) {
	for _, c := range []struct {
		now, zone   string
		reset       int
		from, until string
	}{
		{"2026-11-21 12:00:00", "UTC", 1, "2026-11-01", "2026-12-01"},
		{"2026-11-21 12:00:00", "UTC", 21, "2026-11-21", "2026-12-21"},
		{"2026-11-20 23:59:59", "UTC", 21, "2026-10-21", "2026-11-21"},
		{"2026-11-21 12:00:00", "UTC", 22, "2026-10-22", "2026-11-22"},
		{"2026-01-05 00:00:00", "UTC", 15, "2025-12-15", "2026-01-15"},
		{"2026-12-31 23:59:59", "UTC", 31, "2026-12-31", "2027-01-31"},
		// Months without the day: the period begins on their last one.
		{"2026-02-27 00:00:00", "UTC", 31, "2026-01-31", "2026-02-28"},
		{"2026-02-28 00:00:00", "UTC", 31, "2026-02-28", "2026-03-31"},
		{"2028-02-28 10:00:00", "UTC", 30, "2028-01-30", "2028-02-29"},
		{"2028-02-29 10:00:00", "UTC", 30, "2028-02-29", "2028-03-30"},
		{"2026-03-30 23:00:00", "UTC", 31, "2026-02-28", "2026-03-31"},
		{"2026-04-30 00:00:00", "UTC", 31, "2026-04-30", "2026-05-31"},
		// What is local counts, also around the changes of the clock.
		{"2026-03-29 00:30:00", "Europe/Berlin", 29, "2026-03-29", "2026-04-29"},
		{"2026-10-25 02:30:00", "Europe/Berlin", 25, "2026-10-25", "2026-11-25"},
		{"2026-09-06 01:30:00", "America/Santiago", 6, "2026-09-06", "2026-10-06"}, // there is no midnight
		// Nonsense is taken for the nearest sense.
		{"2026-11-21 12:00:00", "UTC", 0, "2026-11-01", "2026-12-01"},
		{"2026-11-21 12:00:00", "UTC", 99, "2026-10-31", "2026-11-30"},
	} {
		now := at(t, c.now, c.zone)
		from, until := Month(now, c.reset)
		if got, want := from.Format(time.DateOnly)+" "+until.Format(time.DateOnly), c.from+" "+c.until; got != want {
			t.Errorf("%s in %s, reset on %d: %s, want %s", c.now, c.zone, c.reset, got, want)
		}
	}
}

// TestMonthsFollow: whatever the reset day and the time, the period holds the
// time, and the next one begins where it ends.
func TestMonthsFollow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "Europe/Berlin", "America/Santiago", "Asia/Kathmandu", "Pacific/Apia"}
	for range 20_000 {
		now := at(t, "2026-01-01 00:00:00",
			zones[r.IntN(len(zones))]).Add(time.Duration(r.Int64N(int64(5 * 366 * 24 * time.Hour))))
		day := 1 + r.IntN(31)
		from, until := Month(now, day)
		if now.Before(from) || !now.Before(until) {
			t.Fatalf("%v, reset on %d: from %v until %v", now, day, from, until)
		}
		if next, _ := Month(until, day); !next.Equal(until) {
			t.Fatalf("%v, reset on %d: until %v, the next from %v", now, day, until, next)
		}
		if long := until.Sub(from); long < 27*24*time.Hour || long > 32*24*time.Hour {
			t.Fatalf("%v, reset on %d: %v long", now, day, long)
		}
		if a, b := Today(now); now.Before(a) || !now.Before(b) {
			t.Fatalf("%v: the day is from %v until %v", now, a, b)
		}
	}
}

func TestDayOf(t *testing.T) {
	for _, c := range []struct{ now, last, want string }{
		{"2026-11-21 23:59:59", "", "2026-11-21"},
		{"2026-11-21 23:59:59", "2026-11-20", "2026-11-21"},
		{"2026-11-21 23:59:59", "2026-11-22", "2026-11-21"}, // back over midnight: each day has its own
		{"1970-01-01 00:00:10", "2026-11-20", "2026-11-20"}, // a clock that has not been set
		{"1970-01-01 00:00:10", "", "1970-01-01"},
	} {
		if got := DayOf(at(t, c.now, "UTC"), c.last); got != c.want {
			t.Errorf("at %s after %q: %s, want %s", c.now, c.last, got, c.want)
		}
		want := c.now // while the day is that of the clock
		if c.now[:len(c.want)] != c.want {
			want = c.want + " 12:00:00"
		}
		if got := CapTime(at(t, c.now, "UTC"), c.last); !got.Equal(at(t, want, "UTC")) {
			t.Errorf("caps are judged for %v at %s after %q, want %s", got, c.now, c.last, want)
		}
	}
}

func TestSince(t *testing.T) {
	list := []UsageRecord{
		{"2026-11-14", "wwan0", ForHSPath, "a", 1, 10, 0},
		{"2026-11-15", "wwan0", ForHSPath, "a", 2, 20, 0},
		{"2026-11-15", "wwan0", ForHSPath, "b", 4, 40, 0},
		{"2026-11-21", "wwan0", ForDirect, "", 8, 80, 0},
		{"2026-11-21", "wwan0", ForPipe, "a", 1000, 1000, 0},
		{"2031-01-01", "wwan0", ForHSPath, "a", 16, 160, 0}, // by a clock that was wrong
	}
	from, _ := Month(at(t, "2026-11-21 10:00:00", "UTC"), 15)
	var sum unit.Bytes
	for _, u := range list {
		sum += u.BytesSince(from.Format(time.DateOnly))
	}
	if sum != 2330 {
		t.Errorf("since %v: %d", from, sum)
	}
	for _, bad := range []UsageRecord{{"21.11.2026", "a", ForHSPath, "", 1, 1, 0},
		{"2026-11-21", "", ForHSPath, "", 1, 1, 0}, {"2026-11-21", "a", "x", "", 1, 1, 0},
		{"2026-11-21", "a", ForHSPath, "", -1, 1, 0}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	for _, good := range list {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}
