// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"mpbond/core/trace"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
)

// packet is one packet of a capture; data is the length of its TCP payload in bytes.
type packet struct {
	at       time.Time
	from, to string
	data     int
}

// readPackets reads a capture of IPv4 TCP packets.
func readPackets(t *testing.T, file string) (list []packet) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < 40 || b[0]>>4 != 4 || b[9] != syscall.IPPROTO_TCP {
			continue
		}
		head := int(b[0]&15) * 4
		tcp := b[head:]
		list = append(list, packet{info.Timestamp, fmt.Sprintf("%d.%d.%d.%d", b[12], b[13], b[14], b[15]),
			fmt.Sprintf("%d.%d.%d.%d", b[16], b[17], b[18], b[19]),
			int(binary.BigEndian.Uint16(b[2:])) - head - int(tcp[12]>>4)*4})
	}
}

// readTrace reads a trace file.
func readTrace(t *testing.T, file string) (list []trace.Event) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for e, err := range trace.Read(f) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// TestFeedback: the server fills the helper's buffer over a quick HS-path, and the slow pipe drains
// it for seconds. The feedback modes differ in which packets then cross the HS-path. With flexible
// there are none, although PS-path and pipe are busy and the server still receives reports of the
// pipe.
func TestFeedback(t *testing.T) {
	t.Parallel()                   // its bounds on times are far above those of a quiet machine
	const files, size = 6, 500_000 // each within a stream's first window
	for _, c := range []struct {
		mode           string
		reports, woken bool // the server gets reports of the draining pipe; the HS-path has packets meanwhile
	}{{"flexible", true, false}, {"fixed-on-demand", false, false}, {"fixed-always", true, true}} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			pcap := t.TempDir()
			traced, own := filepath.Join(t.TempDir(), "server.jsonl"), filepath.Join(t.TempDir(), "helper.jsonl")
			topology := rig.Triangle(t, "4/40/4")
			// The helped subflow sends an ACK itself when the PS-path's TCP does not confirm within
			// 300 ms that one arrived. With a short queue its round trip takes 80 ms of these.
			topology.Link["ps"].Delay, topology.Link["ps"].Queue = "10ms", "30KB"
			n := &network{Network: rig.New(t, rig.Options{Lab: topology, Pcap: pcap})}
			n.startRoles([]string{"--scheduler", "minrtt", "--reinject", "-1", "--trace", traced})
			server, err := topology.Addr("server", "core")
			if err != nil {
				t.Fatal(err)
			}
			n.stopHelper()
			n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone", "--feedback", c.mode, "--trace", own)
			n.Await(2)
			if _, err := n.Lab.Stats(true); err != nil { // resets the lateness
				t.Fatal(err)
			}
			began := time.Now()
			curl := []string{"curl", "-sSf", "-Z", "--max-time", "30", "--socks5-hostname", "127.0.0.1:1080"}
			for range files {
				curl = append(curl, "-o", "/dev/null", fmt.Sprintf("http://web/%d", size))
			}
			n.Must("primary", curl...)
			ended := time.Now()

			var filled, drained time.Time // the last data over the HS-path and over the pipe
			for _, p := range readPackets(t, filepath.Join(pcap, "hs1.helper1.pcap")) {
				if p.from == server.String() && p.data > 100 && p.at.Before(ended) {
					filled = p.at
				}
			}
			for _, p := range readPackets(t, filepath.Join(pcap, "pipe1.primary.pcap")) {
				if p.data > 1000 && p.at.Before(ended) {
					drained = p.at
				}
			}
			quiet := filled.Add(300 * time.Millisecond) // allows for a report in flight and its acknowledgement
			if filled.Before(began) || drained.Sub(quiet) < time.Second {
				t.Fatalf("precondition failed: the HS-path was filled %v after the start, the pipe drained after %v",
					filled.Sub(began),
					drained.Sub(began))
			}
			woken, sentBytes := 0, 0
			var which strings.Builder
			for _, p := range readPackets(t, filepath.Join(pcap, "hs1.helper1.pcap")) {
				if p.at.After(quiet) && p.at.Before(drained) {
					woken++
					if p.to == server.String() {
						sentBytes += p.data
					}
					fmt.Fprintf(&which, "\n%v after the last data: %d bytes from %s to %s", p.at.Sub(filled), p.data, p.from, p.to)
				}
			}
			received := 0
			all := 0
			for _, e := range readTrace(t, traced) {
				if e.Kind != trace.PipeState || e.Time().Before(began) || e.Time().After(ended) {
					continue
				}
				all++
				if e.Time().After(quiet) && e.Time().Before(drained) {
					received++
				}
			}
			t.Logf("while the pipe drained for %v: %d packets on the HS-path, %d reports reached the server, %d in all",
				drained.Sub(quiet), woken, received, all)
			stats, err := n.Lab.Stats(false)
			if err != nil {
				t.Fatal(err)
			}
			late := stats.Lateness.Max
			t.Logf("the links were late by %v at most", late)
			// A late PS-path confirms too late: an ACK and its confirmation cross the HS-path.
			if allowed := 2 * int(late/(100*time.Millisecond)); c.woken && woken == 0 || !c.woken && woken > allowed {
				t.Errorf("%d packets crossed the HS-path while only PS-path and pipe were busy%s", woken, &which)
			}
			if least := received * (wire.HeaderLen + 5); c.woken && sentBytes < least { // TCP may send several at once
				t.Errorf("%d bytes over the HS-path for %d reports, want at least %d", sentBytes, received, least)
			}
			if (received > 5) != c.reports {
				t.Errorf("%d reports reached the server", received)
			}

			// The cost of reports: a report is at most 26 bytes and a frame header. TLS adds 22, or
			// HOP_AUTH 20, and TCP and IP add 52. A report by the pipe crosses two hops.
			sent := 0
			for _, e := range readTrace(t, own) {
				if e.Kind == trace.HopReport {
					sent++
					if strings.Contains(e.Reason, "pipe") && strings.Contains(e.Text, "pipe") {
						sent++
					}
				}
			}
			if cost := sent * 110; sent == 0 || cost > files*size/100 {
				t.Errorf("%d reports cost %d bytes, for %d of data", sent, cost, files*size)
			}
			for _, kind := range []trace.Kind{trace.PipeUp, trace.RelayUp} {
				found := false
				for _, e := range readTrace(t, own) {
					found = found || e.Kind == kind && e.Device == "laptop"
				}
				if !found {
					t.Errorf("the helper's trace has no %s", kind)
				}
			}
		})
	}
}
