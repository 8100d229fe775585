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

// relayed serves at a Unix socket what another one says, until it ends.
type relayed struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn // both ends
	over  bool
}

func relay(t *testing.T, at, to string) *relayed {
	t.Helper()
	ln, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	r := &relayed{Listener: ln}
	t.Cleanup(r.end)
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", to)
			if err != nil || !r.add(in, out) {
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

func (r *relayed) add(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, conns...)
	return !r.over
}

// end is that of a decoder that is killed.
func (r *relayed) end() {
	r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for _, c := range r.conns {
		c.Close()
	}
}

// standing is for how many subframes a device had something in its queue in the cell,
// and for how many of these more than deep.
type standing struct{ any, over int }

// deep is more than PBE-CC has in flight beside a round trip, three times: 24 ms of
// what 25 PRB carry.
const deep = 200 * unit.KB

// stands counts, as the network tells at a socket, until what it returns is called.
func stands(t *testing.T, truth, user string) (end func() standing) {
	t.Helper()
	c, err := net.Dial("unix", truth)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan standing, 1)
	go func() {
		var s standing
		for d := json.NewDecoder(c); ; {
			var l lab.TruthLine
			if d.Decode(&l) != nil {
				told <- s
				return
			}
			if l.User == user && l.Waiting > 0 {
				s.any++
				if l.Waiting > deep {
					s.over++
				}
			}
		}
	}()
	return func() standing {
		c.Close()
		return <-told
	}
}

// TestCells: a download through a mobile cell is paced by what the cell tells its
// device, and hardly ever has a queue there that is deep. When nobody hears the cell any
// more it goes on as BBR, which status, log and events tell, and by the cell when it is
// heard again. What a helper carries by its own cell is paced by what that tells, though
// the primary hears none on this way.
func TestCells(t *testing.T) {
	t.Parallel() // where the machine was busy it judges no queue
	air := func(rnti cell.RNTI, ends ...string) *lab.Link {
		return &lab.Link{Ends: [2]string(ends), LinkSettings: lab.LinkSettings{Delay: "20ms"},
			LTE: &lab.LTELink{Network: "net", RNTI: rnti, Device: lab.Device{Signal: "18dB", ErrorRate: 2e-6}}}
	}
	topology := &lab.Topology{
		Node: map[string]*lab.Node{"primary": {Routes: []string{"default via lte"}},
			"helper1": {Routes: []string{"default via hs1"}},
			"server":  {Forward: true}, "web": {Routes: []string{"default via core"}}},
		Link: map[string]*lab.Link{"core": {Ends: [2]string{"server", "web"}},
			"pipe1": {Ends: [2]string{"primary", "helper1"}},
			"lte":   air(0x4601, "primary", "server"), "hs1": air(0x4602, "helper1", "server")},
		LTE: map[string]*lab.LTE{"net": {Carriers: []lab.Carrier{{PRB: 25, Control: 0.4}}}},
	}
	n := &network{Network: rig.New(t, rig.Options{Lab: topology, Race: true})}
	n.trust()
	stats, err := n.Lab.Stats(false)
	if err != nil || len(stats.LTE) != 1 {
		t.Fatal(stats.LTE, err)
	}
	messages, truth := stats.LTE[0].Messages, stats.LTE[0].Truth
	source := filepath.Join(n.Dir, "cells.sock")
	decoder := relay(t, source, messages)
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp", "--congestion", "pbe")
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "lte", "--udp", "lte", "--cell",
		"lte=unix:"+source+",rnti=0x4601")
	n.uses("laptop/lte")
	n.over("server", "laptop/lte", "udp")

	heard := func(want bool) {
		t.Helper()
		rig.Eventually(t, func() error {
			s, err := n.Status("primary", "primary")
			if err == nil && (len(s.Cells) != 1 || s.Cells[0].Receiving != want || !want && s.Cells[0].CapacityBps > 0) {
				err = fmt.Errorf("cells: %+v", s.Cells)
			}
			return err
		})
	}
	// event waits for an event that is later than the one waited for last.
	var seq uint64
	event := func(kind string) {
		t.Helper()
		ctx, stop := context.WithTimeout(t.Context(), rig.Patience)
		defer stop()
		for news, err := range n.Asker("primary", "primary").Events(ctx, seq) {
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
	// loading waits for what the server's sender goes by while something is downloaded.
	loading := func(what, device string, is func(api.PBE) bool) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			for ctx.Err() == nil {
				if err := n.tryDownload(mb); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		var seen *api.PBE
		rig.Eventually(t, func() error {
			p, err := n.by("server", device)
			if err != nil {
				return err
			}
			if p.Hop == nil || p.Hop.PBE == nil || !is(*p.Hop.PBE) {
				return fmt.Errorf("not %s: %+v", what, p.Hop)
			}
			seen = p.Hop.PBE
			return nil
		})
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		t.Logf("%s: %+v", what, *seen)
	}
	paced := func(p api.PBE) bool {
		return p.FollowsFeedback && p.CapacityBps > unit.Mbps && p.FairBps > unit.Mbps
	}
	heard(true)
	event("cell_received")
	loading("paced by the cell", "laptop/lte", paced)
	if _, err := n.Lab.Stats(true); err != nil { // lateness from now on
		t.Fatal(err)
	}
	told := stands(t, truth, "lte")
	begin := time.Now()
	const size = 6 * mb
	n.download(size)
	took, queue := time.Since(begin), told()
	stats, err = n.Lab.Stats(false)
	t.Logf("%d MB at %v; the queue stood for %d ms, deep for %d; lateness %+v; %v", size/mb, unit.RateOf(size, took),
		queue.any, queue.over, stats.Lateness, err)
	if err != nil || queue.any < 500 {
		t.Errorf("the network told of %d subframes with a queue: %v", queue.any, err)
	} else if late := stats.Lateness; late.P99 > 5*time.Millisecond || late.Max > 50*time.Millisecond {
		t.Logf("no judgement of the queue: the links stood still for %v", late.Max)
	} else if queue.over > queue.any/5 {
		t.Errorf("the queue was deep for %d of %d subframes", queue.over, queue.any)
	}

	decoder.end()
	heard(false)
	event("cell_lost")
	loading("like BBR", "laptop/lte", func(p api.PBE) bool { return !p.FollowsFeedback })
	relay(t, source, messages)
	heard(true)
	event("cell_received")
	loading("paced by the cell again", "laptop/lte", paced)

	n.Start("helper1", n.Mpbond, "helper", "--name", "phone", "--udp", "hs1", "--cell",
		"hs1=unix:"+messages+",rnti=0x4602")
	n.over("server", "phone", "udp")
	if err := n.Lab.Set("lte", "", "outage=on"); err != nil {
		t.Fatal(err)
	}
	loading("paced by the helper's cell", "phone", paced)
	if err := n.Lab.Set("lte", "", "outage=off"); err != nil {
		t.Fatal(err)
	}
}
