// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/refusal"
)

// troubleLog stores why each device has no subflow, by its name in the status, and which devices
// refused each other. It logs each change once, and a lasting refusal once an hour. Safe for
// concurrent use; no other lock is taken while mu is held, and its functions are called without mu.
type troubleLog struct {
	server      *serverPeer
	trust       *identity.Trust
	log         *slog.Logger
	onChange    func()                 // called when a device's trouble has changed
	helperNames func() map[string]bool // of the helpers
	hasSubflow  func() bool            // reports whether a subflow reaches the server

	refused refusal.List // devices refused here or refusing this device

	mu   sync.Mutex
	last map[string]api.Trouble
}

// setDeviceTrouble stores why a device has no subflow; nil if it has one or needs none.
func (t *troubleLog) setDeviceTrouble(device string, err error) {
	now, refused, logAgain := troubleOfError(err), refusal.Is(err), false
	if refused {
		r := t.refusalRecord(err)
		now.Text, now.Hint, logAgain = "refused: "+r.Reason, r.Hint, t.refused.Note(r, time.Now())
	}
	t.mu.Lock()
	changed := t.last[device] != now
	t.last[device] = now
	t.mu.Unlock()
	if err != nil && (changed && !refused || logAgain) {
		t.log.Warn("no subflow", "by", device, "err", err, "hint", now.Hint)
	}
	if changed {
		t.onChange()
	}
}

// serverTrouble returns why no direct subflow reaches the server. Its Text is empty if one does, or
// if the reason is unknown.
func (t *troubleLog) serverTrouble() (f wire.Trouble) {
	server, missing := t.server.currentServer()
	switch {
	case missing != nil:
		return wire.Trouble{Code: wire.CodeUnknown, Text: missing.Error()}
	case t.hasSubflow():
		return f
	}
	helpers := t.helperNames()
	for device, last := range t.listTroubles() {
		if last.Text != "" && !helpers[device] && (f.Text == "" || last.Text < f.Text) {
			f = wire.Trouble{Code: codeByCause[last.Cause], Text: last.Text}
			if len(server.Addresses) > 0 {
				f.Address = server.Addresses[0]
			}
		}
	}
	return f
}

// listRefusals returns the devices that were refused here or refused this device.
func (t *troubleLog) listRefusals(now time.Time) []refusal.Record { return t.refused.Refusals(now) }

// refusalRecord returns how a subflow was refused: by the helper that err names, else between this
// device and the server.
func (t *troubleLog) refusalRecord(err error) refusal.Record {
	by, _ := t.server.currentServer()
	if key, ok := identity.FailedPeer(err); ok {
		by, _ = t.trust.Lookup(key)
	}
	r := refusal.Record{Key: by.Key.String(), Device: by.Name, Here: fault.Is(err, fault.WrongKey)}
	r.Reason, r.Hint = refusal.Explain(err, by.Name)
	return r
}

// recordRefusedPipe stores a caller that was refused a pipe, and reports whether it is worth a log
// line.
func (t *troubleLog) recordRefusedPipe(from net.Addr, err error) bool {
	if !refusal.Is(err) {
		return true
	}
	key, known := identity.FailedPeer(err)
	peer, _ := t.trust.Lookup(key)
	r := refusal.Record{Key: tcp.SourceOf(from).String(), Device: peer.Name, Address: from.String(), Here: true}
	if known {
		r.Key = key.String()
	}
	r.Reason, r.Hint = refusal.Explain(err, cmp.Or(peer.Name, "that device"))
	return t.refused.Note(r, time.Now())
}

// forgetRefusedHere removes the refusal of a device by this one.
func (t *troubleLog) forgetRefusedHere(key identity.PublicKey) { t.refused.Forget(key.String(), true) }

// forgetRefusalBy removes the refusal of this device by another one.
func (t *troubleLog) forgetRefusalBy(key identity.PublicKey) { t.refused.Forget(key.String(), false) }

// forgetDevice removes the trouble of a device that no longer exists.
func (t *troubleLog) forgetDevice(device string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, device)
}

// renameDevices renames devices all at once, since one may get the old name of another.
func (t *troubleLog) renameDevices(list []deviceRename) {
	t.mu.Lock()
	defer t.mu.Unlock()
	renamed := map[string]api.Trouble{}
	for _, r := range list {
		if trouble, ok := t.last[r.from]; ok {
			renamed[r.to] = trouble
			delete(t.last, r.from)
		}
	}
	maps.Copy(t.last, renamed)
}

// listTroubles returns the last trouble of each device; an empty Text means none.
func (t *troubleLog) listTroubles() map[string]api.Trouble {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.last)
}
