// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tcp

import (
	"errors"
	"syscall"
	"time"

	"mpbond/base/unit"
	"mpbond/link/congestion"
	"mpbond/link/estimate"
)

// Probe returns a blind sample outside Linux.
func (c *Conn) Probe() (estimate.Hop, error) { return estimate.Hop{Blind: true}, nil }

// CarriedSupported reports whether Carried works on this system.
const CarriedSupported = false

// Carried fails outside Linux.
func (c *Conn) Carried() (in, out, pending unit.Bytes, err error) {
	return 0, 0, 0, errors.ErrUnsupported
}

func readAckedBytes(syscall.RawConn) uint64 { return 0 }

func isPollWritable(int) bool { return true }

func setNotSentLowat(int, int) error { return nil }

func setMaxPacingRate(int, unit.Rate) error { return errors.New("a pace can be set on Linux only") }

func setMaxSegment(int, int) error { return errors.New("segments can be bounded on Linux only") }

func setWindowClamp(int, int) error { return nil }

func setUserTimeout(int, time.Duration) error { return nil }

func setCongestionName(int, string) error {
	return errors.New("the congestion control can be chosen on Linux only")
}

// checkCongestion accepts no name.
func checkCongestion(name string) error { return setCongestionName(-1, name) }

func readCongestionName(int) (string, error) { return "", errors.ErrUnsupported }

func readCongestionSample(int) (congestion.Sample, error) {
	return congestion.Sample{}, errors.ErrUnsupported
}

func bindAndMarkSocket(_ int, device string, mark int) error {
	if device != "" || mark != 0 {
		return errors.New("binding to an interface and marks work on Linux only")
	}
	return nil
}
