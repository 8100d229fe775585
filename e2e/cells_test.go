package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/e2e/rig"
	"mpbond/lab"
	"mpbond/unit"
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

// TestCells: a download through a mobile cell is paced by what the cell tells its
// device. When nobody hears the cell any more it goes on as BBR, which status, log and
// events tell, and by the cell when it is heard again.
func TestCells(t *testing.T) {
	t.Parallel() // it judges neither rates nor times
	topology := &lab.Topology{
		Node: map[string]*lab.Node{"primary": {Routes: []string{"default via lte"}}, "server": {Forward: true}, "web": {Routes: []string{"default via core"}}},
		Link: map[string]*lab.Link{"core": {Ends: [2]string{"server", "web"}},
			"lte": {Ends: [2]string{"primary", "server"}, LinkDir: lab.LinkDir{Delay: "20ms"},
				LTE: &lab.LTELink{Network: "net", RNTI: 0x4601, Device: lab.Device{Signal: "18dB", ErrorRate: 2e-6}}}},
		LTE: map[string]*lab.LTE{"net": {Carriers: []lab.Carrier{{PRB: 25, Control: 0.4}}}},
	}
	n := newTrusting(t, topology)
	stats, err := n.Lab.Stats(false)
	if err != nil || len(stats.LTE) != 1 {
		t.Fatal(stats.LTE, err)
	}
	source := filepath.Join(n.Dir, "cells.sock")
	decoder := relay(t, source, stats.LTE[0].Messages)
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp", "--congestion", "pbe")
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "lte", "--udp", "lte", "--cell", "lte=unix:"+source+",rnti=0x4601")
	n.uses("laptop/lte")
	n.over("server", "laptop/lte", "udp")

	heard := func(want bool) {
		t.Helper()
		rig.Eventually(t, func() error {
			s, err := n.Status("primary", "primary")
			if err == nil && (len(s.Cells) != 1 || s.Cells[0].Heard != want || want != (s.Cells[0].CapacityBps > 0)) {
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
				if seq = c.Seq; c.Device != "lte" || (c.Reason == "") != (kind == "cell_heard") {
					t.Errorf("%+v", c)
				}
				return
			}
		}
	}
	// loading waits for what the server's sender goes by while something is downloaded.
	loading := func(what string, is func(api.PBE) bool) {
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
			p, err := n.by("server", "laptop/lte")
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
		return p.Fresh && p.CapacityBps > unit.Mbps && p.FairBps > unit.Mbps
	}
	heard(true)
	event("cell_heard")
	loading("paced by the cell", paced)
	begin := time.Now()
	const size = 6 * mb
	n.download(size)
	t.Logf("%d MB at %v", size/mb, unit.RateOf(size, time.Since(begin)))

	decoder.end()
	heard(false)
	event("cell_silent")
	loading("as BBR", func(p api.PBE) bool { return !p.Fresh })
	relay(t, source, stats.LTE[0].Messages)
	heard(true)
	event("cell_heard")
	loading("paced by the cell again", paced)
}
