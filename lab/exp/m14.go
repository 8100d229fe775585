// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/radio"
)

const (
	m14Cell  = "8/10/5, 10 MB"
	m14Video = "8/10/5, video of 1 Mbit/s"
)

// m14Ladder is the ladder of Big Buck Bunny up to what a watch's small screen needs.
var m14Ladder = lab.Video{Ladder: bunnyLadder[:12], Segment: 2 * time.Second}

// CPU returns a metric: the share of one processor, in percent, that a node's programs took while
// the client ran. The primary's includes the client.
func CPU(node string) Metric {
	return Metric{Name: "CPU of " + node, Unit: "%", Of: func(r lab.Result) (float64, bool) {
		return 100 * cpuSeconds(r, node) / r.Seconds, r.Seconds > 0
	}}
}

// A watch as in the paper, an LG Urbane 2 (from memory), and a processor. The watch's is not known
// to us, so we take a Nexus 5's at its highest frequency (power_profile.xml of LineageOS for
// hammerhead: 386.2 mA).
const (
	watchBattery = unit.Joules(0.570 * 3.8 * 3600) // 570 mAh, 3.8 V
	watchPlays   = 15 * time.Minute
	coreVolts    = 3.8
	corePower    = unit.Milliwatts(386.2 * coreVolts)
)

// Battery returns a metric of playbacks: the part of a watch's battery, in percent, that a device's
// radios and programs take in 15 minutes. The minutes are like the second half of the playback,
// when the buffer is full.
func Battery(set radio.Set, device string) Metric {
	return Metric{Name: "battery of " + device, Unit: "%", needsPackets: true, Of: func(r lab.Result) (float64, bool) {
		share, ok := CPU(device).Of(r)
		if r.Video == nil || !ok {
			return 0, false
		}
		length := time.Duration(r.Seconds * float64(time.Second))
		items, err := set.Account(repeatTraces(radioTraces(r), length/2, length))
		if err != nil {
			return 0, false // every set has LTE and WiFi
		}
		used := radio.SumEnergy(items, device).Full() +
			(corePower * unit.Milliwatts(share/100)).EnergyOver(watchPlays.Seconds())
		return 100 * float64(used/watchBattery), true
	}}
}

// repeatTraces returns the packets between two times, repeated for watchPlays.
func repeatTraces(once []radio.Trace, from, to time.Duration) (all []radio.Trace) {
	for _, t := range once {
		long := radio.Trace{Device: t.Device, Radio: t.Radio}
		for shift := time.Duration(0); shift < watchPlays; shift += to - from {
			for _, p := range t.Packets {
				if at := p.At - from + shift; p.At >= from && p.At < to && at < watchPlays {
					long.Packets = append(long.Packets, radio.Packet{At: at, Size: p.Size, Up: p.Up})
				}
			}
		}
		all = append(all, long)
	}
	return all
}

// rowM14CPUTime returns row m14: processor time of mpbond, compared with the kernel's protocols.
func rowM14CPUTime(set radio.Set) Row {
	r := Row{
		ID: "m14", Title: "Processor time of primary and helper; a watch's battery", Source: mpbondPaper + ", overhead",
		Setup: fmt.Sprintf("%s 10 MB at 8/10/5 Mbit/s, and 35 s of Big Buck Bunny at 1 Mbit/s at most, which is "+
			"our choice for a watch. %s Cells run alone. The download is made 4 times, the video twice (the "+
			"paper: 10 times). Values are shares of one processor of this machine, of programs including kernel "+
			"work for them; the primary's include the client. What mpbond adds is the difference to plain TCP in "+
			"the same repetition. The helper of mptcp is a router without programs. The battery is computed: 15 "+
			"minutes of radios as in the second half of the playback, and of programs as in all of it; everything "+
			"that the helper takes, and the increase of the primary; of %.0f J (570 mAh at 3.8 V, an LG Urbane 2, "+
			"from memory), with %v for a busy processor (a Nexus 5's at its highest frequency). We read the "+
			"published 7 %% as holding for each device. %s",
			commonSetup, playerSetup, watchBattery, corePower, energySetup(set)),
		NotCovered: "a watch: its processor is slower than this machine's, so that its share is larger; 15 " +
			"minutes in full",
		Cells: []Cell{
			{Name: m14Cell, Links: "8/10/5", Size: 10 * unit.MB, Schemes: []string{Product, mptcp, "single"}, Reps: 4,
				Quick: 1, Alone: true},
			{Name: m14Video, Links: "8/10/5", Video: &m14Ladder, Length: 35 * time.Second,
				Schemes: []string{Product, "single"}, Reps: 2, Quick: 1, Alone: true},
		},
		Metrics: []Metric{Time, CPU("primary"), CPU("helper1"), CPU("server"), Battery(set, "primary"),
			Battery(set, "helper1")},
	}
	for _, cell := range []string{m14Cell, m14Video} {
		for _, node := range []string{"primary", "helper1"} {
			r.Points = append(r.Points, Point{What: fmt.Sprintf("%s: what mpbond adds at %s, of a processor of "+
				"this machine", cell, node), Unit: "%", Low: 4, High: 4, Aim: AimAtMost, IsLimit: true,
				Of: func(d Data) []float64 { return d.Differences(cell, [2]string{Product, "single"}, CPU(node)) }})
		}
	}
	for _, node := range []string{"primary", "helper1"} {
		r.Points = append(r.Points, Point{What: fmt.Sprintf("15 minutes of video: what mpbond adds at %s, of a "+
			"watch's battery", node), Unit: "%", Low: 7, High: 7, Aim: AimAtMost, IsLimit: true,
			Of: func(d Data) []float64 {
				return d.Differences(m14Video, [2]string{Product, "single"}, Battery(set, node))
			}})
	}
	return r
}
