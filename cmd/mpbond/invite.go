// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mdp/qrterminal/v3"
	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/internal/cli"
	"mpbond/link/discovery"
	"mpbond/link/pairing"
)

// inviter creates pairing codes for a role and answers the devices that use them.
type inviter struct {
	acceptor *pairing.Acceptor
	trust    *identity.Trust
	role     string
	// listen opens a listener while a code is valid. It is nil for a role that already has one.
	listen func() (net.Listener, error)
	// addresses returns the addresses that a code contains.
	addresses func() []string
	out       io.Writer

	mu       sync.Mutex
	ctx      context.Context // of runInvitations; nil before and after it
	done     <-chan struct{} // of ctx; stays after ctx is nil
	code     pairing.Code    // the last one
	listener net.Listener    // open while a code is valid
	wg       sync.WaitGroup
}

// runInvitations answers devices until ctx ends. While no primary is trusted the role is useless,
// so it prints a first code at the start.
func (i *inviter) runInvitations(ctx context.Context) error {
	i.mu.Lock()
	i.ctx, i.done = ctx, ctx.Done()
	i.mu.Unlock()
	if len(i.trust.ByRole(identity.RolePrimary)) == 0 {
		if inv, err := i.createInvitation(); err != nil {
			slog.Warn("pairing code not created", "err", err, "hint", fault.HintOf(err))
		} else {
			printInvitation(i.out, i.role, inv)
		}
	}
	<-ctx.Done()
	i.mu.Lock()
	i.ctx = nil
	i.mu.Unlock()
	i.acceptor.Close()
	i.wg.Wait()
	return nil
}

// createInvitation creates a new code, which replaces the last one.
func (i *inviter) createInvitation() (api.Invitation, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx == nil {
		return api.Invitation{}, fault.New(fault.NotRunning, errors.New("mpbond is starting or stopping"), "try again")
	}
	if i.listen != nil && i.listener == nil {
		l, err := i.listen()
		if err != nil {
			return api.Invitation{}, cli.ExplainListenError(err, "the `pair` setting")
		}
		i.listener = l
		ctx := i.ctx
		i.wg.Go(func() {
			if err := i.acceptor.Serve(ctx, l); err != nil {
				slog.Warn("pairing listener failed", "err", err, "hint", "run mpbond accept again")
			}
			i.mu.Lock()
			if i.listener == l { // the next code opens another one
				i.listener = nil
			}
			i.mu.Unlock()
		})
	}
	inv, ended := i.acceptor.NewCode()
	i.code = pairing.Code{Secret: inv.Secret, Addrs: i.addresses()}
	found, hide := context.WithCancel(i.ctx)
	done := i.done
	i.wg.Go(func() {
		<-ended
		hide()
		i.logCodeEnd()
		select { // late callers get the result instead of a refused connection
		case <-time.After(pairing.Lifetime):
		case <-done:
		}
		i.closeListener()
	})
	if port := int(firstTCPPort(strings.Join(i.code.Addrs, ","))); i.listen != nil && port != 0 &&
		!allLoopback(i.code.Addrs) {
		i.wg.Go(func() {
			discovery.Announce(found, discovery.Announcement{Service: discovery.Codes, Port: port}, nil, slog.Default())
		})
	}
	return i.toAPIInvitation(inv), nil
}

// allLoopback reports whether all addresses are loopback addresses.
func allLoopback(addrs []string) bool {
	return !slices.ContainsFunc(addrs, func(a string) bool {
		ap, err := netip.ParseAddrPort(a)
		return err != nil || !ap.Addr().IsLoopback()
	})
}

// closeListener closes the listener unless there is a new code.
func (i *inviter) closeListener() {
	i.mu.Lock()
	defer i.mu.Unlock()
	inv := i.acceptor.Invitation()
	if inv.State != pairing.Open && i.listener != nil {
		i.listener.Close()
		i.listener = nil
	}
}

// logCodeEnd logs that a code is no longer valid.
func (i *inviter) logCodeEnd() {
	if inv := i.acceptor.Invitation(); inv.State == pairing.Expired || inv.State == pairing.UsedUp {
		slog.Info("pairing code no longer valid", "state", inv.State, "hint", "run mpbond accept for a new one")
	}
}

// currentInvitation returns the last code and its state.
func (i *inviter) currentInvitation() api.Invitation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.toAPIInvitation(i.acceptor.Invitation())
}

// toAPIInvitation converts an invitation for the API. mu must be held.
func (i *inviter) toAPIInvitation(inv pairing.Invitation) api.Invitation {
	out := api.Invitation{Until: inv.Until, State: string(inv.State)}
	if inv.State != pairing.None {
		code := i.code
		code.Secret = inv.Secret
		out.Code, out.QR = code.String(), code.QR()
	}
	if inv.State == pairing.Paired {
		out.Device, out.ID = inv.Peer.Name, inv.Peer.Key.ID().String()
	}
	return out
}

// invitationHandlers returns the functions that the role's API calls.
func (i *inviter) invitationHandlers() *api.InvitationManager {
	return &api.InvitationManager{Invite: i.createInvitation, Current: i.currentInvitation}
}

// printInvitation prints a code for people, on a terminal also as a QR code.
func printInvitation(w io.Writer, role string, inv api.Invitation) {
	fmt.Fprintf(w, "To pair a primary with this %s, run on the primary before %s:\n\n  mpbond pair %s\n\n",
		role, inv.Until.Local().Format("15:04"), inv.Code)
	if cli.IsTerminal(w) {
		qrterminal.GenerateHalfBlock(inv.QR, qrterminal.L, w)
	}
}

func acceptCommand() *cobra.Command {
	var socket string
	var asJSON, wait bool
	cmd := &cobra.Command{
		Use: "accept", Short: "print a code that pairs a primary with this device", Args: cobra.NoArgs,
		Example: "  mpbond accept\n  mpbond accept --json --wait=false | jq -r .code",
		Long: `Print a code that pairs one primary with this device, which must run mpbond server,
helper or dual, and wait until the primary has used it.

The code is valid for ten minutes, one device and 100 failed tries, 5 from one
address. A new code replaces the last one. A server or helper without a primary prints
a code when it starts. With --json it prints the code at once, and the result as a
second object.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, role, inv, err := requestInvitation(cmd.Context(), socket)
			if err != nil {
				return err
			}
			defer c.Close()
			if asJSON {
				err = cli.PrintJSON(cmd.OutOrStdout(), inv)
			} else {
				printInvitation(cmd.OutOrStdout(), role, inv)
			}
			if err != nil || !wait {
				return err
			}
			if inv, err = awaitPaired(cmd.Context(), c, inv.Code); err != nil {
				return err
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), inv)
			}
			cmd.PrintErrf("paired with %s; its ID is %s\n", inv.Device, inv.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "ask the mpbond at this `PATH`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until a device has used the code")
	return cmd
}

// requestInvitation asks the role that runs here for a code. The caller must close c.
func requestInvitation(ctx context.Context, socket string) (c *client.Client, role string, inv api.Invitation,
	err error) {
	paths := []string{socket}
	if socket == "" {
		paths = nil
		for _, role := range []string{"server", "helper", "primary"} {
			paths = append(paths, api.SocketPath(role))
		}
	}
	for _, path := range paths {
		c := client.New(path)
		st, e := c.Status(ctx, false)
		if e == nil {
			if inv, e = c.Invite(ctx); e == nil {
				return c, st.Role, inv, nil
			}
		}
		c.Close()
		if err == nil || fault.Is(err, fault.NotRunning) {
			err = e
		}
	}
	hint := "start `mpbond server` or `mpbond helper` first; a primary uses the codes of others: mpbond pair CODE"
	return nil, "", inv, fault.New(cmp.Or(fault.KindOf(err), fault.NotRunning), err, hint)
}

// invitationEndReason says why a code is no longer valid. inv is the last invitation.
func invitationEndReason(inv api.Invitation, code string) string {
	switch {
	case inv.Code != code, inv.State == string(pairing.Replaced):
		return "another code has replaced it"
	case inv.State == string(pairing.UsedUp):
		return "too many wrong tries"
	}
	return "the code has expired"
}

// awaitPaired waits until a device has used the code, or it is no longer valid.
func awaitPaired(ctx context.Context, c *client.Client, code string) (api.Invitation, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		inv, err := c.Invitation(ctx)
		switch {
		case err != nil:
			return inv, err
		case inv.State == string(pairing.Paired) && inv.Code == code:
			return inv, nil
		case inv.State != string(pairing.Open) || inv.Code != code:
			return inv, fault.New(fault.Timeout, fmt.Errorf("nothing was paired: %s", invitationEndReason(inv, code)),
				"run `mpbond accept` again")
		}
		select {
		case <-ctx.Done():
			return inv, ctx.Err()
		case <-tick.C:
		}
	}
}
