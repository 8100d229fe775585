// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/lab"
	"mpbond/pbe/cell"
)

// cellRelay forwards what another Unix socket serves, until it is stopped.
type cellRelay struct {
	net.Listener
	mu      sync.Mutex
	conns   []net.Conn // both ends
	stopped bool
}

// startCellRelay starts a relay at the socket at to the socket to.
func startCellRelay(t *testing.T, at, to string) *cellRelay {
	t.Helper()
	ln, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	r := &cellRelay{Listener: ln}
	t.Cleanup(r.stop)
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", to)
			if err != nil || !r.addConns(in, out) {
				in.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(in, out)
				in.Close()
				out.Close()
			}()
		}
	}()
	return r
}

// addConns registers connections to close, and reports whether the relay still runs.
func (r *cellRelay) addConns(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, conns...)
	return !r.stopped
}

// stop closes everything, as when a decoder is killed.
func (r *cellRelay) stop() {
	r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for _, c := range r.conns {
		c.Close()
	}
}

// queueCount counts subframes: those in which a device had data queued in the cell, and those in
// which the queue was longer than deepQueue.
type queueCount struct{ queued, deep int }

// deepQueue is three times what PBE-CC has in flight beyond one round trip: 24 ms of the rate of 25
// PRB.
const deepQueue = 200 * unit.KB

// countQueued counts the subframes that the emulated network reports at a socket, until end is
// called.
func countQueued(t *testing.T, truth, user string) (end func() queueCount) {
	t.Helper()
	c, err := net.Dial("unix", truth)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan queueCount, 1)
	go func() {
		var s queueCount
		for d := json.NewDecoder(c); ; {
			var l lab.TruthLine
			if d.Decode(&l) != nil {
				result <- s
				return
			}
			if l.User == user && l.Waiting > 0 {
				s.queued++
				if l.Waiting > deepQueue {
					s.deep++
				}
			}
		}
	}()
	return func() queueCount {
		c.Close()
		return <-result
	}
}

// TestCells: a download through a mobile cell is paced by the device's cell feedback, and its queue
// there is hardly ever deep. When the cell is no longer received, the server falls back to BBR;
// status, log and events report that. It follows the cell again when it is received again. A
// helper's subflow is paced by the helper's cell, though the primary receives none on that path.
func TestCells(t *testing.T) {
	t.Parallel() // its bound on the queue is far above that of a quiet machine
	newCellLink := func(rnti cell.RNTI, ends ...string) *lab.Link {
		return &lab.Link{Ends: [2]string(ends), LinkSettings: lab.LinkSettings{Delay: "20ms"},
			LTE: &lab.LTELink{Network: "net", RNTI: rnti, Device: lab.Device{Signal: "18dB", ErrorRate: 2e-6}}}
	}
	topology := &lab.Topology{
		Node: map[string]*lab.Node{"primary": {Routes: []string{"default via lte"}},
			"helper1": {Routes: []string{"default via hs1"}},
			"server":  {Forward: true}, "web": {Routes: []string{"default via core"}}},
		Link: map[string]*lab.Link{"core": {Ends: [2]string{"server", "web"}},
			"pipe1": {Ends: [2]string{"primary", "helper1"}},
			"lte":   newCellLink(0x4601, "primary", "server"), "hs1": newCellLink(0x4602, "helper1", "server")},
		LTE: map[string]*lab.LTE{"net": {Carriers: []lab.Carrier{{PRB: 25, Control: 0.4}}}},
	}
	n := &network{Network: rig.New(t, rig.Options{Lab: topology, Race: true})}
	n.exchangeTrust()
	stats, err := n.Lab.Stats(false)
	if err != nil || len(stats.LTE) != 1 {
		t.Fatal(stats.LTE, err)
	}
	messages, truth := stats.LTE[0].Messages, stats.LTE[0].Truth
	source := filepath.Join(n.Dir, "cells.sock")
	decoder := startCellRelay(t, source, messages)
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp", "--congestion", "pbe")
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "lte", "--udp", "lte", "--cell",
		"lte=unix:"+source+",rnti=0x4601")
	n.awaitDevices("laptop/lte")
	n.awaitTransport("server", "laptop/lte", "udp")

	awaitReception := func(want bool) {
		t.Helper()
		rig.Eventually(t, func() error {
			s, err := n.Status("primary", "primary")
			if err == nil && (len(s.Cells) != 1 || s.Cells[0].Receiving != want || !want && s.Cells[0].CapacityBps > 0) {
				err = fmt.Errorf("cells: %+v", s.Cells)
			}
			return err
		})
	}
	// awaitDeviceEvent waits for an event later than the last one it waited for.
	var seq uint64
	awaitDeviceEvent := func(kind string) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), rig.Patience)
		defer stop()
		for news, err := range n.NewClient("primary", "primary").Events(ctx, seq) {
			if err != nil {
				t.Fatalf("no %s: %v", kind, err)
			}
			if c := news.Change; c != nil && c.Kind == kind {
				if seq = c.Seq; c.Device != "lte" || (c.Reason == "") != (kind == "cell_received") {
					t.Errorf("%+v", c)
				}
				return
			}
		}
	}
	// awaitUnderLoad downloads until the state of the server's PBE sender matches.
	awaitUnderLoad := func(what, device string, matches func(api.PBE) bool) {
		t.Helper()
		endDownloads := n.startDownloads(mb)
		var seen *api.PBE
		rig.Eventually(t, func() error {
			p, err := n.subflowBy("server", device)
			if err != nil {
				return err
			}
			if p.Hop == nil || p.Hop.PBE == nil || !matches(*p.Hop.PBE) {
				return fmt.Errorf("not %s: %+v", what, p.Hop)
			}
			seen = p.Hop.PBE
			return nil
		})
		if err := endDownloads(); err != nil {
			t.Error(err)
		}
		t.Logf("%s: %+v", what, *seen)
	}
	isPaced := func(p api.PBE) bool {
		return p.FollowsFeedback && p.CapacityBps > unit.Mbps && p.FairBps > unit.Mbps
	}
	awaitReception(true)
	awaitDeviceEvent("cell_received")
	awaitUnderLoad("paced by the cell", "laptop/lte", isPaced)
	if _, err := n.Lab.Stats(true); err != nil { // resets the lateness
		t.Fatal(err)
	}
	// Where processor time is short, programs and not the cell limit the rate, and nothing waits in
	// the cell: more downloads then fill it often enough to judge.
	const size, fewest, maxDownloads = 6 * mb, 500, 5
	var queue queueCount
	for range maxDownloads {
		stopCounting := countQueued(t, truth, "lte")
		begin := time.Now()
		n.download(size)
		took, more := time.Since(begin), stopCounting()
		stats, err = n.Lab.Stats(false)
		t.Logf("%d MB at %v; a queue for %d ms, a deep one for %d; lateness %+v; %v", size/mb,
			unit.RateOf(size, took), more.queued, more.deep, stats.Lateness, err)
		queue.queued += more.queued
		queue.deep += more.deep
		if err != nil || queue.queued >= fewest {
			break
		}
	}
	if err != nil || queue.queued < fewest {
		t.Errorf("the network reported %d subframes with a queue: %v", queue.queued, err)
	} else if queue.deep > queue.queued/5 {
		t.Errorf("the queue was deep for %d of %d subframes", queue.deep, queue.queued)
	}

	decoder.stop()
	awaitReception(false)
	awaitDeviceEvent("cell_lost")
	awaitUnderLoad("like BBR", "laptop/lte", func(p api.PBE) bool { return !p.FollowsFeedback })
	startCellRelay(t, source, messages)
	awaitReception(true)
	awaitDeviceEvent("cell_received")
	awaitUnderLoad("paced by the cell again", "laptop/lte", isPaced)

	n.Start("helper1", n.Mpbond, "helper", "--name", "phone", "--udp", "hs1", "--cell",
		"hs1=unix:"+messages+",rnti=0x4602")
	n.awaitTransport("server", "phone", "udp")
	if err := n.Lab.Set("lte", "", "outage=on"); err != nil {
		t.Fatal(err)
	}
	awaitUnderLoad("paced by the helper's cell", "phone", isPaced)
	if err := n.Lab.Set("lte", "", "outage=off"); err != nil {
		t.Fatal(err)
	}
}
