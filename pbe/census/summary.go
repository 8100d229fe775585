// SPDX-License-Identifier: Apache-2.0

package census

import (
	"strconv"

	"mpbond/pbe/cell"
)

// Summary has the statistics of one cell. Users are counted by downlink messages.
type Summary struct {
	Cell cell.ID `json:"cell"`
	PRB  uint8   `json:"prb"`
	// Subframes were received; Missed are missing in their numbers. Late ones arrived behind later
	// ones, or twice, and do not count. Restarts counts how often the numbers restarted.
	Subframes int64 `json:"subframes"`
	Missed    int64 `json:"missed"`
	Late      int64 `json:"late"`
	Restarts  int64 `json:"restarts"`
	Load
	// PerPRB is the rate per resource block of users' blocks with known sizes.
	PerPRB float64 `json:"mbps_per_prb"`

	// Users are those in each window of 40 subframes, DataUsers those of them that pass the user
	// filter.
	Users     Distribution `json:"users_40ms"`
	DataUsers Distribution `json:"data_users_40ms"`

	Activity Activity `json:"activity"`
	Formats  []Count  `json:"formats"`
	Levels   []Count  `json:"levels"`
	MCS      []MCS    `json:"mcs"`

	Hours []Hour `json:"hours"`
	// DroppedHours counts the oldest hours, which were dropped.
	DroppedHours int64 `json:"dropped_hours,omitempty"`
}

// Load is how much of a cell was used.
type Load struct {
	// Used is the part of the resource blocks with a downlink grant to anybody, Idle the rest, and
	// Uplink the part with an uplink grant.
	Used   float64 `json:"used"`
	Idle   float64 `json:"idle"`
	Uplink float64 `json:"uplink"`
	// Blocks are transport blocks to users; Retransmitted is the part of them that were
	// retransmissions.
	Blocks        int64   `json:"blocks"`
	Retransmitted float64 `json:"retransmitted"`
	// MeanUsers and MeanDataUsers are the users per 40 ms; nil without a complete window.
	MeanUsers     *float64 `json:"mean_users_40ms"`
	MeanDataUsers *float64 `json:"mean_data_users_40ms"`
}

// Hour has the statistics of one hour.
type Hour struct {
	// Number counts from the hour of the first subframe.
	Number    int64 `json:"hour"`
	Subframes int64 `json:"subframes"`
	// Users are distinct RNTIs, DataUsers those of them that passed the user filter.
	Users     int `json:"users"`
	DataUsers int `json:"data_users"`
	Load
}

// Activity has the statistics of activities, which are separated by silences of a second.
type Activity struct {
	// OneSubframe, FourPRB and Both are the parts of all activities in one subframe only, with four
	// resource blocks a subframe, and both.
	OneSubframe float64 `json:"one_subframe"`
	FourPRB     float64 `json:"four_prb"`
	Both        float64 `json:"one_subframe_four_prb"`

	Subframes Distribution `json:"subframes"`
	Span      Distribution `json:"span_ms"`
	PRB       Distribution `json:"prb"` // per subframe
	// PerPRB and Rate are of data users: physical rates. Rate is over the whole activity.
	PerPRB Distribution `json:"mbps_per_prb"`
	Rate   Distribution `json:"mbps"`
}

// Count is the number of occurrences of something.
type Count struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
}

// MCS has the transmissions of blocks with one MCS.
type MCS struct {
	// MCS is that of the first transmission; 29 to 31 if that was missed.
	MCS             int     `json:"mcs"`
	Sent            int64   `json:"sent"` // first transmissions
	Retransmissions int64   `json:"retransmissions"`
	Retransmitted   float64 `json:"retransmitted"` // part of all transmissions
}

// averageLoad returns the load: parts of all PRBs, and users per window.
func (l loadSums) averageLoad() Load {
	o := Load{Used: l.partOfAllPRBs(l.down), Uplink: l.partOfAllPRBs(l.up), Blocks: l.blocks,
		Retransmitted: quotientOrZero(l.retransmitted, l.blocks)}
	if l.prb > 0 {
		o.Idle = 1 - o.Used
	}
	if l.windows > 0 {
		users, data := quotientOrZero(l.users, l.windows), quotientOrZero(l.dataUsers, l.windows)
		o.MeanUsers, o.MeanDataUsers = &users, &data
	}
	return o
}

func (l *loadSums) addLoadSums(o loadSums) {
	l.received, l.missed = l.received+o.received, l.missed+o.missed
	l.prb, l.down, l.up = l.prb+o.prb, l.down+o.down, l.up+o.up
	l.blocks, l.retransmitted = l.blocks+o.blocks, l.retransmitted+o.retransmitted
	l.windows, l.users, l.dataUsers = l.windows+o.windows, l.users+o.users, l.dataUsers+o.dataUsers
}

func quotientOrZero(a, of int64) float64 {
	if of == 0 {
		return 0
	}
	return float64(a) / float64(of)
}

// Close ends the count and returns the summaries of the cells by number.
func (c *Census) Close() (all []Summary) {
	for id, t := range c.cells {
		if t != nil {
			t.activities.endAllActivities()
			t.endTallyHour()
			all = append(all, t.summarizeCell(cell.ID(id)))
		}
	}
	c.cells = [cell.MaxCells]*cellTally{}
	return all
}

// summarizeCell returns the summary of a cell with that ID.
func (t *cellTally) summarizeCell(id cell.ID) Summary {
	f := Summary{Cell: id, PRB: t.prb, Subframes: t.all.received, Missed: t.all.missed, Late: t.late,
		Restarts: t.restarts, Load: t.all.averageLoad(), PerPRB: quotientOrZero(t.bits, t.sized) / 1000,
		Users: t.userHistogram.distribution(), DataUsers: t.dataUserHistogram.distribution(), DroppedHours: t.dropped}
	for _, h := range t.hours {
		f.Hours = append(f.Hours, Hour{Number: h.number, Subframes: h.received, Users: h.userCount,
			DataUsers: h.dataUserCount, Load: h.loadSums.averageLoad()})
	}
	a := &t.activities
	n := a.subframes.count
	f.Activity = Activity{OneSubframe: quotientOrZero(a.oneSubframe, n), FourPRB: quotientOrZero(a.fourPRB, n),
		Both:      quotientOrZero(a.both, n),
		Subframes: a.subframes.distribution(), Span: a.span.distribution(),
		PRB: a.prb.distribution(), PerPRB: a.perPRB.distribution(), Rate: a.rate.distribution()}
	for class, suffix := range []string{" for all", ""} {
		for i, n := range t.formats[class] {
			if n > 0 {
				f.Formats = append(f.Formats, Count{cell.Format(i).String() + suffix, n})
			}
		}
	}
	for i, n := range t.levels {
		if n > 0 && i > 0 {
			f.Levels = append(f.Levels, Count{strconv.Itoa(i), n})
		}
	}
	for i, m := range t.mcs {
		if m.sent+m.again > 0 {
			f.MCS = append(f.MCS, MCS{i, m.sent, m.again, quotientOrZero(m.again, m.sent+m.again)})
		}
	}
	return f
}
