package lab

import (
	"fmt"
	"strings"
	"time"

	"mpbond/unit"
)

// Experiment is one question that the suite answers: Run its plan and Summarize
// the results.
type Experiment struct {
	Name string // for people
	Plan Plan
	// Expected is how long it takes if nothing is disturbed.
	Expected time.Duration
}

// experiment is one line of the suite.
type experiment struct {
	name    string
	house   string
	size    unit.Bytes
	schemes string
	reps    int
	quick   int    // repetitions in the short form; 0: not in it
	at      string // a change or fault, or nothing
	streams int
}

// suite is all experiments, in order: first cold starts by size, then links
// that change, then devices that fail, then what the machine can do.
var suite = []experiment{
	{name: "10 MB, one helper, cold start: schedulers", house: "8/10/5", size: 10 * unit.MB, schemes: "mpbond,mpbond:pams,mpbond:minrtt:noreinject", reps: 10, quick: 1},
	{name: "512 KB, one helper, cold start", house: "8/10/5", size: 512 * unit.KB, schemes: "mpbond,kibbutz,single", reps: 10, quick: 1},
	{name: "1 MB, one helper, cold start", house: "8/10/5", size: unit.MB, schemes: "mpbond,kibbutz,single", reps: 10},
	{name: "2 MB, one helper, cold start", house: "8/10/5", size: 2 * unit.MB, schemes: "mpbond,kibbutz,single", reps: 5},
	{name: "4 MB, one helper, cold start", house: "8/10/5", size: 4 * unit.MB, schemes: "mpbond,kibbutz,single", reps: 5, quick: 1},
	{name: "10 MB, one helper, cold start", house: "8/10/5", size: 10 * unit.MB, schemes: "mpbond,kibbutz,single", reps: 3, quick: 1},
	{name: "4 MB, HS-path falls from 10 to 1 Mbit/s at 2 s", house: "8/10/5", size: 4 * unit.MB, schemes: "mpbond,kibbutz,single", reps: 5, quick: 1, at: "2s:hs1.rate=1Mbit/s"},
	{name: "4 MB, pipe falls from 5 to 1 Mbit/s at 2 s", house: "8/10/5", size: 4 * unit.MB, schemes: "mpbond,kibbutz,single", reps: 5, quick: 1, at: "2s:pipe1.rate=1Mbit/s"},
	{name: "20 MB, two helpers", house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz,single", reps: 3, quick: 1},
	{name: "20 MB, two helpers, one is killed at 3 s", house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond", reps: 3, quick: 1, at: "3s:kill=helper1"},
	{name: "20 MB, two helpers, a pipe falls silent at 3 s", house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz", reps: 3, at: "3s:pipe1.outage=on"},
	{name: "20 MB, two helpers, an HS-path falls silent at 3 s", house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz", reps: 3, at: "3s:hs1.outage=on"},
	{name: "20 MB, two helpers, the PS-path falls silent at 3 s", house: "8/10/5,10/5", size: 20 * unit.MB, schemes: "mpbond,kibbutz", reps: 3, quick: 1, at: "3s:ps.outage=on"},
	{name: "500 streams of 100 KB at once, two helpers", house: "40/50/25,50/25", size: 100 * unit.KB, schemes: "mpbond,single", reps: 3, quick: 1, streams: 500},
	{name: "1 GB, links not limited, all on one machine", house: "-/-/-", size: unit.GB, schemes: "mpbond:direct,mpbond:direct:subflows=2,mpbond,relay,relay:copy,single", reps: 7, quick: 2},
}

// Suite lists the experiments of "mpbond lab bench".
func Suite(quick bool, seed uint64) (all []Experiment, err error) {
	for _, x := range suite {
		if quick {
			x.reps = x.quick
		}
		if x.reps == 0 {
			continue
		}
		e := Experiment{Name: x.name, Plan: Plan{Schemes: strings.Split(x.schemes, ","), Size: x.size, Streams: x.streams, Reps: x.reps, Seed: seed}}
		if e.Plan.Topology, err = House(x.house); err != nil {
			return nil, err
		}
		if x.at != "" {
			e.Plan.At = []string{x.at}
		}
		e.Plan.Unchecked = !e.Plan.Topology.shaped()
		if e.Expected, err = x.expected(e.Plan); err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, err)
		}
		all = append(all, e)
	}
	return all, nil
}

// What a transfer takes besides the time of its data.
const (
	transferExtra   = 800 * time.Millisecond // starting and stopping programs
	experimentExtra = 2 * time.Second        // making the lab, its keys and files
	unshapedRate    = 4000 * unit.Mbps       // about, for guesses
)

// expected guesses how long an experiment takes.
func (x experiment) expected(p Plan) (time.Duration, error) {
	bonded, err := p.Bound()
	if err != nil {
		return 0, err
	}
	direct, _, _ := strings.Cut(x.house, "/")
	alone, err := House(direct)
	if err != nil {
		return 0, err
	}
	n := p.Size * unit.Bytes(max(1, p.Streams))
	one, err := Bound(alone, n, false)
	if err != nil {
		return 0, err
	}
	if p.Unchecked {
		one = unshapedRate.Time(n)
		bonded = one
	}
	total := experimentExtra
	for _, s := range p.Schemes {
		each := bonded
		if s == "single" || strings.HasPrefix(s, "relay") {
			each = one
		}
		total += time.Duration(p.Reps) * (each*11/10 + transferExtra)
	}
	return total, nil
}

// shaped tells whether any link is emulated.
func (t *Topology) shaped() bool {
	for _, l := range t.Link {
		if l.Shaped() {
			return true
		}
	}
	return false
}
