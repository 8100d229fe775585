// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pairing"
	"mpbond/link/wire"
)

// ListLife is how long a signed list of servers is valid.
const ListLife = 90 * 24 * time.Hour

// fleetRecord is the record in Orders that names the fleet. A server pins its key at the first contact.
type fleetRecord struct {
	Name string             `json:"name"`
	Key  identity.PublicKey `json:"key"`
}

const fleetKeyKey = "fleet"

// readFleetKey returns the key of the fleet that an engine holds.
func readFleetKey(ctx context.Context, s Store) (identity.PublicKey, error) {
	f, err := readFleet(ctx, s)
	return f.Key, err
}

func readFleet(ctx context.Context, s Store) (f fleetRecord, err error) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	r, err := s.Get(ctx, Orders, fleetKeyKey)
	switch {
	case errors.Is(err, ErrNoRecord):
		return f, fault.New(fault.NotFound, errors.New("there is no fleet on this engine"),
			"the fleet's operator makes one: mpbond fleet init NAME")
	case err != nil:
		return f, err
	}
	err = json.Unmarshal(r.Value, &f)
	if err == nil && f.Key == (identity.PublicKey{}) {
		err = errors.New("it has no key")
	}
	if err != nil {
		return f, fault.New(fault.Integrity, fmt.Errorf("the record of the fleet is damaged: %w", err),
			"the fleet's operator writes it again: mpbond fleet init NAME")
	}
	return f, nil
}

// Operator manages a fleet by its key. Its methods are safe for concurrent use, also by several operators with
// the same key.
type Operator struct {
	store Store
	key   *identity.Key
	now   func() time.Time // another clock, in tests
}

// NewOperator returns the operator with that key.
func NewOperator(s Store, key *identity.Key) *Operator { return &Operator{s, key, time.Now} }

// Init makes a fleet on an engine, or restores the record of one. An engine with the fleet of another key is a
// fault of kind Exists.
func (o *Operator) Init(ctx context.Context, name string) error {
	if err := identity.CheckName(name); err != nil {
		return fault.New(fault.Usage, err, "")
	}
	f, err := readFleet(ctx, o.store)
	switch {
	case err == nil && f.Key != o.key.Public():
		return fault.New(fault.Exists, fmt.Errorf("the engine holds the fleet %q with another key, %v", f.Name,
			f.Key.ID()),
			"use the key of that fleet, or another engine")
	case err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Integrity):
		return err
	}
	if _, err := o.store.Put(ctx, Orders, fleetKeyKey, encode(fleetRecord{name, o.key.Public()})); err != nil {
		return err
	}
	return o.editList(ctx, func(l *ServerList) error { l.Fleet = name; return nil })
}

// check returns an error unless the engine holds the fleet of this operator.
func (o *Operator) check(ctx context.Context) error {
	f, err := readFleet(ctx, o.store)
	if err == nil && f.Key != o.key.Public() {
		err = fault.New(fault.WrongKey,
			fmt.Errorf("the engine holds the fleet %q with the key %v, and this operator's is %v",
				f.Name, f.Key.ID(), o.key.ID()), "check --fleet and --key-file")
	}
	return err
}

// editList changes the list of servers and signs it anew.
func (o *Operator) editList(ctx context.Context, edit func(*ServerList) error) error {
	for {
		var l ServerList
		r, err := o.store.Get(ctx, Orders, listKey)
		isNew := errors.Is(err, ErrNoRecord)
		if err != nil && !isNew {
			return err
		}
		if !isNew {
			var s Signed
			if err := json.Unmarshal(r.Value, &s); err != nil || s.decodeVerified(o.key.Public(), &l) != nil {
				return fault.New(fault.Integrity, errors.New("the list of servers on the engine is not this fleet's"),
					"delete it (`nats kv del mpbond-orders list`, or the file orders/list), and add all servers again")
			}
		}
		if err := edit(&l); err != nil {
			return err
		}
		states, err := readStates(ctx, o.store)
		if err == nil {
			err = o.checkClock(l, states)
		}
		if err != nil {
			return err
		}
		l.Issued = o.now().UTC().Truncate(time.Second)
		l.Number = max(l.Number+1, uint64(o.now().UnixMilli())) // above all earlier ones, on a new engine too
		l.Expires = l.Issued.Add(ListLife)
		if l.Servers == nil {
			l.Servers = []Server{}
		}
		if err := l.validate(); err != nil {
			return fault.New(fault.Usage, err, "")
		}
		if n := 2 * len(encode(l)); n > wire.MaxOffer { // in base64, with what is said of each server
			return fault.New(fault.Limit, fmt.Errorf("the list of servers is too long: %d bytes", n),
				"use shorter host names")
		}
		signed, err := sign(o.key, l)
		if err != nil {
			return err
		}
		if isNew {
			_, err = o.store.Create(ctx, Orders, listKey, encode(signed), 0)
		} else {
			r.Value = encode(signed)
			_, err = o.store.Update(ctx, Orders, r)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// checkClock returns an error if the clocks of all servers that are on a list and run differ much from this one: they
// would accept nothing that it dates. If only some do, their own is wrong.
func (o *Operator) checkClock(l ServerList, states []ServerState) error {
	states = slices.DeleteFunc(states, func(st ServerState) bool { _, ok := l.find(st.Name); return !ok })
	for _, st := range states {
		if st.clockOffset(o.now()).Abs() <= clockError+ServerLife {
			return nil
		}
	}
	if len(states) == 0 {
		return nil
	}
	return clockFault(states[0], o.now())
}

// clockFault is the error for a server's clock that differs much from this one.
func clockFault(st ServerState, now time.Time) error {
	offset, where := st.clockOffset(now).Round(time.Minute), "ahead of"
	if offset < 0 {
		where = "behind"
	}
	return fault.New(fault.Integrity, fmt.Errorf("the clock of server %s is %v %s this machine's", st.Name,
		offset.Abs(), where), "correct the clock that is wrong: servers and primaries accept no documents of another day")
}

// AddServer puts a server on the list, in place of one with that name.
func (o *Operator) AddServer(ctx context.Context, s Server) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	return o.editList(ctx, func(l *ServerList) error {
		l.Servers = append(slices.DeleteFunc(l.Servers, func(x Server) bool { return x.Name == s.Name }), s)
		slices.SortFunc(l.Servers, func(a, b Server) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
}

// RemoveServer removes a server from the list: primaries stop using it when they have the new list.
func (o *Operator) RemoveServer(ctx context.Context, name string) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	// another server of this name shall not begin with the order of this one
	if _, err := o.store.Get(ctx, Orders, drainKey(name)); err == nil {
		if err := o.order(ctx, name, false); err != nil {
			return err
		}
	}
	return o.editList(ctx, func(l *ServerList) error {
		if _, ok := l.find(name); !ok {
			return noServerError(name)
		}
		l.Servers = slices.DeleteFunc(l.Servers, func(x Server) bool { return x.Name == name })
		return nil
	})
}

func noServerError(name string) error {
	return fault.New(fault.NotFound, fmt.Errorf("the fleet has no server called %.80q", name),
		"see `mpbond fleet status`")
}

// Renew signs the list of servers anew, so that it expires later.
func (o *Operator) Renew(ctx context.Context) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	return o.editList(ctx, func(*ServerList) error { return nil })
}

// InviteTerms are the terms of an invitation.
type InviteTerms struct {
	Region string        // whose servers the code names first; "" is any
	Name   string        // of the device; "": its own
	Life   time.Duration // of the code
	Terms
}

// Invite makes a code that one device can use.
func (o *Operator) Invite(ctx context.Context, t InviteTerms) (code pairing.Code, expires time.Time, err error) {
	err = o.InviteMany(ctx, t, 1, func(c pairing.Code, at time.Time) error {
		code, expires = c, at
		return nil
	})
	return code, expires, err
}

// MaxInvites bounds the codes of one call of InviteMany: some 150 MB in the engine.
const MaxInvites = 100_000

// InviteMany makes n codes with the same terms, each for one device. It calls take with each code that is valid, one
// after the other. After an error the codes before it stay valid.
func (o *Operator) InviteMany(ctx context.Context, t InviteTerms, n int,
	take func(code pairing.Code, expires time.Time) error) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	if n > MaxInvites {
		return fault.New(fault.Limit, fmt.Errorf("%d codes at once, over %d", n, MaxInvites),
			"ask for fewer, several times")
	}
	if err := t.Terms.validate(); err != nil {
		return err
	}
	if t.Name != "" {
		if err := identity.CheckName(t.Name); err != nil {
			return fault.New(fault.Usage, err, "")
		}
	}
	addrs, err := o.firstAddresses(ctx, t.Region)
	if err != nil {
		return err
	}
	for range n {
		code, expires, err := o.invite(ctx, t, addrs)
		if err != nil {
			return err
		}
		if err := take(code, expires); err != nil {
			return err
		}
	}
	return nil
}

// invite makes a code that names these addresses.
func (o *Operator) invite(ctx context.Context, t InviteTerms, addrs []string) (code pairing.Code, expires time.Time,
	err error) {
	code = pairing.NewFleetCode(o.key.Public(), addrs)
	claim, err := code.ClaimKey()
	if err != nil {
		return code, expires, err
	}
	reg, err := code.Register()
	if err != nil {
		return code, expires, err
	}
	now := o.now().UTC()
	inv := Invitation{Code: code.ID(), Claim: claim, Issued: now, Expires: now.Add(t.Life), Region: t.Region,
		Name: t.Name, Terms: t.Terms}
	signed, err := sign(o.key, inv)
	if err != nil {
		return code, expires, err
	}
	_, err = o.store.Create(ctx, Codes, inv.Code, encode(openCode{Invitation: signed, Registration: reg}), t.Life)
	return code, inv.Expires, err
}

// validate returns the first problem of terms.
func (t Terms) validate() error {
	if len(t.Groups) > MaxGroups {
		return fault.New(fault.Usage, fmt.Errorf("%d groups, over %d", len(t.Groups), MaxGroups), "")
	}
	for _, g := range t.Groups {
		if err := identity.CheckName(g); err != nil {
			return fault.New(fault.Usage, fmt.Errorf("group: %w", err), "")
		}
	}
	if t.Quota < 0 {
		return fault.New(fault.Usage, fmt.Errorf("the quota %v is negative", t.Quota), "0 is none")
	}
	return nil
}

// maxCodeServers bounds the servers that a code names.
const maxCodeServers = 3

// firstAddresses returns the addresses for a code: servers of the region first, running ones before others.
func (o *Operator) firstAddresses(ctx context.Context, region string) ([]string, error) {
	st, err := ReadStatus(ctx, o.store)
	if err != nil {
		return nil, err
	}
	list, states, listed := st.Servers, []ServerState(nil), ServerList{}
	for _, one := range list {
		if one.IsListed {
			listed.Servers = append(listed.Servers, one.Server)
		}
		if one.State != nil {
			states = append(states, *one.State)
		}
	}
	if len(listed.Servers) == 0 && st.Problem != nil && !errors.Is(st.Problem, ErrNoRecord) {
		return nil, st.Problem
	}
	if err := o.checkClock(listed, states); err != nil {
		return nil, err
	}
	if region != "" && !slices.ContainsFunc(list, func(s ServerView) bool { return s.Region == region && s.IsListed }) {
		return nil, fault.New(fault.NotFound, fmt.Errorf("the fleet has no server in the region %.80q", region),
			"see `mpbond fleet status`")
	}
	rank := func(s ServerView) int {
		r := 0
		if s.Region != region {
			r += 2
		}
		if s.State == nil || s.State.Draining {
			r++
		}
		return r
	}
	slices.SortStableFunc(list, func(a, b ServerView) int { return rank(a) - rank(b) })
	var addrs []string
	for _, s := range list {
		if s.IsListed && len(addrs) < maxCodeServers {
			addrs = append(addrs, s.Addresses[0])
		}
	}
	if len(addrs) == 0 {
		return nil, fault.New(fault.NotFound, errors.New("the fleet has no server yet"), "run `mpbond fleet add` first")
	}
	return addrs, nil
}

// Rule makes a ruling about a device: edit changes what is in force. It returns the device and the revision of its
// record.
func (o *Operator) Rule(ctx context.Context, key identity.PublicKey, edit func(*Ruling)) (d Device, revision uint64,
	err error) {
	if err := o.check(ctx); err != nil {
		return d, 0, err
	}
	for {
		r, err := o.store.Get(ctx, Devices, key.String())
		if errors.Is(err, ErrNoRecord) {
			return d, 0, fault.New(fault.NotFound, fmt.Errorf("the fleet has no device %v", key.ID()),
				"see `mpbond fleet devices`")
		}
		if err != nil {
			return d, 0, err
		}
		var rec deviceRecord
		if err = json.Unmarshal(r.Value, &rec); err == nil {
			d, err = openDevice(o.key.Public(), rec)
		}
		if err != nil {
			return d, 0, fault.New(fault.Integrity, fmt.Errorf("record of device %v: %w", key.ID(), err),
				"no server accepts it: delete it by `nats kv del mpbond-devices KEY`, or the file devices/KEY")
		}
		now := o.now().UTC()
		if !now.After(d.decided()) { // another operator's clock is ahead
			now = d.decided().Add(time.Microsecond)
		}
		ruling := Ruling{Key: key, At: now, Revoked: d.Revoked, Paused: d.Paused, Terms: d.Terms}
		edit(&ruling)
		if err := ruling.Terms.validate(); err != nil {
			return d, 0, err
		}
		signed, err := sign(o.key, ruling)
		if err != nil {
			return d, 0, err
		}
		rec.Ruling = &signed
		r.Value = encode(rec)
		revision, err = o.store.Update(ctx, Devices, r)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return d, 0, err
		}
		d, err = openDevice(o.key.Public(), rec)
		return d, revision, err
	}
}

// Revoke ends a device's membership. It returns when all servers that are listed or run have applied it, or with
// those that have not done so when wait has passed. A server that is silent may run without the engine, and serve the
// device until its cache is too old.
func (o *Operator) Revoke(ctx context.Context, key identity.PublicKey, wait time.Duration) (d Device, behind []string,
	err error) {
	d, revision, err := o.Rule(ctx, key, func(r *Ruling) { r.Revoked = true })
	if err != nil {
		return d, nil, err
	}
	_ = o.store.AddEvents(ctx, Event{At: o.now().UTC(), Kind: "revoked", Device: key.ID().String(), Name: d.Name})
	behind, err = o.awaitApplied(ctx, revision, wait)
	return d, behind, err
}

// awaitApplied waits until all servers that are listed or run have applied a revision of Devices. It returns those
// that have not.
func (o *Operator) awaitApplied(ctx context.Context, revision uint64, wait time.Duration) (behind []string, err error) {
	list, err := o.readAnyList(ctx)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		states, isCurrent := newServerStates(), false
		behind = states.listBehind(list, revision, o.now())
		err = o.store.Watch(waiting, Servers, func(c Change) {
			if isCurrent = isCurrent || c.IsCurrent; !c.IsCurrent {
				states.apply(c, o.now())
			}
			if behind = states.listBehind(list, revision, o.now()); isCurrent && len(behind) == 0 {
				cancel()
			}
		})
		if ctx.Err() != nil {
			return behind, ctx.Err()
		}
		if !mayEnd(err) || !waitFor(waiting, retryInterval) {
			return behind, err
		}
	}
}

// mayEnd reports whether what has ended a watch may end too: the engine is lost, or has new records.
func mayEnd(err error) bool {
	return fault.Is(err, fault.Unreachable) || fault.Is(err, fault.Timeout) || errors.Is(err, ErrReplaced)
}

// readAnyList returns the list of servers, also one that has expired.
func (o *Operator) readAnyList(ctx context.Context) (l ServerList, err error) {
	r, err := o.store.Get(ctx, Orders, listKey)
	if err != nil {
		return l, err
	}
	var signed Signed
	if err := json.Unmarshal(r.Value, &signed); err != nil {
		return l, fault.New(fault.Integrity, err, "")
	}
	return l, signed.decodeVerified(o.key.Public(), &l)
}

// Drain orders a server to drain, or to serve again.
func (o *Operator) Drain(ctx context.Context, server string, draining bool) error {
	if err := o.check(ctx); err != nil {
		return err
	}
	st, err := ReadStatus(ctx, o.store)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(st.Servers, func(s ServerView) bool { return s.Name == server }) {
		return noServerError(server)
	}
	return o.order(ctx, server, draining)
}

// order signs and stores an order.
func (o *Operator) order(ctx context.Context, server string, draining bool) error {
	for {
		r, err := o.store.Get(ctx, Orders, drainKey(server))
		isNew := errors.Is(err, ErrNoRecord)
		if err != nil && !isNew {
			return err
		}
		next := Order{Server: server, At: o.now().UTC(), Draining: draining}
		var s Signed
		var last Order
		if json.Unmarshal(r.Value, &s) == nil && s.decodeVerified(o.key.Public(), &last) == nil && !next.At.After(last.At) {
			next.At = last.At.Add(time.Microsecond) // another operator's clock is ahead
		}
		signed, err := sign(o.key, next)
		if err != nil {
			return err
		}
		if isNew {
			_, err = o.store.Create(ctx, Orders, drainKey(server), encode(signed), 0)
		} else {
			r.Value = encode(signed)
			_, err = o.store.Update(ctx, Orders, r)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}
