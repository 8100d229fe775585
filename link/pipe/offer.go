// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
)

// Offer is the helper's end of a pipe that no subflow uses yet.
type Offer struct {
	raw Conn
	tls *tls.Conn
	r   *wire.Reader

	// OnServers is called with the list of servers that the primary announces. Its error ends the
	// pipe. Set it before Wait.
	OnServers func([]string) error
	// OnTrouble is called with each report of why the primary does not use this device. Set it
	// before Wait.
	OnTrouble func(wire.Trouble)
}

// maxServersFrames bounds the SERVERS frames on one pipe, maxHints all other frames that carry
// hints.
const maxServersFrames, maxHints = 16, 4096

// NewOffer makes a pipe of a connection to a primary. cfg is from identity.Key.ClientConfig with
// wire.PipeALPN; name is for display. It owns conn from now on and fails after HandshakeTimeout.
// Its errors are faults. If the primary refuses this device's key, only Wait reports it.
func NewOffer(ctx context.Context, conn Conn, cfg *tls.Config, name string) (*Offer, error) {
	o := &Offer{raw: conn, tls: tls.Client(conn, cfg)}
	err := runWithTimeout(ctx, HandshakeTimeout, conn, func(ctx context.Context) error {
		if err := o.tls.HandshakeContext(ctx); err != nil {
			return err
		}
		_, err := o.tls.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: name}))
		if err == nil {
			return nil
		}
		// The primary may have refused our key and hung up already: its reason can still be read.
		if _, readErr := o.tls.Read(make([]byte, 1)); fault.Is(identity.ExplainTLS(readErr), fault.UnknownDevice) {
			return readErr
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("pipe to %v: %w", conn.RemoteAddr(), err)
	}
	o.r = wire.NewReader(o.tls)
	return o, nil
}

// Request is a primary's request on a waiting pipe: a new subflow to Server, or the resumption of a
// subflow of another pipe.
type Request struct {
	Token         wire.Token
	Key           wire.HopKey // key of the subflow, for DialHS
	Server        string
	ResumeTimeout time.Duration // how long the subflow outlives a break
	Resume        *wire.Resume  // nil for a new subflow
}

// Wait blocks until the primary sends a request. The caller must then call Accept, Refuse or
// Link.AcceptResume. When ctx ends or the pipe breaks, the pipe is closed. Errors that a user can
// act on are faults.
func (o *Offer) Wait(ctx context.Context) (req Request, err error) {
	stop := context.AfterFunc(ctx, func() { o.Close() })
	t, payload, err := o.readUntilRequest()
	if !stop() {
		return req, ctx.Err()
	}
	if err == nil && t == wire.TypeResume {
		f, err := wire.ParseResume(payload)
		if err != nil {
			o.Close()
			return req, notMpbondError(err)
		}
		return Request{Token: f.Token, Resume: &f}, nil
	}
	payload, err = checkFrame(t, payload, err, wire.TypeInitJoin)
	var f wire.InitJoin
	if err == nil {
		f, err = wire.ParseInitJoin(payload)
	}
	if err != nil {
		o.Close()
		return req, identity.ExplainTLS(err)
	}
	return Request{Token: f.Token, Key: f.Key, Server: f.Server, ResumeTimeout: f.ResumeTimeout}, nil
}

// readUntilRequest reads frames until one that is a request.
func (o *Offer) readUntilRequest() (wire.Type, []byte, error) {
	for servers, hints := 0, 0; servers < maxServersFrames && hints < maxHints; {
		t, payload, err := o.r.Next()
		switch {
		case err == nil && t == wire.TypeServers:
			servers++
			f, err := wire.ParseServers(payload)
			if err == nil && o.OnServers != nil {
				err = o.OnServers(f.Addresses)
			}
			if err != nil {
				return 0, nil, err
			}
		case err == nil && t == wire.TypeTrouble:
			hints++
			f, err := wire.ParseTrouble(payload)
			if err != nil {
				return 0, nil, err
			}
			if o.OnTrouble != nil {
				o.OnTrouble(f)
			}
		case err == nil && t.Skippable():
			hints++
		default:
			return t, payload, err
		}
	}
	return 0, nil, fmt.Errorf("%w: more than %d times %v, or %d hints", wire.ErrMalformed, maxServersFrames-1,
		wire.TypeServers, maxHints)
}

// SendStalled reports to the primary that session t needs another pipe. It must be called before
// Wait.
func (o *Offer) SendStalled(t wire.Token) error {
	_ = o.raw.SetWriteDeadline(time.Now().Add(HandshakeTimeout))
	_, err := o.tls.Write(wire.Append(nil, wire.Stalled{Token: t}))
	_ = o.raw.SetWriteDeadline(time.Time{})
	return err
}

// SendFacts sends the primary the facts about this device. Any goroutine may call it while the pipe
// waits. A late call does no harm.
func (o *Offer) SendFacts(f wire.Facts) error {
	_, err := o.tls.Write(wire.Append(nil, f))
	return err
}

// Accept answers req with INIT_MP_OK: the HS-path is connected, over a link of the given radio. If
// a pipe of the returned Link breaks, the Link waits for another one for resumeTimeout.
func (o *Offer) Accept(req Request, resumeTimeout time.Duration, radio wire.Radio) (*Link, error) {
	if _, err := o.tls.Write(wire.Append(nil, wire.InitOK{Radio: radio})); err != nil {
		o.Close()
		return nil, err
	}
	return newSubflowLink(o.newOfferLinkConn(), req.Token, resumeTimeout), nil
}

func (o *Offer) newOfferLinkConn() *linkConn {
	return &linkConn{hopConn: hopConn{raw: o.raw, rw: o.tls, r: o.r}}
}

// Refuse answers REFUSE and closes the pipe.
func (o *Offer) Refuse(code wire.Code, text string) error {
	return o.newOfferLinkConn().refuseAndClose(code, text)
}

// Close closes the pipe.
func (o *Offer) Close() error { return o.tls.Close() }
