package serve

import (
	"errors"
	"testing"

	"mpbond/api"
	"mpbond/fault"
)

func TestInvitations(t *testing.T) {
	made := 0
	i := &api.Inviter{
		Invite: func() (api.Invitation, error) {
			if made++; made > 1 {
				return api.Invitation{}, fault.New(fault.AlreadyRunning, errors.New("busy"), "wait")
			}
			return api.Invitation{Code: "K7QF-3M2A", State: "open"}, nil
		},
		Current: func() api.Invitation {
			return api.Invitation{Code: "K7QF-3M2A", State: "paired", Device: "laptop"}
		},
	}
	c, end := running(t, Role{Describe: exampleStatus, Inviter: i})
	if inv, err := c.Invite(t.Context()); err != nil || inv.State != "open" || inv.Code != "K7QF-3M2A" {
		t.Errorf("%+v, %v", inv, err)
	}
	if inv, err := c.Invitation(t.Context()); err != nil || inv.Device != "laptop" {
		t.Errorf("%+v, %v", inv, err)
	}
	if _, err := c.Invite(t.Context()); !fault.Is(err, fault.AlreadyRunning) || fault.HintOf(err) != "wait" {
		t.Errorf("%v", err)
	}
	end()
	c, _ = running(t, Role{Describe: exampleStatus})
	if _, err := c.Invite(t.Context()); !fault.Is(err, fault.Unsupported) {
		t.Errorf("at a primary: %v", err)
	}
}
