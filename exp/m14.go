package exp

import (
	"fmt"

	"mpbond/lab"
	"mpbond/lab/radio"
	"mpbond/unit"
)

const m14Cell = "8/10/5, 10 MB"

// CPU is a metric: the share of one processor that programs of a node took while
// the client ran, in percent; of the primary with the client.
func CPU(node string) Metric {
	return Metric{Name: "CPU of " + node, Unit: "%", Of: func(r lab.Result) (float64, bool) {
		used := r.CPU[node]
		if node == "primary" {
			used += r.ClientCPU
		}
		return 100 * used / r.Seconds, r.Seconds > 0
	}}
}

// m14: what mpbond takes of the processors, beside the kernel's protocols.
func m14(radio.Set) Row {
	r := Row{
		ID: "m14", Title: "Processor time of primary and helper", Source: mobi + ", overhead",
		Setup: setup + " 10 MB at 8/10/5 Mbit/s. Shares of one processor of this machine, of programs with what the kernel does for them; the primary's with the client (curl). What mpbond adds is what is more than plain TCP takes in the same repetition. Kernel MPTCP's helper is a router, which runs no program.",
		Lacks: "15 minutes of video on a watch, and its battery; processors of the devices, which this machine's is not",
		Cells: []Cell{{Name: m14Cell, House: "8/10/5", Size: 10 * unit.MB,
			Schemes: []string{Product, pams, mptcp, "kibbutz:direct", "single"}, Reps: 10, Quick: 1}},
		Metrics: []Metric{Time, CPU("primary"), CPU("helper1"), CPU("server")},
	}
	for _, node := range []string{"primary", "helper1"} {
		r.Points = append(r.Points, Point{What: fmt.Sprintf("what mpbond adds at %s, of a processor", node), Unit: "%", Low: 4, High: 4, Aim: Less,
			Of: func(d Data) []float64 { return d.Differences(m14Cell, [2]string{Product, "single"}, CPU(node)) }})
	}
	return r
}
