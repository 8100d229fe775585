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

// DualPlan is a measurement of two users who lend each other their links: two
// devices, each primary and helper at once, the two of a house with one helper.
type DualPlan struct {
	Links string     // rates of their links in Mbit/s, "5/5"; the pipe between them is free
	Size  unit.Bytes // of each download
	Reps  int
	// Chunks, if not 0, is how many downloads each user makes, with pauses of 1 to
	// 5 s between them (MPBond, MobiSys 2020, its dual-mode experiment: links of
	// 5 Mbit/s, chunks of 1 MB). Each user's time is then the mean of a chunk.
	Chunks int
	Seed   uint64
	// Cases are those to measure; none: all.
	Cases []string
	Trace string // keep what programs say here
	// Traffic has each result tell all packets of both devices, as in coarse. The pipe
	// is then dualPipe, since of a link that is not emulated nothing is seen.
	Traffic bool
}

// dualPipe, in Mbit/s, is more than both users' links ever need.
const dualPipe = "100"

// DualUsers are the nodes of the two users.
var DualUsers = [2]string{"primary", "helper1"}

// Cases of a DualPlan.
const (
	DualAlone = "alone" // over their own links, without mpbond, one after the other
	DualIdle  = "idle"  // with mpbond, while the other user does nothing
	DualBoth  = "both"  // with mpbond, both at once
)

// DualResult is one case of one repetition.
type DualResult struct {
	Case      string     `json:"case"`
	Rep       int        `json:"rep"`
	Seconds   [2]float64 `json:"seconds"` // of each user
	Disturbed bool       `json:"disturbed"`
	Lateness  Lateness   `json:"lateness"`
	// Chunks are those of each user, if there are several downloads.
	Chunks [2][]DualChunk `json:"chunks,omitzero"`
	// Own is, of what a user's own link carried until the user's download ended,
	// the part that was the user's. Only in DualBoth.
	Own [2]float64 `json:"own_share"`
	// Traffic is that of both devices, whoever caused it, from the beginning of the
	// case to the end of the later user, if the plan asks for it.
	Traffic []Traffic `json:"traffic,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// DualChunk is one of a user's downloads, in seconds since the case began.
type DualChunk struct {
	At   float64 `json:"at"`
	Took float64 `json:"took"`
}

var dualCases = []string{DualAlone, DualIdle, DualBoth}

// DualScheme names one user's part of a case, where cases stand beside transfers.
func DualScheme(name, user string) string { return name + ":" + user }

// cases are those to measure.
func (p DualPlan) cases() []string {
	if len(p.Cases) == 0 {
		return dualCases
	}
	return p.Cases
}

func (p DualPlan) schemes() (all []string) {
	for _, c := range p.cases() {
		for _, user := range DualUsers {
			all = append(all, DualScheme(c, user))
		}
	}
	return all
}

// topology is the house of both users.
func (p DualPlan) topology() (*Topology, error) {
	pipe := "-"
	if p.Traffic {
		pipe = dualPipe
	}
	t, err := House(p.Links + "/" + pipe)
	if err != nil || len(t.Helpers()) != 1 {
		return nil, fault.New(fault.Usage, fmt.Errorf("links %q: write two rates in Mbit/s, like 10/3", p.Links), "")
	}
	return t, nil
}

// expected is half of the time that a case takes, which two users share; a guess
// where the rates are not known.
func (p DualPlan) expected(scheme string) time.Duration {
	var a, b float64
	if _, err := fmt.Sscanf(p.Links, "%g/%g", &a, &b); err != nil || a <= 0 || b <= 0 {
		return unknownTransfer
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
	if name != DualIdle { // both users' at once
		pauses /= 2
	}
	return time.Duration(p.Chunks) * (each + pauses)
}

// Pauses between chunks are dualPause to dualPause+dualPauseSpan.
const (
	dualPause     = time.Second
	dualPauseSpan = 4 * time.Second
)

// RunDual measures all cases, interleaved, and gives each result to emit.
func RunDual(ctx context.Context, p DualPlan, emit func(DualResult)) error {
	return p.run(ctx, wishes{}, emit)
}

// transfers is RunDual with a result for each user.
func (p DualPlan) transfers(ctx context.Context, w wishes, emit func(Result)) error {
	return p.run(ctx, w, func(d DualResult) {
		for i, user := range DualUsers {
			emit(Result{Scheme: DualScheme(d.Case, user), Rep: d.Rep, Direction: "get", Bytes: p.Size, Streams: 1, Seconds: d.Seconds[i],
				SHA: d.Error == "", Disturbed: d.Disturbed, Lateness: d.Lateness, Error: d.Error,
				Traffic: slices.DeleteFunc(slices.Clone(d.Traffic), func(t Traffic) bool { return t.Node != user })})
		}
	})
}

// Check returns why the plan cannot be run, a fault of kind Usage, or nil.
func (p DualPlan) Check() error {
	if p.Size <= 0 || p.Reps < 1 || p.Chunks < 0 {
		return fault.New(fault.Usage, errors.New("the size and the repetitions must be over 0"), "")
	}
	_, err := p.topology()
	return err
}

func (p DualPlan) run(ctx context.Context, w wishes, emit func(DualResult)) error {
	if err := p.Check(); err != nil {
		return err
	}
	t, err := p.topology()
	if err != nil {
		return err
	}
	return withBench(t, Options{Name: "dual"}, p.Seed, func(b *Bench) error {
		if b.LogDir = p.Trace; p.Trace != "" {
			if err := os.MkdirAll(p.Trace, 0o755); err != nil {
				return err
			}
		}
		d := &dualRun{p, b}
		if err := d.start(ctx); err != nil {
			return err
		}
		for rep := range p.Reps {
			for _, c := range p.cases() {
				if w.skip != nil && w.skip(DualScheme(c, DualUsers[0]), rep) && w.skip(DualScheme(c, DualUsers[1]), rep) {
					continue
				}
				r, err := d.turn(ctx, w, c, rep)
				if err != nil {
					return fmt.Errorf("%s: %w%s", c, err, b.said())
				}
				emit(r)
			}
		}
		return nil
	})
}

type dualRun struct {
	DualPlan
	*Bench
}

// start starts the web server and mpbond, and waits until each user has a
// subflow of its own and one by the other.
func (d *dualRun) start(ctx context.Context) error {
	if err := d.ready(); err != nil {
		return err
	}
	if _, _, err := d.File(d.Size); err != nil {
		return err
	}
	if err := d.StartWeb(ctx); err != nil {
		return err
	}
	mpbond, err := findProgram("mpbond")
	if err != nil {
		return err
	}
	if err := d.keys(ctx, mpbond); err != nil {
		return err
	}
	if err := d.Spawn(ctx, "server", bondPort, mpbondEnv(d.Bench, "server"), mpbond, "server", "--allow", "10.0.0.0/8"); err != nil {
		return err
	}
	for _, node := range DualUsers {
		if err := d.Spawn(ctx, node, socksPort, mpbondEnv(d.Bench, node), mpbond, "dual", "--name", node); err != nil {
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

// keys makes keys; the server trusts both users, and they each other.
func (d *dualRun) keys(ctx context.Context, mpbond string) error {
	h, err := d.newHomes(ctx, mpbond, mpbondHome(d.Bench, ""), append([]string{"server"}, DualUsers[:]...))
	if err != nil {
		return err
	}
	for _, node := range DualUsers {
		if err := os.WriteFile(filepath.Join(h.dir(node), "dual.toml"), []byte("[primary]\ntransparent = 0\n"), 0o600); err != nil {
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
		pipe, err := t.Addr(other, t.between(node, other))
		if err != nil {
			return err
		}
		if err := errors.Join(
			h.trust(ctx, "server", node, "primary"),
			h.trust(ctx, node, "server", "server", "--addr", fmt.Sprintf("%s:%d", server, bondPort)),
			h.trust(ctx, node, other, "primary", "--role", "helper", "--addr", fmt.Sprintf("%s:%d", pipe, pipePort)),
		); err != nil {
			return err
		}
	}
	return nil
}

// turn measures a case when it may be measured.
func (d *dualRun) turn(ctx context.Context, w wishes, c string, rep int) (DualResult, error) {
	if w.turn != nil {
		done, err := w.turn(ctx, DualScheme(c, DualUsers[0]))
		if err != nil {
			return DualResult{}, err
		}
		defer done()
	}
	return d.measure(ctx, c, rep)
}

// measure measures one case. Users over their own links, without mpbond, do not
// meet, and so go at once.
func (d *dualRun) measure(ctx context.Context, c string, rep int) (DualResult, error) {
	r := DualResult{Case: c, Rep: rep}
	if err := d.Lab.Start(); err != nil {
		return r, err
	}
	limit := transferGrace + 2*transferPatience*d.expected(c)
	if d.Chunks > 0 {
		limit = time.Hour
	}
	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: %v", errTooLong, limit))
	defer cancel()
	if _, err := d.traffic(); err != nil {
		return r, err
	}
	begin := time.Now()
	var errs [2]error
	if c != DualIdle {
		var both sync.WaitGroup
		for i := range DualUsers {
			both.Go(func() {
				before, e1 := d.link(within, i)
				errs[i] = d.user(within, i, &r, begin)
				after, e2 := d.link(within, i)
				if c == DualBoth {
					r.Own[i] = float64(after.own-before.own) * packetIP / packetPayload / float64(max(1, after.all-before.all))
					errs[i] = errors.Join(errs[i], e1, e2)
				}
			})
		}
		both.Wait()
	} else {
		for i := range DualUsers {
			errs[i] = d.user(within, i, &r, begin)
		}
	}
	took := time.Since(begin)
	traffic, err1 := d.traffic()
	r.Traffic = traffic
	stats, err := d.Lab.Stats(false)
	r.Lateness, r.Disturbed = stats.Lateness, stats.Lateness.disturbed(took, false)
	if failed := errors.Join(errs[0], errs[1], context.Cause(within)); failed != nil && ctx.Err() == nil {
		r.Error = failed.Error()
	}
	return r, errors.Join(ctx.Err(), err, err1, d.Lab.Rewind(), d.Lab.Drained(ctx))
}

// traffic takes out what both devices sent and received since the last call, if
// the plan asks for it.
func (d *dualRun) traffic() (some []Traffic, err error) {
	if !d.DualPlan.Traffic {
		return nil, nil
	}
	all, err := d.Lab.Traffic()
	for _, t := range all {
		if t.Node != "server" {
			some = append(some, t.coarse())
		}
	}
	return some, err
}

// carriedBytes is what a user's link has carried towards the user: payload of
// the own direct subflows, and IP bytes in all.
type carriedBytes struct{ own, all unit.Bytes }

func (d *dualRun) link(ctx context.Context, i int) (b carriedBytes, err error) {
	node, t := DualUsers[i], d.Lab.Topology
	s, err := mpbondStatus(ctx, d.Bench, node, "primary")
	if err != nil {
		return b, err
	}
	for _, bond := range s.Bonds {
		for _, p := range bond.Paths {
			if p.Kind == api.Direct {
				b.own += p.RxBytes
			}
		}
	}
	stats, err := d.Lab.Stats(false)
	if err != nil {
		return b, err
	}
	name := t.between("server", node)
	end, err := t.end("server", name)
	if err != nil {
		return b, err
	}
	b.all = stats.Link(name).Lines[end].Count.Delivered.Bytes
	return b, nil
}

// user is one user's part of a case that began then: the time of a download, or
// the mean of its chunks.
func (d *dualRun) user(ctx context.Context, i int, r *DualResult, begin time.Time) (err error) {
	argv := d.Fetch(Transfer{Size: d.Size, Streams: 1})
	if r.Case != DualAlone {
		argv = append(argv, "--socks5-hostname", fmt.Sprintf("127.0.0.1:%d", socksPort))
	}
	if d.Chunks == 0 {
		r.Seconds[i], err = d.fetch(ctx, DualUsers[i], argv)
		return err
	}
	pauses := rand.New(rand.NewPCG(d.DualPlan.Seed, uint64(2*r.Rep+i))) // the same in each case
	for range d.Chunks {
		select {
		case <-time.After(dualPause + time.Duration(pauses.Int64N(int64(dualPauseSpan)))):
		case <-ctx.Done():
			return ctx.Err()
		}
		at := time.Since(begin)
		one, err := d.fetch(ctx, DualUsers[i], argv)
		if err != nil {
			return err
		}
		r.Seconds[i] += one / float64(d.Chunks)
		r.Chunks[i] = append(r.Chunks[i], DualChunk{at.Seconds(), one})
	}
	return nil
}

// fetch makes one download and checks what came.
func (d *dualRun) fetch(ctx context.Context, node string, argv []string) (seconds float64, err error) {
	c, err := newClientRun(d.Lab.Command(ctx, node, argv...))
	if err != nil {
		return 0, err
	}
	if err := c.cmd.Start(); err != nil {
		return 0, err
	}
	failed := c.read(Transfer{Streams: 1}, false, &byteCounter{})
	r := Result{Bytes: d.Size}
	if err = cmp.Or(c.wait(), failed); err == nil {
		err = r.judge(d.Bench, c.got, c.stderr.String())
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", node, err)
	}
	return r.Seconds, nil
}
