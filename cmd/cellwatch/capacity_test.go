// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/pbe/cell"
)

// writeRecording records n subframes in which RNTI 500 has 10 of 50 PRB, 700 has 15, and the rest
// is idle, with 600 bits each: C_f is 15 Mbit/s.
func writeRecording(t *testing.T, n int, self cell.RNTI) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := cell.NewWriter(&b, [cell.MaxCells]uint8{50})
	if err != nil {
		t.Fatal(err)
	}
	if self != 0 {
		if err := w.WriteSelf(self); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(n) {
		s := cell.Subframe{Number: 100 + i, PRB: 50}
		for _, g := range []struct {
			who cell.RNTI
			prb uint8
		}{{500, 10}, {700, 15}} {
			s.Grants = append(s.Grants, cell.Grant{RNTI: g.who, Format: cell.Format1, PRB: g.prb, HARQ: uint8(i % 8),
				N:      1,
				Blocks: [2]cell.Block{{MCS: 10, NDI: i/8%2 == 0, Size: cell.Bits(g.prb) * 600}}})
		}
		if err := w.Write(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCellCapacity checks the line for each 100 ms of the device.
func TestCellCapacity(t *testing.T) {
	for name, c := range map[string]struct {
		self cell.RNTI
		rnti string
		own  float64
	}{"named": {0, "500", 10}, "the other, by flag": {500, "0x2bc", 15}, "as the recording says": {700, "", 15}} {
		var out bytes.Buffer
		if err := printCapacities(t.Context(), &out, bytes.NewReader(writeRecording(t, 1000, c.self)),
			capacityOptions{rnti: c.rnti, window: 40 * time.Millisecond, asJSON: true}); err != nil {
			t.Fatal(name, err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		var last capacityLine
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
			t.Fatal(name, err)
		}
		if len(lines) != 10 || last.Seconds != 1 || last.Fair != 15*unit.Mbps || last.Transport >= last.Physical ||
			last.Transport == 0 || len(last.Cells) != 1 ||
			last.Cells[0].Users != 2 || last.Cells[0].Own != c.own || last.Cells[0].Idle != 25 {
			t.Errorf("%s: %d lines, the last %+v", name, len(lines), last)
		}
	}
	var out bytes.Buffer
	if err := printCapacities(t.Context(), &out, bytes.NewReader(writeRecording(t, 250, 500)),
		capacityOptions{window: 40 * time.Millisecond}); err != nil || strings.Count(out.String(), "\n") != 3 ||
		!strings.Contains(out.String(), "0.2 s  C_p ") ||
		!strings.Contains(out.String(), "N 2, own 10.0, idle 25.0 of 50 PRB") ||
		!strings.Contains(out.String(), "250 subframes; missed: 0") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestCellCapacityErrors checks that errors follow the lines of what was read.
func TestCellCapacityErrors(t *testing.T) {
	data := writeRecording(t, 500, 0)
	for name, c := range map[string]struct {
		data []byte
		o    capacityOptions
		kind fault.Kind
	}{
		"nobody is named": {data, capacityOptions{}, fault.Usage},
		"no device":       {data, capacityOptions{rnti: "65535"}, fault.Usage},
		"no number":       {data, capacityOptions{rnti: "me"}, fault.Usage},
		"cut off":         {data[:len(data)-1], capacityOptions{rnti: "500"}, fault.Integrity},
		"no recording":    {[]byte("GIF89a, certainly"), capacityOptions{rnti: "500"}, fault.Integrity},
	} {
		var out bytes.Buffer
		err := printCapacities(t.Context(), &out, bytes.NewReader(c.data), c.o)
		if fault.KindOf(err) != c.kind || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if name == "cut off" && !strings.Contains(out.String(), "0.4 s") {
			t.Errorf("what came before the end is not printed: %s", &out)
		}
	}
}
