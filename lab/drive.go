// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"embed"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// drives are the recordings that come with the program, see drives/README.md.
//
//go:embed drives/*.csv
var drives embed.FS

// Rates above maxDriveRate are clipped to what the emulator can do. The pipe is so fast that it
// does not matter.
const (
	maxDriveRate = 40 * unit.Mbps
	drivePipe    = "100Mbit/s"
	driveQueue   = 200 * time.Millisecond // at the mean rate
	maxDriveRows = 10_000                 // bounds the memory for one file
	maxHandoffMs = 60_000
)

// Drive is a recording of two carriers at the same time.
type Drive struct {
	Name   string
	Upload bool
	// Handoffs are those of each carrier, in order. None are known of a recording without their columns.
	Handoffs [driveCarriers][]DriveHandoff
	// Technology is that of each carrier most of the time, such as "LTE-A"; "" if it is not known.
	Technology [driveCarriers]string
	rows       []driveRow
}

const driveCarriers = 2

// DriveHandoff is a change of a carrier's cell.
type DriveHandoff struct{ At, Length time.Duration }

// driveColumns are the columns of a recording. Those of handoffs and technology may be missing.
// Handoffs are written "START+LENGTH", in s and ms, separated by spaces.
var driveColumns = struct{ handoffs, technology [driveCarriers]string }{
	[driveCarriers]string{"a_handoffs", "b_handoffs"}, [driveCarriers]string{"a_technology", "b_technology"},
}

// driveRow is the rates of both carriers from a time on.
type driveRow struct {
	at   time.Duration
	rate [driveCarriers]unit.Rate // clipped
}

// LoadDrives reads all recordings in dir, or those that come with the program if dir is empty. They
// are CSV files with a header. Their first columns are the time in seconds and both carriers' rates
// in Mbit/s; see also driveColumns. Files with names that begin with UL are uploads.
func LoadDrives(dir string) (all []Drive, err error) {
	var files fs.FS = drives
	at := "drives"
	if dir != "" {
		files, at = os.DirFS(dir), "."
	}
	names, err := fs.Glob(files, path.Join(at, "*.csv"))
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no drives (*.csv) in %s", dir)
	}
	for _, name := range names {
		f, err := files.Open(name)
		if err != nil {
			return nil, err
		}
		base, _, _ := strings.Cut(path.Base(name), ".")
		d := Drive{Name: base, Upload: strings.HasPrefix(base, "UL")}
		err = d.readRows(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("drive %s: %w", name, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// readRows parses one recording.
func (d *Drive) readRows(r io.Reader) error {
	in := csv.NewReader(r)
	head, err := in.Read()
	if err != nil {
		return fmt.Errorf("header: %w", err)
	}
	times := [driveCarriers]map[string]int{{}, {}} // rows by technology
	for {
		f, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := d.addRow(f); err != nil {
			return err
		}
		for c := range driveCarriers {
			if i := slices.Index(head, driveColumns.technology[c]); i >= 0 && f[i] != "" {
				times[c][f[i]]++
			}
			if i := slices.Index(head, driveColumns.handoffs[c]); i >= 0 {
				if err := d.addHandoffs(c, f[i]); err != nil {
					return err
				}
			}
		}
	}
	if len(d.rows) < 2 {
		return fmt.Errorf("a drive needs at least two rows")
	}
	for c, by := range times {
		for _, name := range slices.Sorted(maps.Keys(by)) {
			if by[name] > by[d.Technology[c]] {
				d.Technology[c] = name
			}
		}
	}
	return nil
}

// addRow parses the time and rates of one row.
func (d *Drive) addRow(f []string) (err error) {
	var v [1 + driveCarriers]float64
	if len(f) < len(v) {
		return fmt.Errorf("%q: want time and two rates", strings.Join(f, ","))
	}
	for i := range v {
		if v[i], err = strconv.ParseFloat(f[i], 64); err != nil || !(v[i] >= 0 && v[i] < 1e6) {
			return fmt.Errorf("%q: %q is not a time or rate", strings.Join(f, ","), f[i])
		}
	}
	row := driveRow{at: time.Duration(v[0] * 1e9)}
	for i := range row.rate {
		row.rate[i] = min(unit.Rate(v[1+i]*1e6), maxDriveRate)
	}
	if n := len(d.rows); n > 0 && d.rows[n-1].at >= row.at || n >= maxDriveRows {
		return fmt.Errorf("row %d: times must ascend, in at most %d rows", n+1, maxDriveRows)
	}
	d.rows = append(d.rows, row)
	return nil
}

// addHandoffs parses the handoffs that began during the last row.
func (d *Drive) addHandoffs(carrier int, text string) error {
	for _, s := range strings.Fields(text) {
		start, length, _ := strings.Cut(s, "+")
		at, err1 := strconv.ParseFloat(start, 64)
		ms, err2 := strconv.Atoi(length)
		if err1 != nil || err2 != nil || !(at >= 0 && at < 1e6) || ms < 0 || ms > maxHandoffMs {
			return fmt.Errorf("handoff %q: write START+LENGTH in s and ms, such as 19.93+76", s)
		}
		h := DriveHandoff{time.Duration(at * 1e9).Truncate(time.Millisecond), time.Duration(ms) * time.Millisecond}
		if all := d.Handoffs[carrier]; len(all) > 0 && all[len(all)-1].At > h.At {
			return fmt.Errorf("handoff %q: handoffs must be in order", s)
		}
		d.Handoffs[carrier] = append(d.Handoffs[carrier], h)
	}
	return nil
}

// EachRate calls f with each rate of a carrier and the time from which it holds.
func (d Drive) EachRate(carrier int, f func(at time.Duration, r unit.Rate)) {
	for _, row := range d.rows {
		f(row.at, row.rate[carrier])
	}
}

// MeanRate returns a carrier's mean rate over the first length of the drive.
func (d Drive) MeanRate(carrier int, length time.Duration) unit.Rate {
	sum := 0.0
	for i, r := range d.rows {
		end := length
		if i+1 < len(d.rows) {
			end = min(length, d.rows[i+1].at)
		}
		if end > r.at {
			sum += float64(r.rate[carrier]) * (end - r.at).Seconds()
		}
	}
	return unit.Rate(sum / length.Seconds())
}

// RunSpec returns the spec of transfers over the first length of the drive, in a triangle: the
// direct path is carrier a, the helper's Internet link carrier b. Before the drive begins, links
// have their mean rates.
func (d Drive) RunSpec(length time.Duration) (p RunSpec, err error) {
	t, err := Triangle("1/1/1")
	if err != nil {
		return p, err
	}
	for carrier, name := range []string{"ps", "hs1"} {
		l := t.Link[name]
		mean := max(d.MeanRate(carrier, length), unit.Mbps)
		l.Rate = strconv.FormatInt(int64(mean), 10)
		l.Queue = fmt.Sprintf("%dKB", max(96*unit.KB, mean.Bytes(driveQueue))/unit.KB)
		for _, r := range d.rows {
			if r.at < length {
				l.Schedule = append(l.Schedule, fmt.Sprintf("at %v: rate %d", r.at, int64(r.rate[carrier])))
			}
		}
	}
	t.Link["pipe1"].Rate = drivePipe
	most := d.MeanRate(0, length) + d.MeanRate(1, length)
	p = RunSpec{Topology: t, Size: most.Bytes(length)*11/10 + unit.MB, Upload: d.Upload, Length: length}
	return p, t.Check()
}

// DriveLength is how long a transfer over a drive takes.
const DriveLength = 30 * time.Second

// DriveSpec returns the bench's spec for a drive that comes with the program.
func DriveSpec(name string) (RunSpec, error) {
	all, err := LoadDrives("")
	if err != nil {
		return RunSpec{}, err
	}
	var names []string
	for _, d := range all {
		if d.Name == name {
			return d.RunSpec(DriveLength)
		}
		names = append(names, d.Name)
	}
	return RunSpec{}, fmt.Errorf("no drive %q; there are %s", name, strings.Join(names, ", "))
}
