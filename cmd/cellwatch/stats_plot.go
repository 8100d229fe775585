package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"mpbond/internal/chart"
	"mpbond/pbe/census"
)

const (
	plotWidth = 720
	// maxPlottedHours are drawn at most, the last ones.
	maxPlottedHours = 48
)

// picture is what is drawn as both.
type picture interface {
	SVG() ([]byte, error)
	PNG() ([]byte, error)
}

// drawStats writes the figures into a directory, which it makes.
func drawStats(dir string, all []cellStats) error {
	if len(all) == 0 {
		return errors.New("no cell was heard: there is nothing to draw")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, p := range statsPictures(all) {
		for ending, draw := range map[string]func() ([]byte, error){".svg": p.SVG, ".png": p.PNG} {
			data, err := draw()
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name+ending), data, 0o644)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// statsPictures are the figures by the names of their files.
func statsPictures(all []cellStats) map[string]picture {
	names := cellNames(all)
	curves := func(title, unit string, ratios bool, of ...func(*cellStats) (string, census.Distribution)) chart.Curves {
		c := chart.Curves{Title: title, Unit: unit, LogScale: ratios, Width: plotWidth}
		for i := range all {
			for _, f := range of {
				what, d := f(&all[i])
				curve := chart.Curve{Name: names[i] + what}
				for _, p := range d.CDF {
					curve.Values, curve.Fractions = append(curve.Values, p.Value), append(curve.Fractions, p.Part)
				}
				if len(curve.Values) > 0 {
					c.Curves = append(c.Curves, curve)
				}
			}
		}
		return c
	}
	single := func(f func(*cellStats) census.Distribution) func(*cellStats) (string, census.Distribution) {
		return func(s *cellStats) (string, census.Distribution) { return "", f(s) }
	}
	p := map[string]picture{
		"users-40ms": curves("Part of all 40 ms with at most so many users", "users", false,
			func(s *cellStats) (string, census.Distribution) { return ", all", s.Users },
			func(s *cellStats) (string, census.Distribution) { return ", filtered", s.DataUsers }),
		"rate-prb":           curves("Part of all data users with at most such a physical rate", "Mbit/s per PRB", false, single(func(s *cellStats) census.Distribution { return s.Activity.PerPRB })),
		"rate":               curves("Part of all data users with at most such a physical rate", "Mbit/s", true, single(func(s *cellStats) census.Distribution { return s.Activity.Rate })),
		"activity-subframes": curves("Part of all activities in at most so many subframes", "subframes", true, single(func(s *cellStats) census.Distribution { return s.Activity.Subframes })),
		"activity-prb":       curves("Part of all activities with at most so many PRB", "PRB a subframe", false, single(func(s *cellStats) census.Distribution { return s.Activity.PRB })),
		"activity-durations": curves("Part of all activities that are at most so long", "ms", true, single(func(s *cellStats) census.Distribution { return s.Activity.Span })),
	}
	for i := range all {
		s := &all[i]
		file := strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
				return r
			}
			return '-'
		}, names[i])
		hours := s.Hours[max(0, len(s.Hours)-maxPlottedHours):]
		users, data := chart.Bars{Title: names[i] + ": users by hour", Unit: "RNTIs", Width: plotWidth}, chart.Bars{Title: names[i] + ": users by hour that passed the filter", Unit: "RNTIs", Width: plotWidth}
		for _, h := range hours {
			users.Names, users.Values = append(users.Names, s.hourLabel(h)), append(users.Values, float64(h.Users))
			data.Names, data.Values = append(data.Names, s.hourLabel(h)), append(data.Values, float64(h.DataUsers))
		}
		again := chart.Bars{Title: names[i] + ": blocks that came again by MCS", Unit: "%", Width: plotWidth}
		for _, m := range s.MCS {
			again.Names, again.Values = append(again.Names, fmt.Sprint(m.MCS)), append(again.Values, 100*m.Retransmitted)
		}
		p["users-by-hour-"+file], p["data-users-by-hour-"+file], p["retransmissions-"+file] = users, data, again
	}
	return p
}

// cellNames tell cells apart, of which several sources may have the same numbers.
func cellNames(all []cellStats) []string {
	var names []string
	several := false
	for i := range all {
		several = several || all[i].Source != all[0].Source
	}
	for i := range all {
		name := fmt.Sprintf("cell %d", all[i].Cell)
		if several {
			name = fmt.Sprintf("%s %d", filepath.Base(all[i].Source), all[i].Cell)
		}
		names = append(names, name)
	}
	return names
}
