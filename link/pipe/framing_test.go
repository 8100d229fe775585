// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"mpbond/link/wire"
)

// TestFraming checks that the reader gets the bytes of the writer, gathered in pieces of any size
// and mixed with other frames, in frames within the limit. It also checks when the writer flushes.
func TestFraming(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		w := newFrameWriter()
		var out, sent bytes.Buffer
		var states, flushes int
		flush := func() error {
			flushes++
			w.closeFrame()
			for _, s := range w.takeUnsentReports() {
				w.appendFrame(s)
			}
			out.Write(w.buf)
			w.sent.Add(w.gatheredBytes)
			w.discardGathered()
			return nil
		}
		for range 60 {
			if w.corked = rnd.IntN(2) == 0; rnd.IntN(4) == 0 {
				w.queueHopReport(wire.HopState{Received: 1})
				w.queueHopReport(wire.HopState{Received: 2}) // replaces the report before
				states++
			}
			p := make([]byte, rnd.IntN(100_000))
			rand.NewChaCha8([32]byte{byte(seed)}).Read(p)
			before := flushes
			if n, err := w.gatherData(p, flush); n != len(p) || err != nil {
				t.Fatalf("seed %d: %d of %d, %v", seed, n, len(p), err)
			}
			if sent.Write(p); !w.corked && flushes == before || len(w.buf) >= gatherLimit+maxDataPayload {
				t.Fatalf("seed %d: %d bytes are gathered, corked %v", seed, len(w.buf), w.corked)
			}
		}
		if err := w.uncorkAndFlush(flush); err != nil || w.Sent() != uint64(sent.Len()) {
			t.Fatalf("seed %d: %d of %d sent, %v", seed, w.Sent(), sent.Len(), err)
		}
		in := wire.NewReader(&out)
		var r frameReader
		reports := 0
		r.OnState(func(s wire.HopState) { reports += int(s.Received) / 2 })
		got, err := io.ReadAll(readerFunc(func(p []byte) (int, error) {
			return r.readCiphertext(p, func() ([]byte, error) {
				typ, payload, err := in.Next()
				if err != nil || len(payload) > maxDataPayload {
					return nil, err
				}
				if typ == wire.TypeHopState {
					return nil, r.handleState(payload)
				}
				return r.handleCommonFrame(typ, payload)
			})
		}))
		if err != nil || !bytes.Equal(got, sent.Bytes()) || r.Received() != uint64(len(got)) ||
			reports > states || reports == 0 {
			t.Errorf("seed %d: %d of %d bytes, %d of %d reports, %v", seed, len(got), sent.Len(), reports, states, err)
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestHandleCommonFrame checks that a REFUSE ends reading with its reason, that hints are skipped,
// and that other frames are malformed.
func TestHandleCommonFrame(t *testing.T) {
	var r frameReader
	var refused wire.Refuse
	if _, err := r.handleCommonFrame(wire.TypeRefuse,
		payloadOf(newRefuseFrame(wire.CodeLimit, "full"))); !errors.As(err, &refused) || refused.Text != "full" {
		t.Errorf("a refusal is %v", err)
	}
	if _, err := r.handleCommonFrame(wire.TypeRefuse, nil); err == nil || errors.As(err, &refused) &&
		refused.Text == "" {
		t.Errorf("half a refusal is %v", err)
	}
	for _, typ := range []wire.Type{wire.TypeHopState, wire.TypeHopAuth, wire.TypeHopEnd, wire.TypeReceived,
		wire.TypeHello} {
		if b, err := r.handleCommonFrame(typ, nil); b != nil || !typ.Skippable() && !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%v: %v", typ, err)
		}
	}
	var refuses []wire.Facts
	r.OnFacts(func(f wire.Facts) { refuses = append(refuses, f) })
	if _, err := r.handleCommonFrame(wire.TypeFacts, payloadOf(wire.Facts{})); err != nil || len(refuses) != 1 {
		t.Errorf("facts: %d, %v", len(refuses), err)
	}
}
