// SPDX-License-Identifier: Apache-2.0

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

// Samples makes a network send the IQ samples of its carriers, each at a socket (phy.Transmitter).
// Its users then get whole resource block groups, as messages report them.
type Samples struct {
	// SNR is the signal-to-noise ratio of listeners; default "20dB". It does not change what users
	// receive.
	SNR string `toml:"snr" json:"snr,omitempty"`
	// Doppler is in Hz, 0 to 300. Offset is the carrier frequency offset in Hz.
	Doppler float64 `toml:"doppler" json:"doppler,omitempty"`
	Offset  float64 `toml:"offset" json:"offset,omitempty"`
}

// newRadioChannel returns the channel of a carrier.
func (s *Samples) newRadioChannel(seed uint64) (phy.Channel, error) {
	snr := 20.0
	if s.SNR != "" {
		var err error
		if snr, err = lte.ParseLevel(s.SNR); err != nil {
			return phy.Channel{}, fmt.Errorf("samples: %w", err)
		}
	}
	if !(s.Doppler >= 0 && s.Doppler <= 300) || !(s.Offset >= -7000 && s.Offset <= 7000) {
		return phy.Channel{}, fmt.Errorf("samples: doppler %v, offset %v: write 0 to 300 and -7000 to 7000, in Hz",
			s.Doppler, s.Offset)
	}
	return phy.NewEPAChannel(s.Doppler, s.Offset, snr, seed), nil
}

// A transmitter may lag by maxTransmitterBacklog subframes, since a busy machine can hold it up. A
// listener may lag by maxSampleBacklog bytes, half a second of 5 MHz. A gap is filled with silence,
// so that later samples come at their time. Gaps over maxSilentGap are not filled: listeners have
// lost the cell by then.
const (
	maxTransmitterBacklog = 500
	maxSampleBacklog      = 1 << 24
	maxSilentGap          = 100
)

// fullScale is the amplitude of the largest sample value. OFDM has peaks of four times its mean,
// and fading may add 6 dB.
const fullScale = 10

// transmitter makes samples of one carrier's messages for listeners, in its own goroutine.
type transmitter struct {
	socketPath      string
	cell            phy.Cell
	rate            int // samples a second
	channel         phy.Channel
	seed            uint64
	listeners       listenerSet
	queue           chan queuedSubframe
	silentSubframes atomic.Int64 // silent because the machine was too busy
}

// queuedSubframe is one subframe on its way to the transmitter.
type queuedSubframe struct {
	number int64
	grants []cell.Grant
}

// newTransmitter returns the transmitter of carrier i.
func newTransmitter(i int, prb int, ch phy.Channel, seed uint64) *transmitter {
	size := 128
	for size*15_000*9/10 < prb*180_000 {
		size *= 2
	}
	if prb == 75 {
		size = 1536
	}
	return &transmitter{cell: phy.Cell{ID: int((seed*31 + uint64(i)*7) % 504), PRB: prb, Ports: 2, PHICHSixths: 6},
		rate: size * 15_000, channel: ch, seed: seed,
		queue: make(chan queuedSubframe, maxTransmitterBacklog)}
}

// queueSubframe queues a subframe if there are listeners and there is room.
func (m *transmitter) queueSubframe(s cell.Subframe) {
	if len(m.listeners.currentListeners()) == 0 {
		return
	}
	select {
	case m.queue <- queuedSubframe{s.Number, append([]cell.Grant(nil), s.Grants...)}:
	default: // transmitLoop finds the gap by the number
	}
}

// transmitLoop sends queued subframes until done is closed.
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
				slog.Error("lab: making samples failed", "err", err)
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
		for _, h := range m.listeners.currentListeners() {
			h.appendToBacklog(maxSampleBacklog, func() error {
				h.buf.Write(bytes)
				return nil
			})
		}
		if len(m.listeners.currentListeners()) == 0 {
			last = -1
		}
	}
}

// appendSamples appends samples as pairs of 16-bit numbers, little-endian.
func appendSamples(b []byte, samples []complex64) []byte {
	const scale = 32767.0 / fullScale
	clip := func(v float32) uint16 { return uint16(int16(min(max(v*scale, -32768), 32767))) }
	for _, s := range samples {
		b = binary.LittleEndian.AppendUint32(b, uint32(clip(real(s)))|uint32(clip(imag(s)))<<16)
	}
	return b
}
