// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/vary"
)

// railPaper is the source of rows h0 to h9.
const railPaper = "Li et al., SIGCOMM 2018, Multi-path TCP on High Speed Rails"

// Links of the primary, one of each carrier. By their names mpbond takes them for cellular.
const (
	railLinkM = "wwan0"
	railLinkU = "wwan1"
)

// Schemes of the rows of rails.
const (
	railM         = "single:if=" + railLinkM
	railU         = "single:if=" + railLinkU
	railUncoupled = "mptcp:own"
	railLIA       = railUncoupled + ":cc=lia"
	railOLIA      = railUncoupled + ":cc=olia"
	railOurs      = "mpbond:if=" + railLinkM + "+" + railLinkU
	railOursUDP   = railOurs + ":udp"
	railNoHint    = railOurs + ":nohint"
	railMinRTT    = "mpbond:minrtt:if=" + railLinkM + "+" + railLinkU
)

var (
	railSchemes = []string{railM, railU, railLIA, railOLIA, railUncoupled, railOurs, railOursUDP, railMinRTT}

	// smallFileSchemes are those of row h1, where hints may matter.
	smallFileSchemes = append(slices.Clone(railSchemes), railNoHint)

	// railPublished are the versions of MPTCP that the study compares.
	railPublished = []string{railLIA, railOLIA}
)

// railTravels are the speeds of the rows.
var railTravels = []struct {
	name   string
	travel vary.Travel
	quick  int
}{{"300 km/h", vary.HighSpeedTrain, 1}, {"static", vary.Parked, 0}}

// atSpeed is the name of the first of railTravels.
const atSpeed = "300 km/h"

// One-way delays of the carriers: round trips of 60 and 80 ms.
var railDelays = [vary.Carriers]time.Duration{30 * time.Millisecond, 40 * time.Millisecond}

// railRides are the rides of both carriers.
type railRides [vary.Carriers]vary.Ride

// drawRides draws the rides of a cell from the seed of a run.
func drawRides(seed uint64, name string, travel vary.Travel, length time.Duration) railRides {
	return travel.Rides(seed, "rails/"+name, length)
}

// buildTopology returns a network whose primary has a link of each carrier to the server, and no
// helper.
func (r railRides) buildTopology() (*lab.Topology, error) {
	return twoCarriers(func(carrier int, dir lab.Direction) vary.Profile {
		return [...]vary.Profile{lab.Uplink: r[carrier].Up, lab.Downlink: r[carrier].Down}[dir]
	})
}

// twoCarriers returns a network whose primary has links of two carriers with these profiles.
func twoCarriers(profile func(carrier int, dir lab.Direction) vary.Profile) (*lab.Topology, error) {
	t, err := lab.Triangle("50")
	if err != nil {
		return nil, err
	}
	delete(t.Link, "ps")
	for c, name := range []string{railLinkM, railLinkU} {
		link := &lab.Link{Ends: [2]string{"primary", "server"}}
		link.Delay = railDelays[c].String()
		for dir, at := range map[lab.Direction]**lab.LinkSettings{lab.Uplink: &link.Up, lab.Downlink: &link.Down} {
			p := profile(c, dir)
			mean := max(p.Mean(vary.MaxLength), unit.Mbps/10)
			*at = &lab.LinkSettings{Rate: fmt.Sprint(int64(mean)),
				Queue:    fmt.Sprint(int64(max(minCellularQueue, mean.Bytes(cellularQueue)))),
				Schedule: p.Schedule(railDelays[c]), Outages: p.Outages()}
		}
		t.Link[name] = link
	}
	t.Node["primary"].Routes = []string{"default via " + railLinkM}
	return t, t.Check()
}

// cellReports returns what the modems of both links report.
func (r railRides) cellReports() (all []lab.CellReport) {
	for c, link := range []string{railLinkM, railLinkU} {
		for _, s := range r[c].Signals {
			speed := 3.6 * s.Speed
			all = append(all, lab.CellReport{At: s.At, Link: link, Cell: api.ServingCell{RSRPDBm: &s.Serving,
				NeighbourRSRPDBm: &s.Neighbour, Cell: strconv.Itoa(s.Cell), SpeedKmh: &speed}})
		}
	}
	slices.SortStableFunc(all, func(a, b lab.CellReport) int { return cmp.Compare(a.At, b.At) })
	return all
}

// countHandoffs returns how many handoffs of a carrier overlap a time.
func (r railRides) countHandoffs(carrier int, from, to time.Duration) (n int) {
	for _, h := range r[carrier].Handoffs {
		if h.From < to && h.End() > from {
			n++
		}
	}
	return n
}

// railSetup describes the networks.
func railSetup() string {
	return fmt.Sprintf("A device with two carriers, M and U, on a train past masts (lab/vary/rail.go), and at rest. "+
		"Our assumptions: %v and %v down, %v and %v up at 300 km/h, %v and %v down at rest, round trips of 60 and 80 ms, "+
		"a handoff each 11 s. 12 %% of the handoffs fail and take 1.5 to 6 s. A verdict on a sign holds for these handoffs. ",
		vary.HighSpeedTrain.Down[0], vary.HighSpeedTrain.Down[1], vary.HighSpeedTrain.Up[0], vary.HighSpeedTrain.Up[1],
		vary.Parked.Down[0], vary.Parked.Down[1]) +
		"Kernel MPTCP has the scheduler of the present kernel, not the least round trip of 2017's. It is kept from " +
		"turning itself off after a connection that could not begin with it. LIA and OLIA are BPF programs, where this " +
		"machine's kernel accepts them."
}

// railNotCovered names the parts of the study that all rows of rails leave out.
const railNotCovered = "the railway, its carriers and cells of 2017, and the kernel of that time"

// newRailRow returns a row of the study.
func newRailRow(id, title, setup string) Row {
	return Row{ID: id, Title: "High-speed rails: " + title, Source: railPaper, Judged: railOurs, Study: RailRows,
		Setup: railSetup() + " " + setup, NotCovered: railNotCovered}
}

// railSignPoint returns a point about a percentage whose sign the study publishes.
func railSignPoint(what string, sign float64, published string, of func(Data) []float64) Point {
	return Point{What: what, Unit: "%", Low: sign, High: sign, PublishedText: published, Aim: AimSign, Of: of}
}

// railLimit returns a point with a limit of ours.
func railLimit(what, unitName string, limit float64, aim Aim, of func(Data) []float64) Point {
	return Point{What: what, Unit: unitName, Low: limit, High: limit, IsLimit: true, Aim: aim, Of: of,
		PublishedText: fmt.Sprintf("%s %g (claimed)", map[Aim]string{AimAtLeast: "at least", AimAtMost: "at most"}[aim],
			limit)}
}

// resultOfRepetition returns the transfer of a scheme and repetition that counts.
func (d Data) resultOfRepetition(cell, scheme string, rep int) (r lab.Result, ok bool) {
	all := d.countedResults(cell, scheme)
	i := slices.IndexFunc(all, func(r lab.Result) bool { return r.Rep == rep })
	if i < 0 {
		return r, false
	}
	return all[i], true
}
