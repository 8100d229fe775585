// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
)

// PendingPairing is a pairing in which both devices have proved that they know the code. The other
// device waits for up to a minute for our identity; see Finish.
type PendingPairing struct {
	self    Self
	channel *channel
	peer    peerInfo
	fleet   *fleetOffer // with a fleet's code; else nil
}

// Call pairs over conn, which was dialled at addr. It owns conn from now on. Errors are faults.
func Call(ctx context.Context, conn net.Conn, addr string, self Self, secret string) (*PendingPairing, error) {
	return newCaller(self, Code{Secret: secret}).callAcceptorAt(ctx, conn, addr)
}

// caller tries one code, possibly at several addresses at once.
type caller struct {
	self  Self
	code  Code
	mu    sync.Mutex
	turns map[identity.PublicKey]chan error
}

func newCaller(self Self, code Code) *caller {
	return &caller{self: self, code: code, turns: map[identity.PublicKey]chan error{}}
}

// turnForDevice returns the turn of connections that reached one device at several addresses. A
// connection takes the value from the channel. If it is nil, the connection may try the code. It
// puts back nil if the try had no result, otherwise the result. So a wrong code is tried once per
// device, not once per address.
func (a *caller) turnForDevice(device identity.PublicKey) chan error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turns[device] == nil {
		a.turns[device] = make(chan error, 1)
		a.turns[device] <- nil
	}
	return a.turns[device]
}

// errAlreadyReached is the result after a correct code.
var errAlreadyReached = errors.New("the device was reached at another address")

// callAcceptorAt makes the exchange over conn, up to the identity of the acceptor. addr is the
// dialed address. It closes conn unless it succeeds.
func (a *caller) callAcceptorAt(ctx context.Context, conn net.Conn, addr string) (*PendingPairing, error) {
	m := &PendingPairing{self: a.self, peer: peerInfo{dialedAddr: addr, remoteAddr: conn.RemoteAddr()}}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := a.receiveIdentity(ctx, conn, m)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, explainCallError(ctx, err)
	}
	return m, nil
}

// receiveIdentity runs the protocol up to the other device's PAIR_IDENTITY.
func (a *caller) receiveIdentity(ctx context.Context, conn net.Conn, m *PendingPairing) error {
	if _, err := conn.Write(wire.Append(nil, wire.Pair{Version: wire.Version})); err != nil {
		return err
	}
	c, err := openPairingChannel(ctx, tls.Client(conn, a.self.Key.UnverifiedConfig(wire.PairALPN)))
	if err != nil {
		return err
	}
	if c.peer == a.self.Key.Public() {
		return errOwnCode
	}
	m.channel, m.peer.key = c, c.peer
	turn := a.turnForDevice(c.peer)
	select {
	case known := <-turn:
		if known == nil {
			known, err = a.provePairingCode(m)
		} else {
			err = known
		}
		turn <- known
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// provePairingCode tries the code. known is the result for other connections to this device, nil if
// they may still try.
func (a *caller) provePairingCode(m *PendingPairing) (known, err error) {
	c := m.channel
	p := newProofContext(a.self.Key.Public(), c.peer, c.binding)
	if a.code.IsFleet() {
		p = newFleetContext(a.code.ID(), a.self.Key.Public(), c.peer, c.binding)
		if err := c.sendPairingFrame(a.code.publicName()); err != nil {
			return nil, err
		}
	}
	proof, ke1, err := beginProof(p, a.code.Secret)
	if err != nil {
		return nil, err
	}
	if err := c.sendPairingFrame(wire.PairStep{Number: 1, Bytes: ke1}); err != nil {
		return nil, err
	}
	ke2, err := c.readPairStep(2)
	if err != nil {
		return nil, err
	}
	ke3, err := proof.finishProof(ke2)
	if err != nil {
		return errWrongCode, errWrongCode // every cause means a wrong code, or an attack
	}
	if err := c.sendPairingFrame(wire.PairStep{Number: 3, Bytes: ke3}); err != nil {
		return nil, err
	}
	if m.peer.identity, err = c.readIdentity(); err != nil {
		return nil, err
	}
	if _, err := m.peer.usableRoles(a.self.About().Roles); err != nil {
		return err, err
	}
	if a.code.IsFleet() {
		if m.fleet, err = a.readFleetOffer(c); err != nil {
			return err, err
		}
	}
	return errAlreadyReached, nil
}

// ID returns the short form of the other device's key.
func (m *PendingPairing) ID() identity.ID { return m.peer.key.ID() }

// IsHelper reports whether the other device is a helper.
func (m *PendingPairing) IsHelper() bool { return m.peer.identity.Roles&wire.PairHelper != 0 }

// IsFleet reports whether the other device is a server of the fleet whose key the code names.
func (m *PendingPairing) IsFleet() bool { return m.fleet != nil }

// Finish sends our identity, waits until the peer has stored it, then stores the peer's. A helper
// also receives the servers that self trusts now.
func (m *PendingPairing) Finish(ctx context.Context) (identity.Peer, error) {
	defer m.Close()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = m.channel.tls.NetConn().SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := m.channel.sendPairingFrame(m.self.identityFor(m.peer.identity.Roles)); err != nil {
		return identity.Peer{}, explainCallError(ctx, err)
	}
	if m.fleet != nil {
		if err := m.channel.sendPairingFrame(wire.PairClaim{Sig: m.fleet.claim}); err != nil {
			return identity.Peer{}, explainCallError(ctx, err)
		}
	}
	if _, err := m.channel.expectPairingFrame(wire.TypePairDone); err != nil {
		return identity.Peer{}, explainCallError(ctx, err)
	}
	if m.fleet != nil {
		return m.self.JoinFleet(m.fleet.key, m.fleet.offer, m.peer.key)
	}
	return m.self.storePairedPeer(m.peer)
}

// Close ends a pairing that is not finished.
func (m *PendingPairing) Close() { m.channel.tls.NetConn().Close() }

var errOwnCode = fault.New(fault.Usage, errors.New("this code belongs to this device itself"),
	"run `mpbond pair` on the other device")

// explainCallError makes err a fault with a hint for the user.
func explainCallError(ctx context.Context, err error) error {
	var done *fault.Error
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) && !errors.As(err, &done) {
		return cause
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return fault.New(fault.Timeout, fmt.Errorf("the other device does not answer within %v", stepTimeout),
			"check that mpbond runs there and that the link works")
	}
	if errors.As(err, &done) {
		return err
	}
	return fault.New(fault.Unreachable, fmt.Errorf("the connection broke: %w", err), "its log shows the reason")
}
