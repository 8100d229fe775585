package api

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"mpbond/fault"
)

func TestInvitations(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	made := 0
	i := &Inviter{
		Invite: func() (Invitation, error) {
			if made++; made > 1 {
				return Invitation{}, fault.New(fault.AlreadyRunning, errors.New("busy"), "wait")
			}
			return Invitation{Code: "K7QF-3M2A", State: "open"}, nil
		},
		Current: func() Invitation { return Invitation{Code: "K7QF-3M2A", State: "paired", Device: "laptop"} },
	}
	go func() { done <- Serve(ctx, l, Role{Describe: sample, Inviter: i}) }()
	c := NewClient(path)
	defer c.Close()
	if inv, err := c.Invite(t.Context()); err != nil || inv.State != "open" || inv.Code != "K7QF-3M2A" {
		t.Errorf("%+v, %v", inv, err)
	}
	if inv, err := c.Invitation(t.Context()); err != nil || inv.Device != "laptop" {
		t.Errorf("%+v, %v", inv, err)
	}
	if _, err := c.Invite(t.Context()); !fault.Is(err, fault.AlreadyRunning) || fault.HintOf(err) != "wait" {
		t.Errorf("%v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
