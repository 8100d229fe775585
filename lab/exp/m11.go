// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

// m11Video has a single bitrate. The length of its segments is our choice.
var m11Video = lab.Video{Ladder: []unit.Rate{64 * unit.Mbps}, Segment: time.Second}

// m11Links carry up to 3 % more than 64 Mbit/s of payload in 2.45, 1.27 and 1.03 times the length
// of the media, which are the published ratios. A real player does not use links fully.
var m11Links = []string{"28", "28/25/50", "28/25/50,13/50"}

// m11Published are the published stall ratios.
var m11Published = []float64{145, 27, 3}

// rowM11Video360 returns row m11: a video that needs more than the links carry.
func rowM11Video360(radio.Set) Row {
	r := Row{
		ID: "m11", Title: "360° video at 64 Mbit/s, one to three devices (rates inferred from the published ratios)",
		Source: mpbondPaper + ", 360° video",
		Setup: fmt.Sprintf("%s We do not know the rates of the links. The published ratios imply 26, 50 and "+
			"62 Mbit/s of payload, or 27, 52 and 64 of IP bytes; we take 28, 53 and 66 (HS-paths of 25 and 13), "+
			"and pipes of 50. So a ratio only shows how much of the links is used. Segments of 1 s, all of 64 "+
			"Mbit/s; 40 s are played. A stall ratio is the time of stalls divided by that of the media; it "+
			"excludes the start-up time. %s", commonSetup, playerSetup),
		NotCovered: "decoding, as in the paper; its networks",
		Metrics:    []Metric{StallRatio, StartUp, {Name: "rate", Unit: "Mbit/s", More: true, Of: Rate.Of}},
	}
	for i, links := range m11Links {
		c := Cell{Name: "1 device", Links: links, Video: &m11Video, Length: 40 * time.Second,
			Schemes: []string{Product, mptcp}, Reps: 3, Quick: 1}
		if i == 0 {
			c.Reps, c.Quick = 2, 0 // transfers of 100 s that differ by 1 %
			c.Schemes = []string{Product, "single"}
		} else {
			c.Name = fmt.Sprintf("%d devices", i+1)
		}
		aim := AimAtMost
		if i == 0 {
			aim = AimNear
		}
		r.Cells = append(r.Cells, c)
		r.Points = append(r.Points, Point{What: "stall ratio, " + c.Name, Unit: "%", Low: m11Published[i],
			High: m11Published[i], Aim: aim, IsFitted: true,
			Of: func(d Data) []float64 { return d.Values(c.Name, Product, StallRatio) }})
	}
	return r
}
