// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// FlowSpec describes a measurement of bulk flows over one link, from its second end to its first.
// Congestion controllers run alone there, or several at once.
type FlowSpec struct {
	Topology *Topology
	Link     string
	// Sets are names of controllers as in package pbe/flow, joined with + if they share the link:
	// "bbr", "kernel:bbr", "cubic+kernel:cubic". With SamplesPrefix in front, the set's receivers
	// decode the samples of the mobile network.
	Sets   []string
	Length time.Duration
	// Marks divide Length into phases with figures of their own, such as start-up and steady state.
	Marks []time.Duration
	Reps  int
	Seed  uint64
	At    []string // as in RunSpec, changes of links only
	// Together runs all sets at once, each over its own copy of Link.
	Together bool
	// Tries is how often a disturbed repetition is made; 0: as often as a transfer.
	Tries int
	// Capacity is the link's if the caller knows it better than the topology; 0: it does not.
	Capacity unit.Rate
}

// FlowResult is the result of one set in one repetition. It counts unless it is Disturbed or has an
// Error.
type FlowResult struct {
	Set           string       `json:"controllers"`
	Rep           int          `json:"rep"`
	Phases        []FlowPhase  `json:"phases"`
	Seconds       []FlowSecond `json:"seconds"`
	Retransmitted []int64      `json:"retransmitted_packets"` // by flow
	// Propagation is the one-way delay of the wired part, or of the link if it is in no mobile network.
	Propagation time.Duration `json:"propagation_ns"`
	Disturbed   bool          `json:"disturbed"`
	Discarded   int           `json:"discarded"` // disturbed tries before this one
	Lateness    Lateness      `json:"lateness"`  // of the worst phase
	// Starved is the longest time that an ordinary program waited for a processor. Sender and
	// receiver may have waited as long.
	Starved time.Duration `json:"starved_ns"`
	Error   string        `json:"error,omitempty"`
}

// FlowPhase is what the link did in a part of the time. Rate and Capacity are of IP bytes, Flows of
// payload.
type FlowPhase struct {
	From     float64     `json:"from"` // seconds since the flows began
	To       float64     `json:"to"`
	Rate     unit.Rate   `json:"rate_bps"`     // delivered
	Capacity unit.Rate   `json:"capacity_bps"` // mean; of a mobile network the recorded rate, or the most for one device
	Used     float64     `json:"used"`         // Rate / Capacity
	Delay    Delays      `json:"delay"`        // one way, of each packet
	Packets  int64       `json:"packets"`      // delivered
	Drops    int64       `json:"queue_drops"`  // packets
	Losses   int64       `json:"loss_drops"`
	Flows    []unit.Rate `json:"flows_bps"`
}

// FlowSecond is a snapshot of the link, about one each second.
type FlowSecond struct {
	At     float64     `json:"at"`       // its end
	Rate   unit.Rate   `json:"rate_bps"` // since the last one
	Queued unit.Bytes  `json:"queued"`
	Flows  []unit.Rate `json:"flows_bps"`
}

// SamplesPrefix before a set makes cellwatch decode the network's samples for it, in the receivers'
// node. Otherwise receivers get the network's control messages.
const SamplesPrefix = "samples:"

// flowReportPort is ReportPort of pbe/flow. cellwatch serves at flowDecoderPort.
const (
	flowReportPort  = 93
	flowDecoderPort = 96
)

// flowStartLead is how long before the start the source learns the time of the start.
const flowStartLead = 50 * time.Millisecond

// flowSlot is Slot of pbe/flow.
const flowSlot = 100 * time.Millisecond

// RunFlows brings up the spec's lab and runs all sets, in turn or together, in each repetition. It
// passes the results to emit and takes everything down again.
func RunFlows(ctx context.Context, p FlowSpec, emit func(FlowResult)) error {
	w, err := p.newFlowRun()
	if err != nil {
		return fault.New(fault.Usage, err, "")
	}
	groups := [][]int{}
	for i := range p.Sets {
		if p.Together && i > 0 {
			groups[0] = append(groups[0], i)
		} else {
			groups = append(groups, []int{i})
		}
	}
	return withBenchInNewLab(w.topology, Options{Name: "flow"}, p.Seed, func(b *Bench) error {
		w.Bench = b
		for rep := range p.Reps {
			for _, sets := range groups {
				if err := w.runFlowSetTries(ctx, rep, sets, emit); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// flowRun is a FlowSpec that runs.
type flowRun struct {
	FlowSpec
	*Bench
	topology         *Topology // with the spec's changes, and copies of the link
	links            []string  // by set
	receiver, sender string    // nodes
	propagation      time.Duration
}

// newFlowRun checks the spec and prepares its topology.
func (p FlowSpec) newFlowRun() (*flowRun, error) {
	t, _, err := RunSpec{Topology: p.Topology, At: p.At}.applyChanges()
	if err != nil {
		return nil, err
	}
	link := t.Link[p.Link]
	switch {
	case link == nil || !link.Shaped():
		return nil, fmt.Errorf("link %q: name an emulated link", p.Link)
	case len(p.Sets) == 0 || p.Reps < 1 || p.Length < time.Second:
		return nil, fmt.Errorf("a measurement needs at least one controller, one repetition and one second")
	case !slices.IsSorted(p.Marks) || len(p.Marks) > 0 && (p.Marks[0] <= 0 || p.Marks[len(p.Marks)-1] >= p.Length):
		return nil, fmt.Errorf("phases must end in ascending order, before the end of the measurement")
	}
	for _, set := range p.Sets {
		if strings.HasPrefix(set, SamplesPrefix) && (link.LTE == nil || t.LTE[link.LTE.Network] == nil ||
			t.LTE[link.LTE.Network].Samples == nil) {
			return nil, fmt.Errorf("%s: link %q is not a device of a network with samples (write samples = {} in "+
				"its [lte.NAME])", set, p.Link)
		}
	}
	if p.Together && link.LTE != nil {
		return nil, fmt.Errorf("link %q is a device of a mobile network: a copy of it would share the cells", p.Link)
	}
	w := &flowRun{FlowSpec: p, topology: t, receiver: link.Ends[0], sender: link.Ends[1]}
	w.Marks = append(slices.Clone(p.Marks), p.Length)
	for i := range p.Sets {
		w.links = append(w.links, p.Link)
		if p.Together && i > 0 {
			other := *link
			other.Addresses = [2][]string{}
			w.links[i] = fmt.Sprintf("%s-%d", p.Link, i+1)
			t.Link[w.links[i]] = &other
		}
	}
	wire, err := link.Program(Downlink)
	if err != nil {
		return nil, err
	}
	w.propagation = wire.Base.Delay
	return w, t.Check()
}

// runFlowSetTries runs sets until they are not disturbed, or tries are used up.
func (w *flowRun) runFlowSetTries(ctx context.Context, rep int, sets []int, emit func(FlowResult)) error {
	for discarded := range cmp.Or(w.Tries, 1+maxDiscarded) {
		results, err := w.measureFlowSets(ctx, rep, sets)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if _, dead := w.Lab.Stats(false); dead != nil {
				return fmt.Errorf("%w (after: %w)", dead, err)
			}
		}
		for _, r := range results {
			r.Discarded = discarded
			if err != nil {
				r.Error = err.Error()
			}
			emit(r)
		}
		if !results[0].Disturbed {
			break
		}
	}
	return nil
}

// measureFlowSets runs sets once.
func (w *flowRun) measureFlowSets(ctx context.Context, rep int, sets []int) (results []FlowResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.Length+transferGrace)
	defer cancel()
	var flows []string // CONTROLLER@ADDRESS
	for _, i := range sets {
		results = append(results, FlowResult{Set: w.Sets[i], Rep: rep, Propagation: w.propagation})
		addr, err := w.topology.Addr(w.receiver, w.links[i])
		if err != nil {
			return results, err
		}
		for _, c := range strings.Split(strings.TrimPrefix(w.Sets[i], SamplesPrefix), "+") {
			flows = append(flows, c+"@"+addr.String())
		}
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		w.StopAll()
		err = errors.Join(err, w.Lab.Rewind(), w.Lab.WaitDrained(stop))
	}()
	hear, err := w.sinkOptions(ctx, sets[0])
	if err != nil {
		return results, err
	}
	if err := w.SpawnSelf(ctx, w.receiver, flowReportPort, append([]string{"flow-sink"}, hear...)...); err != nil {
		return results, err
	}
	argv := labCommand("flow-source", "--length", w.Length.String(), "--seed",
		strconv.FormatUint(w.FlowSpec.Seed+uint64(rep)<<16, 10))
	cmd, err := w.Lab.Command(ctx, w.sender, append(argv, flows...)...)
	if err != nil {
		return results, err
	}
	s := &flowSource{cmd: cmd}
	if err := s.startSource(); err != nil {
		return results, err
	}
	begin, err := s.beginFlows(w.Lab)
	if err == nil {
		starved := starvation.watchLongestWait()
		err = w.sampleLinks(ctx, begin, sets, results)
		most := starved()
		for i := range results {
			results[i].Starved = most
			results[i].Disturbed = results[i].Disturbed || most > maxStarved
		}
	}
	outcomes, e := s.waitOutcomes()
	if err = errors.Join(e, err); err == nil && len(outcomes) != len(flows) {
		err = fmt.Errorf("%d outcomes of %d flows", len(outcomes), len(flows))
	}
	if err != nil {
		return results, err
	}
	for i := range results {
		n := 1 + strings.Count(results[i].Set, "+")
		results[i].addOutcomes(outcomes[:n])
		outcomes = outcomes[n:]
	}
	return results, nil
}

// sinkOptions returns the options by which the sink gets feedback of the cells, if the set's link
// is a device of a network. It starts the decoder of samples where one is needed.
func (w *flowRun) sinkOptions(ctx context.Context, set int) ([]string, error) {
	lte := w.topology.Link[w.links[set]].LTE
	if lte == nil {
		return nil, nil
	}
	s, err := w.Lab.Stats(false)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(s.LTE, func(n LTEStats) bool { return n.Name == lte.Network })
	if i < 0 {
		return nil, fmt.Errorf("no network %q", lte.Network)
	}
	source := "unix:" + s.LTE[i].Messages
	if strings.HasPrefix(w.Sets[set], SamplesPrefix) {
		source = fmt.Sprintf("tcp:127.0.0.1:%d", flowDecoderPort)
		cellwatch, err := findProgram("cellwatch")
		if err != nil {
			return nil, err
		}
		argv := []string{cellwatch, "watch", "--serve", source}
		for _, c := range s.LTE[i].Samples {
			argv = append(argv, "--rate", strconv.Itoa(c.Rate), "unix:"+c.Socket)
		}
		if err := w.Spawn(ctx, w.receiver, flowDecoderPort, nil, argv...); err != nil {
			return nil, err
		}
	}
	if lte.Handover != "" { // the RNTI changes, and is found
		return []string{"--cells", source}, nil
	}
	return []string{"--cells", source, "--rnti", strconv.Itoa(int(lte.RNTI))}, nil
}

// flowSource is the program that sends.
type flowSource struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

// flowOutcome is Outcome of pbe/flow.
type flowOutcome struct {
	SlotBytes     []unit.Bytes `json:"slot_bytes"`
	Retransmitted int64        `json:"retransmitted_packets"`
}

// startSource starts the program and returns when all flows are connected.
func (s *flowSource) startSource() (err error) {
	s.cmd.Stderr, s.cmd.WaitDelay = &s.stderr, stopTimeout
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.out = bufio.NewReader(out)
	if line, err := s.out.ReadString('\n'); line != "ready\n" {
		return fmt.Errorf("flow source: %w: %s", errors.Join(err, s.cmd.Wait()), strings.TrimSpace(s.stderr.String()))
	}
	return nil
}

// beginFlows starts schedules and flows at one moment and returns it.
func (s *flowSource) beginFlows(l *Lab) (time.Time, error) {
	at := time.Now().Add(flowStartLead)
	if _, err := fmt.Fprintln(s.in, at.UnixNano()); err != nil {
		return at, err
	}
	time.Sleep(time.Until(at))
	return at, l.Start()
}

// waitOutcomes waits for the program's end and returns its outcomes.
func (s *flowSource) waitOutcomes() (outcomes []flowOutcome, err error) {
	err = json.NewDecoder(s.out).Decode(&outcomes)
	if e := s.cmd.Wait(); e != nil {
		err = fmt.Errorf("flow source: %w: %s", e, strings.TrimSpace(s.stderr.String()))
	}
	return outcomes, err
}

// sampleLinks samples the links each second and at the end of each phase.
func (w *flowRun) sampleLinks(ctx context.Context, begin time.Time, sets []int, results []FlowResult) error {
	lastAt := time.Since(begin)
	last, err := w.Lab.Stats(false)
	if err != nil {
		return err
	}
	phase, phaseAt, from := last, lastAt, 0
	for lastAt < w.Length {
		mark := w.Marks[from]
		next := min(lastAt.Truncate(time.Second)+time.Second, mark)
		select {
		case <-time.After(time.Until(begin.Add(next))):
		case <-ctx.Done():
			return ctx.Err()
		}
		at := max(time.Since(begin), lastAt+time.Millisecond)
		now, err := w.Lab.Stats(next == mark)
		if err != nil {
			return err
		}
		for i := range results {
			r, link := &results[i], w.links[sets[i]]
			line, before := now.Link(link).Lines[Downlink], last.Link(link).Lines[Downlink]
			r.Seconds = append(r.Seconds, FlowSecond{At: at.Seconds(), Queued: line.Queued,
				Rate: unit.RateOf(line.Count.Delivered.Bytes-before.Count.Delivered.Bytes, at-lastAt)})
			if next != mark {
				continue
			}
			before = phase.Link(link).Lines[Downlink]
			ph := FlowPhase{From: phaseAt.Seconds(), To: at.Seconds(), Delay: line.Delays,
				Rate:    unit.RateOf(line.Count.Delivered.Bytes-before.Count.Delivered.Bytes, at-phaseAt),
				Packets: line.Count.Delivered.Packets - before.Count.Delivered.Packets,
				Drops:   line.Count.QueueDrops.Packets - before.Count.QueueDrops.Packets,
				Losses:  line.Count.LossDrops.Packets - before.Count.LossDrops.Packets}
			if ph.Capacity, err = w.meanCapacity(link, phaseAt, at); err != nil {
				return err
			}
			if p := w.FlowSpec.Capacity; p > 0 {
				ph.Capacity = p
			}
			if ph.Capacity > 0 {
				ph.Used = float64(ph.Rate) / float64(ph.Capacity)
			}
			r.Phases = append(r.Phases, ph)
			if now.Lateness.Max >= r.Lateness.Max {
				r.Lateness = now.Lateness
			}
			r.Disturbed = r.Disturbed || now.Lateness.isDisturbed(at-phaseAt, len(w.At) > 0)
		}
		last, lastAt = now, at
		if next == mark {
			phase, phaseAt = now, at
			from++
		}
		if from == len(w.Marks) {
			return nil
		}
	}
	return nil
}

// meanCapacity returns the mean capacity of a link between two times.
func (w *flowRun) meanCapacity(link string, from, to time.Duration) (unit.Rate, error) {
	line, err := w.topology.newFluidLine(w.sender, link)
	if err != nil {
		return 0, err
	}
	before, now := 0.0, 0.0
	for at := boundStep; at <= to; at += boundStep {
		now = line.lineBytesUntil(at)
		if at <= from {
			before = now
		}
	}
	return unit.RateOf(unit.Bytes(now-before), to-from), nil
}

// addOutcomes adds the sink's counts to phases and seconds.
func (r *FlowResult) addOutcomes(outcomes []flowOutcome) {
	for _, o := range outcomes {
		r.Retransmitted = append(r.Retransmitted, o.Retransmitted)
		rate := func(from, to float64) unit.Rate {
			a, b := int(from/flowSlot.Seconds()+0.5), int(to/flowSlot.Seconds()+0.5)
			a, b = min(a, len(o.SlotBytes)), min(b, len(o.SlotBytes))
			var sum unit.Bytes
			for _, n := range o.SlotBytes[a:b] {
				sum += n
			}
			return unit.RateOf(sum, max(time.Duration((to-from)*1e9), time.Millisecond))
		}
		for i := range r.Phases {
			p := &r.Phases[i]
			p.Flows = append(p.Flows, rate(p.From, p.To))
		}
		from := 0.0
		for i := range r.Seconds {
			s := &r.Seconds[i]
			s.Flows = append(s.Flows, rate(from, s.At))
			from = s.At
		}
	}
}

// Jain returns Jain's fairness index of rates: 1 if equal, 1/n if one flow has everything.
func Jain(flows []unit.Rate) float64 {
	sum, squares := 0.0, 0.0
	for _, f := range flows {
		sum += float64(f)
		squares += float64(f) * float64(f)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(flows)) * squares)
}
