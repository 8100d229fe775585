// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/userfile"
)

// maxJoinedFile bounds the file of a Joined.
const maxJoinedFile = 256 << 10

// Joined is the fleet that this device, a primary, has joined: the fleet's key and its newest list of servers,
// in a file. The servers themselves are in the trust file. Safe for concurrent use.
type Joined struct {
	path  string
	trust *identity.Trust

	mu    sync.Mutex
	key   identity.PublicKey
	list  Signed
	names ServerList
}

// joinedFile is the content of the file.
type joinedFile struct {
	Key  identity.PublicKey `json:"key"`
	List Signed             `json:"list"`
}

// LoadJoined reads the fleet in a file. It returns nil if there is none.
func LoadJoined(path string, trust *identity.Trust) (*Joined, error) {
	data, err := userfile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.New(fault.Permission, err, "run mpbond as the user who joined the fleet")
	}
	j := &Joined{path: path, trust: trust}
	var f joinedFile
	if len(data) > maxJoinedFile {
		err = errors.New("the file is too long")
	} else if err = json.Unmarshal(data, &f); err == nil {
		err = f.List.open(f.Key, &j.names)
	}
	if err != nil {
		return nil, fault.New(fault.Config, fmt.Errorf("fleet file %s: %w", path, err),
			"move the file away, and join the fleet again with a new code")
	}
	j.key, j.list = f.Key, f.List
	return j, nil
}

// Join stores a fleet that offers its list of servers, and their entries in the trust file. A device joins one
// fleet at most: another one is a fault of kind Exists. It returns the entry of the server with that key.
func Join(path string, trust *identity.Trust, key identity.PublicKey, offer []byte, server identity.PublicKey) (
	p identity.Peer, err error) {
	before, err := LoadJoined(path, trust)
	if err != nil {
		return p, err
	}
	if before != nil && before.key != key {
		return p, fault.New(fault.Exists, fmt.Errorf("this device belongs to the fleet %q", before.names.Fleet),
			"leave it first: mpbond fleet leave")
	}
	j := &Joined{path: path, trust: trust, key: key}
	if before != nil {
		j.list, j.names = before.list, before.names
	}
	o, _, err := j.Apply(offer, time.Now())
	if err != nil {
		return p, err
	}
	if len(o.Servers) == 0 {
		return p, fault.New(fault.Protocol, errors.New("the fleet lists no servers"), "ask the fleet's operator")
	}
	if err := j.save(); err != nil {
		return p, err
	}
	p, ok := trust.Lookup(server)
	if !ok { // it may be new on the list, or removed: others serve this device
		p, _ = trust.Lookup(o.Servers[0].Key)
	}
	return p, nil
}

// OfferedServers are the servers of an offer.
type OfferedServers struct {
	ServerList
	Hints []Hint
}

// Apply applies an offer of a server of the fleet: a newer list replaces the known one, in the trust file too. An
// offer whose list is not signed or has expired changes nothing. changed reports whether the list is a new one.
func (j *Joined) Apply(offer []byte, now time.Time) (o OfferedServers, changed bool, err error) {
	var in Offer
	if err := json.Unmarshal(offer, &in); err != nil {
		return o, false, fault.New(fault.Protocol, fmt.Errorf("offer of the fleet: %w", err),
			"install the same release of mpbond on all devices")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	l, err := OpenList(j.key, in.List, now)
	if err != nil {
		return o, false, err
	}
	o = OfferedServers{j.names, in.Hints[:min(len(in.Hints), MaxServers)]}
	if l.Number <= j.names.Number { // as known, or of a server that has not heard of a newer one
		return o, false, nil
	}
	if l.Fleet != j.names.Fleet && j.names.Fleet != "" {
		if err := j.trust.SetFleet(j.names.Fleet, nil); err != nil {
			return o, false, err
		}
	}
	var peers []identity.Peer
	for _, s := range l.Servers {
		peers = append(peers, s.Peer(l.Fleet))
	}
	if err := j.trust.SetFleet(l.Fleet, peers); err != nil {
		return o, false, err
	}
	j.list, j.names = in.List, l
	o.ServerList = l
	return o, true, j.saveLocked()
}

func (j *Joined) save() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.saveLocked()
}

// saveLocked writes the file. mu must be held.
func (j *Joined) saveLocked() error {
	unlock, err := userfile.LockDir(filepath.Dir(j.path))
	if err != nil {
		return err
	}
	defer unlock()
	f, err := userfile.CreateNew(j.path + ".new")
	if err == nil {
		err = userfile.Replace(f, j.path, encode(joinedFile{j.key, j.list}))
	}
	return fault.New(fault.NotSaved, err, "free disk space, or correct the permissions")
}

// Name returns the fleet's name.
func (j *Joined) Name() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.names.Fleet
}

// Key returns the fleet's key.
func (j *Joined) Key() identity.PublicKey { return j.key }

// List returns the newest list of servers, which may have expired.
func (j *Joined) List() ServerList {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.names
}

// Leave removes the fleet and its servers from this device.
func (j *Joined) Leave() error {
	if err := j.trust.SetFleet(j.Name(), nil); err != nil {
		return err
	}
	return fault.New(fault.Permission, userfile.Remove(j.path), "remove the file by hand")
}
