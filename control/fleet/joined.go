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
		err = f.List.decodeVerified(f.Key, &j.names)
	}
	if err != nil {
		return nil, fault.New(fault.Config, fmt.Errorf("fleet file %s: %w", path, err),
			"move the file away, and join the fleet again with a new code")
	}
	j.key, j.list = f.Key, f.List
	return j, nil
}

// CheckJoin returns why this device cannot join a fleet that offers its list of servers, or nil. A device joins one
// fleet at most: another one is a fault of kind Exists.
func CheckJoin(path string, trust *identity.Trust, key identity.PublicKey, offer []byte) error {
	before, err := LoadJoined(path, trust)
	if err != nil {
		return err
	}
	if before != nil && before.key != key {
		return fault.New(fault.Exists, fmt.Errorf("this device belongs to the fleet %q", before.names.Fleet),
			"leave it first: mpbond fleet leave")
	}
	_, l, err := openOffer(key, offer, time.Now())
	if err == nil && len(l.Servers) == 0 {
		err = fault.New(fault.Protocol, errors.New("the fleet lists no servers"), "ask the fleet's operator")
	}
	return err
}

// Join stores a fleet that offers its list of servers, and their entries in the trust file, after CheckJoin. It returns
// the entry of the server with that key.
func Join(path string, trust *identity.Trust, key identity.PublicKey, offer []byte, server identity.PublicKey) (
	p identity.Peer, err error) {
	if err := CheckJoin(path, trust, key, offer); err != nil {
		return p, err
	}
	j, err := LoadJoined(path, trust)
	if err != nil {
		return p, err
	}
	if j == nil {
		j = &Joined{path: path, trust: trust, key: key}
	}
	o, _, err := j.Apply(offer, time.Now())
	if err != nil {
		return p, err
	}
	p, ok := trust.Lookup(server)
	if !ok { // it may be new on the list, or removed: others serve this device
		p, _ = trust.Lookup(o.Servers[0].Key)
	}
	return p, nil
}

// openOffer decodes an offer and opens its list.
func openOffer(key identity.PublicKey, offer []byte, now time.Time) (o Offer, l ServerList, err error) {
	if err := json.Unmarshal(offer, &o); err != nil {
		return o, l, fault.New(fault.Protocol, fmt.Errorf("offer of the fleet: %w", err),
			"install the same release of mpbond on all devices")
	}
	l, err = OpenList(key, o.List, now)
	return o, l, err
}

// OfferedServers are the servers of an offer.
type OfferedServers struct {
	ServerList
	Hints []Hint
}

// Apply applies an offer of a server of the fleet: a newer list replaces the known one, in the trust file too. An
// offer whose list is not signed or has expired changes nothing. changed reports whether the list is a new one.
func (j *Joined) Apply(offer []byte, now time.Time) (o OfferedServers, changed bool, err error) {
	in, l, err := openOffer(j.key, offer, now)
	if err != nil {
		return o, false, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
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
	// The file comes first: whoever notices the new trust file reads both.
	if err := j.save(in.List); err != nil {
		return o, false, err
	}
	if err := j.trust.SetFleet(l.Fleet, peers); err != nil {
		return o, false, err
	}
	j.list, j.names = in.List, l
	o.ServerList = l
	return o, true, nil
}

// save writes the file with a list.
func (j *Joined) save(list Signed) error {
	unlock, err := userfile.LockDir(filepath.Dir(j.path))
	if err != nil {
		return err
	}
	defer unlock()
	f, err := userfile.CreateNew(j.path + ".new")
	if err == nil {
		err = userfile.Replace(f, j.path, encode(joinedFile{j.key, list}))
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
