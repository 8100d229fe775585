// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"embed"
	"encoding/csv"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
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
)

// Drive is a recording of two carriers at the same time.
type Drive struct {
	Name   string
	Upload bool
	rows   []driveRow
}

// driveRow is the rates of both carriers from a time on.
type driveRow struct {
	at   time.Duration
	rate [2]unit.Rate // clipped
}

// LoadDrives reads all recordings in dir, or those that come with the program if dir is empty. They
// are CSV files with a header. Their first columns are the time in seconds and both carriers' rates
// in Mbit/s. Files with names that begin with UL are uploads.
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
		d.rows, err = readDriveRows(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("drive %s: %w", name, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// readDriveRows parses one recording.
func readDriveRows(r io.Reader) (rows []driveRow, err error) {
	in := csv.NewReader(r)
	if _, err := in.Read(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	for {
		f, err := in.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var v [3]float64
		for i := range v {
			if len(f) < len(v) {
				return nil, fmt.Errorf("%q: want time and two rates", strings.Join(f, ","))
			}
			if v[i], err = strconv.ParseFloat(f[i], 64); err != nil || !(v[i] >= 0 && v[i] < 1e6) {
				return nil, fmt.Errorf("%q: %q is not a time or rate", strings.Join(f, ","), f[i])
			}
		}
		row := driveRow{at: time.Duration(v[0] * 1e9)}
		for i := range row.rate {
			row.rate[i] = min(unit.Rate(v[1+i]*1e6), maxDriveRate)
		}
		if n := len(rows); n > 0 && rows[n-1].at >= row.at || n >= maxDriveRows {
			return nil, fmt.Errorf("row %d: times must ascend, in at most %d rows", n+1, maxDriveRows)
		}
		rows = append(rows, row)
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("a drive needs at least two rows")
	}
	return rows, nil
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
