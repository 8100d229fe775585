// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
)

func testKey(t *testing.T) *identity.Key {
	t.Helper()
	k, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// offerOf returns an offer of a list that key signs.
func offerOf(t *testing.T, key *identity.Key, l ServerList) []byte {
	t.Helper()
	s, err := sign(key, l)
	if err != nil {
		t.Fatal(err)
	}
	return encode(Offer{List: s, Hints: []Hint{{Name: "eu1", CPU: 0.5}}})
}

// TestJoined checks what a primary accepts: a list that the fleet's key signed, that has not expired and is newer.
// Anything else changes nothing.
func TestJoined(t *testing.T) {
	now := time.Now()
	key, eu1, eu2 := testKey(t), testKey(t).Public(), testKey(t).Public()
	list := func(number uint64, servers ...Server) ServerList {
		return ServerList{Fleet: "acme", Number: number, Issued: now, Expires: now.Add(time.Hour), Servers: servers}
	}
	one := Server{Name: "eu1", Region: "eu", Key: eu1, Addresses: []string{"eu1.example.org:7600"}}
	two := Server{Name: "eu2", Region: "eu", Key: eu2, Addresses: []string{"eu2.example.org:7600"}}
	dir := t.TempDir()
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	own := identity.Peer{Name: "eu1", Roles: []identity.Role{identity.RoleHelper}, Key: testKey(t).Public()}
	if err := trust.Add(own); err != nil { // has the name of a server
		t.Fatal(err)
	}
	path := filepath.Join(dir, "fleet.json")
	if j, err := LoadJoined(path, trust); j != nil || err != nil {
		t.Fatalf("a fleet out of nothing: %v, %v", j, err)
	}
	if _, err := Join(path, trust, key.Public(), offerOf(t, testKey(t), list(1, one)), eu1); !fault.Is(err,
		fault.Integrity) {
		t.Errorf("joined by a list that others signed: %v", err)
	}
	p, err := Join(path, trust, key.Public(), offerOf(t, key, list(2, one, two)), eu2)
	if err != nil || p.Name != "eu2" || p.Fleet != "acme" || !p.HasRole(identity.RoleServer) {
		t.Fatalf("%+v, %v", p, err)
	}
	servers := func() int { return len(trust.ByRole(identity.RoleServer)) }
	if servers() != 2 || len(trust.Peers()) != 3 {
		t.Errorf("%d servers", servers())
	}
	if p, _ := trust.Lookup(eu1); p.Name != "eu1-2" {
		t.Errorf("eu1 is called %q although that is a helper's name", p.Name)
	}
	if _, err := Join(path, trust, testKey(t).Public(), offerOf(t, key, list(2, one)), eu1); !fault.Is(err,
		fault.Exists) {
		t.Errorf("joined a second fleet: %v", err)
	}
	j, err := LoadJoined(path, trust)
	if err != nil || j.Name() != "acme" || j.Key() != key.Public() || len(j.List().Servers) != 2 {
		t.Fatalf("%+v, %v", j, err)
	}
	expired, future := list(9, one), list(9, one)
	expired.Expires = now.Add(-clockError - time.Second)
	future.Issued = now.Add(time.Hour)
	tooMany := list(9)
	for range MaxServers + 1 {
		k := testKey(t).Public()
		tooMany.Servers = append(tooMany.Servers, Server{Name: k.ID().String(), Key: k, Addresses: one.Addresses})
	}
	changedBody := Offer{}
	if err := json.Unmarshal(offerOf(t, key, list(9, one)), &changedBody); err != nil {
		t.Fatal(err)
	}
	changedBody.List.Body[len(changedBody.List.Body)-2]++
	order, err := sign(key, Order{Server: "eu1"}) // the fleet's key signed it, but it is no list
	if err != nil {
		t.Fatal(err)
	}
	for name, offer := range map[string][]byte{
		"signed by others": offerOf(t, testKey(t), list(9, one)), "expired": offerOf(t, key, expired),
		"from the future": offerOf(t, key, future), "too many servers": offerOf(t, key, tooMany),
		"changed": encode(changedBody), "of another kind": encode(Offer{List: order}), "nothing": []byte("{}"),
		"no JSON": []byte("<html>"), "no address": offerOf(t, key, list(9, Server{Name: "x", Key: eu1})),
		"same key twice": offerOf(t, key, list(9, one, Server{Name: "x", Key: eu1, Addresses: one.Addresses})),
	} {
		if _, changed, err := j.Apply(offer, now); err == nil || changed || servers() != 2 || j.List().Number != 2 {
			t.Errorf("%s: changed %v, %d servers, error %v", name, changed, servers(), err)
		}
	}
	o, changed, err := j.Apply(offerOf(t, key, list(1, one)), now) // of a server that is behind
	if err != nil || changed || len(o.Servers) != 2 || len(o.Hints) != 1 {
		t.Errorf("an older list: %+v, %v, %v", o, changed, err)
	}
	if o, changed, err = j.Apply(offerOf(t, key, list(3, two)), now); err != nil || !changed || len(o.Servers) != 1 {
		t.Errorf("a newer list: %+v, %v, %v", o, changed, err)
	}
	if _, ok := trust.Lookup(eu1); ok || servers() != 1 {
		t.Error("a server that the fleet no longer lists is trusted")
	}
	if j, err = LoadJoined(path, trust); err != nil || j.List().Number != 3 {
		t.Errorf("%+v, %v", j, err)
	}
	if err := j.Leave(); err != nil || servers() != 0 || len(trust.Peers()) != 1 {
		t.Errorf("after leaving: %d servers, %v", servers(), err)
	}
	if j, err := LoadJoined(path, trust); j != nil || err != nil {
		t.Errorf("after leaving: %v, %v", j, err)
	}
}

// TestRebase checks the totals after a server's file of counts has lost something.
func TestRebase(t *testing.T) {
	v := func(n unit.Bytes) Volume { return Volume{Down: n} }
	last := usageRecord{Month: "2026-11", All: v(100), InMonth: v(40), Base: v(10), MonthBase: v(4)}
	for _, c := range []struct {
		name          string
		start         DeviceUsage
		base, inMonth unit.Bytes
	}{
		{"nothing is lost", DeviceUsage{Day: "2026-11-30", All: v(90), Month: v(36)}, 10, 4},
		{"more was counted before the end", DeviceUsage{Day: "2026-11-30", All: v(95), Month: v(41)}, 10, 4},
		{"the last second is lost", DeviceUsage{Day: "2026-11-30", All: v(88), Month: v(34)}, 12, 6},
		{"the file is lost", DeviceUsage{}, 100, 40},
		{"a new month", DeviceUsage{Day: "2026-12-01", All: v(91), Month: v(1)}, 10, 40},
	} {
		base, month := rebase(last, c.start)
		if base != v(c.base) || month != v(c.inMonth) {
			t.Errorf("%s: %v, %v instead of %v, %v", c.name, base, month, c.base, c.inMonth)
		}
	}
}

// TestListDates checks when a list is valid: a clock may be wrong by clockError either way.
func TestListDates(t *testing.T) {
	key, issued := testKey(t), time.Now()
	signed, err := sign(key, ServerList{Fleet: "acme", Issued: issued, Expires: issued.Add(ListLife)})
	if err != nil {
		t.Fatal(err)
	}
	for after, valid := range map[time.Duration]bool{
		-24 * time.Hour: false, -clockError - time.Second: false, -clockError: true, 0: true, ListLife: true,
		ListLife + clockError: true, ListLife + clockError + time.Second: false,
	} {
		if _, err := OpenList(key.Public(), signed, issued.Add(after)); (err == nil) != valid {
			t.Errorf("%v after its signature: %v", after, err)
		}
	}
}

// TestListExpiry checks that a server knows when its list of servers has expired, also afterwards.
func TestListExpiry(t *testing.T) {
	key, now := testKey(t), time.Now()
	d, _, err := openDirectory("", time.Hour, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.pinKey(key.Public()); err != nil {
		t.Fatal(err)
	}
	if at := d.listExpiry(); !at.IsZero() {
		t.Errorf("no list expires at %v", at)
	}
	end := now.Add(time.Hour)
	signed, err := sign(key, ServerList{Fleet: "acme", Number: 1, Issued: now, Expires: end})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.applyList(encode(signed)); err != nil {
		t.Fatal(err)
	}
	d.now = func() time.Time { return end.Add(time.Hour) }
	if _, _, err := d.currentList(); err == nil {
		t.Error("an expired list is current")
	}
	if at := d.listExpiry(); !at.Equal(end) {
		t.Errorf("the list expired at %v, not %v", at, end)
	}
}
