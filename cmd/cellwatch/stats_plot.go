// SPDX-License-Identifier: Apache-2.0

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
	// maxPlottedHours bounds the hours drawn; these are the last ones.
	maxPlottedHours = 48
)

// picture can be drawn in both formats.
type picture interface {
	SVG() ([]byte, error)
	PNG() ([]byte, error)
}

// drawStatsPictures draws the statistics into a directory, which it creates.
func drawStatsPictures(dir string, all []cellStats) error {
	if len(all) == 0 {
		return errors.New("nothing to draw: no cell was found")
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

// statsPictures returns the pictures by file name.
func statsPictures(all []cellStats) map[string]picture {
	names := distinctCellNames(all)
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
		"users-40ms": curves("CDF of users in 40 ms", "users", false,
			func(s *cellStats) (string, census.Distribution) { return ", all", s.Users },
			func(s *cellStats) (string, census.Distribution) { return ", filtered", s.DataUsers }),
		"rate-prb": curves("CDF of the physical rate of data users", "Mbit/s per PRB", false,
			single(func(s *cellStats) census.Distribution { return s.Activity.PerPRB })),
		"rate": curves("CDF of the physical rate of data users", "Mbit/s", true,
			single(func(s *cellStats) census.Distribution { return s.Activity.Rate })),
		"activity-subframes": curves("CDF of the subframes of an activity", "subframes", true,
			single(func(s *cellStats) census.Distribution { return s.Activity.Subframes })),
		"activity-prb": curves("CDF of the PRB of an activity", "PRB a subframe", false,
			single(func(s *cellStats) census.Distribution { return s.Activity.PRB })),
		"activity-durations": curves("CDF of the duration of an activity", "ms", true,
			single(func(s *cellStats) census.Distribution { return s.Activity.Span })),
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
		users, data := chart.Bars{Title: names[i] + ": users by hour", Unit: "RNTIs", Width: plotWidth},
			chart.Bars{Title: names[i] + ": data users by hour", Unit: "RNTIs", Width: plotWidth}
		for _, h := range hours {
			users.Names, users.Values = append(users.Names, s.formatHourLabel(h)), append(users.Values, float64(h.Users))
			data.Names, data.Values = append(data.Names, s.formatHourLabel(h)), append(data.Values, float64(h.DataUsers))
		}
		retransmitted := chart.Bars{Title: names[i] + ": retransmitted blocks by MCS", Unit: "%", Width: plotWidth}
		for _, m := range s.MCS {
			retransmitted.Names, retransmitted.Values = append(retransmitted.Names, fmt.Sprint(m.MCS)),
				append(retransmitted.Values, 100*m.Retransmitted)
		}
		p["users-by-hour-"+file], p["data-users-by-hour-"+file], p["retransmissions-"+file] = users, data, retransmitted
	}
	return p
}

// distinctCellNames returns distinct names of cells; several sources may use the same numbers.
func distinctCellNames(all []cellStats) []string {
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
