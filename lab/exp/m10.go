// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// bunnyLadder is the ladder of Big Buck Bunny in the public DASH data set of ITEC, Klagenfurt,
// which the paper names.
var bunnyLadder = []unit.Rate{45652, 89283, 131087, 178351, 221600, 262537, 334349, 396126, 522286, 595491, 791182,
	1032682, 1244778,
	1546902, 2133691, 2484135, 3078587, 3526922, 3840360, 4219897}

// tearsLadder is the ladder of Tears of Steel. Its ends are known to us; the levels between are
// assumed.
var tearsLadder = []unit.Rate{253e3, 500e3, 800e3, 1500e3, 2400e3, 3 * unit.Mbps, 4 * unit.Mbps, 6 * unit.Mbps,
	10 * unit.Mbps}

// videos are the paper's, by its names.
var videos = []struct {
	name  string
	video lab.Video
}{
	{"B2", lab.Video{Ladder: bunnyLadder, Segment: 2 * time.Second}},
	{"T2", lab.Video{Ladder: tearsLadder, Segment: 2 * time.Second}},
	{"T6", lab.Video{Ladder: tearsLadder, Segment: 6 * time.Second}},
}

// m10Play is how much of a video is played.
const m10Play = 90 * time.Second

// Repetitions of m10: of schemes with published values, and of others.
const (
	m10Reps  = 3
	m10Fewer = 2
)

// Metrics of playbacks.
var (
	Bitrate = Metric{Name: "bitrate", Unit: "Mbit/s", More: true, Of: func(r lab.Result) (float64, bool) {
		return playbackValue(r, func(p lab.Playback) float64 { return p.Bitrate / 1e6 })
	}}
	Switches = Metric{Name: "switches", Unit: "", Of: func(r lab.Result) (float64, bool) {
		return playbackValue(r, func(p lab.Playback) float64 { return float64(p.Switches) })
	}}
	// StallRatio is the time of stalls divided by that of the played media.
	StallRatio = Metric{Name: "stall ratio", Unit: "%", Of: func(r lab.Result) (float64, bool) {
		return playbackValue(r, func(p lab.Playback) float64 { return 100 * p.StallRatio })
	}}
	StartUp = Metric{Name: "start-up", Unit: "s", Of: func(r lab.Result) (float64, bool) {
		return playbackValue(r, func(p lab.Playback) float64 { return p.StartUp })
	}}
)

// playbackValue returns a value of a playback. ok is false without one.
func playbackValue(r lab.Result, f func(lab.Playback) float64) (float64, bool) {
	if r.Video == nil {
		return 0, false
	}
	return f(*r.Video), true
}

// playerSetup describes the player.
const playerSetup = "The player is the lab's own and decodes nothing. It sends one request after the other over " +
	"one persistent connection; all segments of a bitrate have one size. It starts with 2 s in its buffer, which " +
	"holds at most 30 s. A segment's bitrate is the highest one within 3/4 of the throughput: the harmonic mean " +
	"of the last three segments, from request to last byte."

// rowM10VideoBitrate returns row m10: a video at the bitrate that the links allow.
func rowM10VideoBitrate(set radio.Set) Row {
	active, full := Energy(set, "", false), Energy(set, "", true)
	r := Row{
		ID: "m10", Title: "Video at a bitrate that adapts, one to three devices", Source: mpbondPaper + ", video",
		Setup: fmt.Sprintf("%s 8/10/5 Mbit/s, a third device like the second. B2 is Big Buck Bunny in "+
			"segments of 2 s, T2 and T6 are Tears of Steel in segments of 2 and 6 s. %s The first %v of each are "+
			"played, and up to 30 s more fetched. We take the published bitrate of three devices, 118 %% higher, "+
			"as relative to one device without mpbond, and \"the bitrate of kernel MPTCP\" as at most 2 %% less. %s",
			commonSetup, playerSetup, m10Play, energySetup(set)),
		NotCovered: "the videos in full (10 and 12 minutes): the beginning, when the buffer fills, has a larger " +
			"part here; the published bitrates themselves; a browser",
		Metrics: []Metric{Bitrate, Switches, StallRatio, StartUp, active, full, Energy(set, "primary", false),
			Energy(set, "helper1", false)},
	}
	for _, v := range videos {
		for i, links := range m5Links {
			c := Cell{Name: m10CellName(v.name, i+1), Links: links, Video: &v.video, Length: m10Play, Reps: m10Reps}
			switch {
			case i == 0:
				c.Schemes = []string{Product, "single"}
				c = c.limitSchemeReps(m10Fewer, Product)
			case v.name == "T2":
				c.Schemes, c.Quick = []string{Product, mptcp, "combine:256KB"}, 1
				c = c.limitSchemeReps(m10Fewer, "combine:256KB")
			default:
				c.Schemes = []string{Product, mptcp}
			}
			if i > 0 {
				r.Points = append(r.Points,
					Point{What: c.Name + ": bitrate relative to " + mptcp, Unit: "%", Low: -2, High: -2,
						PublishedText: "the same", Aim: AimIncrease, IsLimit: true,
						Of: func(d Data) []float64 { return d.Changes(c.Name, [2]string{Product, mptcp}, Bitrate) }},
					singleGroup(c).comparePoint(mptcp, active, -14, -13))
			}
			r.Cells = append(r.Cells, c)
		}
		if v.name == "B2" {
			continue
		}
		r.Points = append(r.Points, Point{What: v.name + ": bitrate, 3 devices relative to 1 without mpbond", Unit: "%",
			Low: 118, High: 118, Aim: AimIncrease,
			Of: func(d Data) []float64 {
				return d.crossChanges([2]string{m10CellName(v.name, 3), m10CellName(v.name, 1)}, [2]string{Product, "single"},
					Bitrate)
			}})
	}
	for i := 2; i <= len(m5Links); i++ {
		r.Groups = append(r.Groups, []string{m10CellName("B2", i), m10CellName("T6", i)}) // they have the same schemes
	}
	return r
}

func m10CellName(video string, devices int) string {
	if devices == 1 {
		return video + ", 1 device"
	}
	return fmt.Sprintf("%s, %d devices", video, devices)
}
