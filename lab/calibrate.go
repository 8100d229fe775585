// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/unit"
)

// A calibration loads this many links at once and probes the delay of one more, without load.
const (
	calibrateLinks = 6
	calibrateDelay = 10 * time.Millisecond
)

// Limits for a row that counts as fit.
const (
	maxRateError     = 0.005 // up to calibrateFull on each link
	maxRateErrorFull = 0.01  // at calibrateFull
	maxAddedDelay    = 500 * time.Microsecond
	calibrateFull    = 100 * unit.Mbps
)

// Calibration is the accuracy of the emulator at one rate.
type Calibration struct {
	Rate      unit.Rate     `json:"rate_bps"`   // of each loaded link
	RateError float64       `json:"rate_error"` // of the worst link
	AddedP50  time.Duration `json:"added_delay_p50_ns"`
	AddedP99  time.Duration `json:"added_delay_p99_ns"`
	Probes    int           `json:"probes"`
	Lost      int           `json:"probes_lost"`
	CPU       float64       `json:"emulator_cores"` // processor time of the daemon
	Lateness  Lateness      `json:"lateness"`
	Discarded int           `json:"discarded"` // disturbed tries before this one
	Fit       bool          `json:"fit"`
}

// Calibrate loads six links at once with TCP at the same rate. It measures the rates at the ends of
// the links, and the one-way delay that the emulator adds to probes on a seventh. A disturbed
// measurement is repeated a few times.
func Calibrate(ctx context.Context, rate unit.Rate, length time.Duration) (c Calibration, err error) {
	for discarded := range 4 {
		if c, err = calibrateOnce(ctx, rate, length); err != nil {
			return c, err
		}
		c.Discarded = discarded
		if !c.Lateness.Disturbed {
			break
		}
	}
	limit := maxRateError
	if rate >= calibrateFull {
		limit = maxRateErrorFull
	}
	c.Fit = !c.Lateness.Disturbed && math.Abs(c.RateError) <= limit && c.AddedP99 <= maxAddedDelay && c.Lost == 0
	return c, nil
}

// calibrateOnce makes one measurement in a new lab.
func calibrateOnce(ctx context.Context, rate unit.Rate, length time.Duration) (c Calibration, err error) {
	t := &Topology{Node: map[string]*Node{"a": {}, "b": {}}, Link: map[string]*Link{}}
	for i := range calibrateLinks + 1 {
		t.Link[fmt.Sprintf("l%d", i)] = &Link{Ends: [2]string{"a", "b"},
			LinkSettings: LinkSettings{Rate: strconv.FormatInt(int64(rate), 10), Delay: calibrateDelay.String()}}
	}
	err = withBenchInNewLab(t, Options{Name: "cal"}, 0, func(b *Bench) error {
		c, err = b.measureCalibration(ctx, rate, length)
		return err
	})
	return c, err
}

// measureCalibration measures between the nodes a and b.
func (b *Bench) measureCalibration(
	ctx context.Context,
	rate unit.Rate,
	length time.Duration,
) (c Calibration, err error) {
	if err := b.SpawnSelf(ctx, "b", probeReport, "probe", "source"); err != nil {
		return c, err
	}
	job, err := newCalibrationJob(b.Lab.Topology, rate, length)
	if err != nil {
		return c, err
	}
	if _, err := b.Lab.Stats(true); err != nil {
		return c, err
	}
	emulator := b.Lab.info.PID
	cpu, from := processCPUTime(emulator), time.Now()
	out, err := b.Run(ctx, "a", labCommand("probe", "measure", job)...)
	if err != nil {
		return c, fmt.Errorf("calibration at %v: %w", rate, err)
	}
	used := (processCPUTime(emulator) - cpu).Seconds() / time.Since(from).Seconds()
	s, err := b.Lab.Stats(false)
	if err != nil {
		return c, err
	}
	var res probeResult
	err = json.Unmarshal([]byte(out), &res)
	c = res.newCalibration(rate)
	c.CPU, c.Lateness = used, s.Lateness
	return c, err
}

// newCalibrationJob returns the job for RunProbe at the other end, as JSON.
func newCalibrationJob(t *Topology, rate unit.Rate, length time.Duration) (string, error) {
	perByte := 8e9 / float64(rate)
	job := probeJob{Length: length, PerByte: perByte, Delay: calibrateDelay, Gap: max(5*time.Millisecond,
		time.Duration(2*packetIP*perByte))}
	for i := range calibrateLinks + 1 {
		addr, err := t.Addr("b", fmt.Sprintf("l%d", i))
		if err != nil {
			return "", err
		}
		if job.Probe = addr.String(); i < calibrateLinks {
			job.Loaded = append(job.Loaded, addr.String())
		}
	}
	text, err := json.Marshal(job)
	return string(text), err
}

// newCalibration summarises the measurement.
func (res probeResult) newCalibration(rate unit.Rate) Calibration {
	c := Calibration{Rate: rate, Lost: res.Lost, Probes: len(res.Added)}
	for _, r := range res.Rates {
		if e := r/float64(rate) - 1; math.Abs(e) > math.Abs(c.RateError) {
			c.RateError = e
		}
	}
	slices.Sort(res.Added)
	if n := len(res.Added); n > 0 {
		c.AddedP50, c.AddedP99 = res.Added[n/2], res.Added[n*99/100]
	}
	return c
}

// processCPUTime returns the processor time that a process has used, 0 if it has ended.
func processCPUTime(pid int) time.Duration {
	const sched = 2 // see clock_getcpuclockid(3): exact time, not ticks
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
