// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"context"
	"crypto/ed25519"
	"errors"
	"strings"
	"sync"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
)

// testFleet answers codes. One device can use each.
type testFleet struct {
	key   identity.PublicKey
	codes map[string]Code

	mu       sync.Mutex
	enrolled []Enrollee
	err      error // of Registration
}

func (f *testFleet) Registration(_ context.Context, code string) (Registration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.codes[code]
	if f.err != nil || !ok {
		return Registration{}, errors.Join(f.err, fault.New(fault.UnknownDevice, errors.New("no such code"), ""))
	}
	return c.Register()
}

func (f *testFleet) Offer() (identity.PublicKey, []byte, error) {
	return f.key, []byte("the offer"), nil
}

func (f *testFleet) Enroll(_ context.Context, code string, e Enrollee) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.codes[code]
	if !ok {
		return "", fault.New(fault.UnknownDevice, errors.New("the code was used"), "")
	}
	key, err := c.ClaimKey()
	if err != nil {
		return "", err
	}
	if !ed25519.Verify(key, ClaimText(code, e.Key), e.Claim[:]) {
		return "", errors.New("the claim is wrong")
	}
	delete(f.codes, code)
	f.enrolled = append(f.enrolled, e)
	return e.Name, nil
}

// newFleetServer returns a server of a fleet, the fleet and a code.
func newFleetServer(t *testing.T) (server *testDevice, f *testFleet, code Code) {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	server = newTestDevice(t, "eu1", wire.PairServer)
	code = NewFleetCode(key.Public(), []string{"192.0.2.7:7600"})
	f = &testFleet{key: key.Public(), codes: map[string]Code{code.ID(): code}}
	server.a.Fleet = f
	return server, f, code
}

// joinFleet makes d join the fleet of a server by a code. It returns the offer that d would store.
func (d *testDevice) joinFleet(server *testDevice, code Code) (offer string, err error) {
	self := d.Self
	self.CheckFleet = func(identity.PublicKey, []byte) error { return d.fleetError }
	self.JoinFleet = func(_ identity.PublicKey, o []byte, _ identity.PublicKey) (identity.Peer, error) {
		offer = string(o)
		return identity.Peer{Name: "eu1"}, nil
	}
	m, err := newCaller(self, code).callAcceptorAt(d.t.Context(), server.connectFrom("10.0.0.1"), "192.0.2.7:7600")
	if err != nil {
		return "", err
	}
	if !m.IsFleet() || m.IsHelper() {
		d.t.Error("it is no server of a fleet")
	}
	_, err = m.Finish(d.t.Context())
	return offer, err
}

// TestFleetCodes checks that a device joins by its code, once, and that neither side accepts another code or fleet.
func TestFleetCodes(t *testing.T) {
	server, f, code := newFleetServer(t)
	laptop := newTestDevice(t, "laptop", wire.PairPrimary)
	wrong := code
	wrong.Secret = randomText(fleetSecretLen)
	if _, err := laptop.joinFleet(server, wrong); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("a code that nobody made: %v", err)
	}
	guess := code // its ID is known, its secret is not
	f.codes[wrong.ID()] = guess
	if _, err := laptop.joinFleet(server, wrong); err != errWrongCode {
		t.Errorf("a guess: %v", err)
	}
	delete(f.codes, wrong.ID())
	other := code
	other.Fleet = FleetFingerprint(identity.PublicKey{9})
	if _, err := laptop.joinFleet(server, other); !fault.Is(err, fault.WrongKey) {
		t.Errorf("a server of another fleet than the code's: %v", err)
	}
	if len(f.enrolled) != 0 || server.knownPeers() != "" || laptop.knownPeers() != "" {
		t.Errorf("enrolled %v by wrong codes", f.enrolled)
	}
	laptop.fleetError = fault.New(fault.Integrity, errors.New("the list has expired"), "")
	if _, err := laptop.joinFleet(server, code); err != laptop.fleetError || len(f.enrolled) != 0 {
		t.Errorf("a device that cannot join: %v, enrolled %v", err, f.enrolled)
	}
	laptop.fleetError = nil
	offer, err := laptop.joinFleet(server, code)
	if err != nil || offer != "the offer" {
		t.Fatalf("%q, %v", offer, err)
	}
	if len(f.enrolled) != 1 || f.enrolled[0].Key != laptop.Key.Public() || f.enrolled[0].Name != "laptop" {
		t.Errorf("enrolled %+v", f.enrolled)
	}
	if server.knownPeers() != "" {
		t.Error("the server trusts the device itself")
	}
	if _, err := newTestDevice(t, "other", wire.PairPrimary).joinFleet(server, code); !fault.Is(err,
		fault.UnknownDevice) {
		t.Errorf("a code was used twice: %v", err)
	}
}

// TestNoFleet checks the errors for codes and devices that do not fit.
func TestNoFleet(t *testing.T) {
	server, f, code := newFleetServer(t)
	laptop, phone := newTestDevice(t, "laptop", wire.PairPrimary), newTestDevice(t, "phone", wire.PairHelper)
	alone := newTestDevice(t, "home", wire.PairServer)
	if _, err := laptop.joinFleet(alone, code); err == nil || !strings.Contains(err.Error(), "belongs to no fleet") {
		t.Errorf("a server without a fleet: %v", err)
	}
	if _, err := phone.joinFleet(server, code); err == nil {
		t.Error("a helper has joined a fleet")
	}
	if _, err := laptop.pairWith(server, "10.0.0.1", "K7QF3M2A"); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("a code of one server at a fleet: %v", err)
	}
	f.err = fault.New(fault.Unreachable, errors.New("the engine does not answer"), "")
	if _, err := laptop.joinFleet(server, code); err == nil || !strings.Contains(err.Error(),
		"the engine does not answer") {
		t.Errorf("without the engine: %v", err)
	}
	if len(f.enrolled) != 0 {
		t.Errorf("enrolled %v", f.enrolled)
	}
}

// TestFleetCodeText checks how codes are written and read.
func TestFleetCodeText(t *testing.T) {
	key := identity.PublicKey{1, 2, 3}
	code := NewFleetCode(key, []string{"eu1.example.org:7600", "eu2.example.org:8443"})
	text := code.String()
	if groups := strings.Count(text, "-"); groups != 8 || !strings.HasSuffix(text,
		"@eu1.example.org:7600,eu2.example.org:8443") {
		t.Errorf("code %s", text)
	}
	for _, s := range []string{text, code.QR(), strings.ToLower(text), strings.ReplaceAll(text, "-", "")} {
		got, err := ParseCode(s)
		if err != nil || got.Secret != code.Secret || got.Fleet != FleetFingerprint(key) || len(got.Addrs) != 2 {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	secret, _, _ := strings.Cut(text, "@")
	for _, s := range []string{secret, secret + "@", text[5:], secret[:20] + "@eu1.example.org"} {
		if _, err := ParseCode(s); !fault.Is(err, fault.Usage) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if got, err := ParseCode(secret + "@eu1.example.org"); err != nil || len(got.Addrs) != 1 ||
		got.Addrs[0] != "eu1.example.org:7600" {
		t.Errorf("%+v, %v", got, err)
	}
	if a, b := FleetFingerprint(key), FleetFingerprint(identity.PublicKey{1, 2, 4}); a == b || len(a) != fleetLen {
		t.Errorf("fingerprints %s and %s", a, b)
	}
	if code.ID() == NewFleetCode(key, nil).ID() || strings.Contains(code.ID(), strings.ToLower(code.Secret)) {
		t.Error("the ID reveals the code")
	}
}
