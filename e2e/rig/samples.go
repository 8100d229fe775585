// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/pbe/cell"
	phy "mpbond/pbe/lte"
)

// WriteSamples writes IQ samples of a cell to a file, at a rate in samples per second. Five users
// share the blocks, one with the RNTI 0x4601, and many others are seen for a moment. The ending of
// the path is the format: .cf32 or .sc16.
func WriteSamples(t testing.TB, path string, c phy.Cell, rate, subframes int) {
	t.Helper()
	users := []struct {
		rnti   cell.RNTI
		signal float64
		source lte.Source
	}{
		{0x4601, 22, lte.Source{}}, // the device
		{0x2c19, 14, lte.Source{}},
		{0x5d3a, 18, lte.Source{Rate: 6_000_000, On: 300 * time.Millisecond, Off: 400 * time.Millisecond}},
		{0x31f4, 9, lte.Source{Rate: 3_000_000, On: 200 * time.Millisecond, Off: 150 * time.Millisecond}},
		{0x7b02, 20, lte.Source{Rate: 1_500_000}},
	}
	config := lte.Config{Cells: []lte.CellConfig{{PRB: c.PRB, Layers: 2, Control: 0.4, Groups: true}}, Seed: 3}
	for _, u := range users {
		config.Users = append(config.Users, lte.UserConfig{RNTI: u.rnti, Cells: []int{0},
			SINR: func(int64) float64 { return u.signal }, ErrorRate: 2e-6, Buffer: 100 * unit.KB})
	}
	network := lte.New(config)
	tx, err := phy.NewTransmitter(c, rate, phy.NewEPAChannel(5, 700, 20, 3), 3)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	var delivered []lte.Delivery
	for n := range subframes {
		for i := range users {
			users[i].source.Offer(network, i, time.Duration(n)*time.Millisecond)
		}
		delivered = network.Step(delivered[:0], func(s cell.Subframe) {
			for _, x := range tx.SendGrants(s.Number, s.Grants) {
				if strings.HasSuffix(path, ".cf32") {
					out = binary.LittleEndian.AppendUint32(out, math.Float32bits(real(x)))
					out = binary.LittleEndian.AppendUint32(out, math.Float32bits(imag(x)))
					continue
				}
				out = binary.LittleEndian.AppendUint16(out, uint16(int16(real(x)*3000)))
				out = binary.LittleEndian.AppendUint16(out, uint16(int16(imag(x)*3000)))
			}
		})
		for _, d := range delivered {
			users[d.User].source.Recycle(d.Item)
		}
	}
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
}
