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
	"mpbond/base/store"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/tcp"
)

// Tuning of the counting.
const (
	// countInterval is how often connections are asked what they have carried, and
	// the file told, while they carry something; idleCountInterval while they do not. What
	// a killed process loses is what was carried since: a second's bytes at most.
	countInterval     = 250 * time.Millisecond
	idleCountInterval = time.Second
	// keepDays is how many days are kept: the newest that there are.
	keepDays = 400
	// lockTimeout is how long another process that has the file is waited for.
	lockTimeout = time.Second
	// nameCacheTTL is how long an address is known to be of an interface.
	nameCacheTTL = 10 * time.Second
)

// Usage counts what this process's connections have the device's links carry,
// by day, link, purpose and peer, and what their radios take for it, and keeps it
// in a file. Safe for concurrent use; a nil one counts nothing.
//
// It asks the kernel about each connection now and then, and when that closes,
// never for each segment.
type Usage struct {
	log         *slog.Logger
	now         func() time.Time // a fake in tests
	interfaceOf func(net.Addr) string
	interfaces  func() ([]net.Interface, error)
	countsBytes bool          // this system tells what connections carry
	connOpened  chan struct{} // has one when a connection has opened; for Caps

	mu      sync.Mutex // guards below
	open    map[CountedConn]*connState
	names   map[netip.Addr]string
	named   time.Time                                  // when names was begun
	used    map[policy.UsageRecord]*policy.UsageRecord // by what it is of, without bytes
	changed map[*policy.UsageRecord]bool
	lastDay string // the latest day there was anything
	energy  energy

	file    sync.Mutex // guards below; taken before mu
	path    string     // of the file, "" for none
	journal journal    // nil: nothing is kept, or not yet

	problem atomic.Pointer[error] // why it is not kept now; changed while file is held
}

// journal is a store.Journal; a fake in tests.
type journal interface {
	Append(lines ...any) error
	Rewrite(lines ...any) error
	NeedsRewrite() bool
	Close() error
}

// CountedConn is a connection whose bytes are counted: a *tcp.Conn, or what Watch is told.
type CountedConn interface {
	// Carried tells what it had the network carry since it was made, and what
	// it still will of what it was given.
	Carried() (in, out, pending unit.Bytes, err error)
	// Peer is the ID of the device at the other end, "" if that is not known.
	Peer() string
	// LimitWindow bounds what is on its way to here, and Abort ends it at once.
	LimitWindow(n unit.Bytes) error
	Abort() error
}

// connState is what is known of a connection.
type connState struct {
	purpose policy.Purpose
	link    string
	in, out unit.Bytes
}

// NewUsage makes one that keeps nothing.
func NewUsage(log *slog.Logger) *Usage {
	return &Usage{log: log, now: time.Now, interfaceOf: NetworkOf, interfaces: net.Interfaces, countsBytes: tcp.CarriedSupported, open: map[CountedConn]*connState{}, names: map[netip.Addr]string{},
		used: map[policy.UsageRecord]*policy.UsageRecord{}, changed: map[*policy.UsageRecord]bool{}, connOpened: make(chan struct{}, 1)}
}

// NetworkOf is the interface that has a local address, but for loopback, which
// is no network.
func NetworkOf(local net.Addr) string {
	if a, err := netip.ParseAddrPort(local.String()); err != nil || a.Addr().IsLoopback() {
		return ""
	}
	return InterfaceOf(local)
}

// OpenFile has it begin with what a file has, and keep what is counted there, from
// now until Close. What is damaged in the file is logged and kept aside. After
// an error, a fault, what is counted stays in memory, and each Count tries again:
// another process may have had the file for longer than is waited for here.
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

// loadJournal opens the file, and adds what it has to what was counted so far; file is
// held.
func (u *Usage) loadJournal(wait time.Duration) error {
	j, rows, damage, err := openRecords(u.path, wait)
	if err != nil {
		return err
	}
	if damage != nil {
		u.log.Error("what was used may be more than is known", "err", damage, "hint", "`mpbond usage` shows what could be read")
	}
	u.mu.Lock()
	for _, row := range rows {
		r := u.record(row)
		*r = sumRecords(*r, row)
	}
	u.dropOldDays()
	all := u.journalLines()
	u.mu.Unlock()
	u.journal = j
	u.reportProblem(j.Rewrite(all...))
	return nil
}

// openRecords opens the file at path, and reads what it has, by what that is of. The
// damage is store.Open's.
func openRecords(path string, wait time.Duration) (j *store.Journal, rows map[policy.UsageRecord]policy.UsageRecord, damage, err error) {
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

// AddRecords adds what this process has counted, a list as List tells, to what the
// file at path has, which another process keeps at other times. That one is in
// nobody's way if it begins meanwhile: the file is read and appended to, without
// waiting for the disk. While it runs that is an error, fault.AlreadyRunning. A file that
// nobody keeps, and has become long, is written anew.
func AddRecords(path string, list []policy.UsageRecord) error {
	j, rows, _, err := openRecords(path, lockTimeout) // damage is told by whose the file is
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

// recordKey is a row of the same as row without anything used.
func recordKey(row policy.UsageRecord) policy.UsageRecord {
	row.Down, row.Up, row.Joules = 0, 0, 0
	return row
}

// sumRecords is row with what more has, which is of the same.
func sumRecords(row, more policy.UsageRecord) policy.UsageRecord {
	row.Down += more.Down
	row.Up += more.Up
	row.Joules += more.Joules
	return row
}

// record is the row of what row is of; mu is held.
func (u *Usage) record(of policy.UsageRecord) *policy.UsageRecord {
	of = recordKey(of)
	r := u.used[of]
	if r == nil {
		r = &of
		u.used[of] = r
		u.lastDay = max(u.lastDay, of.Day)
	}
	return r
}

// dropOldDays drops all but the newest days, by their order and not by the clock,
// which may be wrong for a while; mu is held.
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
		if of.Day < oldest && !u.changed[r] { // that is written first
			delete(u.used, of)
		}
	}
}

// journalLines are all rows, as the journal has them; mu is held.
func (u *Usage) journalLines() []any {
	var list []any
	for _, r := range u.sortedRecords() {
		list = append(list, r)
	}
	return list
}

func (u *Usage) sortedRecords() []policy.UsageRecord {
	list := make([]policy.UsageRecord, 0, len(u.used))
	for _, r := range u.used {
		list = append(list, *r)
	}
	slices.SortFunc(list, compareRecords)
	return list
}

// compareRecords is the order of lists: by day, and then by what it is of.
func compareRecords(a, b policy.UsageRecord) int {
	return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Link, b.Link), cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Peer, b.Peer))
}

// LedgerFor is for connections of a purpose: it goes into tcp.Options.
func (u *Usage) LedgerFor(p policy.Purpose) tcp.Ledger {
	if u == nil {
		return nil
	}
	return ledger{u, p}
}

type ledger struct {
	u *Usage
	p policy.Purpose
}

// Opened implements tcp.Ledger.
func (l ledger) Opened(c *tcp.Conn) { l.u.addConn(c, l.p, c.Interface(), c.LocalAddr()) }

// Closing implements tcp.Ledger.
func (l ledger) Closing(c *tcp.Conn) { l.u.removeConn(c) }

// CountConn counts a connection that has no tcp.Ledger, over a link or, if that is "",
// the one that has its local address, until end is called. Nil counts nothing.
func (u *Usage) CountConn(c CountedConn, p policy.Purpose, link string, local net.Addr) (end func()) {
	if u == nil {
		return func() {}
	}
	u.addConn(c, p, link, local)
	return sync.OnceFunc(func() { u.removeConn(c) })
}

// addConn counts a connection from now on, over the link that it is bound to, or
// else that has its local address.
func (u *Usage) addConn(c CountedConn, p policy.Purpose, link string, local net.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if link == "" {
		link = u.linkName(local)
	}
	if link != "" {
		u.open[c] = &connState{purpose: p, link: link}
		u.energy.linkFor(link) // it may be asleep until its first byte
		select {
		case u.connOpened <- struct{}{}:
		default: // there is one already
		}
	}
}

// linkName is interfaceOf, remembered for a while; mu is held.
func (u *Usage) linkName(local net.Addr) string {
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

func (u *Usage) removeConn(c CountedConn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.open[c]; n != nil {
		u.countConn(c, n, true)
		delete(u.open, c)
	}
}

// countConn adds what a connection has carried since it was last asked; with last,
// also what it will; mu is held.
func (u *Usage) countConn(c CountedConn, n *connState, last bool) {
	in, out, pending, err := c.Carried()
	if err != nil {
		return // it is asked again, or has nothing to tell
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
	r := u.record(of)
	r.Down += down
	r.Up += up
	u.changed[r] = true
	u.energy.countBytes(of, down, up)
}

// CountNow asks all connections now, and tells the file. It reports whether there
// was anything to tell.
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
		u.countConn(c, n, false)
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
			if now := u.record(row); *now == row { // else it has changed meanwhile
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

// reportProblem logs a change of why nothing is kept; file is held.
func (u *Usage) reportProblem(err error) {
	switch was := u.Problem(); {
	case err != nil && (was == nil || was.Error() != err.Error()):
		u.log.Error("what is used is not kept", "err", err, "hint", fault.HintOf(err))
	case err == nil && was != nil:
		u.log.Info("what is used is kept again")
	}
	u.problem.Store(&err)
}

// Problem is why what is counted is not kept, so that a restart would forget it;
// nil if it is.
func (u *Usage) Problem() error {
	if p := u.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// Run counts until ctx ends.
func (u *Usage) Run(ctx context.Context) {
	t := time.NewTimer(idleCountInterval)
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
	u.markAllUnsaved()
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

// List is what was used, oldest first, and why it is not kept, nil if it is.
func (u *Usage) List() ([]policy.UsageRecord, error) {
	u.CountNow()
	u.file.Lock()
	defer u.file.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sortedRecords(), u.Problem()
}
