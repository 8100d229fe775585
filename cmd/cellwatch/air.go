// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
)

// airOptions are the flags for reading samples.
type airOptions struct {
	formats, rates  []string
	paced, dropLate bool
	swapIQ          bool
	allCells        bool        // find all cells of files
	onWarning       func(error) // nil: write to the log
}

func (o *airOptions) addAirInputFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.formats, "format", nil,
		"set the sample format to `FORMAT`: cf32, sc16, cu8 or sc8; default: by the name's ending or SigMF metadata; "+
			"once for all sources, or once for each")
	cmd.Flags().StringArrayVar(&o.rates, "rate", nil,
		"set the sample rate to `RATE`, 1.4M to 30.72M samples per second; default: from SigMF metadata, or detected, "+
			"in files only; once for all sources, or once for each")
	cmd.Flags().BoolVar(&o.swapIQ, "swap-iq", false, "exchange I and Q; detected in files")
	cli.CompleteWith(cmd, "format", air.FormatNames...)
	cli.CompleteWith(cmd, "rate", "1.92M", "3.84M", "5.76M", "7.68M", "11.52M", "15.36M", "23.04M", "30.72M")
}

// parseSampleRate parses 15.36M, 15360k or 15360000.
func parseSampleRate(text string) (int, error) {
	number, unit := text, 1.0
	for suffix, u := range map[string]float64{"M": 1e6, "m": 1e6, "k": 1e3, "K": 1e3} {
		if n, ok := strings.CutSuffix(text, suffix); ok {
			number, unit = n, u
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if rate := math.Round(v * unit); err == nil && rate > 0 && rate < 1e9 {
		return int(rate), nil
	}
	return 0, fault.New(fault.Usage, fmt.Errorf("invalid --rate %q", text), "write samples per second, like 15.36M")
}

// parseInputs returns the carriers that args name.
func (o *airOptions) parseInputs(args []string) ([]air.Input, error) {
	for _, f := range []struct {
		flag string
		n    int
	}{{"format", len(o.formats)}, {"rate", len(o.rates)}} {
		if f.n > 1 && f.n != len(args) {
			return nil, fault.New(fault.Usage, fmt.Errorf("--%s is given %d times for %d sources", f.flag, f.n,
				len(args)), "use it once for all sources, or once for each")
		}
	}
	var all []air.Input
	for i, a := range args {
		in := air.Input{Source: air.SamplesOf(a), SwapIQ: o.swapIQ}
		var err error
		if n := len(o.formats); n > 0 {
			if in.Format, err = air.ParseFormat(o.formats[min(i, n-1)]); err != nil {
				return nil, err
			}
		}
		if n := len(o.rates); n > 0 {
			if in.Rate, err = parseSampleRate(o.rates[min(i, n-1)]); err != nil {
				return nil, err
			}
		}
		all = append(all, in)
	}
	return all, nil
}

// openListener opens the carriers that args name.
func (o *airOptions) openListener(cmd *cobra.Command, args []string) (*air.Listener, error) {
	in, err := o.parseInputs(args)
	if err != nil {
		return nil, err
	}
	onWarning := o.onWarning
	if onWarning == nil {
		onWarning = logWarning
	}
	return air.Open(cmd.Context(), air.Config{Inputs: in, Paced: o.paced, DropLate: o.dropLate, AllCells: o.allCells,
		Stdin: cmd.InOrStdin(), OnWarning: onWarning})
}

// logWarning logs a warning of a listener.
func logWarning(err error) { slog.Warn(err.Error(), "hint", fault.HintOf(err)) }

// warningLines returns the warnings of all carriers as lines of text.
func warningLines(all []air.State) (lines string) {
	for _, s := range all {
		for _, d := range s.Warnings() {
			lines += fmt.Sprintf("%s: %s\n", s.Source, d)
		}
	}
	return lines
}

// rntiTypeName returns the type of an RNTI, as 36.321 calls it.
func rntiTypeName(r cell.RNTI) string {
	switch {
	case r == 0xFFFF:
		return "SI"
	case r == 0xFFFE:
		return "P"
	case r.IsUser():
		return "C"
	default:
		return "RA"
	}
}

// parseDeviceRNTI parses the RNTI of a device; an empty text is 0.
func parseDeviceRNTI(text string) (cell.RNTI, error) {
	if text == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(text, 0, 16)
	if err != nil || !cell.RNTI(v).IsUser() {
		return 0, fault.New(fault.Usage, fmt.Errorf("invalid --rnti %s", text),
			"use the RNTI of a device: 11 to 65523 (0x000B to 0xFFF3)")
	}
	return cell.RNTI(v), nil
}
