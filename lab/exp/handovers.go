// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
	"mpbond/lab/vary"
)

// Recorded handoffs of two carriers: below the directory of recordings, a file with starts and
// lengths, and one with rates in steps of vary.FactStep.
const (
	handoverFile     = "twocarrier-drive/handovers/train-handovers.csv"
	handoverRateFile = "twocarrier-drive/handovers/train-rates.csv.gz"
	maxHandoverRows  = 1 << 20
)

// handoverCarriers are the names of the carriers in these files.
var handoverCarriers = []string{"att", "vz"}

// readHandoverRuns returns the records of all runs below a directory of recordings that both files
// have, with both carriers. It omits runs whose clock went back, since their times are ambiguous.
func readHandoverRuns(dir string) ([][vary.Carriers]vary.Record, error) {
	runs := map[string]*[vary.Carriers]vary.Record{}
	var order []string
	last, restarted := map[string]float64{}, map[string]bool{} // by run and carrier; by run
	err := readCSVColumns(dir, handoverRateFile, []string{"run", "carrier", "t_s", "mbps"}, func(f []string) error {
		carrier := slices.Index(handoverCarriers, f[1])
		at, err1 := strconv.ParseFloat(f[2], 64)
		mbps, err2 := strconv.ParseFloat(f[3], 64)
		if carrier < 0 || err1 != nil || err2 != nil || !(at >= 0 && at < 1e5) || !(mbps >= 0 && mbps < 1e6) {
			return fmt.Errorf("%v: not a rate", f)
		}
		run := runs[f[0]]
		if run == nil {
			run = &[vary.Carriers]vary.Record{}
			runs[f[0]], order = run, append(order, f[0])
		}
		if series := f[0] + " " + f[1]; at < last[series] {
			restarted[f[0]] = true
		} else {
			last[series] = at
		}
		x, step := &run[carrier], int(at/vary.FactStep.Seconds())
		for len(x.Rates) <= step {
			x.Rates = append(x.Rates, unit.Rate(mbps*1e6))
		}
		x.Rates[step] = unit.Rate(mbps * 1e6)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = readCSVColumns(dir, handoverFile, []string{"run", "carrier", "start_s", "length_ms"}, func(f []string) error {
		carrier, run := slices.Index(handoverCarriers, f[1]), runs[f[0]]
		at, err1 := strconv.ParseFloat(f[2], 64)
		ms, err2 := strconv.ParseFloat(f[3], 64)
		if carrier < 0 || err1 != nil || err2 != nil || !(at > -1e5 && at < 1e5) || !(ms >= 0 && ms < 1e6) {
			return fmt.Errorf("%v: not a handoff", f)
		}
		if run != nil && at >= 0 { // the others were under way when the run began
			run[carrier].Handoffs = append(run[carrier].Handoffs, vary.Gap{From: time.Duration(at * 1e9),
				Length: time.Duration(ms * 1e6)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var pairs [][vary.Carriers]vary.Record
	for _, name := range order {
		run := runs[name]
		if restarted[name] || len(run[0].Rates) == 0 || len(run[1].Rates) == 0 {
			continue
		}
		for c := range run {
			slices.SortFunc(run[c].Handoffs, func(a, b vary.Gap) int { return cmp.Compare(a.From, b.From) })
		}
		pairs = append(pairs, *run)
	}
	return pairs, nil
}

// readCSVColumns passes these columns of each row of a CSV file to take. A name that ends in .gz is
// decompressed.
func readCSVColumns(dir, name string, columns []string, take func(f []string) error) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	in := io.Reader(f)
	if filepath.Ext(name) == ".gz" {
		z, err := gzip.NewReader(f)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer z.Close()
		in = z
	}
	rows := csv.NewReader(in)
	rows.ReuseRecord = true
	head, err := rows.Read()
	if err != nil {
		return fmt.Errorf("%s: header: %w", name, err)
	}
	var at []int
	for _, c := range columns {
		i := slices.Index(head, c)
		if i < 0 {
			return fmt.Errorf("%s: no column %s", name, c)
		}
		at = append(at, i)
	}
	picked := make([]string, len(columns))
	for n := 2; ; n++ {
		row, err := rows.Read()
		switch {
		case err == io.EOF:
			return nil
		case err == nil && n > maxHandoverRows:
			err = fmt.Errorf("more than %d rows", maxHandoverRows)
		case err == nil:
			for k, i := range at {
				picked[k] = row[i]
			}
			err = take(picked)
		}
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, err)
		}
	}
}

// driveRecords returns a recorded drive as records.
func driveRecords(d lab.Drive) (pair [vary.Carriers]vary.Record) {
	for c := range pair {
		for _, h := range d.Handoffs[c] {
			pair[c].Handoffs = append(pair[c].Handoffs, vary.Gap{From: h.At, Length: h.Length})
		}
		d.EachRate(c, func(_ time.Duration, r unit.Rate) { pair[c].Rates = append(pair[c].Rates, r) })
	}
	return pair
}
