// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"mpbond/base/pace"
	"mpbond/link/estimate"
)

const (
	// cellInterval is how often modems are asked for their cells.
	cellInterval = time.Second
	// cellIdleTime is how long cells must be unwanted until changes of modems are undone.
	cellIdleTime = time.Minute
)

// cellReader reads what modems know of their cells. Its methods are called by one goroutine at a time.
type cellReader interface {
	// readCells returns the cells by interface. It takes a second or two at most.
	readCells() map[string]estimate.CellSignal
	// stopReadingCells undoes what readCells has changed about modems.
	stopReadingCells()
}

var _ cellReader = (*Bus)(nil)

// watchCells reports what a reader reads every cellInterval, at the pace of clock, while isWanted returns true,
// until ctx ends.
func (k *Keeper) watchCells(ctx context.Context, r cellReader, clock *pace.Clock, isWanted func() bool) {
	tick := clock.NewTicker(cellInterval)
	defer tick.Stop()
	var lastRead time.Time // zero: nothing is to be undone
	for {
		select {
		case <-ctx.Done():
			if !lastRead.IsZero() {
				r.stopReadingCells()
			}
			return
		case <-tick.C:
		}
		switch now := time.Now(); {
		case isWanted():
			lastRead = now
			k.reportModemCells(r.readCells())
		case !lastRead.IsZero() && now.Sub(lastRead) >= cellIdleTime:
			r.stopReadingCells()
			lastRead = time.Time{}
		}
	}
}

// reportModemCells reports cells that modems have, except of links that another program reports: it may know
// more, and name cells in another way.
func (k *Keeper) reportModemCells(cells map[string]estimate.CellSignal) {
	links := map[string]Link{}
	k.mu.Lock()
	for iface, s := range cells {
		if own := k.modemCells[iface]; !k.hasOtherReport("", own, s.At) && !k.hasOtherReport(iface, own, s.At) {
			links[iface], k.modemCells[iface] = Link{Cell: s}, s.At
		}
	}
	k.mu.Unlock()
	if len(links) > 0 {
		k.Report(Facts{Links: links})
	}
}

// hasOtherReport reports whether the cell of an interface was reported lately, and not from a modem at a time.
// mu must be held.
func (k *Keeper) hasOtherReport(iface string, own, now time.Time) bool {
	at := k.now.Links[iface].Cell.At
	return !at.IsZero() && !at.Equal(own) && now.Sub(at) < estimate.SignalLifetime
}

// modemState holds what readCells remembers of a modem.
type modemState struct {
	// Calls that the modem refuses, until mpbond starts again: to list cells, to change the interval of its
	// signals, and to name its cell.
	noCellInfo, noSetup, noLocation bool
	lateAnswers                     int // in a row, of lists of cells
	// isSetUp reports that the interval of its signals was changed. Before, it was interval seconds, 0 for never.
	isSetUp  bool
	interval uint32
}

// managedObjects are the objects of ModemManager: properties by interface and path.
type managedObjects map[dbus.ObjectPath]map[string]map[string]dbus.Variant

// getModems returns all objects of ModemManager. It fails if that does not run.
func (b *Bus) getModems(ctx context.Context) (all managedObjects, err error) {
	call := b.conn.Object(mm, "/org/freedesktop/ModemManager1").CallWithContext(ctx,
		"org.freedesktop.DBus.ObjectManager.GetManagedObjects", dbus.FlagNoAutoStart)
	return all, call.Store(&all)
}

// connectedInterfaces returns the interfaces over which a modem carries packets.
func (b *Bus) connectedInterfaces(ctx context.Context, modem properties) (all []string) {
	for _, path := range dbusProperty[[]dbus.ObjectPath](modem, "Bearers") {
		bearer := b.getProperties(ctx, mm, path, mm+".Bearer")
		if name := dbusProperty[string](bearer, "Interface"); name != "" && dbusProperty[bool](bearer, "Connected") {
			all = append(all, name)
		}
	}
	return all
}

// readCells implements cellReader by ModemManager. Modems that do not list cells are asked for signals once a
// second instead, until stopReadingCells.
func (b *Bus) readCells() map[string]estimate.CellSignal {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	objects, err := b.getModems(ctx)
	if err != nil {
		return nil
	}
	maps.DeleteFunc(b.modems, func(p dbus.ObjectPath, _ *modemState) bool { return objects[p] == nil })
	all := map[string]estimate.CellSignal{}
	for path, o := range objects {
		ifaces := b.connectedInterfaces(ctx, o[mm+".Modem"])
		if len(ifaces) == 0 {
			continue
		}
		m := b.modems[path]
		if m == nil {
			m = &modemState{}
			b.modems[path] = m
		}
		s, isListed := b.readListedCells(path, m)
		if !estimate.IsRSRP(s.RSRP) {
			s.RSRP = b.readSignal(ctx, path, m, o[mm+".Modem.Signal"])
		}
		if s.Cell == "" && (isListed || m.noCellInfo) { // otherwise two names of a cell would look like a handoff
			s.Cell = b.readLocation(ctx, path, m, o[mm+".Modem.Location"])
		}
		if s.At = time.Now(); s.Cell == "" && !estimate.IsRSRP(s.RSRP) {
			continue
		}
		for _, name := range ifaces {
			all[name] = s
		}
	}
	return all
}

// stopReadingCells implements cellReader.
func (b *Bus) stopReadingCells() {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	for path, m := range b.modems {
		if m.isSetUp {
			err := b.callModem(ctx, path, ".Modem.Signal.Setup", m.interval).Err
			m.isSetUp = err != nil && !isRefusal(err) // then the next call tries again
		}
	}
}

// callModem calls a method of a modem.
func (b *Bus) callModem(ctx context.Context, path dbus.ObjectPath, method string, args ...any) *dbus.Call {
	return b.conn.Object(mm, path).CallWithContext(ctx, mm+method, dbus.FlagNoAutoStart, args...)
}

// Values of ModemManager's MMCellType and MMServingCellType.
const (
	cellLTE, cellNR = 5, 6
	primaryCell     = 1
)

// maxLateAnswers is how many answers may be late in a row before a modem is not asked again.
const maxLateAnswers = 3

// readListedCells returns the serving cell of a modem and the strongest other one, as far as the modem lists
// cells (GetCellInfo, since ModemManager 1.20). With several serving cells, as in carrier aggregation or
// with 5G beside LTE, the primary one of LTE counts: its handoff moves all of them.
//
// ok is false if the modem has not answered.
func (b *Bus) readListedCells(path dbus.ObjectPath, m *modemState) (s estimate.CellSignal, ok bool) {
	if m.noCellInfo {
		return s, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout/2)
	defer cancel()
	var cells []map[string]dbus.Variant
	err := b.callModem(ctx, path, ".Modem.GetCellInfo").Store(&cells)
	if m.lateAnswers++; ctx.Err() == nil {
		m.lateAnswers = 0
	}
	if m.noCellInfo = isRefusal(err) || m.lateAnswers >= maxLateAnswers; m.noCellInfo {
		b.log.Info("modem lists no cells", "modem", path, "err", err)
	}
	if err != nil {
		return s, false
	}
	serving := servingCell(cells)
	if serving == nil {
		return s, true
	}
	s.RSRP = dbusProperty[float64](serving, "rsrp")
	if id := dbusProperty[string](serving, "ci"); id != "" {
		s.Cell = dbusProperty[string](serving, "operator-id") + "-" + id
	}
	for _, c := range cells {
		p := dbusProperty[float64](c, "rsrp")
		isOther := !dbusProperty[bool](c, "serving") &&
			dbusProperty[uint32](c, "cell-type") == dbusProperty[uint32](serving, "cell-type")
		if isOther && estimate.IsRSRP(p) && (s.Neighbour == 0 || p > s.Neighbour) {
			s.Neighbour = p
		}
	}
	return s, true
}

// servingCell returns the serving cell that counts; nil if there is none.
func servingCell(cells []map[string]dbus.Variant) (best properties) {
	rank := func(c properties) int {
		n := 0
		if dbusProperty[uint32](c, "cell-type") == cellLTE {
			n += 2
		}
		if dbusProperty[uint32](c, "serving-cell-type") == primaryCell {
			n++
		}
		return n
	}
	for _, c := range cells {
		kind := dbusProperty[uint32](c, "cell-type")
		if !dbusProperty[bool](c, "serving") || kind != cellLTE && kind != cellNR {
			continue
		}
		if best == nil || rank(c) > rank(best) {
			best = c
		}
	}
	return best
}

// isRefusal reports whether a modem will go on refusing a call with this error.
func isRefusal(err error) bool {
	var e dbus.Error
	return errors.As(err, &e) && slices.ContainsFunc([]string{".Unsupported", ".Unauthorized", ".UnknownMethod",
		".UnknownInterface", ".AccessDenied"}, func(end string) bool { return strings.HasSuffix(e.Name, end) })
}

// readSignal returns the RSRP that a modem signals, 0 if it does not. It sets the modem's interval to a second.
func (b *Bus) readSignal(ctx context.Context, path dbus.ObjectPath, m *modemState, signal properties) float64 {
	const each = uint32(cellInterval / time.Second)
	rate := dbusProperty[uint32](signal, "Rate")
	if isDue := !m.isSetUp || rate == 0; signal != nil && rate != each && isDue && !m.noSetup {
		if !m.isSetUp { // also if no answer comes in time
			m.isSetUp, m.interval = true, rate
		}
		if err := b.callModem(ctx, path, ".Modem.Signal.Setup", each).Err; isRefusal(err) {
			m.isSetUp, m.noSetup = false, true
			b.log.Info("modem signals not set up", "modem", path, "err", err)
		}
	}
	for _, technology := range []string{"Lte", "Nr5g"} {
		values := dbusProperty[map[string]dbus.Variant](signal, technology)
		if p := dbusProperty[float64](values, "rsrp"); estimate.IsRSRP(p) {
			return p
		}
	}
	return 0
}

// readLocation returns the serving cell by ModemManager's location of networks, "" if it is unknown. Other parts
// of the location are ignored.
func (b *Bus) readLocation(ctx context.Context, path dbus.ObjectPath, m *modemState, location properties) string {
	const networks = uint32(1) // MM_MODEM_LOCATION_SOURCE_3GPP_LAC_CI
	if m.noLocation || dbusProperty[uint32](location, "Enabled")&networks == 0 {
		return ""
	}
	var found map[uint32]dbus.Variant
	if err := b.callModem(ctx, path, ".Modem.Location.GetLocation").Store(&found); err != nil {
		if m.noLocation = isRefusal(err); m.noLocation {
			b.log.Info("modem names no cell", "modem", path, "err", err)
		}
		return ""
	}
	text, _ := found[networks].Value().(string)
	// Operator's country and network, location area, cell, tracking area.
	if parts := strings.Split(text, ","); len(parts) >= 4 && strings.Trim(parts[3], "0") != "" {
		return parts[0] + parts[1] + "-" + parts[3]
	}
	return ""
}
