// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/core/trace"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
)

// meddlerMark is the firewall mark of the meddler's own connections.
const meddlerMark = 7

// runMeddler relays between helpers and the server at addr until its process ends. It rewrites
// reports and requests limits in the helper's name.
func runMeddler(listen, addr string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return cmp.Or(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK,
				meddlerMark)
		}), err)
	}}
	for {
		near, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer near.Close()
			far, err := d.Dial("tcp", addr)
			if err != nil {
				return
			}
			defer far.Close()
			go func() {
				_, _ = io.Copy(near, far)
				near.Close()
			}()
			for r := wire.NewReader(near); ; {
				typ, payload, err := r.Next()
				if err != nil {
					return
				}
				if _, err := far.Write(forgeFrame(typ, payload)); err != nil {
					return
				}
			}
		}()
	}
}

// forgedRate is the rate that the meddler reports for a helper, far above that of any link here.
const forgedRate = 5 * unit.Gbps

// forgeFrame returns what the meddler sends in place of a frame on an HS-path. It replaces a report
// by one that claims that all was forwarded quickly, and adds the lowest limit.
func forgeFrame(typ wire.Type, payload []byte) []byte {
	f := encodeFrame(typ, payload)
	a, err := wire.ParseHopAuth(payload)
	if typ != wire.TypeHopAuth || err != nil {
		return f
	}
	if s, err := wire.ParseHopState(a.Payload); err == nil {
		s.Forwarded, s.Rate, s.RTT, s.AppLimited = s.Received, forgedRate, time.Microsecond, false
		a.Payload = s.AppendPayload(nil)
		f = wire.Append(nil, a)
	}
	a.Counter++
	a.Of, a.Payload = wire.TypeHopLimit, wire.HopLimit{Rate: wire.MinHopLimit}.AppendPayload(nil)
	return append(f, wire.Append(nil, a)...)
}

// TestForgedOnHSPath: an attacker between a helper and the server rewrites the helper's reports and
// asks the server to send no faster than 16 kbit/s. Neither has an effect.
func TestForgedOnHSPath(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	traced := filepath.Join(t.TempDir(), "server.jsonl")
	n := newNetworkWith(t, "8/10/5", "", []string{"--trace", traced})
	server, err := n.Lab.Topology.Addr("server", "core")
	if err != nil {
		t.Fatal(err)
	}
	n.Start("helper1", os.Args[0], "lab", "meddle", ":7700", server.String()+":7600")
	n.Must("helper1", "nft", fmt.Sprintf("add table inet meddler; "+
		"add chain inet meddler out { type nat hook output priority -100; }; "+
		"add rule inet meddler out tcp dport 7600 meta mark != %d redirect to :7700", meddlerMark))
	n.helper.End(os.Interrupt)
	n.Await(1)
	n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	n.Await(2)
	began := time.Now()
	const size = 3 * mb
	n.download(size)
	took := time.Since(began)

	var p api.Subflow
	rig.Eventually(t, func() error { p, err = n.subflowBy("server", "phone"); return err })
	t.Logf("%d MB in %v, %v of it by the helper; %d forged reports and limits ignored", size/mb, took, p.TxBytes,
		p.Hop.RejectedReports)
	if p.Hop.RejectedReports == 0 {
		t.Error("the server rejected no forged report")
	}
	if p.TxBytes < size/10 { // below 1 % at 16 kbit/s, else over a third
		t.Errorf("only %v went by the helper: the server obeyed the forged limit", p.TxBytes)
	}
	for _, e := range readTrace(t, traced) {
		if e.Kind == trace.PipeState && e.Rate >= forgedRate {
			t.Fatalf("the server accepted a forged report: %+v", e)
		}
	}
	for node, words := range map[string]string{"server": "forged reports ignored", "primary": "forges reports of phone"} {
		argv := map[string][]string{"server": {"status"}, "primary": {"doctor", "--no-rate"}}[node]
		if text, _ := n.Run(node, append([]string{n.Mpbond}, argv...)...); !strings.Contains(text, words) {
			t.Errorf("%s at the %s does not log %q:\n%s", argv[0], node, words, text)
		}
	}
}
