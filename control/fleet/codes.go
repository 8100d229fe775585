// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pairing"
)

// openCode is a record in Codes: an invitation with the device that has used it, if any. The code itself is nowhere.
type openCode struct {
	Invitation   Signed               `json:"invitation"`
	Registration pairing.Registration `json:"registration"`
	// UsedBy is the device that has used the code. It may do so again: the server may have ended before it has added the
	// device, or its answer was lost.
	UsedBy *deviceRecord `json:"used_by,omitempty"`
}

// engineTimeout bounds the requests to the engine while a device waits.
const engineTimeout = 5 * time.Second

var (
	errUsedCode = fault.New(fault.UnknownDevice,
		errors.New("another device has used the code, or it has expired, or is of another fleet"),
		"ask the fleet's operator for a new one")
	errForeignCode = fault.New(fault.Integrity, errors.New("the record of this code is not the fleet's"),
		"something has changed the fleet's records: see the log of the server")
)

// errNoEngine is the error for pairings while the engine does not answer. Strangers see it, so it names no address.
var errNoEngine = fault.New(fault.Unreachable,
	errors.New("the fleet cannot add devices now, since its engine does not answer"),
	"try again later; devices that are paired go on")

// noEngineError logs why the engine could not be asked, and returns errNoEngine.
func (m *Member) noEngineError(err error) error {
	m.log.Warn("a device could not be paired", "err", err, "hint", fault.HintOf(err))
	return errNoEngine
}

// readCode returns the record of an unused code, or of one that this device has used.
func (m *Member) readCode(ctx context.Context, code string, device identity.PublicKey) (Record, openCode, Invitation,
	error) {
	var (
		c   openCode
		inv Invitation
	)
	if m.directory.fleetKey() == (identity.PublicKey{}) {
		return Record{}, c, inv, m.noEngineError(errors.New("the fleet's key is not known yet"))
	}
	r, err := m.store.Get(ctx, Codes, code)
	switch {
	case errors.Is(err, ErrNoRecord):
		return r, c, inv, errUsedCode
	case err != nil:
		return r, c, inv, m.noEngineError(err)
	}
	if json.Unmarshal(r.Value, &c) != nil || c.Invitation.decodeVerified(m.directory.fleetKey(), &inv) != nil ||
		inv.Code != code {
		return r, c, inv, errForeignCode
	}
	if c.UsedBy != nil && c.UsedBy.Key != device {
		return r, c, inv, errUsedCode
	}
	if err = inv.checkDates(m.directory.now()); err != nil {
		m.log.Warn("a code was refused", "err", err, "hint", fault.HintOf(err))
	}
	return r, c, inv, err
}

// checkDates returns an error unless an invitation is valid at a time. The engine ends its record in time: one that is
// there but not valid shows a wrong clock, or was restored.
func (i Invitation) checkDates(now time.Time) error {
	const hint = "check the clocks of the server and of the fleet's operator; if they are right, ask the operator for a " +
		"new code"
	switch {
	case now.After(i.Expires.Add(clockError)):
		return fault.New(fault.UnknownDevice, fmt.Errorf("the code expired %v ago by the clock of the server",
			now.Sub(i.Expires).Round(time.Minute)), hint)
	case i.Issued.After(now.Add(clockError)):
		return fault.New(fault.UnknownDevice, fmt.Errorf("the code was made %v from now by the clock of the server",
			i.Issued.Sub(now).Round(time.Minute)), hint)
	}
	return nil
}

// Registration implements pairing.Fleet.
func (m *Member) Registration(ctx context.Context, code string) (pairing.Registration, error) {
	if !m.lookups.Allow() {
		return pairing.Registration{}, fault.New(fault.Limit, errors.New("too many devices are being paired now"),
			"try again in a minute")
	}
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	r, err := m.store.Get(ctx, Codes, code)
	switch {
	case errors.Is(err, ErrNoRecord):
		return pairing.Registration{}, errUsedCode
	case err != nil:
		return pairing.Registration{}, m.noEngineError(err)
	}
	var c openCode
	if err := json.Unmarshal(r.Value, &c); err != nil {
		m.log.Error("damaged record of a code", "code", code, "err", err)
		return pairing.Registration{}, errForeignCode
	}
	return c.Registration, nil
}

// Offer implements pairing.Fleet.
func (m *Member) Offer() (identity.PublicKey, []byte, error) {
	signed, _, err := m.directory.currentList()
	if err != nil {
		return identity.PublicKey{}, nil, err
	}
	return m.directory.fleetKey(), encode(Offer{List: signed, Hints: m.states.hints(m.directory.now())}), nil
}

// Enroll implements pairing.Fleet. The code is used up when its record names the device, which only one
// server can achieve. The record stays until the code expires.
func (m *Member) Enroll(ctx context.Context, code string, e pairing.Enrollee) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	r, c, inv, err := m.readCode(ctx, code, e.Key)
	if err != nil {
		return "", err
	}
	d := deviceRecord{Invitation: c.Invitation, Key: e.Key, Name: inv.Name, Claim: e.Claim[:],
		Enrolled: m.directory.now().UTC(), Server: m.cfg.Name}
	if d.Name == "" {
		d.Name = identity.DeriveName(e.Name)
	}
	if _, err := openDevice(m.directory.fleetKey(), d); err != nil {
		return "", err
	}
	if c.UsedBy == nil {
		c.UsedBy = &d
		r.Value, r.Life = encode(c), max(inv.Expires.Sub(m.directory.now()), 0)+clockError
		if _, err = m.store.Update(ctx, Codes, r); errors.Is(err, ErrConflict) {
			return m.Enroll(ctx, code, e) // another server was faster, maybe with the same device
		} else if err != nil {
			return "", m.noEngineError(err)
		}
	} else {
		d = *c.UsedBy
	}
	isNew, err := m.addDevice(ctx, d)
	if err != nil {
		return "", m.noEngineError(err)
	}
	if _, ok := m.directory.lookup(e.Key); !ok { // a revocation by a clock that was ahead is newer than the invitation
		return "", fault.New(fault.UnknownDevice, errors.New("the fleet has revoked this device"),
			"the fleet's operator checks the clock, and invites it again")
	}
	if isNew {
		m.report(Event{Kind: "paired", Device: e.Key.ID().String(), Name: d.Name})
	}
	return d.Name, nil
}

// hasJoined reports whether a device that uses a code has joined by the same invitation before, or by a newer one.
func (m *Member) hasJoined(before, now deviceRecord) bool {
	old, err := openDevice(m.directory.fleetKey(), before)
	if err != nil {
		return false
	}
	d, err := openDevice(m.directory.fleetKey(), now)
	return err == nil && !old.invited.Before(d.invited)
}

// addDevice adds a device to Devices, or replaces its invitation by a newer one, and to what this server knows. It
// reports whether it has changed Devices. Most devices are new: one request adds them.
func (m *Member) addDevice(ctx context.Context, d deviceRecord) (isNew bool, err error) {
	for {
		r := Record{Key: d.Key.String(), Value: encode(d)}
		isNew = true
		_, err = m.store.Create(ctx, Devices, r.Key, r.Value, 0)
		if errors.Is(err, ErrConflict) {
			r, isNew, err = m.replaceDevice(ctx, d)
		}
		if errors.Is(err, ErrConflict) || errors.Is(err, ErrNoRecord) {
			continue // somebody else has changed it
		}
		if err != nil {
			return false, err
		}
		r.Revision = 0 // not delivered by the watch
		m.apply(Change{Record: r})
		return isNew, nil
	}
}

// replaceDevice replaces the record of a device, unless it has joined by this invitation or a newer one. The operator's
// ruling stays. It returns the record as it is then.
func (m *Member) replaceDevice(ctx context.Context, d deviceRecord) (r Record, isNew bool, err error) {
	if r, err = m.store.Get(ctx, Devices, d.Key.String()); err != nil {
		return r, false, err
	}
	var old deviceRecord
	if json.Unmarshal(r.Value, &old) == nil {
		d.Ruling = old.Ruling
	}
	if m.hasJoined(old, d) {
		return r, false, nil
	}
	r.Value = encode(d)
	_, err = m.store.Update(ctx, Devices, r)
	return r, true, err
}
