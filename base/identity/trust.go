// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/pelletier/go-toml/v2"

	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/userfile"
)

// Role is a role of a device towards us. The names are part of the file format.
type Role string

// Roles.
const (
	RoleServer  Role = "server"
	RoleHelper  Role = "helper"
	RolePrimary Role = "primary"
)

// Roles returns all roles.
func Roles() []Role { return []Role{RoleServer, RoleHelper, RolePrimary} }

// Limits of the trust file.
const (
	maxTrustFile = 4 << 20
	maxName      = 64 // as in package wire
	maxAddresses = 16
	maxServers   = 64 // as in package wire
)

// Peer is a trusted device. Its slices are shared and must not be changed.
type Peer struct {
	// Name is our name of the device: unique, 1 to 64 letters, digits and "._-".
	Name string `toml:"name" json:"name"`
	// Roles are its roles towards us, at least one.
	Roles []Role `toml:"roles" json:"roles"`
	// Key is its public key, unique in the file.
	Key PublicKey `toml:"key" json:"key"`
	// Addresses are its addresses as "host:port", best first. It may be empty for devices that are
	// discovered or that connect to us.
	Addresses []string `toml:"addresses,omitempty" json:"addresses,omitempty"`
	// Servers are the servers that a primary last reported. A helper carries its subflows to these
	// only. They are not trusted themselves.
	Servers []string `toml:"servers,omitempty" json:"servers,omitempty"`
	// Fleet is the name of the fleet that lists this server; "" for a server of its own. The list of the fleet
	// determines its entry: see Trust.SetFleet.
	Fleet string `toml:"fleet,omitempty" json:"fleet,omitempty"`
	// Paused marks a helper or primary that is trusted but not used until it is resumed.
	Paused bool `toml:"paused,omitempty" json:"paused,omitempty"` // see Trust.SetPaused
}

// HasRole reports whether the peer has role r.
func (p Peer) HasRole(r Role) bool { return slices.Contains(p.Roles, r) }

// Validate returns the first problem of an entry.
func (p Peer) Validate() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	if len(p.Roles) == 0 {
		return fmt.Errorf("device %q has no role", p.Name)
	}
	for i, r := range p.Roles {
		if !slices.Contains(Roles(), r) {
			return fmt.Errorf("device %q: unknown role %q (the roles are server, helper, primary)", p.Name, r)
		}
		if slices.Contains(p.Roles[:i], r) {
			return fmt.Errorf("device %q has the role %q twice", p.Name, r)
		}
	}
	if p.Key == (PublicKey{}) {
		return fmt.Errorf("device %q has no key", p.Name)
	}
	if len(p.Addresses) > maxAddresses {
		return fmt.Errorf("device %q has over %d addresses", p.Name, maxAddresses)
	}
	if len(p.Servers) > maxServers {
		return fmt.Errorf("device %q has over %d servers", p.Name, maxServers)
	}
	if p.Fleet != "" {
		if err := CheckName(p.Fleet); err != nil {
			return fmt.Errorf("device %q: fleet: %w", p.Name, err)
		}
	}
	for _, a := range slices.Concat(p.Addresses, p.Servers) {
		if err := checkPeerAddress(a); err != nil {
			return fmt.Errorf("device %q: %w", p.Name, err)
		}
	}
	return nil
}

// CheckName returns an error unless s may be the name of a device.
func CheckName(s string) error {
	if s == "" || len(s) > maxName {
		return fmt.Errorf("device name %.70q: must have 1 to %d characters", s, maxName)
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return fmt.Errorf("device name %q: use letters, digits, '.', '_' and '-' only", s)
		}
	}
	return nil
}

// checkPeerAddress returns what is wrong with an address of a device.
func checkPeerAddress(a string) error {
	if strings.ContainsFunc(a, func(r rune) bool { return !text.IsPrintable(r) || unicode.IsSpace(r) }) {
		return fmt.Errorf("address %q: invalid characters", a)
	}
	if rest, ok := strings.CutPrefix(a, "rfcomm://"); ok { // package pipe checks the rest
		if len(rest) > 20 || strings.Count(rest, ":") != 5 || strings.Count(rest, "/") != 1 {
			return fmt.Errorf("address %q: write Bluetooth as rfcomm://AA:BB:CC:DD:EE:FF/CHANNEL", a)
		}
		return nil
	}
	host, port, err := net.SplitHostPort(a)
	if err != nil {
		return fmt.Errorf("address %q: write it as host:port, or [IPv6]:port", a)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("address %q: the port must be a number from 1 to 65535", a)
	}
	if host == "" || len(host) > 253 {
		return fmt.Errorf("address %q: the host is missing or too long", a)
	}
	return nil
}

// trustState is one state of the file. It is immutable.
type trustState struct {
	list   []Peer // in the order of the file
	byKey  map[PublicKey]int
	byName map[string]int
}

// newTrustState returns the list with its indexes. Names and keys must be unique.
func newTrustState(list []Peer) (*trustState, error) {
	p := &trustState{list, make(map[PublicKey]int, len(list)), make(map[string]int, len(list))}
	for i, peer := range list {
		if err := peer.Validate(); err != nil {
			return nil, err
		}
		if _, ok := p.byName[peer.Name]; ok {
			return nil, fmt.Errorf("there are two devices called %q", peer.Name)
		}
		if j, ok := p.byKey[peer.Key]; ok {
			return nil, fmt.Errorf("devices %q and %q have the same key", list[j].Name, peer.Name)
		}
		p.byName[peer.Name], p.byKey[peer.Key] = i, i
	}
	return p, nil
}

// Trust is the trust file: the devices we trust, in TOML.
//
//	[[peer]]
//	name = 'home'
//	roles = ['server']
//	key = 'mpb1…'
//	addresses = ['vps.example.org:7600']
//
// All methods are safe for concurrent use, and lookups take no lock. Reload reads changes by other
// processes.
type Trust struct {
	path  string
	state atomic.Pointer[trustState]

	mu      sync.Mutex         // serialises changes; guards the fields below
	unsaved map[PublicKey]Peer // removed here but still in the file
}

// trustFile is the layout of the file.
type trustFile struct {
	Peer []Peer `toml:"peer"`
}

// OpenTrust reads the trust file at path. A missing file means that no device is trusted yet.
// Errors are faults of kind Permission, if others may change the file, or Config.
func OpenTrust(path string) (*Trust, error) {
	t := &Trust{path: path}
	return t, t.Reload()
}

// Reload reads the file again. After an error the previous devices stay trusted.
func (t *Trust) Reload() error {
	t.mu.Lock() // so that the file read is not older than our last change
	defer t.mu.Unlock()
	p, err := t.readTrustFile()
	if err != nil {
		return err
	}
	for key := range t.unsaved {
		if _, ok := p.byKey[key]; !ok {
			delete(t.unsaved, key) // another process has removed it
		}
	}
	if p, err = t.withoutUnsaved(p); err != nil {
		return err
	}
	t.state.Store(p)
	return nil
}

// withoutUnsaved returns p without the devices that were removed but are still in the file. mu must
// be held.
func (t *Trust) withoutUnsaved(p *trustState) (*trustState, error) {
	if len(t.unsaved) == 0 {
		return p, nil
	}
	return newTrustState(slices.DeleteFunc(slices.Clone(p.list),
		func(p Peer) bool { _, ok := t.unsaved[p.Key]; return ok }))
}

// readTrustFile returns the content of the file.
func (t *Trust) readTrustFile() (*trustState, error) {
	f, err := userfile.Open(t.path)
	if errors.Is(err, os.ErrNotExist) {
		return newTrustState(nil)
	}
	if err != nil {
		return nil, fault.New(fault.Permission, fmt.Errorf("trust file: %w", err), "run mpbond as the user who made it")
	}
	defer f.Close()
	// the file has no secrets, but its writer decides which devices we trust
	if err := checkPrivate(f, 0o022); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTrustFile+1))
	if err != nil {
		return nil, fmt.Errorf("trust file %s: %w", t.path, err)
	}
	if len(data) > maxTrustFile {
		return nil, fault.New(fault.Limit, fmt.Errorf("trust file %s is over %d bytes", t.path, maxTrustFile), "")
	}
	return parseTrust(t.path, data)
}

// parseTrust parses the content of a trust file of that name.
func parseTrust(name string, data []byte) (*trustState, error) {
	var file trustFile
	if err := config.Parse(name, data, &file); err != nil {
		return nil, err
	}
	p, err := newTrustState(file.Peer)
	return p, fault.New(fault.Config, prefixError(err, "trust file %s", name),
		"correct the file, or move it away and pair the devices again")
}

// Peers returns all devices in the order of the file. The caller owns the slice.
func (t *Trust) Peers() []Peer { return slices.Clone(t.currentTrustState().list) }

// ByRole returns the devices with role r.
func (t *Trust) ByRole(r Role) []Peer {
	return slices.DeleteFunc(t.Peers(), func(p Peer) bool { return !p.HasRole(r) })
}

// Lookup returns the device with a key.
func (t *Trust) Lookup(key PublicKey) (Peer, bool) {
	p := t.currentTrustState()
	i, ok := p.byKey[key]
	if !ok {
		return Peer{}, false
	}
	return p.list[i], true
}

// LookupName returns the device with a name.
func (t *Trust) LookupName(name string) (Peer, bool) {
	p := t.currentTrustState()
	i, ok := p.byName[name]
	if !ok {
		return Peer{}, false
	}
	return p.list[i], true
}

// Allowed returns a function for Key.ServerConfig that reports whether a key is that of a device
// with role r, according to the file at the time of the call.
func (t *Trust) Allowed(r Role) func(PublicKey) bool {
	return func(key PublicKey) bool {
		p, ok := t.Lookup(key)
		return ok && p.HasRole(r)
	}
}

// Add adds a device to the file. A duplicate name or key is a fault of kind Exists, an invalid peer
// one of kind Usage.
func (t *Trust) Add(peer Peer) error {
	if err := peer.Validate(); err != nil {
		return fault.New(fault.Usage, err, "")
	}
	return t.updateFile(func(p *trustState) ([]Peer, error) {
		if _, ok := p.byName[peer.Name]; ok {
			return nil, fault.New(fault.Exists, fmt.Errorf("a device called %q is already trusted", peer.Name),
				"choose another name, or run `mpbond trust remove` for it first")
		}
		if i, ok := p.byKey[peer.Key]; ok {
			return nil, fault.New(fault.Exists, fmt.Errorf("this key is already trusted, under the name %q",
				p.list[i].Name),
				"to change its roles or addresses, run `mpbond trust remove` for it first")
		}
		return append(slices.Clone(p.list), peer), nil
	})
}

// Remove removes the device called name. An unknown name is a fault of kind NotFound. The roles
// must end open connections.
//
// If the file cannot be read or written, for instance on a full disk, this Trust still stops
// trusting the device. The fault is then of kind NotSaved, Unsaved lists the device, and Save tries
// again. Other processes still trust it.
func (t *Trust) Remove(name string) error {
	var removed Peer
	isRead := false
	err := t.updateFile(func(p *trustState) ([]Peer, error) {
		isRead = true
		i, ok := p.byName[name]
		if !ok {
			return nil, unknownNameError(name)
		}
		removed = p.list[i]
		return slices.Delete(slices.Clone(p.list), i, i+1), nil
	})
	if err == nil || isRead && removed.Name == "" {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !isRead { // use the state read before
		p := t.currentTrustState()
		i, ok := p.byName[name]
		if !ok {
			return fault.New(fault.NotFound, fmt.Errorf("this process trusts no device called %q, and the trust file "+
				"cannot be read: %w", name, err), fault.HintOf(err))
		}
		removed = p.list[i]
	}
	if t.unsaved == nil {
		t.unsaved = map[PublicKey]Peer{}
	}
	t.unsaved[removed.Key] = removed
	now, e := t.withoutUnsaved(t.currentTrustState())
	if e != nil {
		return e
	}
	t.state.Store(now)
	return fault.New(fault.NotSaved,
		fmt.Errorf("%s is no longer trusted by this process, but the trust file is not yet written: %w", name, err),
		cmp.Or(fault.HintOf(err),
			"free disk space, or correct the permissions")+
			": the file is written then; after a restart before that the device is trusted again")
}

// Unsaved returns the names of devices that were removed but are still in the file.
func (t *Trust) Unsaved() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for _, p := range t.unsaved {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

// Save writes the removals of Unsaved to the file.
func (t *Trust) Save() error {
	return t.updateFile(func(p *trustState) ([]Peer, error) { return p.list, nil })
}

// updateFile applies edit to the newest state of the file and writes the result atomically, one
// process at a time.
func (t *Trust) updateFile(edit func(*trustState) ([]Peer, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	dir := filepath.Dir(t.path)
	unlock, err := userfile.LockDir(dir) // the file itself is replaced, so it cannot carry the lock
	if err != nil {
		return err
	}
	defer unlock()
	before, err := t.readTrustFile()
	if err == nil {
		before, err = t.withoutUnsaved(before)
	}
	if err != nil {
		return err
	}
	list, err := edit(before)
	if err != nil {
		return err
	}
	after, err := newTrustState(list)
	if err != nil {
		return err
	}
	data, err := toml.Marshal(trustFile{list})
	if err != nil {
		return err
	}
	if err := writePrivateFile(t.path, data); err != nil {
		return fmt.Errorf("trust file %s: %w", t.path, err)
	}
	t.state.Store(after)
	t.unsaved = nil
	return nil
}

// currentTrustState returns the current state, which is empty if the first Reload failed.
func (t *Trust) currentTrustState() *trustState {
	if p := t.state.Load(); p != nil {
		return p
	}
	return &trustState{}
}
