// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"testing"
)

// TestHopAuthBounds: a HOP_AUTH carries a report or a limit, and no more bytes than these have.
func TestHopAuthBounds(t *testing.T) {
	longest := HopAuth{Counter: 1<<64 - 1, Of: TypeHopState, Payload: make([]byte, MaxHopAuth-10-1-HopTagLen)}
	for _, c := range []struct {
		name string
		b    []byte
		want error // nil: it is fine
	}{
		{"longest", longest.AppendPayload(nil), nil},
		{"too long", append(longest.AppendPayload(nil), 0), ErrTooLarge},
		{"a frame of TLS", HopAuth{Of: TypePipeState}.AppendPayload(nil), ErrMalformed},
		{"data", HopAuth{Of: TypeHopData}.AppendPayload(nil), ErrMalformed},
		{"in itself", HopAuth{Of: TypeHopAuth}.AppendPayload(nil), ErrMalformed},
		{"tag alone", make([]byte, HopTagLen), ErrMalformed},
		{"counter over 64 bits", append(bytes.Repeat([]byte{0xff}, 10), make([]byte, 30)...), ErrMalformed},
	} {
		if _, err := ParseHopAuth(c.b); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if n := len(longState.AppendPayload(nil)); n > len(longest.Payload) {
		t.Errorf("a report of %d bytes does not fit", n)
	}
}

// TestHopAuthSigned: the bytes that the tag is over differ where anything else does, and are of
// no other protocol.
func TestHopAuthSigned(t *testing.T) {
	seen := map[string]int{}
	for i, f := range []HopAuth{
		{Counter: 1, Of: TypeHopState, Payload: []byte{1, 2}}, {Counter: 2, Of: TypeHopState, Payload: []byte{1, 2}},
		{Counter: 1, Of: TypeHopLimit, Payload: []byte{1, 2}}, {Counter: 1, Of: TypeHopState, Payload: []byte{1, 3}},
		{Counter: 1, Of: TypeHopState, Payload: []byte{1}}, {Counter: 1, Of: TypeHopState, Payload: []byte{1, 2, 0}},
	} {
		s := string(f.AppendSigned(nil))
		if other, ok := seen[s]; ok || s == string(f.appendBody(nil)) {
			t.Errorf("%d is as %d", i, other)
		}
		seen[s] = i
		f.Tag[0]++
		if string(f.AppendSigned(nil)) != s {
			t.Errorf("%d: the tag is over itself", i)
		}
	}
}
