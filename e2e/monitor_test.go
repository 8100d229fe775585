// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/lab"
)

// TestCellByAir: cellwatch decodes the samples of a cell and serves its messages. A primary
// receives them there, and the server paces a download by them.
func TestCellByAir(t *testing.T) {
	t.Parallel()
	const rnti = 0x4601
	topology := &lab.Topology{
		Node: map[string]*lab.Node{"primary": {Routes: []string{"default via lte"}}, "server": {Forward: true},
			"web": {Routes: []string{"default via core"}}},
		Link: map[string]*lab.Link{"core": {Ends: [2]string{"server", "web"}},
			"lte": {Ends: [2]string{"primary", "server"}, LinkSettings: lab.LinkSettings{Delay: "20ms"},
				LTE: &lab.LTELink{Network: "net", RNTI: rnti, Device: lab.Device{Signal: "18dB", ErrorRate: 2e-6}}}},
		LTE: map[string]*lab.LTE{"net": {Carriers: []lab.Carrier{{PRB: 6, Control: 0.4}}, Samples: &lab.Samples{}}},
	}
	// With the race detector a decoder is too slow for the samples.
	n := &network{Network: rig.New(t, rig.Options{Lab: topology})}
	begin := time.Now()
	n.exchangeTrust()
	stats, err := n.Lab.Stats(false)
	if err != nil || len(stats.LTE) != 1 || len(stats.LTE[0].Samples) != 1 {
		t.Fatal(stats.LTE, err)
	}
	samples := stats.LTE[0].Samples[0]
	messages := "unix:" + filepath.Join(n.Dir, "decoded.sock")
	n.Start("primary", rig.Beside(t, n.Mpbond, "cellwatch"), "watch", "unix:"+samples.Socket, "--rate",
		strconv.Itoa(samples.Rate), "--rnti", strconv.Itoa(rnti), "--serve", messages)
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--udp", "--congestion", "pbe")
	// The messages name the device's RNTI.
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "lte", "--udp", "lte", "--cell",
		"lte="+messages)
	n.awaitDevices("laptop/lte")
	n.awaitTransport("server", "laptop/lte", "udp")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := n.tryDownload(mb / 4); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	var received api.Cells
	rig.Eventually(t, func() error { // at the primary
		s, err := n.Status("primary", "primary")
		if err != nil {
			return err
		}
		if len(s.Cells) != 1 || !s.Cells[0].Receiving || s.Cells[0].RNTI != rnti || s.Cells[0].CapacityBps < unit.Mbps ||
			len(s.Cells[0].Cells) != 1 || s.Cells[0].Cells[0].PRB != 6 {
			return fmt.Errorf("cells: %+v", s.Cells)
		}
		received = s.Cells[0]
		return nil
	})
	var paced api.PBE
	rig.Eventually(t, func() error { // at the server
		p, err := n.subflowBy("server", "laptop/lte")
		if err != nil {
			return err
		}
		if p.Hop == nil || p.Hop.PBE == nil || !p.Hop.PBE.FollowsFeedback || p.Hop.PBE.CapacityBps < unit.Mbps {
			return fmt.Errorf("not paced by the cell: %+v", p.Hop)
		}
		paced = *p.Hop.PBE
		return nil
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	t.Logf("after %v heard: %+v; paced: %+v", time.Since(begin), received, paced)
}
