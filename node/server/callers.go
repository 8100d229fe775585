// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/link/tcp"
	"mpbond/node/refusal"
)

var errTooManyHandshakes = fault.New(
	fault.Limit,
	errors.New("too many handshakes: dropping connections"),
	"unknown callers, or a device in a loop: a firewall in front of the server can limit them",
)

// callerLog counts the callers of the server's port, stores which devices were refused, and logs
// failures. It limits the rate of log lines, since unknown callers cause them. Safe for concurrent
// use.
type callerLog struct {
	trust      Devices
	log        *slog.Logger
	limitedLog *loglimit.Limiter
	refused    refusal.List

	mu    sync.Mutex
	calls api.Calls
	lines tcp.RateLimiter[identity.PublicKey] // about subflows that come and go
}

func newCallerLog(trust Devices, log *slog.Logger) *callerLog {
	return &callerLog{trust: trust, log: log, limitedLog: loglimit.New(log),
		lines: tcp.RateLimiter[identity.PublicKey]{PerMinute: maxLines}}
}

// maxLines bounds the lines of the log about the subflows of one device that come and go, in a
// minute.
const maxLines = 120

// forDevice returns the log for a line about a subflow or bond of a device that comes or goes. It is
// silent if the device has had maxLines in this minute. Then one line a minute says so.
func (l *callerLog) forDevice(device identity.PublicKey) *slog.Logger {
	l.mu.Lock()
	isFew := l.lines.Allow(device, time.Now())
	l.mu.Unlock()
	if isFew {
		return l.log
	}
	peer, _ := l.trust.Lookup(device)
	l.limitedLog.Log(slog.LevelWarn, "connects too often", "a device connects too often: not all of it is logged",
		"device", cmp.Or(peer.Name, device.ID().String()), "lines_per_minute", maxLines,
		"hint", "it is in a loop, or hostile: pause or revoke it if others suffer")
	return slog.New(slog.DiscardHandler)
}

// countServerCall counts a connection to the server's port, except from this machine.
func (l *callerLog) countServerCall(from net.Addr, now time.Time) {
	if a, err := netip.ParseAddrPort(from.String()); err == nil && a.Addr().IsLoopback() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls.Count++
	l.calls.Last = now
}

// serverCallCount returns the count of connections to the server's port.
func (l *callerLog) serverCallCount() *api.Calls {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.calls
	return &c
}

// logFailure logs why a connection made no subflow, and stores a refusal of its device. Evicted
// connections are logged as too many; failures after the end of ctx are not logged.
func (l *callerLog) logFailure(ctx context.Context, c net.Conn, err error, evicted bool) {
	switch {
	case evicted || errors.Is(err, errTooManyHandshakes):
		l.logTooMany(c)
	case ctx.Err() == nil && l.storeRefusedCaller(c.RemoteAddr(), err, time.Now()):
		l.limitedLog.Log(
			slog.LevelInfo, string(fault.KindOf(err)), "connection refused", "from", c.RemoteAddr(), "err", err,
			"hint", fault.HintOf(err),
		)
	}
}

// logTooMany logs an evicted connection.
func (l *callerLog) logTooMany(c net.Conn) {
	l.limitedLog.Log(slog.LevelWarn, "crowd", errTooManyHandshakes.Error(), "from", c.RemoteAddr(),
		"over", c.LocalAddr().Network(), "hint", fault.HintOf(errTooManyHandshakes))
}

// storeRefusedCaller stores a refused device. It reports whether err, the reason that a connection
// made no subflow, is worth a log line.
func (l *callerLog) storeRefusedCaller(from net.Addr, err error, now time.Time) bool {
	if !refusal.Is(err) {
		return true
	}
	key, known := identity.FailedPeer(err)
	peer, _ := l.trust.Lookup(key)
	r := refusal.Record{Key: tcp.SourceOf(from).String(), Device: peer.Name, Address: from.String(), Here: true}
	if known {
		r.Key = key.String()
	}
	r.Reason, r.Hint = refusal.Explain(err, cmp.Or(peer.Name, "that device"))
	return l.refused.Note(r, now)
}
