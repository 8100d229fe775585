// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"
)

// TestReceiverOrders: segments in any order, repeated and overlapping, are read as the original
// stream. Memory stays within the window.
func TestReceiverOrders(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, rnd.IntN(300_000))
		rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
		r := newReceiver()
		got, p := make([]byte, 0, len(data)), make([]byte, 5000)
		now := time.Second
		for !r.isFinished() {
			now += time.Duration(rnd.IntN(5)) * time.Millisecond
			base, limit := r.inOrderBytes(), min(int(r.maxData), len(data))
			for range 1 + rnd.IntN(8) {
				lo := int(base) - 100 + rnd.IntN(6000)
				if rnd.IntN(3) == 0 {
					lo = int(r.inOrderBytes())
				}
				lo = min(max(lo, 0), limit)
				if err := r.onStreamData(uint64(lo), data[lo:min(limit, lo+rnd.IntN(1500))]); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if rnd.IntN(10) == 0 {
				if err := r.onFinalSize(uint64(len(data))); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			had := r.unreadBytes()
			n := r.readStreamInto(now, 50*time.Millisecond, p[:rnd.IntN(len(p))])
			if got = append(got, p[:n]...); n > had || r.unreadBytes() != had-n || int(r.readOffset) != len(got) {
				t.Fatalf("seed %d: %d of %d bytes are read, %d are left", seed, n, had, r.unreadBytes())
			}
			if r.needsWindowUpdate() {
				r.advertiseMaxData()
			}
			if len(r.buf.buf) > maxWindow || r.maxData > r.readOffset+2*r.window {
				t.Fatalf("seed %d: %d bytes of memory, %d to %d advertised", seed, len(r.buf.buf), r.readOffset,
					r.maxData)
			}
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("seed %d: not what was sent", seed)
		}
	}
}

// TestReceiverRefuses: data that no valid peer sends is an error.
func TestReceiverRefuses(t *testing.T) {
	for what, breach := range map[string]func(r *receiver) error{
		"over what was advertised": func(r *receiver) error { return r.onStreamData(initialWindow-1, []byte("ab")) },
		"after the end":            func(r *receiver) error { r.onFinalSize(3); return r.onStreamData(2, []byte("ab")) },
		"an end before data":       func(r *receiver) error { r.onStreamData(2, []byte("ab")); return r.onFinalSize(3) },
		"an end before what was read": func(r *receiver) error {
			r.onStreamData(0, []byte("ab"))
			r.readStreamInto(time.Second, 0, make([]byte, 2))
			return r.onFinalSize(1)
		},
		"two ends": func(r *receiver) error { r.onFinalSize(3); return r.onFinalSize(4) },
	} {
		r := newReceiver()
		if err := breach(&r); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestReceiverWindow: the window doubles up to its limit if the application is fast or packets are
// lost, but not for a slow application. A new limit applies when the advertised credit is used.
func TestReceiverWindow(t *testing.T) {
	const rtt = 50 * time.Millisecond
	// fill lets the peer use its credit and the application read it, at intervals of that length.
	fill := func(r *receiver, each time.Duration) {
		now := time.Second
		for range 20 {
			now += each
			r.onStreamData(r.readOffset, make([]byte, r.maxData-r.readOffset))
			r.readStreamInto(now, rtt, make([]byte, maxWindow))
			r.advertiseMaxData()
		}
	}
	fast, slow, limited := newReceiver(), newReceiver(), newReceiver()
	fill(&fast, rtt)
	fill(&slow, 3*rtt)
	if fast.window != maxWindow || slow.window != initialWindow {
		t.Errorf("windows of %d and %d", fast.window, slow.window)
	}
	limited.limitWindow(4 * initialWindow)
	if fill(&limited, rtt); limited.window != 4*initialWindow {
		t.Errorf("a window of %d, limited to %d", limited.window, 4*initialWindow)
	}
	limited.limitWindow(initialWindow / 2)
	if limited.window != initialWindow/2 || limited.advertiseMaxData() != limited.readOffset+4*initialWindow {
		t.Errorf("a window of %d, advertised to %d of %d", limited.window, limited.maxData, limited.readOffset)
	}
	lossy := newReceiver()
	lossy.onStreamData(0, make([]byte, 10))
	lossy.onStreamData(20, make([]byte, initialWindow-20))
	if lossy.readStreamInto(time.Second, rtt, make([]byte, 10)); lossy.window != 2*initialWindow {
		t.Errorf("a window of %d behind a gap", lossy.window)
	}
}
