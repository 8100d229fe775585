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

// inviter shows codes for a role, and has them answered.
type inviter struct {
	acceptor *pairing.Acceptor
	trust    *identity.Trust
	role     string
	// listen opens what is called while a code holds; nil for a role that is
	// called anyway.
	listen func() (net.Listener, error)
	// addresses are those that a code tells.
	addresses func() []string
	out       io.Writer

	mu       sync.Mutex
	ctx      context.Context // of run; nil before and after it
	done     <-chan struct{} // of ctx, also after it
	code     pairing.Code    // the last one
	listener net.Listener    // open while a code holds
	wg       sync.WaitGroup
}

// runInvitations has codes answered until ctx ends. While no primary is trusted the role is
// of no use, so that a first code is shown unasked.
func (i *inviter) runInvitations(ctx context.Context) error {
	i.mu.Lock()
	i.ctx, i.done = ctx, ctx.Done()
	i.mu.Unlock()
	if len(i.trust.ByRole(identity.RolePrimary)) == 0 {
		if inv, err := i.createInvitation(); err != nil {
			slog.Warn("no code for pairing", "err", err, "hint", fault.HintOf(err))
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

// createInvitation makes a new code.
func (i *inviter) createInvitation() (api.Invitation, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx == nil {
		return api.Invitation{}, fault.New(fault.NotRunning, errors.New("mpbond is starting or ending"), "try again")
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
				slog.Warn("calls for pairing are not answered", "err", err, "hint", "run mpbond accept again")
			}
			i.mu.Lock()
			if i.listener == l { // the next code shall open another
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
		select { // late callers hear what has become of the code, instead of a refused connection
		case <-time.After(pairing.Lifetime):
		case <-done:
		}
		i.closeListener()
	})
	if port := int(firstPort(strings.Join(i.code.Addrs, ","))); i.listen != nil && port != 0 && !allLoopback(i.code.Addrs) {
		i.wg.Go(func() { discovery.Announce(found, discovery.Codes, "", port, slog.Default()) })
	}
	return i.toAPIInvitation(inv), nil
}

// allLoopback tells whether addresses are all of this machine alone.
func allLoopback(addrs []string) bool {
	return !slices.ContainsFunc(addrs, func(a string) bool {
		ap, err := netip.ParseAddrPort(a)
		return err != nil || !ap.Addr().IsLoopback()
	})
}

// closeListener closes what is called, unless there is a new code.
func (i *inviter) closeListener() {
	i.mu.Lock()
	defer i.mu.Unlock()
	inv := i.acceptor.Invitation()
	if inv.State != pairing.Open && i.listener != nil {
		i.listener.Close()
		i.listener = nil
	}
}

// logCodeEnd logs that a code holds no longer.
func (i *inviter) logCodeEnd() {
	if inv := i.acceptor.Invitation(); inv.State == pairing.Expired || inv.State == pairing.UsedUp {
		slog.Info("the code for pairing holds no longer", "state", inv.State, "hint", "for a new one run mpbond accept")
	}
}

// currentInvitation is the last code.
func (i *inviter) currentInvitation() api.Invitation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.toAPIInvitation(i.acceptor.Invitation())
}

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

// apiHandlers is what the role's API has of it.
func (i *inviter) apiHandlers() *api.InvitationManager {
	return &api.InvitationManager{Invite: i.createInvitation, Current: i.currentInvitation}
}

// printInvitation tells people of a code; with a picture of it on a terminal.
func printInvitation(w io.Writer, role string, inv api.Invitation) {
	fmt.Fprintf(w, "To pair a primary with this %s, run there until %s:\n\n  mpbond pair %s\n\n", role, inv.Until.Local().Format("15:04"), inv.Code)
	if cli.IsTerminal(w) {
		qrterminal.GenerateHalfBlock(inv.QR, qrterminal.L, w)
	}
}

func acceptCommand() *cobra.Command {
	var socket string
	var asJSON, wait bool
	cmd := &cobra.Command{
		Use: "accept", Short: "show a code by which a primary can be paired with this device", Args: cobra.NoArgs,
		Example: "  mpbond accept\n  mpbond accept --json --wait=false | jq -r .code",
		Long: `Show a code by which one primary can be paired with this device, whose mpbond
server, helper or dual is running, and wait until that was done.

The code holds for ten minutes, for one device, and for few tries. A new one ends
the one before. A server or helper that knows no primary shows one by itself when
it starts. With --json the code is printed at once as JSON, and what has become of
it as a second one.`,
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
			cmd.PrintErrf("%s is paired; its ID is %s\n", inv.Device, inv.ID)
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "ask the mpbond at this `PATH`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until a device was paired")
	return cmd
}

// requestInvitation has the mpbond that runs here make a code.
func requestInvitation(ctx context.Context, socket string) (c *client.Client, role string, inv api.Invitation, err error) {
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
	hint := "start `mpbond server` or `mpbond helper` first; a primary is told the codes of others: mpbond pair CODE"
	return nil, "", inv, fault.New(cmp.Or(fault.KindOf(err), fault.NotRunning), err, hint)
}

// invitationEndReason is why a code holds no longer, if inv is the last one.
func invitationEndReason(inv api.Invitation, code string) string {
	switch {
	case inv.Code != code, inv.State == string(pairing.Replaced):
		return "another code has replaced this one"
	case inv.State == string(pairing.UsedUp):
		return "the code was tried in vain too often"
	}
	return "the code has expired"
}

// awaitPaired waits until a code was used, or holds no longer.
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
			return inv, fault.New(fault.Timeout, fmt.Errorf("nothing was paired: %s", invitationEndReason(inv, code)), "run `mpbond accept` again")
		}
		select {
		case <-ctx.Done():
			return inv, ctx.Err()
		case <-tick.C:
		}
	}
}
