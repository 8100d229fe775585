// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/store"
)

// directory has a server's knowledge of the fleet: its devices, its list of servers and its key. A file keeps
// it, so that known devices are served while the engine is lost, also after a restart. Nobody is served
// when what it knows is older than life. Safe for concurrent use.
type directory struct {
	life time.Duration
	now  func() time.Time

	mu      sync.RWMutex
	key     identity.PublicKey // the fleet's; zero: not known yet
	devices map[identity.PublicKey]Device
	ids     map[string]identity.PublicKey // by ID
	codes   map[string]identity.PublicKey // which device has used a code
	// gone holds, for each device whose record was deleted, when the operator had made the newest decision about
	// it: an older record does not bring it back.
	gone  map[identity.PublicKey]time.Time
	order Signed // the newest order to this server; empty: none
	list  Signed
	// listProblem is why the newest list on the engine was not accepted; nil: it was.
	listProblem error
	applied     uint64    // revision of the newest record that the present watch has delivered
	readAt      time.Time // everything that the engine had then has been applied; zero: never
	journal     *store.Journal
	problem     error // why the file is not up to date; nil: it is
	// isFromFuture says that readAt in the file was after the present: the clock was wrong, or is.
	isFromFuture bool
	savedAt      time.Time
	// rewritten is when the whole file was last written, or could not be.
	rewritten time.Time
}

// directoryLine is a line of the file. One of the fields is set.
type directoryLine struct {
	Key    *identity.PublicKey `json:"key,omitempty"`
	Device *knownDevice        `json:"device,omitempty"`
	List   *Signed             `json:"list,omitempty"`
	Order  *Signed             `json:"order,omitempty"`
	ReadAt *time.Time          `json:"read_at,omitempty"`
}

// knownDevice is a device that was checked when it came from the engine.
type knownDevice struct {
	Device
	Ruled   time.Time `json:"ruled"`
	Invited time.Time `json:"invited"`
	IsGone  bool      `json:"is_gone,omitempty"`
}

// saveInterval is how often the file learns up to when the directory is complete.
const saveInterval = 10 * time.Second

// openDirectory reads the directory in a file, which need not exist. damage is that of store.Open.
func openDirectory(path string, life time.Duration, now func() time.Time) (d *directory, damage, err error) {
	d = &directory{life: life, now: now, devices: map[identity.PublicKey]Device{},
		ids: map[string]identity.PublicKey{}, codes: map[string]identity.PublicKey{},
		gone: map[identity.PublicKey]time.Time{}}
	if path == "" {
		return d, nil, nil
	}
	d.journal, damage, err = store.Open(path, time.Second, func(line []byte) error {
		var l directoryLine
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		switch {
		case l.Key != nil:
			d.key = *l.Key
		case l.List != nil:
			d.list = *l.List
		case l.Order != nil:
			d.order = *l.Order
		case l.ReadAt != nil:
			d.readAt = *l.ReadAt
			if d.isFromFuture = d.readAt.After(now()); d.isFromFuture {
				d.readAt = time.Time{}
			}
		case l.Device != nil && l.Device.IsGone:
			d.remove(l.Device.Key, l.Device.Ruled)
		case l.Device != nil:
			k := *l.Device
			k.Device.ruled, k.Device.invited = k.Ruled, k.Invited
			d.store(k.Device)
		default:
			return errors.New("an empty line")
		}
		return nil
	})
	return d, damage, err
}

func (d *directory) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.journal != nil {
		_ = d.journal.Close()
		d.journal = nil
	}
}

// pinKey accepts the fleet's key if none is known, and refuses another one than the known.
func (d *directory) pinKey(key identity.PublicKey) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.key == key:
		return nil
	case d.key != identity.PublicKey{}:
		return fault.New(fault.WrongKey,
			fmt.Errorf("the fleet there has the key %v, and this server belongs to that of %v",
				key.ID(), d.key.ID()), "check --fleet; to move the server to another fleet, remove fleet.cache first")
	}
	d.key = key
	d.save(directoryLine{Key: &key})
	return nil
}

// fleetKey returns the fleet's key, zero if it is not known yet.
func (d *directory) fleetKey() identity.PublicKey {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.key
}

// beginWatch says that a new watch of the devices begins.
func (d *directory) beginWatch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applied = 0
}

// applyDevice applies a record of a device, and reports whether something has changed. A record that
// rests on an older decision than what is known, or does not prove itself, changes nothing: err says so.
func (d *directory) applyDevice(c Change) (changed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applied = max(d.applied, c.Revision)
	key, err := identity.ParsePublicKey(c.Key)
	if err != nil {
		return false, fmt.Errorf("record %.80q: %w", c.Key, err)
	}
	known, isKnown := d.devices[key]
	if c.IsGone {
		if isKnown {
			d.removeAndSave(known)
		}
		return isKnown, nil
	}
	dev, err := d.parseDevice(key, c.Value)
	if err != nil {
		return false, fmt.Errorf("device %v: %w", key.ID(), err)
	}
	if isKnown && !dev.isNewerThan(known) || dev.decided().Before(d.gone[key]) {
		return false, fault.New(fault.Integrity, fmt.Errorf("device %v: an older decision has replaced a newer one",
			key.ID()),
			"something with access to the engine has restored an old record; the newer decision stays in force here")
	}
	if isKnown && reflect.DeepEqual(dev, known) {
		return false, nil
	}
	d.store(dev)
	d.save(directoryLine{Device: &knownDevice{Device: dev, Ruled: dev.ruled, Invited: dev.invited}})
	return true, nil
}

// store adds or replaces a device. mu must be held.
func (d *directory) store(dev Device) {
	d.devices[dev.Key] = dev
	d.ids[dev.Key.ID().String()] = dev.Key
	d.codes[dev.Code] = dev.Key
	delete(d.gone, dev.Key)
}

// remove removes a device about which the operator decided last at a time. mu must be held.
func (d *directory) remove(key identity.PublicKey, decided time.Time) {
	delete(d.devices, key)
	delete(d.ids, key.ID().String())
	d.gone[key] = decided
}

// removeAndSave removes a device, also from the file. mu must be held.
func (d *directory) removeAndSave(dev Device) {
	d.remove(dev.Key, dev.decided())
	d.save(directoryLine{Device: &knownDevice{Device: Device{Key: dev.Key}, Ruled: dev.decided(), IsGone: true}})
}

// parseDevice checks the record of a device. mu must be held.
func (d *directory) parseDevice(key identity.PublicKey, value []byte) (Device, error) {
	var r deviceRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return Device{}, fault.New(fault.Integrity, err, "")
	}
	if r.Key != key {
		return Device{}, fault.New(fault.Integrity, errors.New("the record is about another device"), "")
	}
	dev, err := openDevice(d.key, r)
	if by, isUsed := d.codes[dev.Code]; err == nil && isUsed && by != key {
		err = fault.New(fault.Integrity, errors.New("its code has let another device in"), "")
	}
	return dev, err
}

// applyList applies a list of servers. A list that is not signed, has expired or is older than the known
// one changes nothing: err says so.
func (d *directory) applyList(value []byte) error {
	var s Signed
	if err := json.Unmarshal(value, &s); err != nil {
		return fault.New(fault.Integrity, err, "")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, err := OpenList(d.key, s, d.now())
	if d.listProblem = err; err != nil {
		return err
	}
	var known ServerList
	if d.list.decodeVerified(d.key, &known) == nil && known.Number > l.Number {
		return fault.New(fault.Integrity, fmt.Errorf("list %d has replaced list %d", l.Number, known.Number),
			"the engine was restored from an older copy: the fleet's operator runs `mpbond fleet renew`")
	}
	d.list = s
	d.save(directoryLine{List: &s})
	return nil
}

// currentList returns the list of servers, and an error if there is none that is valid.
func (d *directory) currentList() (Signed, ServerList, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	switch {
	case len(d.list.Body) == 0 && d.listProblem != nil:
		return Signed{}, ServerList{}, d.listProblem
	case len(d.list.Body) == 0:
		return Signed{}, ServerList{}, fault.New(fault.NotFound, errors.New("no list of servers is known yet"),
			"the fleet's operator adds this server: mpbond fleet add")
	}
	l, err := OpenList(d.key, d.list, d.now())
	return d.list, l, err
}

// listExpiry returns when the list of servers expires or has expired, zero if none is known.
func (d *directory) listExpiry() time.Time {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var l ServerList
	if d.list.decodeVerified(d.key, &l) != nil {
		return time.Time{}
	}
	return l.Expires
}

// markRead says that everything that the engine had at a time has been applied.
func (d *directory) markRead(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !at.After(d.readAt) {
		return
	}
	d.readAt = at
	if at.Sub(d.savedAt) >= saveInterval {
		d.savedAt = at
		d.save(directoryLine{ReadAt: &at})
	}
}

// age returns how old what is known is, and whether it may still be used.
func (d *directory) age() (age time.Duration, ok bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.ageLocked()
}

func (d *directory) ageLocked() (age time.Duration, ok bool) {
	if d.readAt.IsZero() {
		return 0, false
	}
	age = max(d.now().Sub(d.readAt), 0)
	return age, age <= d.life
}

// lookup returns a device that may be served: known, and not revoked.
func (d *directory) lookup(key identity.PublicKey) (Device, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	dev, ok := d.devices[key]
	if !ok || dev.Revoked {
		return Device{}, false
	}
	return dev, true
}

// byID returns the device with an ID, whether or not it may be served.
func (d *directory) byID(id string) (Device, bool) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	key, ok := d.ids[id]
	return d.devices[key], ok
}

// countDevices returns how many devices are known, and the newest revision applied.
func (d *directory) countDevices() (n int, applied uint64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.devices), d.applied
}

// keepOnly removes the devices that are not in a set: they were deleted while the engine was lost.
func (d *directory) keepOnly(seen map[identity.PublicKey]bool) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, dev := range d.devices {
		if !seen[key] {
			d.removeAndSave(dev)
			changed = true
		}
	}
	return changed
}

// applyOrder applies an order to this server. One that is not signed, or older than the known one, changes nothing.
func (d *directory) applyOrder(value []byte, server string) error {
	var s Signed
	var o Order
	if err := json.Unmarshal(value, &s); err != nil {
		return fault.New(fault.Integrity, err, "")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.decodeVerified(d.key, &o); err != nil {
		return err
	}
	var known Order
	if d.order.decodeVerified(d.key, &known) == nil && o.At.Before(known.At) {
		return fault.New(fault.Integrity, errors.New("an older order has replaced a newer one"), "")
	}
	if o.Server != server {
		return fault.New(fault.Integrity, errors.New("the order is for another server"), "")
	}
	d.order = s
	d.save(directoryLine{Order: &s})
	return nil
}

// currentOrder returns the newest order, the zero order if there is none.
func (d *directory) currentOrder() (o Order) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.order.decodeVerified(d.key, &o) != nil {
		return Order{}
	}
	return o
}

// save appends a line to the file, or writes the whole file if it has grown long or an earlier line is
// missing. mu must be held.
func (d *directory) save(l directoryLine) {
	if d.journal == nil {
		return
	}
	if d.problem == nil && !d.journal.NeedsRewrite() {
		d.problem = d.journal.Append(l)
		return
	}
	if now := time.Now(); d.problem == nil || now.Sub(d.rewritten) >= saveInterval { // a full disk stays full
		d.rewritten = now
		d.rewrite()
	}
}

// rewrite writes the whole file. mu must be held.
func (d *directory) rewrite() {
	lines := []any{directoryLine{Key: &d.key}}
	if len(d.list.Body) > 0 {
		lines = append(lines, directoryLine{List: &d.list})
	}
	for _, dev := range d.devices {
		lines = append(lines, directoryLine{Device: &knownDevice{Device: dev, Ruled: dev.ruled, Invited: dev.invited}})
	}
	for key, decided := range d.gone {
		lines = append(lines, directoryLine{Device: &knownDevice{Device: Device{Key: key}, Ruled: decided,
			IsGone: true}})
	}
	if len(d.order.Body) > 0 {
		lines = append(lines, directoryLine{Order: &d.order})
	}
	if !d.readAt.IsZero() {
		lines = append(lines, directoryLine{ReadAt: &d.readAt})
	}
	d.problem = d.journal.Rewrite(lines...)
}

// saveProblem returns why the file is not up to date, or nil.
func (d *directory) saveProblem() error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.problem
}
