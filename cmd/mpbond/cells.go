// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/base/fault"
	mydevice "mpbond/control/device"
	"mpbond/core/trace"
	"mpbond/pbe/cell"
	"mpbond/pbe/listen"
	"mpbond/pbe/transport"
)

// cellListeners maps network interfaces of this device to the listeners to their mobile cells. All
// connections over an interface, of whatever role, share its listener.
type cellListeners map[string]*listen.Listener

// newCellListeners makes listeners, which receive nothing until runCellListeners runs. They log and
// record when they lose their source and when it returns.
func newCellListeners(cells map[string]mydevice.Cell, rec *trace.Recorder) (cellListeners, error) {
	c := cellListeners{}
	for _, iface := range slices.Sorted(maps.Keys(cells)) {
		cfg, err := listenerConfig(cells[iface])
		if err != nil {
			return nil, fmt.Errorf("cell of %s: %w", iface, err)
		}
		cfg.OnSilence = func(why error) {
			if why == nil {
				slog.Info("cell messages received", "interface", iface, "source", cfg.Source)
				rec.Add(trace.Event{Kind: trace.CellReceived, Device: iface})
				return
			}
			slog.Warn("senders get no cell feedback", "interface", iface, "source", cfg.Source,
				"err", why, "hint", fault.HintOf(why))
			rec.Add(trace.Event{Kind: trace.CellLost, Device: iface, Reason: why.Error()})
		}
		cfg.OnFound = func(rnti cell.RNTI) {
			slog.Info("RNTI found by what arrives", "interface", iface, "rnti", fmt.Sprintf("%#x", uint16(rnti)))
			rec.Add(trace.Event{Kind: trace.CellRenamed, Device: iface, Text: fmt.Sprintf("%#x", uint16(rnti))})
		}
		c[iface] = listen.New(cfg)
	}
	return c, nil
}

// listenerConfig converts the configuration of an interface's cells.
func listenerConfig(spec mydevice.Cell) (cfg listen.Config, err error) {
	if cfg.Source, err = listen.ParseSource(spec.Messages); err != nil {
		return cfg, err
	}
	if cfg.RNTI = cell.RNTI(spec.RNTI); cfg.RNTI != 0 && !cfg.RNTI.IsUser() {
		return cfg, fault.New(fault.Config, fmt.Errorf("rnti %d is not the RNTI of a device", spec.RNTI),
			"devices have 11 to 65523 (0x000B to 0xFFF3); leave it out if the messages contain it")
	}
	for _, n := range spec.Cells {
		if n >= cell.MaxCells {
			return cfg, fault.New(fault.Config, fmt.Errorf("cell %d does not exist", n),
				fmt.Sprintf("cells have the numbers 0 to %d", cell.MaxCells-1))
		}
		cfg.Cells = append(cfg.Cells, cell.ID(n))
	}
	return cfg, nil
}

// parseCellFlags parses flags IFACE=SOURCE[,rnti=N][,cells=N+N…].
func parseCellFlags(flags []string) (map[string]mydevice.Cell, error) {
	cells := map[string]mydevice.Cell{}
	for _, f := range flags {
		iface, rest, ok := strings.Cut(f, "=")
		if !ok || iface == "" {
			return nil, fault.New(fault.Usage, fmt.Errorf("--cell %s names no interface", f),
				"write IFACE=SOURCE[,rnti=N], like wwan0=unix:/run/cells.sock,rnti=17921")
		}
		c, err := parseCellFlag(rest)
		if err != nil {
			return nil, fault.New(fault.Usage, fmt.Errorf("--cell %s: %w", f, err),
				"write rnti=N in decimal or as 0x4601, cells=0+2")
		}
		if _, duplicate := cells[iface]; duplicate {
			return nil, fault.New(fault.Usage, fmt.Errorf("--cell names %s twice", iface),
				"give one source: it reports all cells of the interface")
		}
		cells[iface] = c
	}
	return cells, nil
}

// optionPrefix matches the beginning of an option after a source, also of a misspelt one.
var optionPrefix = regexp.MustCompile("^[a-z]+=")

// parseCellFlag parses SOURCE[,rnti=N][,cells=N+N…].
func parseCellFlag(text string) (c mydevice.Cell, err error) {
	parts := strings.Split(text, ",")
	for _, p := range parts[1:] {
		if word := optionPrefix.FindString(p); word != "" && word != "rnti=" && word != "cells=" {
			return c, fmt.Errorf("unknown option %s", word)
		}
	}
	for len(parts) > 1 {
		last := parts[len(parts)-1]
		if n, ok := strings.CutPrefix(last, "rnti="); ok {
			v, parseErr := strconv.ParseUint(n, 0, 16)
			c.RNTI, err = uint16(v), errors.Join(err, parseErr)
		} else if list, ok := strings.CutPrefix(last, "cells="); ok {
			for n := range strings.SplitSeq(list, "+") {
				v, parseErr := strconv.ParseUint(n, 10, 8)
				c.Cells, err = append(c.Cells, uint8(v)), errors.Join(err, parseErr)
			}
		} else {
			break
		}
		parts = parts[:len(parts)-1]
	}
	c.Messages = strings.Join(parts, ",")
	return c, err
}

// addCellFlag adds --cell to a role that receives over UDP.
func addCellFlag(cmd *cobra.Command, list *[]string) {
	cmd.Flags().StringArrayVar(list, "cell", nil,
		"read control messages of the mobile cells of an interface of --udp: "+
			"`IFACE=SOURCE[,rnti=N]`, where SOURCE is unix:PATH, tcp:HOST:PORT, a FIFO or a recording; repeatable")
}

// feedbackSource returns a function that makes the cell feedback of one connection over an
// interface. It returns nil if the interface has no listener.
func (c cellListeners) feedbackSource(iface string) func() transport.Feedback {
	l := c[iface]
	if l == nil {
		return nil
	}
	return func() transport.Feedback { return l.Flow() }
}

// runCellListeners runs the listeners until ctx ends.
func (c cellListeners) runCellListeners(ctx context.Context) {
	var all sync.WaitGroup
	for _, l := range c {
		all.Go(func() { l.Run(ctx) })
	}
	all.Wait()
}

// listCellStates returns the state of the listeners for the API, sorted by interface.
func (c cellListeners) listCellStates() (list []api.Cells) {
	for _, iface := range slices.Sorted(maps.Keys(c)) {
		s := c[iface].State()
		a := api.Cells{Interface: iface, Source: s.Source.String(), Receiving: s.Silent == nil, RNTI: uint16(s.Self),
			RNTIFound: s.Found, Subflows: s.Flows}
		if s.Silent != nil {
			a.Reason = s.Silent.Error()
			if hint := fault.HintOf(s.Silent); hint != "" {
				a.Reason += " (" + hint + ")"
			}
		} else {
			a.CapacityBps, a.FairBps, a.OtherAppsBps = s.Estimate.Transport, s.Estimate.FairTransport, s.OtherApps
		}
		for id, prb := range s.PRB {
			f := s.Estimate.Usage[id]
			if prb > 0 {
				a.Cells = append(a.Cells, api.Cell{Number: id, PRB: int(prb),
					Active: s.Silent == nil &&
						s.Estimate.Active[id], Users: f.Users, OwnPRB: f.OwnPRB, IdlePRB: f.IdlePRB})
			}
		}
		list = append(list, a)
	}
	return list
}

// describeLinkCells describes the cells of an interface in one line for people.
func describeLinkCells(c api.Cells) string {
	if !c.Receiving {
		return fmt.Sprintf("cells of %s: no feedback to senders, by the messages of %s: %s", c.Interface, c.Source, c.Reason)
	}
	var active []string
	for _, x := range c.Cells {
		if x.Active {
			active = append(active, fmt.Sprintf("cell %d: %.0f of %d resource blocks are ours, %.0f idle, %d users",
				x.Number, x.OwnPRB, x.PRB, x.IdlePRB, x.Users))
		}
	}
	others := ""
	if c.OtherAppsBps > 0 {
		others = fmt.Sprintf(" (other apps use %v)", c.OtherAppsBps)
	}
	return fmt.Sprintf("cells of %s: capacity for this device %v%s, fair share %v (%s)",
		c.Interface, c.CapacityBps, others, c.FairBps, strings.Join(active, "; "))
}

// describePBE describes in one line how a PBE-CC sender uses its cell feedback.
func describePBE(p api.PBE) string {
	if !p.FollowsFeedback {
		return fmt.Sprintf("PBE-CC: no cell feedback any more (last capacity %v), so it paces by measurement, like BBR",
			p.CapacityBps)
	}
	words := map[string]string{
		"approach": "the rate rises to the fair share",
		"wireless": "the cell is the bottleneck and sets the rate",
		"drain":    "the bottleneck is elsewhere; its queue drains",
		"internet": "the bottleneck is elsewhere, or other apps fill the cell's queue; it paces by measurement, like BBR",
	}
	text := fmt.Sprintf("PBE-CC: capacity in its cell %v, fair share %v; %s", p.CapacityBps, p.FairBps, words[p.State])
	if p.Doubted {
		text += "; less gets through than reported, so the feedback is not trusted"
	}
	return text
}
