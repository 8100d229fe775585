// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
)

// DualSpec describes a measurement of two users that share their links: two devices, each primary
// and helper at once, in a triangle.
type DualSpec struct {
	Links string     // rates of their links in Mbit/s, "5/5"; the pipe is unlimited
	Size  unit.Bytes // of each download
	Reps  int
	// Chunks is how many downloads each user makes, with pauses of 1 to 5 s between them, as in the
	// dual-mode experiment of MPBond (MobiSys 2020: links of 5 Mbit/s, chunks of 1 MB). A user's
	// time is then the mean of a chunk. 0: one download.
	Chunks int
	Seed   uint64
	// Cases are the cases to measure. Empty: all.
	Cases []string
	Trace string // directory for the output of programs, or none
	// Traffic records all packets of both devices in each result, in coarse steps. The pipe then
	// has the rate dualPipe, since packets of an unshaped link are not recorded.
	Traffic bool
}

// dualPipe is more than both users' links ever need, in Mbit/s.
const dualPipe = "100"

// DualUsers are the nodes of the two users.
var DualUsers = [2]string{"primary", "helper1"}

// Cases of a DualSpec.
const (
	DualAlone = "alone" // over their own links, without mpbond, at the same time
	DualIdle  = "idle"  // with mpbond, while the other user is idle
	DualBoth  = "both"  // with mpbond, both at once
)

// DualResult is one case of one repetition.
type DualResult struct {
	Case      string     `json:"case"`
	Rep       int        `json:"rep"`
	Seconds   [2]float64 `json:"seconds"` // of each user
	Disturbed bool       `json:"disturbed"`
	Lateness  Lateness   `json:"lateness"`
	// Starved is as in Result.
	Starved time.Duration `json:"starved_ns"`
	// Chunks are the downloads of each user, if there are several.
	Chunks [2][]DualChunk `json:"chunks,omitzero"`
	// OwnShare is the user's share of the bytes that the user's own link carried until the end of
	// the user's download. Set in DualBoth only.
	OwnShare [2]float64 `json:"own_share"`
	// Traffic is the traffic of both devices from the beginning of the case to the end of the later
	// user, if the spec asks for it.
	Traffic []Traffic `json:"traffic,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// DualChunk is one download of a user, in seconds. At counts from the beginning of the case.
type DualChunk struct {
	At   float64 `json:"at"`
	Took float64 `json:"took"`
}

var allDualCases = []string{DualAlone, DualIdle, DualBoth}

// DualSchemeName names one user's part of a case where a scheme name is needed.
func DualSchemeName(name, user string) string { return name + ":" + user }

// selectedCases returns the cases to measure.
func (p DualSpec) selectedCases() []string {
	if len(p.Cases) == 0 {
		return allDualCases
	}
	return p.Cases
}

// caseSchemes returns the scheme names of all cases and users.
func (p DualSpec) caseSchemes() (all []string) {
	for _, c := range p.selectedCases() {
		for _, user := range DualUsers {
			all = append(all, DualSchemeName(c, user))
		}
	}
	return all
}

// buildDualTopology returns the network of both users.
func (p DualSpec) buildDualTopology() (*Topology, error) {
	pipe := "-"
	if p.Traffic {
		pipe = dualPipe
	}
	t, err := Triangle(p.Links + "/" + pipe)
	if err != nil || len(t.Helpers()) != 1 {
		return nil, fault.New(fault.Usage, fmt.Errorf("links %q: write two rates in Mbit/s, like 10/3", p.Links), "")
	}
	return t, nil
}

// halfCaseTime returns half the expected time of a case, since both users of a case are counted. It
// guesses where the rates are unknown.
func (p DualSpec) halfCaseTime(scheme string) time.Duration {
	var a, b float64
	if _, err := fmt.Sscanf(p.Links, "%g/%g", &a, &b); err != nil || a <= 0 || b <= 0 {
		return unknownDuration
	}
	each := unit.Rate(1e6 * (a + b)).Time(p.Size)
	name, _, _ := strings.Cut(scheme, ":")
	if name == DualAlone {
		each = unit.Rate(2e6 * min(a, b)).Time(p.Size)
	}
	if p.Chunks == 0 {
		return each
	}
	pauses := dualPause + dualPauseSpan/2
	if name != DualIdle { // both users pause at once
		pauses /= 2
	}
	return time.Duration(p.Chunks) * (each + pauses)
}

// Pauses between chunks last from dualPause to dualPause+dualPauseSpan.
const (
	dualPause     = time.Second
	dualPauseSpan = 4 * time.Second
)

// RunDual measures all cases, interleaved, and passes each result to emit.
func RunDual(ctx context.Context, p DualSpec, emit func(DualResult)) error {
	return p.runDualCases(ctx, runHooks{}, emit)
}

// runUserTransfers is like RunDual with one Result for each user.
func (p DualSpec) runUserTransfers(ctx context.Context, w runHooks, emit func(Result)) error {
	return p.runDualCases(ctx, w, func(d DualResult) {
		for i, user := range DualUsers {
			emit(Result{Scheme: DualSchemeName(d.Case, user), Rep: d.Rep, Direction: "get", Bytes: p.Size, Streams: 1,
				Seconds: d.Seconds[i],
				SHA:     d.Error == "", Disturbed: d.Disturbed, Lateness: d.Lateness, Starved: d.Starved, Error: d.Error,
				Traffic: slices.DeleteFunc(slices.Clone(d.Traffic), func(t Traffic) bool { return t.Node != user })})
		}
	})
}

// Check returns why the spec cannot run, as a fault of kind Usage, or nil.
func (p DualSpec) Check() error {
	if p.Size <= 0 || p.Reps < 1 || p.Chunks < 0 {
		return fault.New(fault.Usage, errors.New("the size and the repetitions must be over 0"), "")
	}
	_, err := p.buildDualTopology()
	return err
}

// runDualCases implements RunDual with hooks.
func (p DualSpec) runDualCases(ctx context.Context, w runHooks, emit func(DualResult)) error {
	if err := p.Check(); err != nil {
		return err
	}
	t, err := p.buildDualTopology()
	if err != nil {
		return err
	}
	return withBenchInNewLab(t, Options{Name: "dual"}, p.Seed, func(b *Bench) error {
		if b.LogDir = p.Trace; p.Trace != "" {
			if err := os.MkdirAll(p.Trace, 0o755); err != nil {
				return err
			}
		}
		d := &dualRun{p, b}
		if err := d.startPrograms(ctx); err != nil {
			return err
		}
		for rep := range p.Reps {
			for _, c := range p.selectedCases() {
				if w.skip != nil && w.skip(DualSchemeName(c, DualUsers[0]), rep) &&
					w.skip(DualSchemeName(c, DualUsers[1]), rep) {
					continue
				}
				r, err := d.runCaseInTurn(ctx, w, c, rep)
				if err != nil {
					return fmt.Errorf("%s: %w%s", c, err, b.recentOutput())
				}
				emit(r)
			}
		}
		return nil
	})
}

// dualRun is a DualSpec that runs in a bench.
type dualRun struct {
	DualSpec
	*Bench
}

// startPrograms starts the web server and mpbond. It waits until each user has a direct subflow and
// one through the other device.
func (d *dualRun) startPrograms(ctx context.Context) error {
	if err := d.prepareDir(); err != nil {
		return err
	}
	if _, _, err := d.MakeFile(d.Size); err != nil {
		return err
	}
	if err := d.StartWeb(ctx); err != nil {
		return err
	}
	mpbond, err := findProgram("mpbond")
	if err != nil {
		return err
	}
	if err := d.setupDualTrust(ctx, mpbond); err != nil {
		return err
	}
	if err := d.Spawn(ctx, "server", bondPort, mpbondHomeEnv(d.Bench, "server"), mpbond, "server", "--allow",
		"10.0.0.0/8"); err != nil {
		return err
	}
	for _, node := range DualUsers {
		if err := d.Spawn(ctx, node, socksPort, mpbondHomeEnv(d.Bench, node), mpbond, "dual", "--name", node); err != nil {
			return err
		}
	}
	for _, node := range DualUsers {
		if err := d.waitSubflows(ctx, node, 2); err != nil {
			return err
		}
	}
	return nil
}

// setupDualTrust makes keys. The server trusts both users, and they trust each other.
func (d *dualRun) setupDualTrust(ctx context.Context, mpbond string) error {
	h, err := d.makeDeviceHomes(ctx, mpbond, mpbondHome(d.Bench, ""), append([]string{"server"}, DualUsers[:]...))
	if err != nil {
		return err
	}
	for _, node := range DualUsers {
		if err := os.WriteFile(filepath.Join(h.nodeHomeDir(node), "dual.toml"), []byte("[primary]\ntransparent = 0\n"),
			0o600); err != nil {
			return err
		}
	}
	t := d.Lab.Topology
	server, err := t.Addr("server", "core")
	if err != nil {
		return err
	}
	for i, node := range DualUsers {
		other := DualUsers[1-i]
		pipe, err := t.Addr(other, t.linkBetween(node, other))
		if err != nil {
			return err
		}
		if err := errors.Join(
			h.addTrustedPeer(ctx, "server", node, "primary"),
			h.addTrustedPeer(ctx, node, "server", "server", "--addr", fmt.Sprintf("%s:%d", server, bondPort)),
			h.addTrustedPeer(ctx, node, other, "primary", "--role", "helper", "--addr", fmt.Sprintf("%s:%d", pipe, pipePort)),
		); err != nil {
			return err
		}
	}
	return nil
}

// runCaseInTurn measures a case when it is its turn.
func (d *dualRun) runCaseInTurn(ctx context.Context, w runHooks, c string, rep int) (DualResult, error) {
	if w.waitTurn != nil {
		done, err := w.waitTurn(ctx, DualSchemeName(c, DualUsers[0]))
		if err != nil {
			return DualResult{}, err
		}
		defer done()
	}
	return d.measureCase(ctx, c, rep)
}

// measureCase measures one case. Users without mpbond use separate links, so they run at once.
func (d *dualRun) measureCase(ctx context.Context, c string, rep int) (DualResult, error) {
	r := DualResult{Case: c, Rep: rep}
	if err := d.Lab.Start(); err != nil {
		return r, err
	}
	limit := transferGrace + 2*transferTimeFactor*d.halfCaseTime(c)
	if d.Chunks > 0 {
		limit = time.Hour
	}
	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %v", errTooLong, limit))
	defer cancel()
	if _, err := d.takeDeviceTraffic(); err != nil {
		return r, err
	}
	begin, starved := time.Now(), starvation.watchLongestWait()
	var errs [2]error
	if c != DualIdle {
		var both sync.WaitGroup
		for i := range DualUsers {
			both.Go(func() {
				before, e1 := d.userLinkBytes(within, i)
				errs[i] = d.runCaseForUser(within, i, &r, begin)
				after, e2 := d.userLinkBytes(within, i)
				if c == DualBoth {
					r.OwnShare[i] = float64(after.own-before.own) * packetIP / packetPayload / float64(max(1,
						after.all-before.all))
					errs[i] = errors.Join(errs[i], e1, e2)
				}
			})
		}
		both.Wait()
	} else {
		for i := range DualUsers {
			errs[i] = d.runCaseForUser(within, i, &r, begin)
		}
	}
	took, longest := time.Since(begin), starved()
	traffic, err1 := d.takeDeviceTraffic()
	r.Traffic = traffic
	stats, err := d.Lab.Stats(false)
	r.Lateness, r.Starved = stats.Lateness, longest
	r.Disturbed = stats.Lateness.isDisturbed(took, false) || longest > maxStarved
	if failed := errors.Join(errs[0], errs[1], context.Cause(within)); failed != nil && ctx.Err() == nil {
		r.Error = failed.Error()
	}
	return r, errors.Join(ctx.Err(), err, err1, d.Lab.Rewind(), d.Lab.WaitDrained(ctx))
}

// takeDeviceTraffic returns the traffic of both devices since the last call, if the spec asks for
// it.
func (d *dualRun) takeDeviceTraffic() (some []Traffic, err error) {
	if !d.DualSpec.Traffic {
		return nil, nil
	}
	all, err := d.Lab.Traffic()
	for _, t := range all {
		if t.Node != "server" {
			some = append(some, t.coarsened())
		}
	}
	return some, err
}

// carriedBytes is what a user's link has carried towards the user: payload of the user's own direct
// subflows, and all IP bytes.
type carriedBytes struct{ own, all unit.Bytes }

// userLinkBytes returns what the link of user i has carried.
func (d *dualRun) userLinkBytes(ctx context.Context, i int) (b carriedBytes, err error) {
	node, t := DualUsers[i], d.Lab.Topology
	name := t.linkBetween("server", node)
	end, err := t.linkEndIndex("server", name)
	if err != nil {
		return b, err
	}
	// The status takes longer. Meanwhile the other user fills the link, and the owner's bytes stand
	// still.
	stats, err := d.Lab.Stats(false)
	if err != nil {
		return b, err
	}
	b.all = stats.Link(name).Lines[end].Count.Delivered.Bytes
	s, err := mpbondStatus(ctx, d.Bench, node, "primary")
	if err != nil {
		return b, err
	}
	for _, bond := range s.Bonds {
		for _, p := range bond.Subflows {
			if p.Kind == api.Direct {
				b.own += p.RxBytes
			}
		}
	}
	return b, nil
}

// runCaseForUser runs one user's part of a case that began at begin. Its time is that of one
// download, or the mean of its chunks.
func (d *dualRun) runCaseForUser(ctx context.Context, i int, r *DualResult, begin time.Time) (err error) {
	argv := d.FetchCommand(Transfer{Size: d.Size, Streams: 1})
	if r.Case != DualAlone {
		argv = append(argv, "--socks5-hostname", fmt.Sprintf("127.0.0.1:%d", socksPort))
	}
	if d.Chunks == 0 {
		r.Seconds[i], err = d.fetchAndVerify(ctx, DualUsers[i], argv)
		return err
	}
	pauses := rand.New(rand.NewPCG(d.DualSpec.Seed, uint64(2*r.Rep+i))) // the same in each case
	for range d.Chunks {
		select {
		case <-time.After(dualPause + time.Duration(pauses.Int64N(int64(dualPauseSpan)))):
		case <-ctx.Done():
			return ctx.Err()
		}
		at := time.Since(begin)
		one, err := d.fetchAndVerify(ctx, DualUsers[i], argv)
		if err != nil {
			return err
		}
		r.Seconds[i] += one / float64(d.Chunks)
		r.Chunks[i] = append(r.Chunks[i], DualChunk{at.Seconds(), one})
	}
	return nil
}

// fetchAndVerify makes one download and checks its content.
func (d *dualRun) fetchAndVerify(ctx context.Context, node string, argv []string) (seconds float64, err error) {
	c, err := newClientRun(d.Lab.Command(ctx, node, argv...))
	if err != nil {
		return 0, err
	}
	if err := c.cmd.Start(); err != nil {
		return 0, err
	}
	failed := c.readOutput(Transfer{Streams: 1}, false, &byteCounter{})
	r := Result{Bytes: d.Size}
	if err = cmp.Or(c.waitClientExit(), failed); err == nil {
		err = r.evaluateDownload(d.Bench, c.received, c.stderr.String())
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", node, err)
	}
	return r.Seconds, nil
}
