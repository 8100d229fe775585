// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/internal/cli"
)

// trustSignal is a role that reports changes of its trust.
type trustSignal chan struct{}

func (trustSignal) Run(context.Context) error { return nil }
func (t trustSignal) TrustChanged()           { t <- struct{}{} }

// TestTrustIsWatched checks that changes of the file by this and other processes are applied
// without a signal.
func TestTrustIsWatched(t *testing.T) {
	newHome(t)
	mine, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, changed := make(chan error), make(trustSignal)
	r := &role{trust: mine}
	go func() { done <- r.watchTrust(ctx, changed, nil) }()
	other, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Add(identity.Peer{Name: "phone", Roles: []identity.Role{identity.RoleHelper},
		Key: key.Public()}); err != nil {
		t.Fatal(err)
	}
	<-changed
	if _, ok := mine.LookupName("phone"); !ok {
		t.Error("it was not read")
	}
	if err := mine.Remove("phone"); err != nil {
		t.Fatal(err)
	}
	<-changed
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// trustCounter is a role that counts changes of its trust.
type trustCounter struct{ atomic.Int32 }

func (*trustCounter) Run(context.Context) error { return nil }
func (c *trustCounter) TrustChanged()           { c.Add(1) }

// trustPhone adds a helper to the trust file of the test's home and returns the trust.
func trustPhone(t *testing.T) *identity.Trust {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := cli.OpenTrust()
	if err == nil {
		err = trust.Add(identity.Peer{Name: "phone", Roles: []identity.Role{identity.RoleHelper}, Key: key.Public()})
	}
	if err != nil {
		t.Fatal(err)
	}
	return trust
}

// TestSavingCutsNobody checks that devices stay connected while an editor empties or renames the
// file before it writes it. A file that stays empty counts.
func TestSavingCutsNobody(t *testing.T) {
	path := filepath.Join(newHome(t), "trust.toml")
	synctest.Test(t, func(t *testing.T) {
		trust := trustPhone(t)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done, changes := make(chan error), make(chan struct{}, 1)
		var d trustCounter
		go func() { done <- (&role{trust: trust}).applyTrustChanges(ctx, &d, path, nil, changes) }()
		do := func(act func() error, wait time.Duration) {
			t.Helper()
			if err := act(); err != nil {
				t.Fatal(err)
			}
			changes <- struct{}{}
			time.Sleep(wait)
			synctest.Wait()
		}
		empty := func() error { return os.Truncate(path, 0) }
		write := func() error { return os.WriteFile(path, data, 0o600) }
		do(empty, emptyFileDelay/2)
		do(write, 2*emptyFileDelay)
		do(func() error { return os.Rename(path, path+"~") }, emptyFileDelay/2)
		do(write, 2*emptyFileDelay)
		if n := d.Load(); n != 0 || len(trust.Peers()) != 1 {
			t.Errorf("saving has changed trust %d times: %+v", n, trust.Peers())
		}
		do(empty, 2*emptyFileDelay)
		if n := d.Load(); n != 1 || len(trust.Peers()) != 0 {
			t.Errorf("an empty file: changed %d times, %+v", n, trust.Peers())
		}
		do(write, 2*settleDelay)
		do(func() error { return trust.Remove("phone") }, 2*settleDelay) // is not doubted
		if n := d.Load(); n != 3 {
			t.Errorf("the last device was revoked: changed %d times", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestRevokedUnread checks that a device that is revoked while the file cannot be read is cut off
// at once and only once, and that the removal is saved when the file can be read again.
func TestRevokedUnread(t *testing.T) {
	path := filepath.Join(newHome(t), "trust.toml")
	synctest.Test(t, func(t *testing.T) {
		trust := trustPhone(t)
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		r := &role{trust: trust, removed: make(chan struct{}, 1)}
		var d trustCounter
		go func() { done <- r.applyTrustChanges(ctx, &d, path, nil, make(chan struct{})) }()
		synctest.Wait() // it knows the phone
		if err := r.revokeDevice("phone"); !fault.Is(err, fault.NotSaved) {
			t.Error(err)
		}
		synctest.Wait()
		if n := d.Load(); n != 1 {
			t.Errorf("trust has changed %d times at once", n)
		}
		time.Sleep(5 * saveRetryInterval)
		if n := d.Load(); n != 1 || len(trust.Unsaved()) != 1 {
			t.Errorf("trust has changed %d times, unsaved %v", n, trust.Unsaved())
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * saveRetryInterval)
		synctest.Wait()
		if now, err := cli.OpenTrust(); err != nil || len(now.Peers()) != 0 || len(trust.Unsaved()) != 0 {
			t.Errorf("the file has %v, unsaved %v, %v", now.Peers(), trust.Unsaved(), err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPoll checks that changes are noticed where the system does not report them.
func TestPoll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	synctest.Test(t, func(t *testing.T) {
		changes, end, done := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			pollFileChanges(path, changes, end)
		}()
		write := func(path, s string) error { return os.WriteFile(path, []byte(s), 0o600) }
		for i, act := range []func() error{
			func() error { return write(path, "a") },
			func() error { return write(path, "ab") },
			func() error {
				if err := write(path+"2", "cd"); err != nil {
					return err
				}
				return os.Rename(path+"2", path)
			},
			func() error { return os.Remove(path) },
		} {
			synctest.Wait()
			if err := act(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			<-changes
			if took := time.Since(began); took > pollFileInterval {
				t.Errorf("change %d took %v", i, took)
			}
		}
		time.Sleep(10 * pollFileInterval)
		select {
		case <-changes:
			t.Error("nothing has changed")
		default:
		}
		close(end)
		<-done
	})
}
