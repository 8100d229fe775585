package lab

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/unit"
)

// Plan says what to measure.
type Plan struct {
	Topology *Topology
	Schemes  []string
	Size     unit.Bytes
	Upload   bool
	Reps     int
	Seed     uint64
	At       []string // "2s:hs1.rate=1Mbit/s", "3s:kill=helper1"
	Trace    string   // directory for programs' output and events, or none
	Pcap     string   // directory for packet captures, or none
}

// Result is one transfer. Only those that are neither Disturbed nor have an
// Error count as a measurement.
type Result struct {
	Scheme     string                `json:"scheme"`
	Rep        int                   `json:"rep"`
	Direction  string                `json:"direction"` // get, put
	Bytes      unit.Bytes            `json:"bytes"`
	Seconds    float64               `json:"seconds"` // curl's time_total
	Bound      float64               `json:"bound_seconds"`
	Efficiency float64               `json:"efficiency"` // bound / seconds
	FirstByte  float64               `json:"first_byte_seconds"`
	LongestGap float64               `json:"longest_gap_seconds"` // between two reads of the receiver, after its first
	SHA        bool                  `json:"sha256_ok"`
	Devices    map[string]unit.Bytes `json:"device_bytes"` // IP bytes that arrived by primary or helper, in the direction of the data
	Drops      int64                 `json:"queue_drops"`  // packets, all links
	Disturbed  bool                  `json:"disturbed"`    // the emulator was late: discarded, repeated
	Discarded  int                   `json:"discarded"`    // disturbed tries before this one
	Lateness   Lateness              `json:"lateness"`
	Notes      map[string]any        `json:"notes,omitempty"`
	Error      string                `json:"error,omitempty"`
}

// maxDiscarded is how often a disturbed transfer is repeated before the
// machine is held to be unfit.
const maxDiscarded = 5

// Run brings the plan's lab up, makes the transfers, schemes interleaved, and
// gives each result to emit as it comes. It takes everything down again, also
// when ctx ends.
func Run(ctx context.Context, p Plan, emit func(Result)) (err error) {
	top, faults, err := p.faults()
	if err != nil {
		return err
	}
	bound, err := boundWith(top, faults, p)
	if err != nil {
		return err
	}
	var schemes []Scheme
	for _, name := range p.Schemes {
		s, err := newScheme(name)
		if err != nil {
			return err
		}
		schemes = append(schemes, s)
	}
	l, err := Up(top, Options{Name: uniqueName("run"), Tied: true, Pcap: p.Pcap})
	if err != nil {
		return err
	}
	defer func() {
		if e := l.Down(); err == nil {
			err = e
		}
	}()
	for _, w := range l.Warnings {
		fmt.Fprintln(os.Stderr, "warning:", w)
	}
	b, err := NewBench(l, p.Seed)
	if err != nil {
		return err
	}
	if _, _, err := b.File(p.Size); err != nil {
		return err
	}
	for rep := range p.Reps {
		for i, s := range schemes {
			t := Transfer{Scheme: p.Schemes[i], Rep: rep, Size: p.Size, Upload: p.Upload}
			for discarded := 0; discarded <= maxDiscarded; discarded++ {
				if p.Trace != "" {
					b.LogDir = filepath.Join(p.Trace, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Scheme, ":", "-"), rep))
					if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
						return err
					}
				}
				r, err := b.transfer(ctx, s, t, faults)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					r.Error = err.Error()
				}
				r.Discarded, r.Bound = discarded, bound.Seconds()
				if r.Seconds > 0 {
					r.Efficiency = r.Bound / r.Seconds
				}
				emit(r)
				if !r.Disturbed {
					break
				}
			}
		}
	}
	return nil
}

// fault happens to a node at a time after the start of a transfer.
type fault struct {
	at   time.Duration
	kill string
}

// faults puts the plan's At texts into a copy of its topology (changes of
// links, kept exactly by the emulator) and returns the rest.
func (p Plan) faults() (*Topology, []fault, error) {
	t, err := p.Topology.clone()
	if err != nil {
		return nil, nil, err
	}
	var faults []fault
	for _, s := range p.At {
		when, what, ok := strings.Cut(s, ":")
		at, err := time.ParseDuration(when)
		if !ok || err != nil || at < 0 {
			return nil, nil, fmt.Errorf("--at %q: write TIME:LINK.PROPERTY=VALUE, TIME:kill=NODE or TIME:off=NODE, like 2s:hs1.rate=1Mbit/s", s)
		}
		verb, node, _ := strings.Cut(what, "=")
		switch verb {
		case "kill", "off":
			if t.Node[node] == nil {
				return nil, nil, fmt.Errorf("--at %q: no node %q", s, node)
			}
		}
		switch verb {
		case "kill":
			faults = append(faults, fault{at, node})
		case "off":
			if err := t.silence(at, node); err != nil {
				return nil, nil, fmt.Errorf("--at %q: %w", s, err)
			}
		default:
			if err := t.AddChange(at, what); err != nil {
				return nil, nil, fmt.Errorf("--at %w", err)
			}
		}
	}
	return t, faults, nil
}

// boundWith is the bound of the plan. A helper whose programs are killed
// carries nothing from then on.
func boundWith(t *Topology, faults []fault, p Plan) (time.Duration, error) {
	t, err := t.clone()
	if err != nil {
		return 0, err
	}
	for _, f := range faults {
		if slices.Contains(t.Helpers(), f.kill) {
			if err := t.silence(f.at, f.kill); err != nil {
				return 0, err
			}
		}
	}
	return Bound(t, p.Size, p.Upload)
}

// clone copies a topology, so that it can be changed.
func (t *Topology) clone() (*Topology, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	c := &Topology{}
	return c, json.Unmarshal(b, c)
}

// silence black-holes all emulated links of a node from a time on.
func (t *Topology) silence(at time.Duration, node string) error {
	found := false
	for _, link := range t.Links() {
		if _, err := t.end(node, link); err != nil || !t.Link[link].Shaped() {
			continue
		}
		found = true
		if err := t.AddChange(at, link+".outage=on"); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("no link of %s is emulated", node)
	}
	return nil
}

// drainTimeout bounds the wait for queues between transfers.
const drainTimeout = 30 * time.Second

// transfer starts the scheme, makes one transfer and stops the scheme.
func (b *Bench) transfer(ctx context.Context, s Scheme, t Transfer, faults []fault) (r Result, err error) {
	r = Result{Scheme: t.Scheme, Rep: t.Rep, Bytes: t.Size, Direction: "get", Devices: map[string]unit.Bytes{}}
	if t.Upload {
		r.Direction = "put"
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		e1 := s.Stop(stop, b)
		b.EndAll()
		e2 := b.Lab.Rewind()
		e3 := b.Lab.Drained(stop)
		for _, e := range []error{e1, e2, e3, b.mergeTraces()} {
			if err == nil {
				err = e
			}
		}
	}()
	if err := s.Start(ctx, b); err != nil {
		return r, err
	}
	if err := b.measure(ctx, s.Client(b, t), t, &r, faults); err != nil {
		return r, err
	}
	r.Notes, err = s.Verify(ctx, b)
	return r, err
}

// measure runs the client and fills in what was seen.
func (b *Bench) measure(ctx context.Context, argv []string, t Transfer, r *Result, faults []fault) error {
	_, want, err := b.File(t.Size)
	if err != nil {
		return err
	}
	cmd, err := b.Lab.Command(ctx, "primary", argv...)
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	before, err := b.Lab.Stats(false)
	if err != nil {
		return err
	}
	if err := b.Lab.Start(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	for _, f := range faults {
		timer := time.AfterFunc(f.at, func() { b.Lab.kill(f.kill) })
		defer timer.Stop()
	}
	got, err := readClient(out, t.Upload)
	if e := cmd.Wait(); e != nil {
		err = fmt.Errorf("client: %w: %s", e, strings.TrimSpace(stderr.String()))
	}
	after, e := b.Lab.Stats(false)
	if e != nil {
		return e
	}
	r.count(b.Lab.Topology, before, after)
	total, first, code, e := curlReport(stderr.String())
	r.Seconds, r.FirstByte, r.LongestGap = total.Seconds(), first.Seconds(), got.Gap
	r.SHA = got.SHA == hex.EncodeToString(want[:])
	switch {
	case err != nil:
		return err
	case e != nil:
		return e
	case code != 200:
		return fmt.Errorf("the web server answered %d", code)
	case !r.SHA:
		return fmt.Errorf("the file arrived with %d bytes and the wrong SHA-256", got.Bytes)
	}
	return nil
}

// readClient watches a download as curl passes it on, or reads what the sink
// saw of an upload.
func readClient(out io.Reader, upload bool) (got Received, err error) {
	if !upload {
		return receive(out)
	}
	err = json.NewDecoder(out).Decode(&got)
	_, _ = io.Copy(io.Discard, out)
	return got, err
}

// count fills in what the links tell.
func (r *Result) count(t *Topology, before, after Stats) {
	r.Lateness, r.Disturbed = after.Lateness, after.Lateness.Disturbed
	from, to := "server", "primary"
	if r.Direction == "put" {
		from, to = to, from
	}
	carried := func(link, sender string) unit.Bytes {
		end, err := t.end(sender, link)
		if err != nil {
			return 0
		}
		return after.Link(link).Lines[end].Count.Delivered.Bytes - before.Link(link).Lines[end].Count.Delivered.Bytes
	}
	r.Devices["primary"] = carried(t.between(from, to), from)
	for _, h := range t.Helpers() {
		r.Devices[h] = min(carried(t.between(from, h), from), carried(t.between(h, to), h))
	}
	for _, l := range after.Links {
		for i, s := range l.Lines {
			r.Drops += s.Count.QueueDrops.Packets - before.Link(l.Name).Lines[i].Count.QueueDrops.Packets
		}
	}
}

// kill ends all programs in a node.
func (l *Lab) kill(node string) {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", l.hello.PID, l.hello.NS[node]), &st) == nil {
		killInside(map[uint64]bool{st.Ino: true})
	}
}
