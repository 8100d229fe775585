// SPDX-License-Identifier: Apache-2.0

package device

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/base/pace"
	"mpbond/base/store"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/estimate"
	"mpbond/link/tcp"
)

// Tuning.
const (
	// countInterval is how often connections are counted and the file is written while they carry
	// bytes, idleCountInterval while they do not. A killed process loses at most one second of
	// counts.
	countInterval     = 250 * time.Millisecond
	idleCountInterval = time.Second
	// keepDays is the number of newest days to keep.
	keepDays = 400
	// lockTimeout bounds the wait for another process that has locked the file.
	lockTimeout = time.Second
	// nameCacheTTL is how long the interface of an address is cached.
	nameCacheTTL = 10 * time.Second
)

// Usage counts the bytes that this process's connections carry over the device's links, by day,
// link, purpose and peer, and the energy of their radios. It saves the counts in a file. Safe for
// concurrent use; a nil Usage counts nothing.
//
// It asks the kernel about each connection at intervals and when the connection closes, never for
// each segment.
type Usage struct {
	log         *slog.Logger
	now         func() time.Time // replaced in tests
	interfaceOf func(net.Addr) string
	interfaces  func() ([]net.Interface, error)
	clock       *pace.Clock
	countsBytes bool          // this system counts bytes of connections
	connOpened  chan struct{} // gets a value when a connection opens; for Caps

	mu      sync.Mutex // guards the fields below
	open    map[CountedConn]*connState
	names   map[netip.Addr]string
	named   time.Time                                  // when names was last cleared
	used    map[policy.UsageRecord]*policy.UsageRecord // by record key
	changed map[*policy.UsageRecord]bool
	lastDay string // the latest day with records
	energy  energy
	peers   *peerVolumes // nil until ChangedPeers is called

	file    sync.Mutex // guards the fields below; lock it before mu
	path    string     // path of the file, "" for none
	journal journal    // nil: counts are not saved, or not yet

	problem atomic.Pointer[error] // why counts are not saved; file guards changes
}

// journal is a store.Journal, replaced in tests.
type journal interface {
	Append(lines ...any) error
	Rewrite(lines ...any) error
	NeedsRewrite() bool
	Close() error
}

// CountedConn is a connection with counted bytes: a *tcp.Conn, or a connection passed to
// CountConn.
type CountedConn interface {
	// Carried returns the bytes that the connection has received and sent, and the bytes accepted
	// but not yet sent.
	Carried() (in, out, pending unit.Bytes, err error)
	// Peer returns the ID of the device at the other end, "" if unknown.
	Peer() string
	// Probe returns the round trip of the connection, as far as the system knows it.
	Probe() (estimate.Hop, error)
	// LimitWindow bounds the bytes in flight to this device. Abort ends the connection at once.
	LimitWindow(n unit.Bytes) error
	Abort() error
}

// connState is the counted state of a connection.
type connState struct {
	purpose policy.Purpose
	link    string
	in, out unit.Bytes
}

// NewUsage returns a Usage that saves nothing.
func NewUsage(log *slog.Logger) *Usage {
	return &Usage{log: log, now: time.Now, interfaceOf: NetworkOf, interfaces: net.Interfaces,
		countsBytes: tcp.CarriedSupported, open: map[CountedConn]*connState{}, names: map[netip.Addr]string{},
		used: map[policy.UsageRecord]*policy.UsageRecord{}, changed: map[*policy.UsageRecord]bool{},
		connOpened: make(chan struct{}, 1)}
}

// NetworkOf returns the interface with a local address, "" for loopback, which is no network.
func NetworkOf(local net.Addr) string {
	if a, err := netip.ParseAddrPort(local.String()); err != nil || a.Addr().IsLoopback() {
		return ""
	}
	return InterfaceOf(local)
}

// OpenFile loads the counts of a file and saves all counts there until Close. It logs damaged parts
// and keeps them aside. After an error, a fault, counts stay in memory and each CountNow tries
// again: another process may have locked the file for longer than lockTimeout.
func (u *Usage) OpenFile(path string) error {
	u.file.Lock()
	defer u.file.Unlock()
	u.path = path
	err := u.loadJournal(lockTimeout)
	if err != nil {
		u.problem.Store(&err)
	}
	return err
}

// loadJournal opens the file and adds its records to the counts. file must be held.
func (u *Usage) loadJournal(wait time.Duration) error {
	j, rows, damage, err := openRecords(u.path, wait)
	if err != nil {
		return err
	}
	if damage != nil {
		u.log.Error("usage records are damaged", "err", damage, "hint", "`mpbond usage` shows the readable ones")
	}
	u.mu.Lock()
	for _, row := range rows {
		r := u.findOrAddRecord(row)
		*r = sumRecords(*r, row)
	}
	u.peers = nil // summed again
	u.dropOldDays()
	all := u.journalLines()
	u.mu.Unlock()
	u.journal = j
	u.reportProblem(j.Rewrite(all...))
	return nil
}

// openRecords opens the file at path and returns its records, by key. damage is that of store.Open.
func openRecords(path string, wait time.Duration) (j *store.Journal, rows map[policy.UsageRecord]policy.UsageRecord,
	damage, err error) {
	rows = map[policy.UsageRecord]policy.UsageRecord{}
	j, damage, err = store.Open(path, wait, func(line []byte) error {
		var row policy.UsageRecord
		if err := json.Unmarshal(line, &row); err != nil {
			return err
		}
		if err := row.Validate(); err != nil {
			return err
		}
		rows[recordKey(row)] = row
		return nil
	})
	return j, rows, damage, err
}

// AddRecords adds the counts of this process, as List returns them, to the file at path. Another
// process may save to that file at other times. While it runs, AddRecords fails with
// fault.AlreadyRunning. It reads and appends without waiting for the disk, so it does not delay a
// process that starts meanwhile. It rewrites a file that has grown long.
func AddRecords(path string, list []policy.UsageRecord) error {
	j, rows, _, err := openRecords(path, lockTimeout) // the file's main process reports damage
	if err != nil {
		return err
	}
	var lines []any
	for _, row := range list {
		rows[recordKey(row)] = sumRecords(row, rows[recordKey(row)])
		lines = append(lines, rows[recordKey(row)])
	}
	if err = j.Append(lines...); err == nil && j.NeedsRewrite() {
		lines = nil
		for _, row := range slices.SortedFunc(maps.Values(rows), compareRecords) {
			lines = append(lines, row)
		}
		err = j.Rewrite(lines...)
	}
	return errors.Join(err, j.Close())
}

// recordKey returns row without its counts.
func recordKey(row policy.UsageRecord) policy.UsageRecord {
	row.Down, row.Up, row.Joules = 0, 0, 0
	return row
}

// sumRecords returns row plus the counts of more, which has the same key.
func sumRecords(row, more policy.UsageRecord) policy.UsageRecord {
	row.Down += more.Down
	row.Up += more.Up
	row.Joules += more.Joules
	return row
}

// findOrAddRecord returns the record with the key of of; it creates one if needed. mu must be held.
func (u *Usage) findOrAddRecord(of policy.UsageRecord) *policy.UsageRecord {
	of = recordKey(of)
	r := u.used[of]
	if r == nil {
		r = &of
		u.used[of] = r
		u.lastDay = max(u.lastDay, of.Day)
	}
	return r
}

// dropOldDays keeps the newest keepDays days. It goes by their order, since the clock may be wrong.
// mu must be held.
func (u *Usage) dropOldDays() {
	seen := map[string]bool{}
	for of := range u.used {
		seen[of.Day] = true
	}
	if len(seen) <= keepDays {
		return
	}
	oldest := slices.Sorted(maps.Keys(seen))[len(seen)-keepDays]
	for of, r := range u.used {
		if of.Day < oldest && !u.changed[r] { // keep records that are not saved yet
			delete(u.used, of)
		}
	}
}

// journalLines returns all records as lines of the journal. mu must be held.
func (u *Usage) journalLines() []any {
	var list []any
	for _, r := range u.sortedRecords() {
		list = append(list, r)
	}
	return list
}

// sortedRecords returns all records, oldest first. mu must be held.
func (u *Usage) sortedRecords() []policy.UsageRecord {
	list := make([]policy.UsageRecord, 0, len(u.used))
	for _, r := range u.used {
		list = append(list, *r)
	}
	slices.SortFunc(list, compareRecords)
	return list
}

// compareRecords orders records by day, then by key.
func compareRecords(a, b policy.UsageRecord) int {
	return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Link, b.Link), cmp.Compare(a.Purpose, b.Purpose),
		cmp.Compare(a.Peer, b.Peer))
}

// LedgerFor returns the ledger for tcp.Options of connections of a purpose.
func (u *Usage) LedgerFor(p policy.Purpose) tcp.Ledger {
	if u == nil {
		return nil
	}
	return ledger{u, p}
}

// ledger is the tcp.Ledger of one purpose.
type ledger struct {
	u *Usage
	p policy.Purpose
}

// Opened implements tcp.Ledger.
func (l ledger) Opened(c *tcp.Conn) { l.u.addCountedConn(c, l.p, c.Interface(), c.LocalAddr()) }

// Carrying implements tcp.Ledger.
func (l ledger) Carrying() { l.u.clock.Wake() }

// Closing implements tcp.Ledger.
func (l ledger) Closing(c *tcp.Conn) { l.u.removeCountedConn(c) }

// SetClock sets a clock that is woken whenever connections open or carry bytes. Run, and Caps, work at
// its pace. Without one they never idle. It must be called before anything else uses u.
func (u *Usage) SetClock(c *pace.Clock) { u.clock = c }

// NoteCarrying does what tcp.Ledger.Carrying does, for connections that CountConn counts. A nil Usage
// does nothing.
func (u *Usage) NoteCarrying() {
	if u != nil {
		u.clock.Wake()
	}
}

// CountConn counts a connection without a tcp.Ledger until the returned function is called. An
// empty link means the one with its local address. A nil Usage counts nothing.
func (u *Usage) CountConn(c CountedConn, p policy.Purpose, link string, local net.Addr) (end func()) {
	if u == nil {
		return func() {}
	}
	u.addCountedConn(c, p, link, local)
	return sync.OnceFunc(func() { u.removeCountedConn(c) })
}

// addCountedConn starts to count a connection over link or, if that is empty, over the link with
// its local address.
func (u *Usage) addCountedConn(c CountedConn, p policy.Purpose, link string, local net.Addr) {
	u.clock.Wake()
	u.mu.Lock()
	defer u.mu.Unlock()
	if link == "" {
		link = u.linkOfLocalAddr(local)
	}
	if link != "" {
		u.open[c] = &connState{purpose: p, link: link}
		u.energy.energyStateOfLink(link) // the radio may sleep until the first byte
		select {
		case u.connOpened <- struct{}{}:
		default: // a value is already waiting
		}
	}
}

// linkOfLocalAddr returns interfaceOf, cached. mu must be held.
func (u *Usage) linkOfLocalAddr(local net.Addr) string {
	a, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return ""
	}
	if now := u.now(); now.Sub(u.named).Abs() > nameCacheTTL {
		clear(u.names)
		u.named = now
	}
	name, ok := u.names[a.Addr()]
	if !ok {
		name = u.interfaceOf(local)
		u.names[a.Addr()] = name
	}
	return name
}

// removeCountedConn counts a connection for the last time.
func (u *Usage) removeCountedConn(c CountedConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.open[c]; n != nil {
		u.countConnBytes(c, n, true)
		delete(u.open, c)
	}
}

// countConnBytes adds the bytes since the last call; with last, also those not yet sent. mu must be
// held.
func (u *Usage) countConnBytes(c CountedConn, n *connState, last bool) {
	in, out, pending, err := c.Carried()
	if err != nil {
		return // the next call tries again
	}
	if last {
		out += pending
	}
	down, up := max(in-n.in, 0), max(out-n.out, 0)
	n.in, n.out = max(in, n.in), max(out, n.out)
	if down+up == 0 {
		return
	}
	of := policy.UsageRecord{Day: policy.DayOf(u.now(), u.lastDay), Link: n.link, Purpose: n.purpose, Peer: c.Peer()}
	r := u.findOrAddRecord(of)
	r.Down += down
	r.Up += up
	u.changed[r] = true
	if u.peers != nil {
		u.peers.addBytes(of, down, up)
	}
	u.energy.countBytes(of, down, up)
}

// CountNow counts all connections and saves. It reports whether any count was new.
func (u *Usage) CountNow() bool {
	u.file.Lock()
	defer u.file.Unlock()
	if u.journal == nil && u.path != "" {
		if err := u.loadJournal(0); err != nil {
			u.reportProblem(err)
		}
	}
	u.mu.Lock()
	for c, n := range u.open {
		u.countConnBytes(c, n, false)
	}
	u.shareEnergy(u.now())
	var rows []any
	for r := range u.changed {
		rows = append(rows, *r)
	}
	u.mu.Unlock()
	if u.journal == nil || len(rows) == 0 {
		return len(rows) > 0
	}
	err := u.journal.Append(rows...)
	if err == nil {
		u.mu.Lock()
		for _, r := range rows {
			row := r.(policy.UsageRecord)
			if now := u.findOrAddRecord(row); *now == row { // else it has changed again
				delete(u.changed, now)
			}
		}
		u.mu.Unlock()
		if u.journal.NeedsRewrite() {
			u.mu.Lock()
			u.dropOldDays()
			all := u.journalLines()
			u.mu.Unlock()
			err = u.journal.Rewrite(all...)
		}
	}
	u.reportProblem(err)
	return true
}

// reportProblem logs when saving starts to fail or works again. file must be held.
func (u *Usage) reportProblem(err error) {
	switch was := u.Problem(); {
	case err != nil && (was == nil || was.Error() != err.Error()):
		u.log.Error("cannot save usage", "err", err, "hint", fault.HintOf(err))
	case err == nil && was != nil:
		u.log.Info("saving usage works again")
	}
	u.problem.Store(&err)
}

// Problem returns why counts are not saved, and so would be lost with this process; nil if they
// are.
func (u *Usage) Problem() error {
	if p := u.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// Run counts at intervals until ctx ends.
func (u *Usage) Run(ctx context.Context) {
	t := u.clock.NewTicker(idleCountInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			next := idleCountInterval
			if u.CountNow() {
				next = countInterval
			}
			t.Reset(next)
		}
	}
}

// Close counts once more and closes the file.
func (u *Usage) Close() {
	u.mu.Lock()
	u.shareEnergy(u.now())
	u.queueUnsavedRecords()
	u.mu.Unlock()
	u.CountNow()
	u.file.Lock()
	defer u.file.Unlock()
	u.path = ""
	if u.journal == nil {
		return
	}
	if err := u.journal.Close(); err != nil {
		u.reportProblem(err)
	}
	u.journal = nil
}

// List returns usage records, oldest first, and the error that keeps them from being saved, if any.
func (u *Usage) List() ([]policy.UsageRecord, error) {
	u.CountNow()
	u.file.Lock()
	defer u.file.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sortedRecords(), u.Problem()
}
