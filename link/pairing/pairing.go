// Package pairing makes two devices known to each other by a short code that a
// person carries from one to the other. It stands on the control path, before
// package identity's trust file, which is all that is left of it afterwards:
// from then on the two prove the keys that they learnt here.
//
//	caller: mpbond pair CODE          acceptor: shows CODE
//	PAIR (in the clear)  ---------->
//	TLS 1.3, both show their keys; neither is known yet
//	PAIR_STEP 1 (KE1)    ---------->  one try of the code is used up
//	                     <----------  PAIR_STEP 2 (KE2), proves the code
//	PAIR_STEP 3 (KE3)    ---------->  proves the code; the try is given back
//	                     <----------  PAIR_IDENTITY
//	PAIR_IDENTITY           ---------->  is written down
//	                     <----------  PAIR_DONE; is written down
//
// The proof is OPAQUE (RFC 9807), in which who does not know the code learns
// nothing to guess it by but whether one guess was right. Its transcript holds
// both device keys and what TLS exports (RFC 9266, "channel binding"), so that
// nobody in between, who has two connections with other keys, can pass messages
// on. The caller finds a wrong acceptor out before it has told anything.
//
//	code.go      codes as people write them
//	proof.go     OPAQUE with a code of one use
//	acceptor.go  the device that shows a code: tries, time, one at once
//	caller.go    the device that is told it
//	meet.go      what is written down
//	address.go   where a device may be called
package pairing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/link/wire"
)

// Limits, part of what docs/reference/wire.md promises.
const (
	// stepTimeout bounds TLS and the key exchange, and each message after it.
	stepTimeout = 10 * time.Second
	// identityTimeout is how long the acceptor waits for the caller's PAIR_IDENTITY:
	// it may have further devices to call first.
	identityTimeout = time.Minute
)

const hintVersion = "install the same release of mpbond on both devices"

// channel is one pairing connection, past TLS.
type channel struct {
	tls     *tls.Conn
	r       *wire.Reader
	peer    identity.PublicKey
	binding []byte // of the TLS connection
}

// newChannel shakes hands over a TLS connection that has not begun.
func newChannel(ctx context.Context, c *tls.Conn) (*channel, error) {
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, identity.ExplainTLS(err)
	}
	state := c.ConnectionState()
	peer, err := identity.PeerKey(state)
	if err != nil {
		return nil, err
	}
	binding, err := state.ExportKeyingMaterial("EXPORTER-mpbond-pair", nil, 32)
	if err != nil {
		return nil, err
	}
	return &channel{c, wire.NewReader(c), peer, binding}, nil
}

func (c *channel) sendFrame(f wire.Frame) error {
	_, err := c.tls.Write(wire.Append(nil, f))
	return identity.ExplainTLS(err)
}

// sendRefusal tells the other end why not, as far as it still listens.
func (c *channel) sendRefusal(code wire.Code, text string) {
	_ = c.sendFrame(wire.Refuse{Code: code, Version: wire.Version, Text: text})
}

// expectFrame reads the next frame, which must be of type t.
func (c *channel) expectFrame(t wire.Type) ([]byte, error) {
	got, payload, err := c.r.Next()
	switch {
	case err != nil:
		return nil, identity.ExplainTLS(err)
	case got == wire.TypeRefuse:
		f, err := wire.ParseRefuse(payload)
		if err != nil {
			return nil, err
		}
		f.Text = text.Printable(f.Text) // that device has proved nothing yet
		return nil, refusalFault(f)
	case got != t:
		return nil, fault.New(fault.Protocol, fmt.Errorf("%v came instead of %v", got, t), hintVersion)
	}
	return payload, nil
}

// readStep reads a message of the key exchange.
func (c *channel) readStep(number uint8) ([]byte, error) {
	payload, err := c.expectFrame(wire.TypePairStep)
	if err != nil {
		return nil, err
	}
	f, err := wire.ParsePairStep(payload)
	if err == nil && f.Number != number {
		err = fmt.Errorf("step %d came instead of %d", f.Number, number)
	}
	return f.Bytes, fault.New(fault.Protocol, err, hintVersion)
}

func (c *channel) readAbout() (wire.PairIdentity, error) {
	payload, err := c.expectFrame(wire.TypePairIdentity)
	if err != nil {
		return wire.PairIdentity{}, err
	}
	f, err := wire.ParsePairIdentity(payload)
	return f, fault.New(fault.Protocol, err, hintVersion)
}

// refusalFault makes a fault of the other end's refusal.
func refusalFault(f wire.Refuse) error {
	switch f.Code {
	case wire.CodeVersion:
		return fault.New(fault.Protocol, f, hintVersion)
	case wire.CodeForbidden:
		return errWrongCode
	case wire.CodeLimit:
		return fault.New(fault.Limit, f, "wait a while, or have the other device show a new code: mpbond accept")
	case wire.CodeClosed:
		return fault.New(fault.UnknownDevice, f, "have that device show a code: mpbond accept")
	}
	return fault.New(fault.Protocol, f, "")
}

var errWrongCode = fault.New(fault.UnknownDevice, errors.New("the code is wrong"),
	"compare it with what the other device shows; a code holds for a few tries and minutes, then `mpbond accept` there shows a new one")

// hostOf is the host of an address.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}
