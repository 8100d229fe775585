// SPDX-License-Identifier: Apache-2.0

package device

import (
	"mpbond/base/unit"
	"mpbond/control/policy"
)

// PeerVolume is what connections of one purpose have carried with a peer, over all links.
type PeerVolume struct {
	Peer string // ID
	Day  string // the latest day with bytes, like "2026-11-29"
	// Month are the bytes of the month of Day, All those of all days that are kept.
	MonthDown, MonthUp, AllDown, AllUp unit.Bytes
}

// peerKey is a peer and a purpose.
type peerKey struct {
	purpose policy.Purpose
	peer    string
}

// peerVolumes sums the counts of each peer.
type peerVolumes struct {
	all     map[peerKey]*PeerVolume
	changed map[peerKey]bool // since ChangedPeers returned them
}

// addBytes adds bytes to the peer of a record.
func (p *peerVolumes) addBytes(of policy.UsageRecord, down, up unit.Bytes) {
	if of.Peer == "" {
		return
	}
	key := peerKey{of.Purpose, of.Peer}
	v := p.all[key]
	if v == nil {
		v = &PeerVolume{Peer: of.Peer}
		p.all[key] = v
	}
	const month = len("2006-01")
	switch {
	case len(of.Day) < month:
	case len(v.Day) < month || of.Day[:month] > v.Day[:month]:
		v.MonthDown, v.MonthUp, v.Day = down, up, of.Day
	case of.Day[:month] == v.Day[:month]:
		v.MonthDown, v.MonthUp, v.Day = v.MonthDown+down, v.MonthUp+up, max(v.Day, of.Day)
	}
	v.AllDown, v.AllUp = v.AllDown+down, v.AllUp+up
	p.changed[key] = true
}

// ChangedPeers counts all connections and returns what those of a purpose have carried with each peer whose counts
// have changed since the last call; at the first call with all peers. It returns none before the file of counts is
// read. A nil Usage has none.
func (u *Usage) ChangedPeers(p policy.Purpose) (list []PeerVolume) {
	if u == nil {
		return nil
	}
	u.file.Lock()
	isLoaded := u.path == "" || u.journal != nil
	u.file.Unlock()
	if !isLoaded {
		return nil // what the file has would count as new
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for c, n := range u.open {
		u.countConnBytes(c, n, false)
	}
	if u.peers == nil {
		u.peers = &peerVolumes{map[peerKey]*PeerVolume{}, map[peerKey]bool{}}
		for _, r := range u.used {
			u.peers.addBytes(*r, r.Down, r.Up)
		}
	}
	for key := range u.peers.changed {
		if key.purpose == p {
			list = append(list, *u.peers.all[key])
			delete(u.peers.changed, key)
		}
	}
	return list
}
