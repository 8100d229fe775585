// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Bounds of Locations.
const (
	maxLocations = 64
	maxDevices   = 16 // per location
	maxName      = 200
)

// Locations stores the performance of each device's subflows at the locations where the primary has
// been, so that the first stream there needs no guess. A location is an opaque name, see
// device.Location. The JSON is the format of the primary's file. The zero Locations is empty.
type Locations struct {
	List map[string]*Location `json:"locations,omitempty"`
	// OldList is List in files of former versions. Trim moves it there.
	OldList map[string]*Location `json:"places,omitempty"`
}

// Location holds the records of one location, by device.
type Location struct {
	Last    time.Time                `json:"last"`
	Devices map[string]SubflowRecord `json:"devices"`
}

// SubflowRecord is the measured performance of a device's subflows. Down is the rate towards the
// primary, RTT is end to end. 0 means unknown.
type SubflowRecord struct {
	Down  unit.Rate `json:"down_bps,omitempty"`
	Up    unit.Rate `json:"up_bps,omitempty"`
	RTTms float64   `json:"rtt_ms,omitempty"`
	Last  time.Time `json:"last"`
}

// Lookup returns the record of a device's subflows at a location.
func (l *Locations) Lookup(location, device string) SubflowRecord {
	if at := l.List[location]; at != nil {
		return at.Devices[device]
	}
	return SubflowRecord{}
}

// Record adds a measurement; a rate of 0 is none. Half of a rise counts at once. Of a fall an
// eighth counts, since the app may not have needed more.
func (l *Locations) Record(now time.Time, location, device string, s SubflowRecord) {
	if len(location) > maxName || len(device) > maxName {
		return
	}
	if l.List == nil {
		l.List = map[string]*Location{}
	}
	at := l.List[location]
	if at == nil {
		at = &Location{Devices: map[string]SubflowRecord{}}
		l.List[location] = at
	}
	at.Last = now
	old := at.Devices[device]
	at.Devices[device] = SubflowRecord{Down: learnStoredRate(old.Down, s.Down), Up: learnStoredRate(old.Up, s.Up),
		RTTms: learnStoredRTT(old.RTTms, s.RTTms), Last: now}
	l.Trim()
}

// learnStoredRate returns the stored rate after a measurement; see Record.
func learnStoredRate(old, now unit.Rate) unit.Rate {
	switch {
	case now <= 0:
		return old
	case old <= 0:
		return now
	case now > old:
		return old + (now-old)/2
	}
	return old - (old-now)/8
}

// learnStoredRTT returns a round trip without queues: the least, which grows slowly.
func learnStoredRTT(old, now float64) float64 {
	switch {
	case now <= 0:
		return old
	case old <= 0 || now < old:
		return now
	}
	return old + (now-old)/64
}

// Trim drops entries beyond the bounds, those unseen for longest first, and malformed ones. Call it
// after reading a file.
func (l *Locations) Trim() {
	if l.List == nil {
		l.List = l.OldList
	}
	l.OldList = nil
	for name, at := range l.List {
		if at == nil || at.Devices == nil || len(name) > maxName {
			delete(l.List, name)
			continue
		}
		for d, s := range at.Devices {
			if len(d) > maxName || s.Down < 0 || s.Up < 0 || s.Down > 1000*unit.Gbps || s.Up > 1000*unit.Gbps ||
				!(s.RTTms >= 0 && s.RTTms < 1e5) {
				delete(at.Devices, d)
			}
		}
		keepLatest(at.Devices, maxDevices, func(s SubflowRecord) time.Time { return s.Last })
	}
	keepLatest(l.List, maxLocations, func(at *Location) time.Time { return at.Last })
}

// keepLatest drops the entries unseen for longest until at most limit are left.
func keepLatest[V any](m map[string]V, limit int, last func(V) time.Time) {
	if len(m) <= limit {
		return
	}
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return last(m[a]).Compare(last(m[b])) })
	for _, name := range names[:len(names)-limit] {
		delete(m, name)
	}
}
