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

// Why a server ignores a HOP_AUTH.
var (
	ErrForged   = errors.New("its tag is wrong")
	ErrRepeated = errors.New("its counter has not risen")
)

// signer makes the HOP_AUTH frames of one HS-path, at the helper.
type signer struct {
	tagger  tagger
	counter uint64
	scratch []byte // scratch
}

// appendAuth appends f in a HOP_AUTH to b.
func (s *signer) appendAuth(b []byte, f wire.Frame) []byte {
	s.counter++
	s.scratch = f.AppendPayload(s.scratch[:0])
	a := wire.HopAuth{Counter: s.counter, Of: f.Type(), Payload: s.scratch}
	a.Tag = s.tagger.computeTag(a)
	return wire.Append(b, a)
}

// verifier checks the HOP_AUTH frames of one HS-path, at the server.
type verifier struct {
	tagger     tagger
	hasKey     bool   // tags has the key
	maxCounter uint64 // highest counter taken
	earlyLimit []byte // newest limit that came before the key, a HOP_AUTH's payload; nil: none
	onReject   func(error)
	rejected   atomic.Uint64
}

// verify returns the frame that a HOP_AUTH carries. ok is false for one that has no effect:
// forged, repeated, or before the key is known. An error is of one that is malformed.
func (v *verifier) verify(payload []byte) (f wire.HopAuth, ok bool, err error) {
	if f, err = wire.ParseHopAuth(payload); err != nil {
		return f, false, err
	}
	if !v.hasKey {
		if f.Of == wire.TypeHopLimit { // it is not sent again, as a report is
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

// tagger computes tags by one key.
type tagger struct {
	mac     hash.Hash
	scratch []byte // scratch
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

// Authenticate has the server's end of an HS-path take those reports and limits of the helper
// that have a tag by key and do not come again. Others are counted, and onReject, unless nil,
// is called with the reason; else they have no effect. Of what came before, reports are lost and
// the newest limit is checked now. Call it, and expect onReject, in the goroutine that reads.
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

// Rejected counts the reports and limits that were ignored because they were forged or
// repeated.
func (h *HSPath) Rejected() uint64 {
	if h.auth == nil {
		return 0
	}
	return h.auth.rejected.Load()
}

// handleAuth handles a HOP_AUTH.
func (h *HSPath) handleAuth(payload []byte) error {
	f, ok, err := h.auth.verify(payload)
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
