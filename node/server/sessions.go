// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/core/trace"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
	"mpbond/node/probe"
)

// bondKey identifies a bond of a device. A device cannot join the bond of another one.
type bondKey struct {
	device identity.PublicKey
	id     wire.BondID
}

// session is a bond with a device. Fields marked below are guarded by sessionTable.mu, and slots
// and slotsReleased by account.mu; the others do not change.
type session struct {
	key         bondKey
	id          string // unique here: of its key, with a number if needed
	name        string // of its device at the start
	instance    uint64
	endpoint    *endpoint.Endpoint
	measureSlot chan bool // holds one value while a subflow is measured

	account       *account   // of its device
	slots         slotCounts // of the account, used by this bond
	slotsReleased bool       // ended to free its slots: slots no longer count

	// Guarded by sessionTable.mu.
	isEnded     bool
	hasJoined   bool      // it has had a subflow
	sharedSince time.Time // since when it has subflows beside another bond of its device
	copyWarned  bool      // a copied key was logged
}

// sessionTable holds the bonds of all devices. It bounds the bonds of one device. It makes room for
// new bonds and their slots by retiring bonds without a subflow, the longest so first. It owns
// only the set: retire ends bonds, and removeSession removes them. checkTrust returns why a device
// must not join, a wire.Refuse, or nil. It and retire are called with mu held and must not block,
// so that no bond starts for a device whose bonds retireUntrusted has ended. A closed table
// accepts and retires none. Safe for concurrent use; mu is held while a bond's own lock is taken.
type sessionTable struct {
	maxBonds   int // of a device
	trust      Devices
	log        *slog.Logger
	logFor     func(identity.PublicKey) *slog.Logger // for lines about bonds that come and go
	rec        *trace.Recorder                       // nil: no trace
	checkTrust func(identity.PublicKey) error
	retire     func(b *session, why wire.Refuse) // a zero why is no reason
	admit      func() error                      // returns why no bond begins now, a wire.Refuse, or nil
	// checkRoom returns why there is no room for another bond, a wire.Refuse, or nil. isKnown says that its device has
	// one.
	checkRoom func(isKnown bool) error

	mu       sync.Mutex
	bonds    map[bondKey]*session
	isClosed bool
}

// currentDeviceName returns the current name of a bond's device, or the last one if it is no longer
// trusted.
func currentDeviceName(trust Devices, b *session) string {
	if p, ok := trust.Lookup(b.key.device); ok {
		return p.Name
	}
	return b.name
}

// findOrCreateBond returns the bond with that key, or the one that begin creates with a unique
// name. It returns nil if instance is not 0 and there is no such bond: the device refers to a lost
// one. Errors are wire.Refuse.
func (t *sessionTable) findOrCreateBond(key bondKey, instance uint64, begin func(id string) *session) (*session,
	error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed {
		return nil, errShutdown
	}
	if err := t.checkTrust(key.device); err != nil {
		return nil, err
	}
	if b := t.bonds[key]; b != nil || instance != 0 {
		return b, nil
	}
	if err := t.admit(); err != nil {
		return nil, err
	}
	n := t.countBonds(key.device)
	isKnown := n > 0
	full := t.checkRoom(isKnown)
	// such as of a crashed process; the new one has its room
	if (full != nil || n >= t.maxBonds) && t.retireDisconnected(key.device, func(*session) bool { return true }) {
		n, full = n-1, nil
	}
	if full != nil {
		return nil, full
	}
	if n >= t.maxBonds {
		return nil, wire.Refuse{
			Code: wire.CodeLimit,
			Text: fmt.Sprintf("the device has %d bonds, which is the limit; each has a subflow, or its first one joins", n),
		}
	}
	b := begin(t.uniqueBondID(key.id))
	t.bonds[key] = b
	if !isKnown {
		t.rec.Add(trace.Event{Kind: trace.DeviceUp, Device: b.name})
	}
	return b, nil
}

// removeSession removes a bond that is being ended.
func (t *sessionTable) removeSession(b *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bonds[b.key] == b {
		delete(t.bonds, b.key)
	}
	if !b.isEnded && t.countBonds(b.key.device) == 0 {
		t.rec.Add(trace.Event{Kind: trace.DeviceDown, Device: currentDeviceName(t.trust, b)})
	}
	b.isEnded = true
}

// lackForSubflow returns what there is too little of for one more subflow, "" if there is room. There is always room
// for the first one.
func (b *session) lackForSubflow() string {
	if b.endpoint.SubflowCount() == 0 {
		return ""
	}
	return b.account.memory.LackForSubflow()
}

// attachSubflow adds a subflow to its bond. It returns nil if the bond is gone, or if others that joined meanwhile have
// filled it or the memory.
func (t *sessionTable) attachSubflow(sf *subflow.Subflow, id wire.BondID, most int) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bonds[bondKey{sf.Peer, id}]
	if b == nil || b.endpoint.SubflowCount() >= most || b.lackForSubflow() != "" || b.endpoint.Attach(sf) != nil {
		return nil
	}
	b.hasJoined = true
	return b
}

// admitSlot takes a slot for b, as takeSlot does. If there is none, it retires bonds of the device
// without a subflow. Otherwise a device that returns with a new bond would wait for bondLifetime.
func (t *sessionTable) admitSlot(b *session, k slotKind, limit int) bool {
	if b.takeSlot(k, limit) {
		return true
	}
	t.mu.Lock()
	for {
		_, all := b.countSlots(k)
		if all < limit || !t.retireDisconnected(b.key.device, func(o *session) bool {
			own, _ := o.countSlots(k)
			return o != b && own > 0
		}) {
			break
		}
	}
	t.mu.Unlock()
	return b.takeSlot(k, limit)
}

// retireDisconnected retires the bond of a device that has been without a subflow for longest,
// among those for which mayRetire returns true. It reports whether there was one. mu must be held.
func (t *sessionTable) retireDisconnected(device identity.PublicKey, mayRetire func(*session) bool) bool {
	lost := t.findLongestDisconnected(device, mayRetire)
	if lost == nil || t.isClosed {
		return false
	}
	delete(t.bonds, lost.key)
	lost.releaseSlots()
	t.logFor(device).Info("bond ended to make room for another one of the device", "device",
		currentDeviceName(t.trust, lost))
	t.retire(lost, wire.Refuse{})
	return true
}

// findLongestDisconnected returns the bond of a device that has been without a subflow for longest,
// among those for which mayRetire returns true. It returns nil if there is none. A bond whose first
// subflow is still joining does not count. mu must be held.
func (t *sessionTable) findLongestDisconnected(
	device identity.PublicKey, mayRetire func(*session) bool,
) (lost *session) {
	var longest time.Duration
	for key, o := range t.bonds {
		if key.device != device || !mayRetire(o) {
			continue
		}
		away := o.endpoint.NoSubflowFor()
		if isJoining := !o.hasJoined && away < subflow.HandshakeTimeout; away > longest && !isJoining {
			lost, longest = o, away
		}
	}
	return lost
}

// retireUntrusted retires the bonds of devices that must not join any more.
func (t *sessionTable) retireUntrusted() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed {
		return
	}
	for k, b := range t.bonds {
		if r, ok := t.checkTrust(k.device).(wire.Refuse); ok {
			delete(t.bonds, k) // closeTable must not return it too
			t.log.Info("bond ended", "device", b.name, "why", r.Text)
			t.retire(b, r)
		}
	}
}

// listUnused returns the bonds of devices that have been away for bondLifetime, or for
// largeBondLifetime while it exceeds its share of the memory.
func (t *sessionTable) listUnused() []*session {
	return slices.DeleteFunc(t.listSessions(), func(b *session) bool {
		away := b.endpoint.NoSubflowFor()
		return away <= bondLifetime && (away <= largeBondLifetime || !b.account.memory.IsShort())
	})
}

// listSessions returns the current bonds. Describing them takes the lock of each, without mu.
func (t *sessionTable) listSessions() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.bonds))
}

// findSessionByID returns the bond with that name, or a fault.
func (t *sessionTable) findSessionByID(id string) (*session, error) {
	for _, b := range t.listSessions() {
		if b.id == id {
			return b, nil
		}
	}
	return nil, fault.New(fault.NotFound, fmt.Errorf("there is no bond %.40q", id), "see `mpbond status`")
}

// closeTable closes the table and returns the current bonds.
func (t *sessionTable) closeTable() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isClosed = true
	return slices.Collect(maps.Values(t.bonds))
}

// uniqueBondID returns a bond's short ID, with a number if another bond has it already. mu must be
// held.
func (t *sessionTable) uniqueBondID(id wire.BondID) string {
	taken := func(id string) bool {
		for _, b := range t.bonds {
			if b.id == id {
				return true
			}
		}
		return false
	}
	free := id.String()
	for n := 2; taken(free); n++ {
		free = fmt.Sprintf("%v-%d", id, n)
	}
	return free
}

// countBonds returns the number of bonds of a device. mu must be held.
func (t *sessionTable) countBonds(device identity.PublicKey) (n int) {
	for k := range t.bonds {
		if k.device == device {
			n++
		}
	}
	return n
}

// minCopyTime is how long two bonds of a device must have subflows at once to show a copied key: a
// device that restarts has two bonds for up to a minute.
const minCopyTime = 90 * time.Second

// isKeyCopied reports whether two running mpbond use the key of a device: two of its bonds have
// long had subflows, and neither is a doctor's.
func (t *sessionTable) isKeyCopied(device identity.PublicKey, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for k, b := range t.bonds {
		if k.device == device && !b.sharedSince.IsZero() && now.Sub(b.sharedSince) >= minCopyTime {
			n++
		}
	}
	return n > 1
}

// detectCopies records which bonds have subflows beside another bond of their device. It is called
// every few seconds. isUsed reports whether a bond has subflows.
func (t *sessionTable) detectCopies(now time.Time, isUsed func(*session) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, in, used := map[identity.PublicKey]int{}, map[identity.PublicKey]int{}, map[*session]bool{}
	for k := range t.bonds {
		all[k.device]++
	}
	for k, b := range t.bonds {
		if used[b] = all[k.device] > 1 && isUsed(b); used[b] {
			in[k.device]++
		}
	}
	for k, b := range t.bonds {
		switch {
		case in[k.device] < 2 || !used[b]:
			b.sharedSince = time.Time{}
		case b.sharedSince.IsZero():
			b.sharedSince = now
		case now.Sub(b.sharedSince) >= minCopyTime && !b.copyWarned:
			b.copyWarned = true
			t.log.Warn("two running mpbond use the same device key", "device", b.name,
				"hint", "a copy of its files runs on another device: "+
					"revoke it, and pair each device again with its own key")
		}
	}
}

// hasUserSubflow reports whether a bond has a subflow that is not a doctor's.
func hasUserSubflow(b *session) bool {
	return slices.ContainsFunc(
		b.endpoint.Status(false).Subflows,
		func(s endpoint.Subflow) bool { return s.Device != probe.DoctorDevice },
	)
}
