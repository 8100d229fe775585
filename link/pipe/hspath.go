// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
	"mpbond/link/congestion"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// HSPath is a Hop between a helper and a server. It is one connection without TLS of its own, and
// ends with that connection. The helper's reports and limits carry a tag made with the subflow's
// key (HOP_AUTH), because nothing else proves their origin.
type HSPath struct {
	frameReader
	frameWriter
	conn hopConn

	onReport func(wire.Report) // or nil
	auth     *verifier         // at the server's end, otherwise nil

	limit     atomic.Int64 // pace requested from the far end, bit/s
	signer    *signer      // at the helper's end, otherwise nil; guarded by wmu
	limitSent int64        // the limit last sent; guarded by wmu
}

func newHSPath(conn Conn, r *wire.Reader) *HSPath {
	return &HSPath{frameWriter: newFrameWriter(), conn: hopConn{raw: conn, rw: conn, r: r}}
}

// OnReport sets the function that is called with reports left by a helper. It must be set before
// the first Read.
func (h *HSPath) OnReport(f func(wire.Report)) { h.onReport = f }

// Read implements net.Conn. It returns io.EOF when the peer ended its direction in order, and a
// wire.Refuse when the peer gave a reason.
func (h *HSPath) Read(p []byte) (int, error) { return h.readCiphertext(p, h.nextHSPathData) }

// nextHSPathData handles the next frame and returns its ciphertext if it is HOP_DATA.
func (h *HSPath) nextHSPathData() ([]byte, error) {
	t, payload, err := h.conn.r.Next()
	switch {
	case err != nil:
		return nil, err
	case t == wire.TypeHopAuth && h.auth != nil:
		return nil, h.handleAuth(payload)
	case t == wire.TypeReport && h.onReport != nil:
		return nil, h.handleReport(payload)
	}
	return h.handleCommonFrame(t, payload)
}

// handleReport handles a report left by a helper. It ends the connection, which was made for this
// report.
func (h *HSPath) handleReport(payload []byte) error {
	if len(payload) > wire.MaxReport {
		return wire.ErrTooLarge
	}
	f, err := wire.ParseReport(payload)
	if err != nil {
		return err
	}
	h.onReport(f)
	return io.EOF
}

// Write implements net.Conn.
func (h *HSPath) Write(p []byte) (n int, err error) {
	h.wmu.Lock()
	defer h.wmu.Unlock()
	return h.gatherData(p, h.flushHSPathLocked)
}

// Flush ends corking and writes the gathered data.
func (h *HSPath) Flush() error { return h.uncorkAndFlush(h.flushHSPathLocked) }

// flushHSPathLocked writes the gathered data, unsent reports and a changed limit. wmu must be held.
func (h *HSPath) flushHSPathLocked() error {
	h.closeFrame()
	for _, s := range h.takeUnsentReports() {
		h.appendSigned(s)
	}
	if r := h.limit.Load(); r != h.limitSent {
		h.appendSigned(wire.HopLimit{Rate: unit.Rate(r)})
		h.limitSent = r
	}
	if len(h.buf) == 0 {
		return nil
	}
	return h.writeGathered(&h.conn)
}

// appendSigned appends a report or limit in a HOP_AUTH frame. wmu must be held.
func (h *HSPath) appendSigned(f wire.Frame) {
	if h.signer == nil {
		h.appendFrame(f)
		return
	}
	h.buf = h.signer.appendAuth(h.buf, f)
}

// SendState implements Hop.
func (h *HSPath) SendState(s wire.HopState) error {
	h.queueHopReport(s)
	return h.flushUnlessBusy(h.flushHSPathLocked)
}

// SendLimit asks the server to send no faster than r; 0 removes the limit. Like SendState it does
// not wait. Repeat it to be sure that the limit has left: it is sent only if the far end does not
// have it.
func (h *HSPath) SendLimit(r unit.Rate) error {
	if r > 0 {
		r = max(r, wire.MinHopLimit)
	}
	h.limit.Store(int64(r))
	return h.flushUnlessBusy(h.flushHSPathLocked)
}

// Pace limits the sending rate of this end; 0 is no limit. It does nothing if the carrier has no
// pacing.
func (h *HSPath) Pace(r unit.Rate) error {
	if p, ok := h.conn.raw.(interface{ Pace(unit.Rate) error }); ok {
		return p.Pace(r)
	}
	return nil
}

// Refuse implements Hop.
func (h *HSPath) Refuse(code wire.Code, text string) error {
	h.wmu.Lock()
	h.appendFrame(newRefuseFrame(code, text))
	err := h.flushHSPathLocked()
	h.wmu.Unlock()
	return errors.Join(err, h.Close())
}

// WaitWritable blocks until a segment written now would soon leave this device.
func (h *HSPath) WaitWritable() error { return h.conn.raw.WaitWritable() }

// Probe returns the state of this hop's sending direction. Byte counts include framing.
func (h *HSPath) Probe() (estimate.Hop, error) { return h.conn.raw.Probe() }

// CongestionChoice implements congestion.Chooser.
func (h *HSPath) CongestionChoice() (congestion.Choice, bool) { return congestionChoice(h.conn.raw) }

// CloseWrite implements Hop.
func (h *HSPath) CloseWrite() error {
	h.wmu.Lock()
	defer h.wmu.Unlock()
	if err := h.flushHSPathLocked(); err != nil {
		return err
	}
	return h.conn.raw.CloseWrite()
}

// Close implements net.Conn.
func (h *HSPath) Close() error { return h.conn.rw.Close() }

// Abort closes with a reset and drops unsent data.
func (h *HSPath) Abort() error {
	if c, ok := h.conn.raw.(interface{ Abort() error }); ok {
		return c.Abort()
	}
	return h.Close()
}

// Conn returns the carrier's connection.
func (h *HSPath) Conn() Conn { return h.conn.raw }

// LocalAddr implements net.Conn.
func (h *HSPath) LocalAddr() net.Addr { return h.conn.raw.LocalAddr() }

// RemoteAddr implements net.Conn.
func (h *HSPath) RemoteAddr() net.Addr { return h.conn.raw.RemoteAddr() }

// SetDeadline implements net.Conn. After a read has failed by its deadline, no further read may
// follow.
func (h *HSPath) SetDeadline(t time.Time) error { return h.conn.rw.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (h *HSPath) SetReadDeadline(t time.Time) error { return h.conn.rw.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (h *HSPath) SetWriteDeadline(t time.Time) error { return h.conn.rw.SetWriteDeadline(t) }
