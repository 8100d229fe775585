package policy

import (
	"time"

	"mpbond/base/unit"
)

// Bounds of Places.
const (
	maxLocations = 64
	maxDevices   = 16 // of a place
	maxName      = 200
)

// Locations remembers what the subflows of each device carried at places where the
// primary has been, so that the first stream there needs no guess. A place is an
// opaque name; see device.Location. The JSON is what the primary's file holds. The
// zero Places is empty.
type Locations struct {
	List map[string]*Location `json:"places,omitempty"`
}

// Location is what was seen at one place, by device.
type Location struct {
	Last    time.Time                `json:"last"`
	Devices map[string]SubflowRecord `json:"devices"`
}

// SubflowRecord is what a subflow was seen to do: Down is towards the primary, RTT end to
// end. 0 is not known.
type SubflowRecord struct {
	Down  unit.Rate `json:"down_bps,omitempty"`
	Up    unit.Rate `json:"up_bps,omitempty"`
	RTTms float64   `json:"rtt_ms,omitempty"`
	Last  time.Time `json:"last"`
}

// Lookup is what was seen of a device's subflows at a place.
func (p *Locations) Lookup(place, device string) SubflowRecord {
	if at := p.List[place]; at != nil {
		return at.Devices[device]
	}
	return SubflowRecord{}
}

// Record takes a measurement, in which a rate of 0 is none. A rate that was reached
// is believed half at once; a lower one may be what the app wanted no more than,
// and counts an eighth.
func (p *Locations) Record(now time.Time, place, device string, s SubflowRecord) {
	if len(place) > maxName || len(device) > maxName {
		return
	}
	if p.List == nil {
		p.List = map[string]*Location{}
	}
	at := p.List[place]
	if at == nil {
		at = &Location{Devices: map[string]SubflowRecord{}}
		p.List[place] = at
	}
	at.Last = now
	old := at.Devices[device]
	at.Devices[device] = SubflowRecord{Down: learnRate(old.Down, s.Down), Up: learnRate(old.Up, s.Up), RTTms: learnRTT(old.RTTms, s.RTTms), Last: now}
	p.Trim()
}

func learnRate(old, now unit.Rate) unit.Rate {
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

// learnRTT is a round trip without queues: the least, which may grow slowly.
func learnRTT(old, now float64) float64 {
	switch {
	case now <= 0:
		return old
	case old <= 0 || now < old:
		return now
	}
	return old + (now-old)/64
}

// Trim lets go of what is beyond the bounds, longest unseen first, and of what no
// Note has made.
func (p *Locations) Trim() {
	for name, at := range p.List {
		if at == nil || at.Devices == nil || len(name) > maxName {
			delete(p.List, name)
			continue
		}
		for d, s := range at.Devices {
			if len(d) > maxName || s.Down < 0 || s.Up < 0 || s.Down > 1000*unit.Gbps || s.Up > 1000*unit.Gbps || !(s.RTTms >= 0 && s.RTTms < 1e5) {
				delete(at.Devices, d)
			}
		}
		keepLatest(at.Devices, maxDevices, func(s SubflowRecord) time.Time { return s.Last })
	}
	keepLatest(p.List, maxLocations, func(at *Location) time.Time { return at.Last })
}

// keepLatest lets go of the longest unseen entries beyond most.
func keepLatest[V any](m map[string]V, most int, last func(V) time.Time) {
	for len(m) > most {
		drop, found := "", false
		for k, v := range m {
			if !found || last(v).Before(last(m[drop])) {
				drop, found = k, true
			}
		}
		delete(m, drop)
	}
}
