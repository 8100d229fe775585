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
	hearing "mpbond/pbe/listen"
	"mpbond/pbe/transport"
)

// cellListeners are those who listen to mobile cells, by own interface: one for all
// connections that go by it, of whatever role.
type cellListeners map[string]*hearing.Listener

// newCellListeners makes them; they hear nothing until run. Silence and its end are told to
// rec and the log.
func newCellListeners(cells map[string]mydevice.Cell, rec *trace.Recorder) (cellListeners, error) {
	c := cellListeners{}
	for _, iface := range slices.Sorted(maps.Keys(cells)) {
		cfg, err := listenerConfig(cells[iface])
		if err != nil {
			return nil, fmt.Errorf("cell of %s: %w", iface, err)
		}
		cfg.OnSilence = func(why error) {
			if why == nil {
				slog.Info("cells are heard", "interface", iface, "source", cfg.Source)
				rec.Add(trace.Event{Kind: trace.CellReceived, Device: iface})
				return
			}
			slog.Warn("cells are not heard: senders are told nothing of them", "interface", iface, "source", cfg.Source, "why", why, "hint", fault.HintOf(why))
			rec.Add(trace.Event{Kind: trace.CellLost, Device: iface, Reason: why.Error()})
		}
		c[iface] = hearing.New(cfg)
	}
	return c, nil
}

// listenerConfig reads what a configuration says of an interface's cells.
func listenerConfig(spec mydevice.Cell) (cfg hearing.Config, err error) {
	if cfg.Source, err = hearing.ParseSource(spec.Messages); err != nil {
		return cfg, err
	}
	if cfg.RNTI = cell.RNTI(spec.RNTI); cfg.RNTI != 0 && !cfg.RNTI.IsUser() {
		return cfg, fault.New(fault.Config, fmt.Errorf("rnti %d is no device's", spec.RNTI), "devices have 11 to 65523 (0x000B to 0xFFF3); leave it out if the messages tell it")
	}
	for _, n := range spec.Cells {
		if n >= cell.MaxCells {
			return cfg, fault.New(fault.Config, fmt.Errorf("cell %d", n), fmt.Sprintf("cells are numbered from 0 to %d", cell.MaxCells-1))
		}
		cfg.Cells = append(cfg.Cells, cell.ID(n))
	}
	return cfg, nil
}

// parseCellFlags reads flags IFACE=SOURCE[,rnti=N][,cells=N+N…].
func parseCellFlags(flags []string) (map[string]mydevice.Cell, error) {
	cells := map[string]mydevice.Cell{}
	for _, f := range flags {
		iface, rest, ok := strings.Cut(f, "=")
		if !ok || iface == "" {
			return nil, fault.New(fault.Usage, fmt.Errorf("--cell %s names no interface", f), "write IFACE=SOURCE[,rnti=N], like wwan0=unix:/run/cells.sock,rnti=17921")
		}
		c, err := parseCellFlag(rest)
		if err != nil {
			return nil, fault.New(fault.Usage, fmt.Errorf("--cell %s: %w", f, err), "write rnti=N in decimal or as 0x4601, cells=0+2")
		}
		if _, duplicate := cells[iface]; duplicate {
			return nil, fault.New(fault.Usage, fmt.Errorf("--cell names %s twice", iface), "one source tells of all cells of an interface")
		}
		cells[iface] = c
	}
	return cells, nil
}

// optionPrefix begins what follows upon a source, or is misspelt.
var optionPrefix = regexp.MustCompile("^[a-z]+=")

// parseCellFlag reads SOURCE[,rnti=N][,cells=N+N…].
func parseCellFlag(text string) (c mydevice.Cell, err error) {
	parts := strings.Split(text, ",")
	for _, p := range parts[1:] {
		if word := optionPrefix.FindString(p); word != "" && word != "rnti=" && word != "cells=" {
			return c, fmt.Errorf("there is no %s", word)
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

// addCellFlag is --cell of who receives over UDP.
func addCellFlag(cmd *cobra.Command, list *[]string) {
	cmd.Flags().StringArrayVar(list, "cell", nil, "where control messages of the mobile cells of an interface of --udp are heard, `IFACE=SOURCE[,rnti=N]`: unix:PATH, tcp:HOST:PORT, a FIFO or a recording; may be repeated")
}

// feedbackSource makes what connections over an interface tell their senders; nil for none.
func (c cellListeners) feedbackSource(iface string) func() transport.Feedback {
	l := c[iface]
	if l == nil {
		return nil
	}
	return func() transport.Feedback { return l.Flow() }
}

// listenAll listens until ctx ends.
func (c cellListeners) listenAll(ctx context.Context) {
	var all sync.WaitGroup
	for _, l := range c {
		all.Go(func() { l.Run(ctx) })
	}
	all.Wait()
}

// listCells tells what is heard, by interface.
func (c cellListeners) listCells() (list []api.Cells) {
	for _, iface := range slices.Sorted(maps.Keys(c)) {
		s := c[iface].State()
		a := api.Cells{Interface: iface, Source: s.Source.String(), Receiving: s.Silent == nil, RNTI: uint16(s.Self), Subflows: s.Flows}
		if s.Silent != nil {
			a.Reason = s.Silent.Error()
			if hint := fault.HintOf(s.Silent); hint != "" {
				a.Reason += " (" + hint + ")"
			}
		} else {
			a.CapacityBps, a.FairBps = s.Estimate.Transport, s.Estimate.FairTransport
		}
		for id, prb := range s.PRB {
			f := s.Estimate.Usage[id]
			if prb > 0 {
				a.Cells = append(a.Cells, api.Cell{Number: id, PRB: int(prb), Active: s.Silent == nil && s.Estimate.Active[id], Users: f.Users, OwnPRB: f.OwnPRB, IdlePRB: f.IdlePRB})
			}
		}
		list = append(list, a)
	}
	return list
}

// describeCells tells people what is heard of an interface's cells.
func describeCells(c api.Cells) string {
	if !c.Receiving {
		return fmt.Sprintf("cells of %s are not heard at %s: %s", c.Interface, c.Source, c.Reason)
	}
	var active []string
	for _, x := range c.Cells {
		if x.Active {
			active = append(active, fmt.Sprintf("cell %d: %.0f of %d blocks are ours, %.0f idle, %d users", x.Number, x.OwnPRB, x.PRB, x.IdlePRB, x.Users))
		}
	}
	return fmt.Sprintf("cells of %s are heard: %v can be had now, %v is a fair share (%s)", c.Interface, c.CapacityBps, c.FairBps, strings.Join(active, "; "))
}

// describePBE are how a sender goes by what it is told of cells.
func describePBE(p api.PBE) string {
	if !p.FollowsFeedback {
		return fmt.Sprintf("PBE-CC: nothing is told of its cells any more (%v last), so it is paced by measuring, as BBR", p.CapacityBps)
	}
	words := map[string]string{
		"approach": "it goes up to its fair share of the cell",
		"wireless": "its cell is the bottleneck, and it is paced to that",
		"drain":    "the bottleneck is elsewhere, and the queue there runs empty",
		"internet": "the bottleneck is elsewhere, and it is paced by measuring, as BBR",
	}
	text := fmt.Sprintf("PBE-CC: %v can be had in its cell, %v is a fair share; %s", p.CapacityBps, p.FairBps, words[p.State])
	if p.Doubted {
		text += "; less gets through than is told, so that this is doubted"
	}
	return text
}
