package main

import (
	"context"
	"testing"

	"mpbond/identity"
)

// told is a role that tells when its trust has changed.
type told chan struct{}

func (told) Run(context.Context) error { return nil }
func (t told) TrustChanged()           { t <- struct{}{} }

// TestTrustIsWatched: changes of the file by other processes, and by this one,
// are acted upon without a signal.
func TestTrustIsWatched(t *testing.T) {
	home(t)
	mine, err := openTrust()
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done, changed := make(chan error), make(told)
	r := &role{trust: mine}
	go func() { done <- r.keepTrust(ctx, changed, nil) }()
	other, err := openTrust()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Add(identity.Peer{Name: "phone", Roles: []identity.Role{identity.RoleHelper}, Key: key.Public()}); err != nil {
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
