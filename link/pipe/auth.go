// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"hash"
	"sync/atomic"

	"mpbond/link/wire"
)

// Reasons why a server ignores a HOP_AUTH frame.
var (
	ErrForged   = errors.New("the tag is wrong")
	ErrRepeated = errors.New("the counter did not increase")
)

// signer builds the HOP_AUTH frames of one HS-path at the helper.
type signer struct {
	tagger  tagger
	counter uint64
	scratch []byte // reused for the payload of each frame
}

// appendAuth appends f, wrapped in a HOP_AUTH frame, to b.
func (s *signer) appendAuth(b []byte, f wire.Frame) []byte {
	s.counter++
	s.scratch = f.AppendPayload(s.scratch[:0])
	a := wire.HopAuth{Counter: s.counter, Of: f.Type(), Payload: s.scratch}
	a.Tag = s.tagger.computeTag(a)
	return wire.Append(b, a)
}

// verifier checks the HOP_AUTH frames of one HS-path at the server.
type verifier struct {
	tagger     tagger
	hasKey     bool   // tagger has the key
	maxCounter uint64 // highest counter accepted
	earlyLimit []byte // payload of the newest HOP_AUTH with a limit that came before the key; nil: none
	onReject   func(error)
	rejected   atomic.Uint64
}

// verifyHopAuth returns the frame inside a HOP_AUTH. ok is false if the frame has no effect: it is
// forged or repeated, or the key is not known yet. A malformed frame is an error.
func (v *verifier) verifyHopAuth(payload []byte) (f wire.HopAuth, ok bool, err error) {
	if f, err = wire.ParseHopAuth(payload); err != nil {
		return f, false, err
	}
	if !v.hasKey {
		if f.Of == wire.TypeHopLimit { // unlike a report, a limit is not sent again
			v.earlyLimit = bytes.Clone(payload)
		}
		return f, false, nil
	}
	var reason error
	switch tag := v.tagger.computeTag(f); {
	case !hmac.Equal(tag[:], f.Tag[:]):
		reason = ErrForged
	case f.Counter <= v.maxCounter:
		reason = ErrRepeated
	default:
		v.maxCounter = f.Counter
		return f, true, nil
	}
	v.rejected.Add(1)
	if v.onReject != nil {
		v.onReject(reason)
	}
	return f, false, nil
}

// tagger computes tags with one key.
type tagger struct {
	mac     hash.Hash
	scratch []byte // reused for signed bytes and sums
}

func newTagger(key wire.HopKey) tagger { return tagger{mac: hmac.New(sha256.New, key[:])} }

func (t *tagger) computeTag(f wire.HopAuth) (tag [wire.HopTagLen]byte) {
	t.scratch = f.AppendSigned(t.scratch[:0])
	t.mac.Reset()
	t.mac.Write(t.scratch)
	t.scratch = t.mac.Sum(t.scratch[:0])
	copy(tag[:], t.scratch)
	return tag
}

// Authenticate makes the server's end of an HS-path accept only those reports and limits of the
// helper that have a valid tag by key and a new counter. Others are counted and otherwise ignored;
// onReject, if not nil, is called with the reason. Reports that arrived earlier are lost. The
// newest limit that arrived earlier is checked now. Authenticate must be called by the goroutine
// that reads, which also calls onReject.
func (h *HSPath) Authenticate(key wire.HopKey, onReject func(error)) error {
	v := h.auth
	v.tagger, v.hasKey, v.onReject = newTagger(key), true, onReject
	early := v.earlyLimit
	v.earlyLimit = nil
	if early == nil {
		return nil
	}
	return h.handleAuth(early)
}

// Rejected returns how many reports and limits were ignored because they were forged or repeated.
func (h *HSPath) Rejected() uint64 {
	if h.auth == nil {
		return 0
	}
	return h.auth.rejected.Load()
}

// handleAuth handles a HOP_AUTH frame.
func (h *HSPath) handleAuth(payload []byte) error {
	f, ok, err := h.auth.verifyHopAuth(payload)
	if !ok || err != nil {
		return err
	}
	if f.Of == wire.TypeHopState {
		return h.handleState(f.Payload)
	}
	limit, err := wire.ParseHopLimit(f.Payload)
	if err == nil {
		err = h.Pace(limit.Rate)
	}
	return err
}
