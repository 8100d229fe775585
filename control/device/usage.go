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
	// countEvery is how often connections are asked what they have carried, and
	// the file told, while they carry something; countIdle while they do not. What
	// a killed process loses is what was carried since: a second's bytes at most.
	countEvery = 250 * time.Millisecond
	countIdle  = time.Second
	// keepDays is how many days are kept: the newest that there are.
	keepDays = 400
	// fileWait is how long another process that has the file is waited for.
	fileWait = time.Second
	// knownFor is how long an address is known to be of an interface.
	knownFor = 10 * time.Second
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
	counts      bool          // this system tells what connections carry
	fresh       chan struct{} // has one when a connection has opened; for Caps

	mu      sync.Mutex // guards below
	open    map[Counted]*counted
	names   map[netip.Addr]string
	named   time.Time                    // when names was begun
	used    map[policy.Used]*policy.Used // by what it is of, without bytes
	changed map[*policy.Used]bool
	last    string // the latest day there was anything
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
	Long() bool
	Close() error
}

// Counted is a connection whose bytes are counted: a *tcp.Conn, or what Watch is told.
type Counted interface {
	// Carried tells what it had the network carry since it was made, and what
	// it still will of what it was given.
	Carried() (in, out, pending unit.Bytes, err error)
	// Peer is the ID of the device at the other end, "" if that is not known.
	Peer() string
	// LimitWindow bounds what is on its way to here, and Abort ends it at once.
	LimitWindow(n unit.Bytes) error
	Abort() error
}

// counted is what is known of a connection.
type counted struct {
	purpose policy.Purpose
	link    string
	in, out unit.Bytes
}

// NewUsage makes one that keeps nothing.
func NewUsage(log *slog.Logger) *Usage {
	return &Usage{log: log, now: time.Now, interfaceOf: NetworkOf, interfaces: net.Interfaces, counts: tcp.TellsCarried, open: map[Counted]*counted{}, names: map[netip.Addr]string{},
		used: map[policy.Used]*policy.Used{}, changed: map[*policy.Used]bool{}, fresh: make(chan struct{}, 1)}
}

// NetworkOf is the interface that has a local address, but for loopback, which
// is no network.
func NetworkOf(local net.Addr) string {
	if a, err := netip.ParseAddrPort(local.String()); err != nil || a.Addr().IsLoopback() {
		return ""
	}
	return InterfaceOf(local)
}

// Keep has it begin with what a file has, and keep what is counted there, from
// now until Close. What is damaged in the file is logged and kept aside. After
// an error, a fault, what is counted stays in memory, and each Count tries again:
// another process may have had the file for longer than is waited for here.
func (u *Usage) Keep(path string) error {
	u.file.Lock()
	defer u.file.Unlock()
	u.path = path
	err := u.begin(fileWait)
	if err != nil {
		u.problem.Store(&err)
	}
	return err
}

// begin opens the file, and adds what it has to what was counted so far; file is
// held.
func (u *Usage) begin(wait time.Duration) error {
	j, rows, damage, err := readUsed(u.path, wait)
	if err != nil {
		return err
	}
	if damage != nil {
		u.log.Error("what was used may be more than is known", "err", damage, "hint", "`mpbond usage` shows what could be read")
	}
	u.mu.Lock()
	for _, row := range rows {
		r := u.row(row)
		*r = plus(*r, row)
	}
	u.forget()
	all := u.lines()
	u.mu.Unlock()
	u.journal = j
	u.note(j.Rewrite(all...))
	return nil
}

// readUsed opens the file at path, and reads what it has, by what that is of. The
// damage is store.Open's.
func readUsed(path string, wait time.Duration) (j *store.Journal, rows map[policy.Used]policy.Used, damage, err error) {
	rows = map[policy.Used]policy.Used{}
	j, damage, err = store.Open(path, wait, func(line []byte) error {
		var row policy.Used
		if err := json.Unmarshal(line, &row); err != nil {
			return err
		}
		if err := row.Check(); err != nil {
			return err
		}
		rows[none(row)] = row
		return nil
	})
	return j, rows, damage, err
}

// AddUsed adds what this process has counted, a list as List tells, to what the
// file at path has, which another process keeps at other times. That one is in
// nobody's way if it begins meanwhile: the file is read and appended to, without
// waiting for the disk. While it runs that is an error, fault.AlreadyRunning. A file that
// nobody keeps, and has become long, is written anew.
func AddUsed(path string, list []policy.Used) error {
	j, rows, _, err := readUsed(path, fileWait) // damage is told by whose the file is
	if err != nil {
		return err
	}
	var lines []any
	for _, row := range list {
		rows[none(row)] = plus(row, rows[none(row)])
		lines = append(lines, rows[none(row)])
	}
	if err = j.Append(lines...); err == nil && j.Long() {
		lines = nil
		for _, row := range slices.SortedFunc(maps.Values(rows), older) {
			lines = append(lines, row)
		}
		err = j.Rewrite(lines...)
	}
	return errors.Join(err, j.Close())
}

// none is a row of the same as row without anything used.
func none(row policy.Used) policy.Used {
	row.Down, row.Up, row.Joules = 0, 0, 0
	return row
}

// plus is row with what more has, which is of the same.
func plus(row, more policy.Used) policy.Used {
	row.Down += more.Down
	row.Up += more.Up
	row.Joules += more.Joules
	return row
}

// row is the row of what row is of; mu is held.
func (u *Usage) row(of policy.Used) *policy.Used {
	of = none(of)
	r := u.used[of]
	if r == nil {
		r = &of
		u.used[of] = r
		u.last = max(u.last, of.Day)
	}
	return r
}

// forget drops all but the newest days, by their order and not by the clock,
// which may be wrong for a while; mu is held.
func (u *Usage) forget() {
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

// lines are all rows, as the journal has them; mu is held.
func (u *Usage) lines() []any {
	var list []any
	for _, r := range u.sorted() {
		list = append(list, r)
	}
	return list
}

func (u *Usage) sorted() []policy.Used {
	list := make([]policy.Used, 0, len(u.used))
	for _, r := range u.used {
		list = append(list, *r)
	}
	slices.SortFunc(list, older)
	return list
}

// older is the order of lists: by day, and then by what it is of.
func older(a, b policy.Used) int {
	return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Link, b.Link), cmp.Compare(a.Purpose, b.Purpose), cmp.Compare(a.Peer, b.Peer))
}

// Ledger is for connections of a purpose: it goes into tcp.Options.
func (u *Usage) Ledger(p policy.Purpose) tcp.Ledger {
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
func (l ledger) Opened(c *tcp.Conn) { l.u.opened(c, l.p, c.Interface(), c.LocalAddr()) }

// Closing implements tcp.Ledger.
func (l ledger) Closing(c *tcp.Conn) { l.u.closing(c) }

// Watch counts a connection that has no tcp.Ledger, over a link or, if that is "",
// the one that has its local address, until end is called. Nil counts nothing.
func (u *Usage) Watch(c Counted, p policy.Purpose, link string, local net.Addr) (end func()) {
	if u == nil {
		return func() {}
	}
	u.opened(c, p, link, local)
	return sync.OnceFunc(func() { u.closing(c) })
}

// opened counts a connection from now on, over the link that it is bound to, or
// else that has its local address.
func (u *Usage) opened(c Counted, p policy.Purpose, link string, local net.Addr) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if link == "" {
		link = u.name(local)
	}
	if link != "" {
		u.open[c] = &counted{purpose: p, link: link}
		u.energy.link(link) // it may be asleep until its first byte
		select {
		case u.fresh <- struct{}{}:
		default: // there is one already
		}
	}
}

// name is interfaceOf, remembered for a while; mu is held.
func (u *Usage) name(local net.Addr) string {
	a, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return ""
	}
	if now := u.now(); now.Sub(u.named).Abs() > knownFor {
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

func (u *Usage) closing(c Counted) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := u.open[c]; n != nil {
		u.count(c, n, true)
		delete(u.open, c)
	}
}

// count adds what a connection has carried since it was last asked; with last,
// also what it will; mu is held.
func (u *Usage) count(c Counted, n *counted, last bool) {
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
	of := policy.Used{Day: policy.DayOf(u.now(), u.last), Link: n.link, Purpose: n.purpose, Peer: c.Peer()}
	r := u.row(of)
	r.Down += down
	r.Up += up
	u.changed[r] = true
	u.energy.carried(of, down, up)
}

// Count asks all connections now, and tells the file. It reports whether there
// was anything to tell.
func (u *Usage) Count() bool {
	u.file.Lock()
	defer u.file.Unlock()
	if u.journal == nil && u.path != "" {
		if err := u.begin(0); err != nil {
			u.note(err)
		}
	}
	u.mu.Lock()
	for c, n := range u.open {
		u.count(c, n, false)
	}
	u.meter(u.now())
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
			row := r.(policy.Used)
			if now := u.row(row); *now == row { // else it has changed meanwhile
				delete(u.changed, now)
			}
		}
		u.mu.Unlock()
		if u.journal.Long() {
			u.mu.Lock()
			u.forget()
			all := u.lines()
			u.mu.Unlock()
			err = u.journal.Rewrite(all...)
		}
	}
	u.note(err)
	return true
}

// note logs a change of why nothing is kept; file is held.
func (u *Usage) note(err error) {
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
	t := time.NewTimer(countIdle)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			next := countIdle
			if u.Count() {
				next = countEvery
			}
			t.Reset(next)
		}
	}
}

// Close counts once more and closes the file.
func (u *Usage) Close() {
	u.mu.Lock()
	u.meter(u.now())
	u.tellEnergy()
	u.mu.Unlock()
	u.Count()
	u.file.Lock()
	defer u.file.Unlock()
	u.path = ""
	if u.journal == nil {
		return
	}
	if err := u.journal.Close(); err != nil {
		u.note(err)
	}
	u.journal = nil
}

// List is what was used, oldest first, and why it is not kept, nil if it is.
func (u *Usage) List() ([]policy.Used, error) {
	u.Count()
	u.file.Lock()
	defer u.file.Unlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.sorted(), u.Problem()
}
