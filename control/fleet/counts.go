// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"mpbond/base/identity"
	"mpbond/base/unit"
)

// Volume is bytes in both directions, as the device sees them.
type Volume struct {
	Down unit.Bytes `json:"down"`
	Up   unit.Bytes `json:"up"`
}

func (v Volume) plus(o Volume) Volume  { return Volume{v.Down + o.Down, v.Up + o.Up} }
func (v Volume) minus(o Volume) Volume { return Volume{v.Down - o.Down, v.Up - o.Up} }

// total returns the bytes of both directions.
func (v Volume) total() unit.Bytes { return v.Down + v.Up }

// DeviceUsage counts the bytes that this server has carried for a device, by its own file. They only grow, but
// Month begins at zero in each month.
type DeviceUsage struct {
	Device string // ID
	Day    string // the latest day with bytes, like "2026-11-29"
	Month  Volume // of the month of Day
	All    Volume
}

// usageRecord is a record in UsageCounts: what one server has carried for one device. Only that server writes
// it, as a total and never as a difference. So a repeated write counts nothing twice.
type usageRecord struct {
	Device string    `json:"device"`
	Server string    `json:"server"`
	Month  string    `json:"month"` // like "2026-11"
	At     time.Time `json:"at"`
	// InMonth and All are totals. The server's file of counts had Base and MonthBase less: what it has
	// lost, by a crash or with the file itself.
	InMonth   Volume `json:"in_month"`
	All       Volume `json:"all"`
	Base      Volume `json:"base"`
	MonthBase Volume `json:"month_base"`
	// Process names the process that wrote the record: another one has computed its bases already.
	Process string `json:"process,omitempty"`
}

// writtenUsage is the newest record that the engine is known to have.
type writtenUsage struct {
	usageRecord
	revision uint64 // 0: not known, since a write has failed, which may take effect later
}

// usageWriters bounds the concurrent writes of counts: 1,000 a second at a round trip of 250 ms.
const usageWriters = 256

// usageCounts writes the counts of this server's devices. Safe for concurrent use.
type usageCounts struct {
	store   Store
	server  string
	process string // the name of this process: see usageRecord

	mu      sync.Mutex
	start   map[string]DeviceUsage  // what the file had when the process began; nil before
	written map[string]writtenUsage // by device
	pending map[string]DeviceUsage  // that the engine has not taken yet
	others  map[string]otherUsage   // what other servers have carried for devices with a quota
	changed map[string]time.Time    // when the counts of a device have changed, of those of the last seconds
}

// otherUsage counts the bytes that the other servers have carried for a device in a month.
type otherUsage struct {
	month string
	bytes unit.Bytes
}

func newUsageCounts(store Store, server string) *usageCounts {
	return &usageCounts{store: store, server: server, process: rand.Text(), written: map[string]writtenUsage{},
		pending: map[string]DeviceUsage{}, others: map[string]otherUsage{}, changed: map[string]time.Time{}}
}

// monthOfDay returns the month of a day.
func monthOfDay(day string) string { return day[:min(len(day), len("2006-01"))] }

// smallChange is how many bytes may be missing in the counts of the engine, and no more than a hundredth of
// the count.
const smallChange = 16 * unit.KB

// isSmallChange reports whether counts differ so little from what the engine has that they need not be written: idle
// devices keep their connections alive, and each write costs the engine as much as one for a download. mu must be held.
func (u *usageCounts) isSmallChange(d DeviceUsage) bool {
	w := u.written[d.Device]
	growth := d.All.plus(w.Base).minus(w.All).total()
	return w.revision > 0 && w.Process == u.process && w.Month == monthOfDay(d.Day) && growth < smallChange &&
		growth < w.All.total()/100
}

// addCounts adds new counts, without small changes: they are written with a later one. The first call passes what the
// file had when the process began. Of these, the engine may have removed some: they are not written again.
func (u *usageCounts) addCounts(list []DeviceUsage, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	isFirst := u.start == nil
	if isFirst {
		u.start = map[string]DeviceUsage{}
	}
	for _, d := range list {
		if _, waits := u.pending[d.Device]; !waits && u.isSmallChange(d) {
			continue
		}
		u.changed[d.Device] = now
		if isFirst {
			u.start[d.Device] = d
			if day, err := time.Parse(time.DateOnly, d.Day); err == nil && now.Sub(day) > UsageLife {
				continue
			}
		}
		u.pending[d.Device] = d
	}
}

// flush writes the counts that are pending. The first error is returned; what it concerns stays pending.
func (u *usageCounts) flush(ctx context.Context, now time.Time) error {
	u.mu.Lock()
	list := make([]DeviceUsage, 0, len(u.pending))
	for _, d := range u.pending {
		list = append(list, d)
	}
	u.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(usageWriters)
	for _, d := range list {
		g.Go(func() error { return u.write(ctx, d, now) })
	}
	return g.Wait()
}

// write writes the counts of one device. It replaces only the revision that it knows: an earlier write that seemed to
// fail may reach the engine later, and must not undo this one.
func (u *usageCounts) write(ctx context.Context, d DeviceUsage, now time.Time) error {
	u.mu.Lock()
	last := u.written[d.Device]
	start := u.start[d.Device]
	u.mu.Unlock()
	key := d.Device + "." + u.server
	if last.revision == 0 {
		var err error
		if last, err = u.read(ctx, key, start); err != nil {
			return err
		}
	}
	r := usageRecord{Device: d.Device, Server: u.server, Month: monthOfDay(d.Day), At: now.UTC(), Base: last.Base,
		Process: u.process}
	if r.Month == last.Month {
		r.MonthBase = last.MonthBase
	}
	r.All, r.InMonth = d.All.plus(r.Base), d.Month.plus(r.MonthBase)
	next := last
	var err error
	switch {
	case last.revision == 0:
		next.revision, err = u.store.Create(ctx, UsageCounts, key, encode(r), 0)
	case r.All != last.All || r.Month != last.Month || r.Process != last.Process:
		next.revision, err = u.store.Update(ctx, UsageCounts, Record{Key: key, Value: encode(r),
			Revision: last.revision})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err != nil {
		next.revision = 0
		u.written[d.Device] = next
		return err
	}
	next.usageRecord = r
	u.written[d.Device] = next
	if u.pending[d.Device] == d {
		delete(u.pending, d.Device)
	}
	return nil
}

// read returns the record of a device on the engine. If an earlier process wrote it, read computes its bases. start is
// the count in the server's file when this process began.
func (u *usageCounts) read(ctx context.Context, key string, start DeviceUsage) (writtenUsage, error) {
	r, err := u.store.Get(ctx, UsageCounts, key)
	switch {
	case errors.Is(err, ErrNoRecord):
		return writtenUsage{}, nil
	case err != nil:
		return writtenUsage{}, err
	}
	w := writtenUsage{revision: r.Revision}
	if json.Unmarshal(r.Value, &w.usageRecord) == nil && w.Process != u.process {
		w.Base, w.MonthBase = rebase(w.usageRecord, start)
	}
	return w, nil
}

// rebase returns the offsets between the server's file and the totals on the engine, when the file had start at the
// beginning of the process. If the file has less than was written, by a crash or since it is lost, the offset grows by
// the difference: totals do not fall while the engine has the record. Written 100, file now 30: the base becomes 70.
func rebase(last usageRecord, start DeviceUsage) (base, month Volume) {
	base, month = last.Base, last.MonthBase
	if start.All.total() < last.All.minus(last.Base).total() {
		base = last.All.minus(start.All)
	}
	inMonth := start.Month
	if monthOfDay(start.Day) != last.Month {
		inMonth = Volume{}
	}
	if inMonth.total() < last.InMonth.minus(last.MonthBase).total() {
		month = last.InMonth.minus(inMonth)
	}
	return base, month
}

// waitingCount returns how many devices have counts that the engine has not taken yet.
func (u *usageCounts) waitingCount() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.pending)
}

// monthOf returns what all servers have carried for a device in this month, as far as this server knows: its
// own part as it has written it, that of others when it last asked.
func (u *usageCounts) monthOf(device identity.ID) unit.Bytes {
	u.mu.Lock()
	defer u.mu.Unlock()
	month := time.Now().Format("2006-01")
	sum := unit.Bytes(0)
	if o := u.others[device.String()]; o.month == month {
		sum += o.bytes
	}
	if r := u.written[device.String()]; r.Month == month {
		sum += r.InMonth.total()
	}
	return sum
}

const (
	// quotaInterval is how often a server asks what others have carried for its devices with a quota.
	quotaInterval = time.Second
	// changeLife is how long after a change a device counts as active: longer than between two reports of bytes.
	changeLife = 5 * time.Second
)

// activeDevices returns the devices whose counts have changed lately.
func (u *usageCounts) activeDevices(now time.Time) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.changed, func(_ string, at time.Time) bool { return now.Sub(at) > changeLife })
	return slices.Collect(maps.Keys(u.changed))
}

// readOthers asks what other servers have carried for devices.
func (u *usageCounts) readOthers(ctx context.Context, devices []string) error {
	records, err := u.store.ListUnder(ctx, UsageCounts, devices)
	if err != nil {
		return err
	}
	month, bytes := time.Now().Format("2006-01"), map[string]unit.Bytes{}
	for _, r := range records {
		var of usageRecord
		if json.Unmarshal(r.Value, &of) == nil && r.Key == of.Device+"."+of.Server && of.Server != u.server &&
			of.Month == month {
			bytes[of.Device] += of.InMonth.total()
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, d := range devices {
		u.others[d] = otherUsage{month, bytes[d]}
	}
	return nil
}

// runUsage reports the bytes of devices until ctx ends; then it reports once more.
func (m *Member) runUsage(ctx context.Context) {
	if m.cfg.Usage == nil {
		return
	}
	for isLast := false; ; isLast = ctx.Err() != nil {
		began := time.Now()
		list := m.cfg.Usage()
		m.counts.addCounts(list, m.cfg.now())
		writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTimeout)
		if err := m.counts.flush(writing, time.Now()); err != nil {
			m.log.Debug("usage not reported yet", "err", err)
		}
		cancel()
		if isLast {
			return
		}
		waitFor(ctx, usageInterval(len(list))-time.Since(began))
	}
}

// usageInterval returns how long after one report of bytes, of so many devices, the next one begins. Each device is a
// write for the engine: with many the server takes more time. Counts are less than 5 s late if the engine takes a
// report within a second.
func usageInterval(devices int) time.Duration {
	return min(max(time.Second, time.Duration(devices)*10*time.Millisecond), 4*time.Second)
}

// runQuotas notices devices that have used up their quota, or have one again, until ctx ends.
func (m *Member) runQuotas(ctx context.Context) {
	exceeded := map[string]bool{}
	for waitFor(ctx, quotaInterval) {
		m.checkQuotas(ctx, exceeded)
	}
}

// checkQuotas updates exceeded. While the engine does not answer, its last answers count.
func (m *Member) checkQuotas(ctx context.Context, exceeded map[string]bool) {
	devices := slices.DeleteFunc(m.counts.activeDevices(m.cfg.now()), func(id string) bool {
		d, ok := m.directory.byID(id)
		return !ok || d.Quota == 0
	})
	if len(devices) == 0 {
		return
	}
	reading, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	if err := m.counts.readOthers(reading, devices); err != nil {
		m.log.Debug("the counts of other servers are not known", "err", err)
	}
	for _, id := range devices {
		d, ok := m.directory.byID(id)
		isExceeded := ok && d.Quota > 0 && m.counts.monthOf(d.Key.ID()) >= d.Quota
		if isExceeded == exceeded[id] {
			continue
		}
		if exceeded[id] = isExceeded; isExceeded {
			m.log.Info("a device has used up its quota of this month", "device", d.Name, "quota", d.Quota)
			m.report(Event{Kind: "quota", Device: id, Name: d.Name})
		}
		m.notify()
	}
}
