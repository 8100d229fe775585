// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"mpbond/base/unit"
	lab "mpbond/lab/lte"
	"mpbond/pbe/cell"
	phy "mpbond/pbe/lte"
)

// writeSamples writes IQ samples of a cell of 5 MHz, in which five users share the blocks and many
// others are seen for a moment, as pairs of 16-bit numbers.
func writeSamples(t testing.TB, path string, subframes int) {
	t.Helper()
	const rate = 7_680_000
	users := []struct {
		rnti   cell.RNTI
		signal float64
		source lab.Source
	}{
		{0x4601, 22, lab.Source{}}, // the device
		{0x2c19, 14, lab.Source{}},
		{0x5d3a, 18, lab.Source{Rate: 6_000_000, On: 300 * time.Millisecond, Off: 400 * time.Millisecond}},
		{0x31f4, 9, lab.Source{Rate: 3_000_000, On: 200 * time.Millisecond, Off: 150 * time.Millisecond}},
		{0x7b02, 20, lab.Source{Rate: 1_500_000}},
	}
	config := lab.Config{Cells: []lab.CellConfig{{PRB: 25, Layers: 2, Control: 0.4, Groups: true}}, Seed: 3}
	for _, u := range users {
		config.Users = append(config.Users, lab.UserConfig{RNTI: u.rnti, Cells: []int{0},
			SINR: func(int64) float64 { return u.signal }, ErrorRate: 2e-6, Buffer: 100 * unit.KB})
	}
	network := lab.New(config)
	tx, err := phy.NewTransmitter(phy.Cell{ID: 301, PRB: 25, Ports: 2, PHICHSixths: 6}, rate,
		phy.NewEPAChannel(5, 700, 20, 3), 3)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	var delivered []lab.Delivery
	for n := range subframes {
		for i := range users {
			users[i].source.Offer(network, i, time.Duration(n)*time.Millisecond)
		}
		delivered = network.Step(delivered[:0], func(s cell.Subframe) {
			for _, x := range tx.SendGrants(s.Number, s.Grants) {
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
