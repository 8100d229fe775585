// SPDX-License-Identifier: Apache-2.0

// Package pairing introduces two devices to each other with a short code, which the user copies
// from one to the other. It belongs to the control path. Only an entry in the trust file of each
// device (package identity) remains of a pairing: from then on both prove the keys that they
// exchanged here.
//
//	caller: mpbond pair CODE          acceptor: shows CODE
//	PAIR (in the clear)  ---------->
//	TLS 1.3, both show their keys; neither is known yet
//	PAIR_STEP 1 (KE1)    ---------->  one try of the code is counted
//	                     <----------  PAIR_STEP 2 (KE2), proves the code
//	PAIR_STEP 3 (KE3)    ---------->  proves the code; the try is given back
//	                     <----------  PAIR_IDENTITY
//	PAIR_IDENTITY        ---------->  is stored
//	                     <----------  PAIR_DONE; is stored
//
// The code of a fleet's invitation is longer: any server of the fleet accepts it. The caller names it by
// PAIR_CODE before PAIR_STEP 1. PAIR_FLEET follows the acceptor's PAIR_IDENTITY, PAIR_CLAIM the caller's.
//
// The proof is OPAQUE (RFC 9807). An attacker without the code learns only whether one guess was
// right. The transcript includes both device keys and the TLS exporter (RFC 9266, "channel
// binding"). So a man in the middle cannot relay messages: its two connections have other keys.
// The caller detects a wrong acceptor before it has sent anything about itself.
//
//	code.go      codes as users write them
//	proof.go     OPAQUE with a one-time code
//	acceptor.go  the device that shows a code: tries, lifetime
//	caller.go    the device on which the code is entered
//	peer.go      roles, and what is stored about the peer
//	fleet.go     codes of a fleet, which any of its servers accepts
//	address.go   addresses of a device that shows a code
package pairing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/link/wire"
)

// Limits; docs/reference/wire.md documents them.
const (
	// stepTimeout bounds TLS and the key exchange together, and each message after it.
	stepTimeout = 10 * time.Second
	// identityTimeout is how long the acceptor waits for the caller's PAIR_IDENTITY. The caller may
	// have other devices to call first.
	identityTimeout = time.Minute
)

const hintVersion = "install the same release of mpbond on both devices"

// channel is a pairing connection after the TLS handshake.
type channel struct {
	tls     *tls.Conn
	r       *wire.Reader
	peer    identity.PublicKey
	binding []byte // exported from the TLS connection
}

// openPairingChannel runs the TLS handshake and learns the peer's key, which nothing vouches for
// yet.
func openPairingChannel(ctx context.Context, c *tls.Conn) (*channel, error) {
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

func (c *channel) sendPairingFrame(f wire.Frame) error {
	_, err := c.tls.Write(wire.Append(nil, f))
	return identity.ExplainTLS(err)
}

// sendPairingRefusal sends the reason for a refusal to the peer, if it still listens.
func (c *channel) sendPairingRefusal(code wire.Code, text string) {
	_ = c.sendPairingFrame(wire.Refuse{Code: code, Version: wire.Version, Text: text})
}

// expectPairingFrame reads the next frame, which must be of type t.
func (c *channel) expectPairingFrame(t wire.Type) ([]byte, error) {
	_, payload, err := c.nextPairingFrame(t)
	return payload, err
}

// nextPairingFrame reads a frame of one of these types. A refusal of the peer is an error.
func (c *channel) nextPairingFrame(types ...wire.Type) (wire.Type, []byte, error) {
	got, payload, err := c.r.Next()
	switch {
	case err != nil:
		return 0, nil, identity.ExplainTLS(err)
	case got == wire.TypeRefuse:
		f, err := wire.ParseRefuse(payload)
		if err != nil {
			return 0, nil, err
		}
		f.Text = text.Printable(f.Text) // the peer is not authenticated yet
		return 0, nil, explainPeerRefusal(f)
	case !slices.Contains(types, got):
		return 0, nil, fault.New(fault.Protocol, fmt.Errorf("%v came instead of %v", got, types[0]), hintVersion)
	}
	return got, payload, nil
}

// readPairStep reads message number of the key exchange.
func (c *channel) readPairStep(number uint8) ([]byte, error) {
	payload, err := c.expectPairingFrame(wire.TypePairStep)
	if err != nil {
		return nil, err
	}
	return parsePairStep(payload, number)
}

// parsePairStep returns message number of the key exchange.
func parsePairStep(payload []byte, number uint8) ([]byte, error) {
	f, err := wire.ParsePairStep(payload)
	if err == nil && f.Number != number {
		err = fmt.Errorf("step %d came instead of %d", f.Number, number)
	}
	return f.Bytes, fault.New(fault.Protocol, err, hintVersion)
}

func (c *channel) readIdentity() (wire.PairIdentity, error) {
	payload, err := c.expectPairingFrame(wire.TypePairIdentity)
	if err != nil {
		return wire.PairIdentity{}, err
	}
	f, err := wire.ParsePairIdentity(payload)
	return f, fault.New(fault.Protocol, err, hintVersion)
}

// explainPeerRefusal makes a peer's refusal a fault.
func explainPeerRefusal(f wire.Refuse) error {
	switch f.Code {
	case wire.CodeVersion:
		return fault.New(fault.Protocol, f, hintVersion)
	case wire.CodeForbidden:
		return errWrongCode
	case wire.CodeLimit:
		return fault.New(fault.Limit, f, "wait a while, or run `mpbond accept` on the other device for a new code")
	case wire.CodeClosed:
		return fault.New(fault.UnknownDevice, f, "run `mpbond accept` on the other device for a code")
	}
	return fault.New(fault.Protocol, f, "")
}

var errWrongCode = fault.New(fault.UnknownDevice, errors.New("the code is wrong"),
	"compare it with the other device's display; a code is valid for ten minutes and five failed tries from one "+
		"address, then run `mpbond accept` there for a new one")

// hostOfNetAddr returns the host of an address.
func hostOfNetAddr(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return host
}
