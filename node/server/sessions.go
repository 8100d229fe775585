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

// bondKey makes a bond its device's own: nobody joins another device's bond.
type bondKey struct {
	device identity.PublicKey
	id     wire.BondID
}

// session is a bond with a device. What is below mu of sessionTable is guarded by that, taken
// and over by of.mu; the rest does not change.
type session struct {
	key         bondKey
	id          string // that no other bond here has: of its key, if need be with a number
	name        string // of its device when it began
	instance    uint64
	endpoint    *endpoint.Endpoint
	measureSlot chan bool // holds one while a subflow is measured

	account       *account   // account its device
	slots         slotCounts // of it, by this bond
	slotsReleased bool       // it was ended for want of room: taken counts no more

	// Guarded by sessionTable.mu.
	isEnded     bool
	sharedSince time.Time // since when it has subflows beside another bond of its device
	copyWarned  bool      // of that
}

// sessionTable holds the bonds of all devices. It bounds how many one device has, and makes
// room for new ones and for what they carry by retiring bonds that have lost their last
// subflow, the one first that has been without for longest. It owns the set alone: bonds are
// ended by retire and taken out by remove. Enrolled returns why a device may not be here, a
// wire.Refuse, nil if it may; like retire it is called with mu held and must not block, so
// that no bond begins for a device of which retireUnenrolled has ended all. Once closed the
// table takes and retires none. Methods may be called by any goroutine; mu is held
// while a bond's own lock is taken.
type sessionTable struct {
	maxBonds int // bonds of a device
	trust    *identity.Trust
	log      *slog.Logger
	rec      *trace.Recorder // nil: nothing is traced
	enrolled func(identity.PublicKey) error
	retire   func(b *session, why wire.Refuse) // with the zero why it needs no reason

	mu       sync.Mutex
	bonds    map[bondKey]*session
	isClosed bool
}

// currentName returns the present name of a bond's device; if it is trusted no longer, the last one.
func currentName(trust *identity.Trust, b *session) string {
	if p, ok := trust.Lookup(b.key.device); ok {
		return p.Name
	}
	return b.name
}

// joinBond returns the bond of that key, or the one that begin makes with a free name. It is nil
// if the device believes in one that was lost: instance is then not 0. Errors are wire.Refuse.
func (t *sessionTable) joinBond(key bondKey, instance uint64, begin func(id string) *session) (*session, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed {
		return nil, errShutdown
	}
	if err := t.enrolled(key.device); err != nil {
		return nil, err
	}
	if b := t.bonds[key]; b != nil || instance != 0 {
		return b, nil
	}
	n := t.countBonds(key.device)
	if n >= t.maxBonds && t.retireIdle(key.device, func(*session) bool { return true }) { // of a process that crashed
		n--
	}
	if n >= t.maxBonds {
		return nil, wire.Refuse{Code: wire.CodeLimit, Text: fmt.Sprintf("the device has %d bonds, which is the limit; each has a subflow", n)}
	}
	b := begin(t.uniqueID(key.id))
	t.bonds[key] = b
	if n == 0 {
		t.rec.Add(trace.Event{Kind: trace.DeviceUp, Device: b.name})
	}
	return b, nil
}

// removeSession takes out a bond that is being ended.
func (t *sessionTable) removeSession(b *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bonds[b.key] == b {
		delete(t.bonds, b.key)
	}
	if !b.isEnded && t.countBonds(b.key.device) == 0 {
		t.rec.Add(trace.Event{Kind: trace.DeviceDown, Device: currentName(t.trust, b)})
	}
	b.isEnded = true
}

// attachSubflow puts a subflow to use in its bond; nil if there is none any more, or if others that
// joined at the same time have filled it.
func (t *sessionTable) attachSubflow(sf *subflow.Subflow, id wire.BondID, most int) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.bonds[bondKey{sf.Peer, id}]
	if b == nil || b.endpoint.Subflows() >= most || b.endpoint.Attach(sf) != nil {
		return nil
	}
	return b
}

// admitSlot counts one more of a kind for b, as take does, for which bonds of the device that
// have lost their last subflow make room: a device that was switched off and has come back
// with another bond would wait for bondLifetime else.
func (t *sessionTable) admitSlot(b *session, k slotKind, limit int) bool {
	if b.takeSlot(k, limit) {
		return true
	}
	t.mu.Lock()
	for {
		_, all := b.countSlots(k)
		if all < limit || !t.retireIdle(b.key.device, func(o *session) bool {
			own, _ := o.countSlots(k)
			return o != b && own > 0
		}) {
			break
		}
	}
	t.mu.Unlock()
	return b.takeSlot(k, limit)
}

// retireIdle retires the bond of a device that has been without a subflow for longest, of
// those that may end, and reports whether there was one. mu must be held.
func (t *sessionTable) retireIdle(device identity.PublicKey, may func(*session) bool) bool {
	lost := t.longestIdle(device, may)
	if lost == nil || t.isClosed {
		return false
	}
	delete(t.bonds, lost.key)
	lost.releaseSlots()
	t.log.Info("bond ended: another one of the device needs its place", "device", currentName(t.trust, lost))
	t.retire(lost, wire.Refuse{})
	return true
}

// longestIdle returns the bond of a device that has been without a subflow for longest, of
// those that may end, nil if there is none. mu must be held.
func (t *sessionTable) longestIdle(device identity.PublicKey, may func(*session) bool) (lost *session) {
	var longest time.Duration
	for key, o := range t.bonds {
		if key.device != device || !may(o) {
			continue
		}
		if away := o.endpoint.NoSubflowFor(); away > longest {
			lost, longest = o, away
		}
	}
	return lost
}

// retireUnenrolled retires the bonds of devices that are not enrolled any more.
func (t *sessionTable) retireUnenrolled() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed {
		return
	}
	for k, b := range t.bonds {
		if r, ok := t.enrolled(k.device).(wire.Refuse); ok {
			delete(t.bonds, k) // so that close does not return it too
			t.log.Info("bond ended", "device", b.name, "why", r.Text)
			t.retire(b, r)
		}
	}
}

// listUnused returns the bonds whose device has been away for long, or for largeBondLifetime while it has
// more than its share of the memory.
func (t *sessionTable) listUnused() []*session {
	return slices.DeleteFunc(t.listSessions(), func(b *session) bool {
		away := b.endpoint.NoSubflowFor()
		return away <= bondLifetime && (away <= largeBondLifetime || !b.account.memory.IsShort())
	})
}

// listSessions returns the bonds that there are now: to describe them takes the lock of each, for
// which nobody else is to wait.
func (t *sessionTable) listSessions() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.bonds))
}

// findSession returns the bond of that name, or a fault.
func (t *sessionTable) findSession(id string) (*session, error) {
	for _, b := range t.listSessions() {
		if b.id == id {
			return b, nil
		}
	}
	return nil, fault.New(fault.NotFound, fmt.Errorf("there is no bond %.40q", id), "see `mpbond status`")
}

// closeTable has the table take no bond any more and returns those that there are.
func (t *sessionTable) closeTable() []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isClosed = true
	return slices.Collect(maps.Values(t.bonds))
}

// uniqueID returns a bond's short ID or, if a bond of another device or a longer ID has
// it already, that with a number. mu must be held.
func (t *sessionTable) uniqueID(id wire.BondID) string {
	taken := map[string]bool{}
	for _, b := range t.bonds {
		taken[b.id] = true
	}
	free := id.String()
	for n := 2; taken[free]; n++ {
		free = fmt.Sprintf("%v-%d", id, n)
	}
	return free
}

// countBonds returns how many bonds a device has. mu must be held.
func (t *sessionTable) countBonds(device identity.PublicKey) (n int) {
	for k := range t.bonds {
		if k.device == device {
			n++
		}
	}
	return n
}

// minCopyTime is how long two bonds of a device must carry subflows at once to count as
// two mpbond with one key: a device that restarts has two for up to a minute.
const minCopyTime = 90 * time.Second

// isKeyCopied reports whether two mpbond at once use the key of a device: two of its bonds have
// had subflows for long, and neither is a doctor's.
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

// detectCopies notes which bonds of devices have subflows beside another bond of theirs.
// It is called every few seconds. IsUsed reports whether a bond has subflows.
func (t *sessionTable) detectCopies(now time.Time, isUsed func(*session) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	in, used := map[identity.PublicKey]int{}, map[*session]bool{}
	for k, b := range t.bonds {
		if used[b] = t.countBonds(k.device) > 1 && isUsed(b); used[b] {
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
			t.log.Warn("two mpbond use the key of one device at once", "device", b.name,
				"hint", "a copy of its files runs on another device: revoke it, and pair each anew with a key of its own")
		}
	}
}

// hasUserSubflow reports whether a bond has a subflow that is no doctor's.
func hasUserSubflow(b *session) bool {
	return slices.ContainsFunc(b.endpoint.Status(false).Subflows, func(s endpoint.Subflow) bool { return s.Device != probe.DoctorDevice })
}
