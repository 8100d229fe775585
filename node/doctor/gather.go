// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/probe"
)

// Bounds of one measured subflow and direction.
const (
	RateTime  = 2 * time.Second
	RateBytes = 24 * unit.MB
)

// Config describes this device in the role to be examined. The goroutine of Gather calls its
// functions.
type Config struct {
	Role    identity.Role
	Key     *identity.Key
	Server  identity.Peer // at a helper with the addresses of all servers
	Helpers []identity.Peer
	Name    string // of this device in its subflows
	Host    string // another name of this device in the policy
	// Interfaces, Metered, Congestion and Mark are those of the primary's configuration. Without
	// interfaces there is one direct subflow, by the system's routes.
	Interfaces []string
	Metered    []string
	// Policy returns the policy of this device or of one of its interfaces; nil without a policy
	// file.
	Policy func(name string) policy.DeviceSpec
	// Only names the subflows to examine; empty means all.
	Only       []string
	Congestion string
	Mark       int
	Version    string
	// Ports lists the ports that a primary opens, and their purposes.
	Ports []Port
	// Status queries the running role; nil if it does not run. SOCKS is the address of a primary's
	// proxy, "" for none.
	Status func(context.Context) (api.Status, error)
	SOCKS  string
	// Ledger counts the traffic of the doctor's own bond on local links; nil: not counted.
	Ledger tcp.Ledger
	// Rates enables rate measurements, MeteredRates also those of subflows that are normally
	// spared.
	Rates, MeteredRates bool
	// Now is this device's clock. Progress is called with the next step.
	Now      func() time.Time
	Progress func(string)
}

func (p Config) clockNow() time.Time {
	if p.Now == nil {
		return time.Now()
	}
	return p.Now()
}

// Gather makes one measurement after another until all are done or ctx ends. Missing ones are
// reported as a problem of ctx.
func Gather(ctx context.Context, p Config) Facts {
	f := Facts{Role: p.Role, Version: p.Version, RatesMeasured: p.Rates}
	p.Progress("this device")
	f.Host = inspectHost(ctx)
	f.Server = Server{Name: p.Server.Name, Addresses: probeAddresses(ctx, p)}
	var st api.Status
	if p.Status != nil {
		var err error
		st, err = p.Status(ctx)
		f.Running, f.RunningVersion = err == nil, st.Version
	}
	f.Name = cmp.Or(st.Name, p.Host)
	f.Calls, f.CallsAt = callsFromStatus(st, p.clockNow()), st.Listen
	f.Pipes = pipesFromStatus(st)
	f.Cells = cellsFromStatus(st)
	for _, r := range st.Refused {
		f.Refused = append(f.Refused, Refused{r.Device, r.Address, r.Here, r.Reason, r.Hint})
	}
	switch p.Role {
	case identity.RoleHelper:
		return f
	case identity.RoleServer:
		f.Primaries = primariesFrom(st)
		return f
	}
	if !f.Running {
		f.Ports = checkPorts(ctx, p)
	}
	if used := p.directInterfaces(f.Host); !slices.Equal(used, []string{""}) {
		for _, name := range f.Host.Uplinks {
			if !slices.Contains(used, name) {
				f.Host.UnusedUplinks = append(f.Host.UnusedUplinks, name)
			}
		}
	} else if len(f.Host.Uplinks) > 1 { // the system chooses the interface
		f.Host.UnusedUplinks = f.Host.Uplinks[1:]
	}
	busy, all := probe.ReadCPUTimes(), startCPUUsage()
	f.Host.OwnCPU = p.measureDirectSubflows(ctx, &f, st)
	if f.Running {
		p.measureHelpedSubflows(ctx, &f, st)
	}
	if p.Rates && all.elapsed() > time.Second {
		f.Host.BusyCPU = busy.BusyShare()
	}
	return f
}

// directInterfaces returns the interfaces of direct subflows as a primary chooses them. "" means
// the system's choice: a single interface is left to the system's routes.
func (p Config) directInterfaces(h Host) []string {
	if len(p.Interfaces) > 0 && p.Interfaces[0] != "auto" {
		return p.Interfaces
	}
	links := slices.DeleteFunc(slices.Clone(h.Uplinks), device.IsTunnel)
	if len(p.Interfaces) == 0 || len(links) < 2 {
		return []string{""}
	}
	return links
}

// measureDirectSubflows measures the direct subflows, and returns which share of a processor this
// took.
func (p Config) measureDirectSubflows(ctx context.Context, f *Facts, st api.Status) (own float64) {
	for _, iface := range p.directInterfaces(f.Host) {
		var id uint32          // ID of the running primary's subflow
		var best time.Duration // its minimum round trip, 0 if unknown
		l := Subflow{Name: p.Name, Metered: slices.Contains(p.Metered, iface)}
		if iface != "" {
			l.Name += "/" + iface
		}
		if self := deviceFacts(st, func(d api.Device) bool { return d.Self }); iface == "" || self.Interface == iface {
			l.Metered = l.Metered || self.Metered != nil && *self.Metered
		}
		if !p.isSelected(l.Name) {
			continue
		}
		p.Progress("the path to the server by " + l.Name)
		p.applyPolicy(&l, iface, st)
		for _, path := range subflowsOf(st) {
			if path.Device == l.Name {
				l.Metered, l.Backup = l.Metered || path.Metered, l.Backup || path.Tier == wire.TierBackup.String()
				l.Silent = path.State == api.Silent
				l.UDP, l.WhyNotUDP = path.Transport == "udp", path.Fallback
				if path.State == api.Down && path.LastError != "" {
					l.Problem = subflowProblem(path)
				}
				if path.State == api.Up && path.Kind == api.Direct {
					id = path.ID
					if path.Hop != nil {
						best = msToDuration(path.Hop.MinRTTms)
					}
				}
			}
		}
		o, err := p.openOwnBond(ctx, f.Server.Addresses, iface)
		if err != nil {
			l.Up, l.Problem = false, newProblemAt(p.Server.Name, err)
			f.Subflows = append(f.Subflows, l)
			continue
		}
		l.Up, l.Local = true, o.local
		p.applyPolicy(&l, o.link, st)
		own = max(own, p.measureDirect(ctx, &l, o, id, &f.Server))
		if best > 0 && len(l.Hops) > 0 {
			l.QueueTime = l.Hops[0].RTT - best
		}
		o.closeOwnBond()
		f.Subflows = append(f.Subflows, l)
	}
	return own
}

// applyPolicy sets the policy of a direct subflow's link. link is "" if the link is not known yet.
func (p Config) applyPolicy(l *Subflow, link string, st api.Status) {
	names := []string{link, p.Name, p.Host, st.Name} // the link's own names come first
	l.Capped = l.Capped || slices.ContainsFunc(st.Caps, func(c api.Cap) bool { return slices.Contains(names, c.Name) })
	if p.Policy == nil {
		return
	}
	var limits policy.Limits
	for _, name := range names {
		spec := p.Policy(name)
		l.Capped = l.Capped || spec.Caps.HasCap()
		if limits == (policy.Limits{}) {
			limits = spec.Limits
		}
	}
	tier, metered, _ := policy.TierOf(limits, wire.Facts{}, false)
	l.Metered, l.Backup = l.Metered || metered, l.Backup || tier == wire.TierBackup
}

// deviceFacts returns the known facts of a device.
func deviceFacts(st api.Status, match func(api.Device) bool) (k api.KnownFacts) {
	if i := slices.IndexFunc(st.Devices, match); i >= 0 && st.Devices[i].Facts != nil {
		k = *st.Devices[i].Facts
	}
	return k
}

func subflowsOf(st api.Status) (list []api.Subflow) {
	for _, b := range st.Bonds {
		list = append(list, b.Subflows...)
	}
	return list
}

func (p Config) isSelected(name string) bool {
	return len(p.Only) == 0 || slices.Contains(p.Only, name)
}

// measureHelpedSubflows measures the helped subflows of the running primary.
func (p Config) measureHelpedSubflows(ctx context.Context, f *Facts, st api.Status) {
	for _, h := range p.Helpers {
		l := Subflow{Name: h.Name, Helper: true, Metered: slices.Contains(p.Metered, h.Name)}
		if !p.isSelected(l.Name) {
			continue
		}
		p.Progress("the path to the server by " + l.Name)
		facts := deviceFacts(st, func(d api.Device) bool { return d.Name == h.Name })
		l.Metered, l.Refuses = l.Metered || facts.Metered != nil && *facts.Metered, facts.Refuses
		if i := slices.IndexFunc(st.Devices, func(d api.Device) bool { return d.Name == h.Name }); i >= 0 {
			l.Suspended = st.Devices[i].Suspended
			if why := st.Devices[i].Refused; why != "" {
				l.Problem = &Problem{Kind: fault.Protocol, Text: "refused: " + why}
			}
		}
		id := l.fillFromStatus(st, h.Name, p.clockNow())
		if l.Up {
			p.measureHelped(ctx, &l, id, &f.Server)
			if !l.Up { // it has failed just now: the primary learns the reason within seconds
				l.Problem = p.awaitTrouble(ctx, &l, h.Name)
			}
		}
		if !l.Up && !l.HasPipe && len(f.Server.reports) > 0 {
			l.SignedReport = signedReport(f.Server.reports, h, p.Key.Public(), p.clockNow())
		}
		f.Subflows = append(f.Subflows, l)
	}
}

// fillFromStatus sets what the running primary knows about a helper's subflow, and returns the ID
// of that subflow, 0 for none.
func (l *Subflow) fillFromStatus(st api.Status, helper string, now time.Time) (id uint32) {
	l.Up, l.HasPipe, l.Problem = false, false, nil
	if i := slices.IndexFunc(st.Devices, func(d api.Device) bool { return d.Name == helper }); i >= 0 &&
		!st.Devices[i].LastPipe.IsZero() {
		l.LastPipe = max(now.Sub(st.Devices[i].LastPipe), time.Second)
	}
	for _, w := range st.Pipes {
		if w.Device != helper {
			continue
		}
		l.HasPipe = l.HasPipe || w.Error == ""
		if w.Error != "" && l.Problem == nil {
			l.Problem = &Problem{Text: w.Error, Hint: w.Hint}
		}
	}
	for _, path := range subflowsOf(st) {
		if path.Device != helper {
			continue
		}
		l.Metered, l.Backup = l.Metered || path.Metered, l.Backup || path.Tier == wire.TierBackup.String()
		switch {
		case path.ID != 0 && path.Pipe == "":
			l.Problem = &Problem{Text: "its pipe broke and has not come back"}
		case path.State == api.Up, path.State == api.Silent:
			if !l.Up || path.State == api.Up {
				id, l.Up, l.Silent = path.ID, true, path.State == api.Silent
			}
		case path.LastError != "":
			l.Problem = subflowProblem(path)
		}
	}
	if l.Up {
		l.Problem = nil
	}
	return id
}

// troubleTimeout is how long to wait for a helper's reason why it does not reach the server. It
// covers the silence of a subflow and the helper's own attempt to connect.
const troubleTimeout = 10 * time.Second

// awaitTrouble waits until the running primary knows from a helper why its subflow does not work.
// It returns the best known reason.
func (p Config) awaitTrouble(ctx context.Context, l *Subflow, helper string) *Problem {
	before := l.Problem
	p.Progress("the report of " + helper)
	ctx, cancel := context.WithTimeout(ctx, troubleTimeout)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		if st, err := p.Status(ctx); err == nil {
			l.fillFromStatus(st, helper, p.clockNow())
			l.Up = false // it failed a moment ago
			if l.Problem != nil && l.Problem.By != "" || !l.HasPipe {
				return l.Problem
			}
		}
		select {
		case <-ctx.Done():
			return before
		case <-tick.C:
		}
	}
}

// subflowProblem returns why a subflow is down.
func subflowProblem(path api.Subflow) *Problem {
	if path.Trouble == nil {
		return &Problem{Text: path.LastError}
	}
	return problemFrom(*path.Trouble)
}

func problemFrom(t api.Trouble) *Problem {
	return &Problem{Kind: t.Kind, Cause: t.Cause, By: t.By, At: t.At, Text: t.Text, Hint: t.Hint}
}

// callsFromStatus returns the count of connections to the running role's port.
func callsFromStatus(st api.Status, now time.Time) *Calls {
	if st.Calls == nil {
		return nil
	}
	return &Calls{Count: st.Calls.Count, Since: time.Duration(st.UptimeSeconds * float64(time.Second)),
		Last: now.Sub(st.Calls.Last)}
}

// pipesFromStatus returns the pipes in the status of the running role.
func pipesFromStatus(st api.Status) (list []Pipe) {
	for _, p := range st.Pipes {
		l := Pipe{Device: p.Device, Address: p.Address, Via: p.Via, Carries: p.State == api.PipeCarries,
			RTT: msToDuration(p.RTTms)}
		l.Ready = p.State != api.PipeRetrying && p.State != api.PipeStarting
		switch {
		case p.Error != "" && p.Trouble != nil:
			l.Problem = problemFrom(*p.Trouble)
		case p.Error != "":
			l.Problem = &Problem{Text: p.Error, Hint: p.Hint}
		case p.Trouble != nil:
			l.Unused = problemFrom(*p.Trouble)
		}
		list = append(list, l)
	}
	return list
}

// primariesFrom returns the primaries that a server knows.
func primariesFrom(st api.Status) (list []Primary) {
	for _, d := range st.Devices {
		if d.Self || !slices.Contains(d.Roles, string(identity.RolePrimary)) {
			continue
		}
		n := Primary{Name: d.Name, Subflows: d.Subflows, Copied: d.KeyCopied}
		for _, b := range st.Bonds {
			for _, path := range b.Subflows {
				if b.Peer == d.Name && path.State == api.Silent {
					n.Silent++
				}
			}
		}
		list = append(list, n)
	}
	return list
}

// checkPorts tries to open the ports of a primary.
func checkPorts(ctx context.Context, p Config) (list []Port) {
	for _, n := range p.Ports {
		l, err := tcp.Listen(ctx, n.At, tcp.Options{})
		if n.Problem = convertProblem(err); err == nil {
			l.Close()
		}
		list = append(list, n)
	}
	return list
}

// listUplinks returns this device's uplinks; nil if they cannot be listed.
func listUplinks() []string {
	list, err := device.Uplinks()
	if err != nil {
		return nil
	}
	return list
}
