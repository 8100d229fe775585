// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/base/waittest"
	"mpbond/internal/cli"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// onAir returns n subframes of a cell of 1.4 MHz as cf32, in which user 500 has two blocks and user
// 1500 two more.
func onAir(t *testing.T, n int) []byte {
	t.Helper()
	tx, err := lte.NewTransmitter(lte.Cell{ID: 77, PRB: 6, Ports: 1, PHICHSixths: 6}, 1_920_000,
		lte.Channel{SNR: 25, Offset: 700}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for i := range int64(n) {
		var grants []cell.Grant
		for who := range 2 {
			grants = append(grants, cell.Grant{RNTI: cell.RNTI(500 + 1000*who), Format: cell.Format1, PRB: 2,
				HARQ: uint8(i % 8), N: 1,
				Blocks: [2]cell.Block{{MCS: 15, NDI: i/8%2 == 0, Size: 552}}})
		}
		for _, s := range tx.SendGrants(i, grants) {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(real(s)))
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(imag(s)))
		}
	}
	return out
}

// TestCellScanAndWatch checks scan, watch, and the capacity from a recording of watch.
func TestCellScanAndWatch(t *testing.T) {
	dir := t.TempDir()
	file, rec := filepath.Join(dir, "x.cf32"), filepath.Join(dir, "x.cells")
	long, all := filepath.Join(dir, "y.cf32"), onAir(t, 105)
	if err := errors.Join(os.WriteFile(long, all, 0o600), os.WriteFile(file, all[:16*1920*8], 0o600)); err != nil {
		t.Fatal(err)
	}
	code, out, errs := runCellwatch(t, "scan", file, "--json")
	var r scanReport
	if err := json.Unmarshal([]byte(out), &r); code != 0 || err != nil || r.Identity != 77 || r.PRB != 6 ||
		r.MHz != 1.4 || r.Ports != 1 || r.PHICH != "normal" || r.Groups != "1" ||
		r.Rate != 1_920_000 || !r.RateDetected || r.Format != "cf32" || math.Abs(r.Offset-700) > 50 || r.SNR < 20 ||
		r.First != "0.0" || r.Users != 2 || r.Messages < 15 || len(r.Others) != 0 {
		t.Errorf("%d, %v: %s%s", code, err, out, errs)
	}
	if code, out, _ := runCellwatch(t, "scan", file, "--rate", "1.92M"); code != 0 ||
		!strings.HasPrefix(out, "cell 77, 1.4 MHz (6 PRB), 1 antenna port, PHICH normal, N_g 1\n") {
		t.Errorf("%d: %s", code, out)
	}
	code, out, errs = runCellwatch(t, "watch", long, "--rate", "1.92M", "--json", "--record", rec, "--rnti", "500")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var l watchLine
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &l); code != 0 || err != nil || len(lines) != 105 ||
		l.Subframe != 10240+104 || l.Cell != 0 || l.Identity != 77 || l.SFN != 10 || l.Index != 4 ||
		!strings.Contains(errs, "105 subframes") {
		t.Errorf("%d, %v: %d lines, %s\n%s", code, err, len(lines), lines[len(lines)-1], errs)
	}
	for _, want := range []string{`"rnti":500,"type":"C","format":"1","direction":"down","prb":2,"prbs":[[`,
		`"harq":1,"blocks":[{"mcs":15,"tbs":552,"ndi":true,"rv":0}],"cce":`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}
	if code, out, errs := runCellwatch(t, "capacity", rec); code != 0 || !strings.Contains(out, "N 2, own 2.0") ||
		!strings.Contains(out, "105 subframes; missed: 0") {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	if code, out, _ := runCellwatch(t, "watch", file, "--rate", "1920k", "--for", "10ms"); code != 0 ||
		!strings.Contains(out, "0x01f4  1  down") || !strings.Contains(out, "cell 0 (") {
		t.Errorf("%d: %s", code, out)
	}
	if code, _, errs := runCellwatch(t, "capacity", file, "--rnti", "500"); code != cli.ExitIntegrity ||
		!strings.Contains(errs, "cellwatch watch") {
		t.Errorf("samples as messages: %d: %s", code, errs)
	}
	for _, bad := range [][]string{{"scan", rec}, {"watch", file, "--rate", "fast"},
		{"watch", file, "--rate", "1M", "--rate", "2M"}, {"watch", file, "--rnti", "65535"},
		{"watch", file, "--rate", "1.92M", "--serve", "nowhere"},
		{"watch", file, "--rate", "1.92M", "--serve", "unix:/" + strings.Repeat("x", 200)},
		{"watch", file, "--format", "wav"}, {"watch", file, "--rate", "1.92M", "--serve", "unix:" + file}} {
		if code, _, errs := runCellwatch(t, bad...); code == 0 || !strings.Contains(errs, "hint: ") {
			t.Errorf("%v: %d: %s", bad, code, errs)
		}
	}
}

// TestCellServe checks that live samples become messages for clients at once, and that the end of
// the samples ends the messages.
func TestCellServe(t *testing.T) {
	raw := onAir(t, 400)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	heard := make(chan struct{})
	go func() { // the front end
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		tick := time.NewTicker(time.Millisecond) // a subframe lasts 1 ms
		defer tick.Stop()
		const sub = 1920 * 8
		for i := range 400 {
			if i == 200 { // until a client is connected
				<-heard
			}
			if _, err := c.Write(raw[i*sub:][:sub]); err != nil {
				return
			}
			<-tick.C
		}
	}()
	sock := filepath.Join(t.TempDir(), "s")
	watched := make(chan string, 1)
	go func() {
		code, out, errs := runCellwatch(t, "watch", "tcp:"+ln.Addr().String(), "--format", "cf32", "--rate", "1.92M",
			"--serve", "unix:"+sock, "--rnti", "0x1f4")
		if code != 0 {
			out += errs
		}
		watched <- out
	}()
	var conn net.Conn
	waittest.UntilSuccess(t, func() error { // until it serves
		select {
		case out := <-watched:
			t.Fatal(out)
		default:
		}
		conn, err = net.Dial("unix", sock)
		return err
	})
	var copied bytes.Buffer
	r, err := cell.NewReader(io.TeeReader(conn, &copied))
	if err != nil {
		t.Fatal(err)
	}
	if s, err := r.Read(); err != nil || r.PRB[0] != 6 || r.Self != 500 || s.PRB != 6 {
		t.Errorf("%v: %+v", err, s)
	}
	close(heard)
	if _, err := io.Copy(&copied, conn); err != nil {
		t.Error(err)
	}
	var out bytes.Buffer
	if err := printCapacities(t.Context(), &out, &copied,
		capacityOptions{window: 40 * time.Millisecond}); err != nil ||
		!strings.Contains(out.String(), "N 2, own 2.0, idle 2.0 of 6 PRB") {
		t.Errorf("%v: %s", err, &out)
	}
	// A busy machine may drop samples of a socket.
	if out := <-watched; !strings.Contains(out, "were dropped") &&
		(!strings.Contains(out, "400 subframes") || !strings.Contains(out, "reacquired 0 times")) {
		t.Error(out)
	}
	if _, err := os.Stat(sock); err == nil {
		t.Error("the socket is left")
	}
}
