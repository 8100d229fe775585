package lab

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync/atomic"

	"mpbond/lab/lte"
	"mpbond/pbe/cell"
	phy "mpbond/pbe/lte"
)

// Samples has a network send what its carriers sound like, each at a socket: phy.Transmitter.
// Its users are then given whole groups of blocks, as messages tell them.
type Samples struct {
	// SNR is that of who listens, "20dB" if absent, over noise. What users hear is
	// not changed by it.
	SNR string `toml:"snr" json:"snr,omitempty"`
	// Doppler is in Hz, 0 to 300; Offset, also in Hz, by how much the carrier is off.
	Doppler float64 `toml:"doppler" json:"doppler,omitempty"`
	Offset  float64 `toml:"offset" json:"offset,omitempty"`
}

// newChannel is that of a carrier.
func (s *Samples) newChannel(seed uint64) (phy.Channel, error) {
	snr := 20.0
	if s.SNR != "" {
		var err error
		if snr, err = lte.ParseLevel(s.SNR); err != nil {
			return phy.Channel{}, fmt.Errorf("samples: %w", err)
		}
	}
	if !(s.Doppler >= 0 && s.Doppler <= 300) || !(s.Offset >= -7000 && s.Offset <= 7000) {
		return phy.Channel{}, fmt.Errorf("samples: doppler %v, offset %v: write 0 to 300 and -7000 to 7000, in Hz", s.Doppler, s.Offset)
	}
	return phy.NewEPAChannel(s.Doppler, s.Offset, snr, seed), nil
}

// Tuning. A mast may be behind by so many subframes, as it is held up like all on a
// busy machine; who reads may be behind by so many bytes, half a second of 5 MHz. A gap
// is filled with silence, as what comes after must come at its time, but not one that is so
// long that who listens has given the cell up.
const (
	maxTransmitterBacklog = 500
	maxSampleBacklog      = 1 << 24
	maxSilentGap          = 100
)

// fullScale is what is written as the greatest number: OFDM has peaks of four times its
// mean, and fading may add 6 dB.
const fullScale = 10

// transmitter makes samples of one carrier's messages for who listens, in a goroutine of its
// own.
type transmitter struct {
	socketPath      string
	cell            phy.Cell
	rate            int // samples a second
	channel         phy.Channel
	seed            uint64
	listeners       listenerSet
	queue           chan queuedSubframe
	silentSubframes atomic.Int64 // subframes that were silence, because the machine was too busy
}

// queuedSubframe is one subframe on its way to the mast.
type queuedSubframe struct {
	number int64
	grants []cell.Grant
}

func newTransmitter(i int, prb int, ch phy.Channel, seed uint64) *transmitter {
	size := 128
	for size*15_000*9/10 < prb*180_000 {
		size *= 2
	}
	if prb == 75 {
		size = 1536
	}
	return &transmitter{cell: phy.Cell{ID: int((seed*31 + uint64(i)*7) % 504), PRB: prb, Ports: 2, PHICHSixths: 6}, rate: size * 15_000, channel: ch, seed: seed,
		queue: make(chan queuedSubframe, maxTransmitterBacklog)}
}

// queueSubframe hands a subframe on, if somebody listens and there is room.
func (m *transmitter) queueSubframe(s cell.Subframe) {
	if len(m.listeners.snapshot()) == 0 {
		return
	}
	select {
	case m.queue <- queuedSubframe{s.Number, append([]cell.Grant(nil), s.Grants...)}:
	default: // the gap is found by the number
	}
}

// transmitLoop sends what comes, until done.
func (m *transmitter) transmitLoop(done <-chan struct{}) {
	var tx *phy.Transmitter
	var bytes []byte
	last := int64(-1)
	for {
		var a queuedSubframe
		select {
		case <-done:
			return
		case a = <-m.queue:
		}
		if tx == nil {
			var err error
			if tx, err = phy.NewTransmitter(m.cell, m.rate, m.channel, m.seed); err != nil {
				slog.Error("lab: samples", "err", err)
				return
			}
		}
		bytes = bytes[:0]
		if gap := a.number - last - 1; gap > 0 && gap <= maxSilentGap && last >= 0 {
			m.silentSubframes.Add(gap)
			bytes = append(bytes, make([]byte, int(gap)*m.rate/1000*4)...)
		}
		last = a.number
		bytes = appendSamples(bytes, tx.SendGrants(a.number, a.grants))
		for _, h := range m.listeners.snapshot() {
			h.appendData(maxSampleBacklog, func() error {
				h.buf.Write(bytes)
				return nil
			})
		}
		if len(m.listeners.snapshot()) == 0 {
			last = -1
		}
	}
}

// appendSamples writes samples as pairs of 16 bits, little-endian.
func appendSamples(b []byte, samples []complex64) []byte {
	const scale = 32767.0 / fullScale
	clip := func(v float32) uint16 { return uint16(int16(min(max(v*scale, -32768), 32767))) }
	for _, s := range samples {
		b = binary.LittleEndian.AppendUint32(b, uint32(clip(real(s)))|uint32(clip(imag(s)))<<16)
	}
	return b
}
