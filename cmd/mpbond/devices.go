// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/core/trace"
	"mpbond/internal/cli"
)

// knownDevice is a trusted device and its present state. The JSON is a contract.
type knownDevice struct {
	identity.Peer
	ID identity.ID `json:"id"`
	// State is "connected", "refused" or "away", as a role that runs here reports. It is ""
	// if no such role can know.
	State    string    `json:"state,omitempty"`
	Refused  string    `json:"refused,omitempty"`  // why one of the two refuses the other
	LastData time.Time `json:"last_data,omitzero"` // when data last arrived over it
}

// devicesReport is what `mpbond devices --json` prints.
type devicesReport struct {
	Self struct {
		ID  identity.ID        `json:"id"`
		Key identity.PublicKey `json:"key"`
	} `json:"self"`
	Devices []knownDevice `json:"devices"`
}

func devicesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "devices", Short: "list the paired devices and whether they are connected", Args: cobra.NoArgs,
		Example: "  mpbond devices\n  mpbond devices --json | jq -r '.devices[].name'",
		Long: `List the devices that are paired with this one, their roles, and whether the mpbond
that runs here is connected with them. The ID is a short form of a device's key, to
compare on both screens.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, trust, err := cli.LoadIdentity()
			if err != nil {
				return err
			}
			r := devicesReport{Devices: []knownDevice{}}
			r.Self.ID, r.Self.Key = key.ID(), key.Public()
			presence := queryPresence(cmd.Context())
			for _, p := range trust.Peers() {
				d := knownDevice{Peer: p, ID: p.Key.ID()}
				d.State, d.LastData = presence.lookupPeerState(p)
				if d.Refused = presence.refused[p.Name]; d.Refused != "" {
					d.State = "refused"
				}
				r.Devices = append(r.Devices, d)
			}
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), r)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "this device has the ID %v\n", r.Self.ID)
			if len(r.Devices) == 0 {
				cmd.PrintErrln("no device is paired yet: see `mpbond pair --help` and `mpbond accept --help`")
				return nil
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tROLES\tID\tSTATE\tADDRESSES")
			for _, d := range r.Devices {
				state := d.State
				switch {
				case d.Paused:
					state = "paused"
				case state == "":
					state = "-"
				}
				fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%s\n", d.Name, joinRoleNames(d.Roles), d.ID, state,
					strings.Join(d.Addresses, " "))
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for _, d := range r.Devices {
				if d.Refused != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: refused: %s\n", d.Name, text.Printable(d.Refused))
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, with the keys")
	return cmd
}

// peerPresence is what the roles that run here report about other devices.
type peerPresence struct {
	visibleRoles map[identity.Role]bool // roles of others that a role here can see
	lastData     map[string]time.Time   // of connected devices, by name
	refused      map[string]string      // reasons, by name of the device
}

// queryPresence asks the roles that run here.
func queryPresence(ctx context.Context) peerPresence {
	s := peerPresence{map[identity.Role]bool{}, map[string]time.Time{}, map[string]string{}}
	for _, role := range []string{"server", "helper", "primary"} {
		c := client.New(api.SocketPath(role))
		st, err := c.Status(ctx, false)
		c.Close()
		if err == nil {
			s.addRoleStatus(st)
		}
	}
	return s
}

// addRoleStatus adds what the status of one role shows: which roles of peers it can see, which
// peers it is in contact with, and which it refuses.
func (pp *peerPresence) addRoleStatus(st api.Status) {
	if st.Role == "server" {
		pp.visibleRoles[identity.RolePrimary] = true
	}
	if st.Role == "primary" || st.Role == "dual" {
		pp.visibleRoles[identity.RoleServer], pp.visibleRoles[identity.RoleHelper] = true, true
	}
	if h := st.Helper; h != nil {
		pp.visibleRoles[identity.RolePrimary] = true
		if h.Primary != "" {
			pp.recordContact(h.Primary, time.Time{})
		}
	}
	for _, d := range st.Devices { // a helper with pipes may carry no subflow
		if d.Online && !d.Self {
			pp.recordContact(d.Name, time.Time{})
		}
		if d.Refused != "" {
			pp.refused[d.Name] = d.Refused
		}
	}
	for _, b := range st.Bonds {
		for _, p := range b.Subflows {
			if p.State != api.Up {
				continue
			}
			pp.recordContact(b.Peer, p.LastData)
			if p.Kind == api.Helped && st.Role != "server" { // at a server the primary chooses these names
				pp.recordContact(p.Device, p.LastData)
			}
		}
	}
}

func (pp *peerPresence) recordContact(name string, at time.Time) {
	if before, ok := pp.lastData[name]; !ok || at.After(before) {
		pp.lastData[name] = at
	}
}

// lookupPeerState returns the state of a device and when data last arrived over it.
func (pp *peerPresence) lookupPeerState(p identity.Peer) (state string, last time.Time) {
	if at, ok := pp.lastData[p.Name]; ok {
		return "connected", at
	}
	if slices.ContainsFunc(p.Roles, func(r identity.Role) bool { return pp.visibleRoles[r] }) {
		return "away", time.Time{}
	}
	return "", time.Time{}
}

// deviceKeeper returns the functions by which the API changes the trust file.
func (r *role) deviceKeeper() *api.DeviceManager {
	return &api.DeviceManager{Rename: r.trust.Rename, Pause: r.trust.SetPaused, Revoke: r.revokeDevice}
}

// revokeDevice removes a device and closes its connections, even if the removal cannot be saved.
func (r *role) revokeDevice(name string) error {
	err := r.trust.Remove(name)
	if fault.Is(err, fault.NotSaved) {
		slog.Error("device revoked but not saved: a restart would trust it again", "device", name, "err", err, "hint",
			fault.HintOf(err))
		signalChange(r.removed) // a saved removal is noticed by the change of the file
	}
	return err
}

// recordDeviceChanges records events for devices that were added to the trust file, renamed,
// paused, resumed or removed. A device with new roles counts as added.
func (r *role) recordDeviceChanges(before, now []identity.Peer) {
	removed := map[identity.PublicKey]identity.Peer{}
	for _, p := range before {
		removed[p.Key] = p
	}
	for _, p := range now {
		b, known := removed[p.Key]
		delete(removed, p.Key)
		if known && b.Name != p.Name {
			r.rec.Add(trace.Event{Kind: trace.DeviceRenamed, Device: p.Name, Text: b.Name})
		}
		if !known || !slices.Equal(b.Roles, p.Roles) {
			r.rec.Add(trace.Event{Kind: trace.DeviceAdded, Device: p.Name, Text: joinRoleNames(p.Roles)})
		}
		switch {
		case p.Paused && !b.Paused:
			r.rec.Add(trace.Event{Kind: trace.DevicePaused, Device: p.Name})
		case b.Paused && !p.Paused:
			r.rec.Add(trace.Event{Kind: trace.DeviceResumed, Device: p.Name})
		}
	}
	for _, p := range before {
		if _, ok := removed[p.Key]; ok {
			r.rec.Add(trace.Event{Kind: trace.DeviceRemoved, Device: p.Name})
		}
	}
}

// listRoleNames converts roles for the API.
func listRoleNames(roles []identity.Role) (names []string) {
	for _, r := range roles {
		names = append(names, string(r))
	}
	return names
}

// joinRoleNames formats roles for people.
func joinRoleNames(roles []identity.Role) string { return strings.Join(listRoleNames(roles), " ") }

// printDeviceResult prints a device as JSON with --json, else the message.
func printDeviceResult(cmd *cobra.Command, p identity.Peer, format string, args ...any) error {
	if cli.WantsJSON(cmd) {
		return cli.PrintJSON(cmd.OutOrStdout(), knownDevice{Peer: p, ID: p.Key.ID()})
	}
	cmd.PrintErrf(format+"\n", args...)
	return nil
}

// addJSONFlag adds --json to a command that ends with printDeviceResult.
func addJSONFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool("json", false, "print the device as JSON")
	return cmd
}

func renameCommand() *cobra.Command {
	return addJSONFlag(&cobra.Command{
		Use: "rename NAME NEW", Short: "rename a device", Args: cobra.ExactArgs(2), ValidArgsFunction: completeDevice,
		Example: "  mpbond rename phone old-phone",
		RunE: func(cmd *cobra.Command, args []string) error {
			trust, err := cli.OpenTrust()
			if err != nil {
				return err
			}
			if err := trust.Rename(args[0], args[1]); err != nil {
				return err
			}
			p, _ := trust.LookupName(args[1])
			return printDeviceResult(cmd, p, "renamed %s to %s", args[0], args[1])
		},
	})
}

func pauseCommand() *cobra.Command {
	return addJSONFlag(&cobra.Command{
		Use: "pause NAME", Short: "stop using a device until it is resumed", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeDevice,
		Example:           "  mpbond pause old-phone",
		Long: `Stop using a device until mpbond resume, also after a restart. It stays trusted.
A helper that is paused at its primary carries nothing: others take over its bytes.
A primary that is paused at a helper or at the server gets no subflow there. The
mpbond that runs here applies it at once.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return setDevicePaused(cmd, args[0], true, "%s is paused")
		},
	})
}

func resumeCommand() *cobra.Command {
	return addJSONFlag(&cobra.Command{
		Use: "resume NAME", Short: "use a paused device again", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeDevice,
		Example:           "  mpbond resume old-phone",
		RunE: func(cmd *cobra.Command, args []string) error {
			return setDevicePaused(cmd, args[0], false, "%s is resumed")
		},
	})
}

// setDevicePaused pauses or resumes a device in the trust file, which running roles watch.
func setDevicePaused(cmd *cobra.Command, name string, paused bool, format string) error {
	trust, err := cli.OpenTrust()
	if err != nil {
		return err
	}
	if err := trust.SetPaused(name, paused); err != nil {
		return err
	}
	p, _ := trust.LookupName(name)
	awaitApplied(cmd, p, func(d *api.Device) bool {
		return d == nil || d.Paused == paused &&
			(!paused || d.Subflows == 0)
	})
	return printDeviceResult(cmd, p, format, name)
}

// applyTimeout bounds how long a command waits until running roles apply the trust file. They read
// it 50 ms after a change, and then close subflows.
const applyTimeout = 3 * time.Second

// awaitApplied waits until the roles that run here have applied a change of a device, so that
// `mpbond status` shows it. done reports whether a role's view of the device is up to date; it gets
// nil if the role does not know the device. It prints the roles that are too late.
func awaitApplied(cmd *cobra.Command, p identity.Peer, done func(*api.Device) bool) {
	ctx, cancel := context.WithTimeout(cmd.Context(), applyTimeout)
	defer cancel()
	id := p.Key.ID().String()
	for _, path := range statusSockets("") {
		c := client.New(path)
		defer c.Close()
		for {
			st, err := c.Status(ctx, false)
			i := slices.IndexFunc(st.Devices, func(d api.Device) bool { return !d.Self && d.ID == id })
			if err != nil && ctx.Err() == nil || err == nil && (i < 0 && done(nil) || i >= 0 && done(&st.Devices[i])) {
				break
			}
			select {
			case <-time.After(applyTimeout / 100):
				continue
			case <-ctx.Done():
			}
			cmd.PrintErrf("saved, but the mpbond at %s has not applied it within %v: restart it\n", path, applyTimeout)
			break
		}
	}
}

func revokeCommand() *cobra.Command {
	return addJSONFlag(&cobra.Command{
		Use: "revoke NAME", Short: "stop trusting a device and cut it off at once", Args: cobra.ExactArgs(1),
		ValidArgsFunction: completeDevice,
		Example:           "  mpbond revoke old-phone",
		Long: `Stop trusting a device. The mpbond that runs here closes its connections with that
device at once. Other devices do not learn of it: revoke a lost helper at the
primary, and a lost primary at the server and at the helpers.`,
		RunE: revokeByName,
	})
}

// revokeByName removes the named device from the trust file, which running roles watch.
func revokeByName(cmd *cobra.Command, args []string) error {
	trust, err := cli.OpenTrust()
	if trust == nil {
		return err
	}
	p, ok := trust.LookupName(args[0])
	if !ok {
		p.Name = args[0]
	}
	problem := "saved"
	if err == nil {
		err = trust.Remove(args[0])
	} else { // a running mpbond read the file earlier and can still cut the device off
		err, problem = fault.New(fault.NotSaved, err, fault.HintOf(err)), "read"
	}
	if fault.Is(err, fault.NotSaved) {
		err = revokeRunning(cmd.Context(), args[0], err, problem)
	}
	if err != nil {
		return err
	}
	awaitApplied(cmd, p, func(d *api.Device) bool { return d == nil })
	return printDeviceResult(cmd, p, "%s is no longer trusted", args[0])
}

// revokeRunning asks each mpbond that runs here to cut off a device, because the trust file cannot
// be "read" or "saved". It returns an error that says which of them did.
func revokeRunning(ctx context.Context, name string, notSaved error, problem string) error {
	var disconnected, ignorant []string
	for _, r := range append(identity.Roles(), "dual") {
		c := client.New(api.SocketPath(string(r)))
		err := c.RevokeDevice(ctx, name)
		c.Close()
		switch {
		case err == nil: // the removal is saved now
			return nil
		case fault.Is(err, fault.NotSaved):
			disconnected, notSaved = append(disconnected, string(r)), err
		case fault.Is(err, fault.NotFound):
			ignorant = append(ignorant, string(r))
		case !fault.Is(err, fault.NotRunning):
			return fmt.Errorf("the mpbond %s that runs here did not cut off %s: %w", r, name, err)
		}
	}
	if len(disconnected) > 0 {
		return fault.New(fault.NotSaved, fmt.Errorf("in the mpbond that runs here (%s): %w",
			strings.Join(disconnected, ", "), notSaved), fault.HintOf(notSaved))
	}
	cause := notSaved
	for e := errors.Unwrap(cause); e != nil; e = errors.Unwrap(e) {
		cause = e
	}
	hint := fault.HintOf(errors.Unwrap(notSaved))
	switch {
	case problem == "read" && len(ignorant) > 0:
		return fault.New(fault.NotFound, fmt.Errorf("the mpbond that runs here (%s) trusts no device called %q, "+
			"and the trust file cannot be read: %w", strings.Join(ignorant, ", "), name, cause), hint)
	case problem == "read":
		return fault.New(fault.Config, fmt.Errorf("%s may still be trusted: no mpbond runs here to cut it off, "+
			"and the trust file cannot be read: %w", name, cause), hint)
	}
	return fault.New(fault.Limit,
		fmt.Errorf("%s is still trusted: no mpbond runs here to cut it off, and the trust file cannot be saved: %w",
			name, cause), cmp.Or(hint, "make room on the disk, and try again"))
}
