// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/loglimit"
	"mpbond/base/waittest"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// newPool returns a pool that trusts helpers with these names, and their keys. It supervises a
// helper until its pipe is closed.
func newPool(t *testing.T, names ...string) (*helperPool, []identity.PublicKey) {
	t.Helper()
	trust, keys := newTrustWith(t, names...)
	p := &helperPool{
		key:    newKey(t),
		trust:  trust,
		states: newTestStates(t, "", deviceNames{trust: trust}),
		demand: newDemand(func() bool { return false }, nil),
		troubles: &troubleLog{
			trust: trust,
		},
		serverTrouble: func() (none wire.Trouble) { return none },
		log:           slog.New(slog.DiscardHandler),
		unknownLog: loglimit.New(
			slog.New(slog.DiscardHandler),
		),
		byKey: map[identity.PublicKey]*helper{},
		conns: map[net.Conn]bool{},
	}
	p.supervise = func(ctx context.Context, h *helper, w *pipe.Waiting) {
		for w != nil {
			select {
			case <-w.Done():
			case <-ctx.Done():
			case <-h.revoked:
				w.Close()
			}
			w = h.takeNextPipe(ctx.Err() != nil)
		}
	}
	for i, key := range keys {
		p.byKey[key] = newHelper(key, names[i], nil)
	}
	return p, keys
}

// TestRename: helpers are shown by their current names although they called, and failed, under
// other names; two may swap names.
func TestRename(t *testing.T) {
	p, keys := newPool(t, "phone", "tablet", "watch")
	for _, r := range [][2]string{{"phone", "x"}, {"tablet", "phone"}, {"x", "tablet"}} {
		if err := p.trust.Rename(r[0], r[1]); err != nil {
			t.Fatal(err)
		}
	}
	renamed := p.applyTrust(time.Now())
	for i, want := range []string{"tablet", "phone", "watch"} {
		if got := p.findHelper(keys[i]).currentHelperName(); got != want {
			t.Errorf("it is %s now, want %s", got, want)
		}
	}
	l := &troubleLog{
		last: map[string]api.Trouble{
			"phone":  {Text: "of the phone"},
			"tablet": {Text: "of the tablet"},
			"wlan0":  {Text: "own"},
		},
	}
	l.renameDevices(renamed)
	if want := map[string]api.Trouble{"tablet": {Text: "of the phone"}, "phone": {Text: "of the tablet"},
		"wlan0": {Text: "own"}}; !maps.Equal(
		l.listTroubles(),
		want,
	) {
		t.Errorf("what went wrong last: %v, want %v", l.listTroubles(), want)
	}
}

// TestPoolFollowsTrust: a helper that is no longer trusted leaves the pool with its pipes, a paused
// one is suspended, and others are not touched; a pipe of an untrusted helper is closed.
func TestPoolFollowsTrust(t *testing.T) {
	us, phone, tablet := newKey(t), newKey(t), newKey(t)
	p, _ := newPool(t)
	for name, key := range map[string]*identity.Key{"phone": phone, "tablet": tablet} {
		if err := p.trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RoleHelper},
			Key: key.Public()}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var pipes []*pipe.Waiting
	for _, key := range []*identity.Key{phone, phone, tablet} {
		w, _ := waitingPipe(t, us, key)
		pipes = append(pipes, w)
		p.wg.Go(func() { p.handleWaitingPipe(ctx, w) })
		waittest.Until(t, "the pipe is taken", func() bool {
			h := p.findHelper(key.Public())
			return h != nil && (len(pipes) != 2 || len(h.reservePipes()) > 0)
		})
	}
	if n := len(p.listWaitingPipes()); n != 1 {
		t.Errorf("%d pipes wait", n)
	}
	if err := p.trust.Remove("phone"); err != nil {
		t.Fatal(err)
	}
	if renamed := p.applyTrust(time.Now()); len(renamed) > 0 {
		t.Errorf("renamed are %v", renamed)
	}
	<-pipes[0].Done()
	<-pipes[1].Done()
	if p.findHelper(phone.Public()) != nil || p.findHelper(tablet.Public()) == nil || !isOpen(pipes[2]) {
		t.Error("the wrong helper has gone")
	}
	w, _ := waitingPipe(t, us, phone)
	if p.handleWaitingPipe(ctx, w); isOpen(w) {
		t.Error("a pipe of one that is not trusted is taken")
	}
	p.closeHandshakes()
	w, _ = waitingPipe(t, us, tablet)
	if p.handleWaitingPipe(ctx, w); isOpen(w) {
		t.Error("a pipe is taken after the end")
	}
	cancel()
	p.waitClosed()
	if names := p.listHelpers(); !slices.ContainsFunc(
		names,
		func(h *helper) bool { return h.currentHelperName() == "tablet" },
	) {
		t.Error("the tablet is gone")
	}
}
