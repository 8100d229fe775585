// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"io"
	"testing"

	"mpbond/lab/lte"
	"mpbond/pbe/cell"
	phy "mpbond/pbe/lte"
	"mpbond/pbe/lte/tbs"
)

// A connection to a carrier's samples can decode the cell. Skipped subframes are filled with
// silence, so that later ones come at their time.
func TestSamples(t *testing.T) {
	m := newTransmitter(0, 6, phy.NewEPAChannel(5, 500, 20, 1), 1)
	if _, err := (&Samples{SNR: "loud"}).newRadioChannel(1); err == nil {
		t.Error("a loud channel")
	}
	b := newBroadcast(lte.Config{Cells: []lte.CellConfig{{PRB: 6}}}, nil)
	b.transmitters = []*transmitter{m}
	s := &baseStation{name: "t", broadcast: b}
	if err := s.openSockets(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	conn := connectListener(t, b, m.socketPath)
	const all, gap = 60, 3
	g := cell.Grant{RNTI: 0x4601, Format: cell.Format1, PRB: 6, N: 1,
		Blocks: [2]cell.Block{{MCS: 9, Size: cell.Bits(tbs.Size(9, 6))}}}
	for n := range int64(all) {
		if n >= 40 && n < 40+gap {
			continue
		}
		o := b.beginSlot(n)
		o.copyCellSubframe(cell.Subframe{Number: n, PRB: 6, Grants: []cell.Grant{g}})
		b.commitSlot()
	}
	raw := make([]byte, all*1920*4)
	if _, err := io.ReadFull(conn, raw); err != nil {
		t.Fatal(err)
	}
	samples := make([]complex64, all*1920)
	for i := range samples {
		v := binary.LittleEndian.Uint32(raw[4*i:])
		samples[i] = complex(float32(int16(v)), float32(int16(v>>16)))
	}
	r, err := phy.NewReceiver(m.rate)
	if err != nil {
		t.Fatal(err)
	}
	heard := map[int]bool{}
	r.OnSubframe = func(s *phy.Subframe) {
		for i := range s.DCIs {
			if s.DCIs[i].Grant() == g {
				heard[s.SFN*10+s.Index] = true
			}
		}
	}
	r.Feed(samples)
	r.Close()
	if len(heard) < all-gap-2 || !heard[all-1] || heard[41] || m.silentSubframes.Load() != gap {
		t.Errorf("heard %d of %d; %d silent", len(heard), all-gap, m.silentSubframes.Load())
	}
}
