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
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/internal/cli"
	"mpbond/link/discovery"
	"mpbond/link/pairing"
	"mpbond/link/wire"
	"mpbond/node/helper"
	"mpbond/node/primary"
)

func pairCommand() *cobra.Command {
	var name, as string
	var dual, asJSON bool
	cmd := &cobra.Command{
		Use: "pair CODE...", Short: "pair this primary with servers or helpers that show a code",
		Args: cobra.MinimumNArgs(1),
		Long: `Pair this primary with the devices that show these codes: servers, helpers, or
devices that run mpbond dual. Afterwards both sides know each other's keys, and
helpers know the servers of this primary. A primary that runs here applies it.

A code looks like K7QF-3M2A@vps.example.org:7600. Case does not matter, and O equals
0. If a device has another address than it shows, put that after the @. On one LAN
you can omit @address: mDNS finds the helper. With --json the results are printed at
the end, in the order of the codes.`,
		Example: `  mpbond pair K7QF-3M2A@vps.example.org:7600
  mpbond pair K7QF-3M2A@vps.example.org X4T0-99ZQ@192.168.43.1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if as != "" && as != string(identity.RoleServer) && as != string(identity.RoleHelper) {
				return cli.UsageError("--as must be server or helper")
			}
			codes, err := parseCodes(args)
			if err != nil {
				return err
			}
			key, trust, err := cli.LoadIdentity()
			if err != nil {
				return err
			}
			about, err := describePrimary(cmd.Context(), name, dual)
			if err != nil {
				return err
			}
			self := pairing.Self{Key: key, Trust: trust, About: func() wire.PairIdentity { return about },
				CheckFleet: checkFleet(trust), JoinFleet: joinFleet(trust)}
			result := newPairing(time.Now(), len(codes))
			var reportMu sync.Mutex // guards result
			line := cli.NewSteps(cli.IfElse(asJSON, io.Discard, cmd.ErrOrStderr()))
			line.Show(describePairing(codes, result.Devices))
			err = pairAllDevices(cmd.Context(), self, codes, as, func(i int, d api.PairedDevice) {
				reportMu.Lock()
				defer reportMu.Unlock()
				result.Devices[i] = d
				if d.State == api.PairDone && !asJSON {
					line.Clear()
					cmd.PrintErrf("paired with %s as %s; its ID is %s\n", d.Name, strings.Join(d.Roles, " "), d.ID)
				}
				line.Show(describePairing(codes, result.Devices))
			})
			line.Clear()
			result.State = pairingState(err)
			if asJSON {
				err = errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), result))
			}
			helps := func(d api.PairedDevice) bool { return slices.Contains(d.Roles, string(identity.RoleHelper)) }
			if slices.ContainsFunc(result.Devices, helps) && len(trust.ByRole(identity.RoleServer)) == 0 {
				cmd.PrintErrln("no server is paired yet: a bond needs one; get --onload, put and play do not")
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&name, "name", "",
		"show this `NAME` to other devices; default: that of primary.toml, else the host name")
	cmd.Flags().BoolVar(&dual, "dual", false, "pair as a device that runs mpbond dual, which helps others too")
	cmd.Flags().StringVar(&as, "as", "",
		"refuse devices that do not have this `ROLE`, server or helper; required for a second server")
	cli.CompleteWith(cmd, "as", string(identity.RoleServer), string(identity.RoleHelper))
	return cmd
}

// describePairing describes the present step of devices that are not paired yet.
func describePairing(codes []pairing.Code, devices []api.PairedDevice) string {
	var list []string
	for i, d := range devices {
		step := ""
		switch {
		case d.State == api.PairKnown:
			step = "device " + d.ID + " answers"
		case d.State != api.PairCalling:
			continue
		case len(codes[i].Addrs) == 0:
			step = "searching the local network"
		default:
			step = "connecting to " + strings.Join(codes[i].Addrs, " ")
		}
		if len(codes) > 1 {
			step = fmt.Sprintf("code %d: %s", i+1, step)
		}
		list = append(list, step+" …")
	}
	return strings.Join(list, ", ")
}

// parseCodes parses the codes of other devices.
func parseCodes(list []string) (codes []pairing.Code, err error) {
	for _, s := range list {
		code, err := pairing.ParseCode(s)
		if err != nil {
			return nil, err
		}
		codes = append(codes, code)
	}
	return codes, nil
}

// pairAllDevices connects to all devices first, since helpers must learn the servers among them. It
// refuses devices without the role as. report is called with the index of a code and its new state;
// for different codes also concurrently.
func pairAllDevices(ctx context.Context, self pairing.Self, codes []pairing.Code, as string,
	report func(int, api.PairedDevice)) error {
	var failed []error
	var servers, helpers []int
	fails := func(i int, who string, err error) {
		report(i, api.PairedDevice{State: api.PairFailed, Error: err.Error(), Kind: string(fault.KindOf(err)),
			Hint: fault.HintOf(err)})
		if who != "" {
			err = fmt.Errorf("%s: %w", who, err)
		}
		failed = append(failed, err)
	}
	met, errs := make([]*pairing.PendingPairing, len(codes)), make([]error, len(codes))
	var calls sync.WaitGroup
	for i, code := range codes { // concurrently, since a device does not wait long
		calls.Go(func() {
			if met[i], errs[i] = callDevice(ctx, code, self); errs[i] == nil {
				report(i, api.PairedDevice{State: api.PairKnown, ID: met[i].ID().String()})
			}
		})
	}
	calls.Wait()
	refuseUnexpected(met, errs, as, self.Trust.ByRole(identity.RoleServer))
	for i, m := range met {
		switch err := errs[i]; {
		case err != nil && len(codes) > 1:
			fails(i, fmt.Sprintf("code %d", i+1), err)
		case err != nil:
			fails(i, "", err)
		case m.IsHelper():
			helpers = append(helpers, i)
		default:
			servers = append(servers, i)
		}
	}
	for _, i := range append(servers, helpers...) {
		p, err := met[i].Finish(ctx)
		if err != nil {
			fails(i, "device "+met[i].ID().String(), err)
			continue
		}
		report(i, api.PairedDevice{State: api.PairDone, ID: p.Key.ID().String(), Name: p.Name,
			Roles: listRoleNames(p.Roles)})
	}
	return errors.Join(failed...)
}

// refuseUnexpected refuses devices that the user does not expect: a malicious helper could claim to
// be a server, and would get the decrypted traffic.
func refuseUnexpected(met []*pairing.PendingPairing, errs []error, as string, known []identity.Peer) {
	isNew := func(m *pairing.PendingPairing) bool {
		return m != nil && !m.IsHelper() && !m.IsFleet() && !slices.ContainsFunc(known,
			func(p identity.Peer) bool { return p.Key.ID() == m.ID() })
	}
	fleets := map[string]bool{} // each counts as one server
	servers := len(slices.DeleteFunc(slices.Clone(known), func(p identity.Peer) bool {
		fleets[p.Fleet] = true
		return p.Fleet != ""
	}))
	delete(fleets, "")
	servers += len(fleets)
	for _, m := range met {
		if isNew(m) {
			servers++
		}
	}
	for i, m := range met {
		switch {
		case m == nil:
			continue
		case as != "" && m.IsHelper() != (as == string(identity.RoleHelper)):
			errs[i] = fault.New(fault.UnknownDevice, fmt.Errorf("device %v is not a %s", m.ID(), as),
				"check which device showed that code")
		case as == "" && isNew(m) && servers > 1:
			errs[i] = fault.New(fault.UnknownDevice,
				fmt.Errorf("device %v claims to be a server, and would be a second one", m.ID()),
				"if it is a server run this again with --as server; a helper never claims that")
		default:
			continue
		}
		m.Close()
	}
}

// Limits of the search for devices that show a code: the wait of each try, and the tries.
const (
	findCodesTimeout = 2 * time.Second
	findCodesTries   = 3
)

// callDevice connects to the device that shows a code. Without an address it searches the local
// network for helpers that show codes.
func callDevice(ctx context.Context, code pairing.Code, self pairing.Self) (*pairing.PendingPairing, error) {
	if len(code.Addrs) > 0 {
		return pairing.CallAny(ctx, code, self)
	}
	var err error
	for try := 0; try < findCodesTries && len(code.Addrs) == 0 && ctx.Err() == nil; try++ {
		var list []discovery.Found
		list, err = discovery.Find(ctx, discovery.Codes, findCodesTimeout)
		for _, f := range list {
			code.Addrs = append(code.Addrs, f.Addr.String())
		}
	}
	if len(code.Addrs) == 0 {
		return nil, fault.New(fault.NotFound, errors.Join(errors.New("no helper on the local network shows a code"),
			err),
			"write the code with its address, like K7QF-3M2A@192.168.1.9:7603")
	}
	return pairing.CallAny(ctx, code, self)
}

// describePrimary returns how this device presents itself to others: as the primary that runs here
// does, else as the configuration files say.
func describePrimary(ctx context.Context, name string, dual bool) (about wire.PairIdentity, err error) {
	c := client.New(api.SocketPath("primary"))
	defer c.Close()
	st, running := c.Status(ctx, false)
	cfg := dualConfig{Primary: primary.Default}
	if dual || st.Role == "dual" {
		about.Roles = wire.PairHelper
		err = loadConfig("", "dual", &cfg)
	} else {
		err = loadConfig("", "primary", &cfg.Primary)
	}
	if err != nil {
		return about, err
	}
	about.Roles |= wire.PairPrimary
	about.Port = firstTCPPort(cfg.Primary.Pipe)
	if running == nil {
		name, about.Port = cmp.Or(name, st.Name), firstTCPPort(st.Listen)
	}
	about.Name = resolveDeviceName(cmp.Or(name, cfg.Primary.Name))
	return about, nil
}

// resolveDeviceName returns the name of this device, the host name if it is empty, cut to the
// length that the protocol allows.
func resolveDeviceName(name string) string {
	if name == "" {
		name, _ = os.Hostname()
	}
	return strings.ToValidUTF8(name[:min(len(name), wire.MaxName)], "") // the cut may split a character
}

// firstTCPPort returns the port of the first TCP listener in a list, 0 if there is none.
func firstTCPPort(list string) uint16 {
	for a := range strings.SplitSeq(list, ",") {
		_, port, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimSpace(a), "tcp://"))
		if n, e := strconv.ParseUint(port, 10, 16); err == nil && e == nil {
			return uint16(n)
		}
	}
	return 0
}

// newHelperInviter creates the inviter of a helper, alone or in dual.
func (r *role) newHelperInviter(cmd *cobra.Command, key *identity.Key, cfg helper.Config,
	about wire.PairIdentity) *inviter {
	at := cmp.Or(cfg.Pair, ":"+strconv.Itoa(pairing.HelperPort))
	return r.newInviter(cmd, key, about, &inviter{
		listen:    func() (net.Listener, error) { return net.Listen("tcp", at) },
		addresses: func() []string { return callAddresses(at, "") },
	})
}

// newInviter fills in the fields that all inviters share.
func (r *role) newInviter(cmd *cobra.Command, key *identity.Key, about wire.PairIdentity, i *inviter) *inviter {
	i.acceptor, i.trust, i.role, i.out = pairing.NewAcceptor(r.pairingIdentity(key, about),
		slog.Default()), r.trust, r.name, cmd.OutOrStdout()
	r.invites = i
	return i
}

// callAddresses returns the addresses at which a listener is reachable: the public one if it is
// known, with the listener's port unless it has its own.
func callAddresses(listen, public string) []string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil
	}
	n, err := strconv.Atoi(port)
	switch {
	case public != "":
		if _, _, err := net.SplitHostPort(public); err != nil {
			public = net.JoinHostPort(strings.Trim(public, "[]"), port)
		}
		return []string{public}
	case host != "" && !net.ParseIP(host).IsUnspecified():
		return []string{listen}
	case err != nil:
		return nil
	}
	return pairing.Addresses(n)
}
