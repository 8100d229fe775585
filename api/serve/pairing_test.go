// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"errors"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
)

func TestInvitations(t *testing.T) {
	made := 0
	i := &api.InvitationManager{
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
	c, end := runClient(t, Role{Status: exampleStatus, Invitations: i})
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
	c, _ = runClient(t, Role{Status: exampleStatus})
	if _, err := c.Invite(t.Context()); !fault.Is(err, fault.Unsupported) {
		t.Errorf("at a primary: %v", err)
	}
}

// TestPair: codes are passed on, rejected if too many or none, and their state is returned.
func TestPair(t *testing.T) {
	var asked []api.PairRequest
	p := &api.PairingManager{
		Pair: func(r api.PairRequest) (api.Pairing, error) {
			if asked = append(asked, r); len(asked) > 1 {
				return api.Pairing{}, fault.New(fault.AlreadyRunning, errors.New("busy"), "wait")
			}
			return api.Pairing{State: api.PairRunning, Devices: []api.PairedDevice{{State: api.PairCalling}}}, nil
		},
		Current: func() api.Pairing {
			return api.Pairing{State: api.PairDone, Devices: []api.PairedDevice{{State: api.PairDone, Name: "phone"}}}
		},
	}
	r := Role{Status: exampleStatus, Pairings: p}
	c, _ := runClient(t, r)
	got, err := c.Pair(t.Context(), api.PairRequest{Codes: []string{"K7QF-3M2A"}, As: "helper"})
	if err != nil || got.State != api.PairRunning || len(got.Devices) != 1 || len(asked) != 1 ||
		asked[0].Codes[0] != "K7QF-3M2A" ||
		asked[0].As != "helper" {
		t.Errorf("%+v, %v, %+v", got, err, asked)
	}
	if got, err := c.Pairing(t.Context()); err != nil || got.State != api.PairDone || got.Devices[0].Name != "phone" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.Pair(t.Context(), api.PairRequest{Codes: []string{"K7QF-3M2A"}}); !fault.Is(
		err,
		fault.AlreadyRunning,
	) ||
		fault.HintOf(err) != "wait" {
		t.Errorf("%v", err)
	}
	for _, body := range []string{`{"codes":[]}`, `{}`, `{"codes":["1","2","3","4","5","6","7","8","9"]}`,
		`{"codes":["1"],"as":"king"}`, `{"codes":["1"],"name":"x"}`} {
		if w := request(r, "POST", "/v2/pair", body); w.Code != 400 {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if w := request(r, "POST", "/v2/pair", `{"codes":["1"]}`); w.Code != 409 || len(asked) != 3 {
		t.Errorf("%d %s, asked %d times", w.Code, w.Body, len(asked))
	}
}
