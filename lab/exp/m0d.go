package exp

import (
	"mpbond/base/unit"
	"mpbond/lab/radio"
)

const (
	pams  = "mpbond:pams"
	naive = "mpbond:minrtt:noreinject"
	mptcp = "kibbutz"
	mobi  = "MPBond, MobiSys 2020"
	// setup holds for all rows of that paper.
	setup = "Round trips 50 ms (PS), 70 ms (HS), 5 ms (pipe), queues of 100 ms, CUBIC. Each transfer begins over idle links; mpbond's subflows are up before it, as they stay up between transfers, and connections of other schemes begin with it."
)

// m0d: a scheduler that sees round trips alone gives the helper's subflow more
// than it can deliver in time.
func m0d(radio.Set) Row {
	return Row{
		ID: "m0d", Title: "Minimum-RTT scheduling over a helper: one subflow ends late", Source: mobi + ", motivation",
		Setup:   setup + " 10 MB at 8/10/5 Mbit/s.",
		Cells:   []Cell{{Name: "8/10/5, 10 MB", House: "8/10/5", Size: 10 * unit.MB, Schemes: []string{Product, pams, naive, mptcp}, Reps: 6, Quick: 1}},
		Metrics: []Metric{Time, Apart},
		Shown:   "8/10/5, 10 MB",
		Points: []Point{
			{What: "minRTT: the helped subflow ends after the direct one", Unit: "s", Low: 4.5, High: 4.5, Aim: Near,
				Of: func(d Data) []float64 { return d.Values("8/10/5, 10 MB", naive, Apart) }},
			{What: "PAMS: subflows end together (we take that as 0.1 s)", Unit: "s", High: 0.1, Aim: Less,
				Of: func(d Data) []float64 { return d.Values("8/10/5, 10 MB", pams, Apart) }},
			{What: "mpbond's own choice: likewise", Unit: "s", High: 0.1, Aim: Less,
				Of: func(d Data) []float64 { return d.Values("8/10/5, 10 MB", Product, Apart) }},
		},
	}
}
