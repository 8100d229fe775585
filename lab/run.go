// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/lab/app"
)

// Result is one transfer. It counts as a measurement unless it is Disturbed or has an Error.
type Result struct {
	Scheme    string     `json:"scheme"`
	Rep       int        `json:"rep"`
	Direction string     `json:"direction"` // get, put
	Bytes     unit.Bytes `json:"bytes"`     // of each stream
	Streams   int        `json:"streams"`   // concurrent
	// Items is when each item was complete, in seconds from the start; Bytes is the sum of all.
	// Requests counts the web server's requests by the device whose link they came from.
	Items    []float64      `json:"item_seconds,omitempty"`
	Requests map[string]int `json:"requests,omitempty"`
	// Objects is the times of the objects, if the spec has Objects.
	Objects    *ObjectTimes `json:"objects,omitempty"`
	Seconds    float64      `json:"seconds"` // curl's time_total
	Bound      float64      `json:"bound_seconds"`
	Efficiency float64      `json:"efficiency"` // bound / seconds
	FirstByte  float64      `json:"first_byte_seconds"`
	LongestGap float64      `json:"longest_gap_seconds"` // between two reads of the receiver, after the first
	SHA        bool         `json:"sha256_ok"`
	Unchecked  bool         `json:"unchecked,omitempty"` // only the size was checked, see RunSpec
	// Devices is the IP bytes that arrived through primary or helper, in the direction of the data.
	Devices map[string]unit.Bytes `json:"device_bytes"`
	Links   map[string]unit.Bytes `json:"link_bytes"` // likewise over each shaped link
	// Delays are the delays of packets over each shaped link, in the direction of the data.
	Delays map[string]Delays `json:"link_delays,omitempty"`
	Pings  map[string]Ping   `json:"pings,omitempty"` // by link, if the spec asks for them
	Drops  int64             `json:"queue_drops"`     // packets, all links
	// Disturbed says that the emulator was late or a program starved: the transfer is discarded and
	// repeated.
	Disturbed bool     `json:"disturbed"`
	Discarded int      `json:"discarded"` // disturbed tries before this one
	Lateness  Lateness `json:"lateness"`
	// Starved is the longest time that an ordinary program waited for a processor, whichever
	// program. Waits is how long the threads of each node's programs waited, added up.
	Starved time.Duration      `json:"starved_ns"`
	Waits   map[string]float64 `json:"processor_wait_seconds,omitempty"`
	// LinkSilence is the longest time between two packets on any shaped link.
	LinkSilence time.Duration `json:"link_silence_ns"`
	// The following come from mpbond's processes, see mpbondScheme.Verify.
	//
	// EndSpread is the time between the last new bytes of the subflows.
	EndSpread float64 `json:"subflow_end_spread_seconds,omitempty"`
	// Duplicate counts bytes that arrived more than once; for onload: that were fetched or sent in
	// vain.
	Duplicate  unit.Bytes            `json:"duplicate_bytes,omitempty"`
	Reinjected map[string]unit.Bytes `json:"reinjected_bytes,omitempty"` // by cause, both ends
	PeakRSS    map[string]unit.Bytes `json:"peak_rss_bytes,omitempty"`   // by node
	// CPU is the processor time in seconds that the programs of a node took while the client ran.
	// It omits kernel work for packets that no program asked for. ClientCPU is that of the client,
	// in the primary; 0 with a browser, which is not measured.
	CPU       map[string]float64 `json:"cpu_seconds,omitempty"`
	ClientCPU float64            `json:"client_cpu_seconds,omitempty"`
	Notes     map[string]any     `json:"notes,omitempty"`
	// Video is the report of a player. Seconds is then the time of the whole playback.
	Video *Playback `json:"video,omitempty"`
	// Forecasts are mpbond's forecasts of the answers of an app's script, the newest first.
	Forecasts []api.CheckedForecast `json:"forecasts,omitempty"`
	// App records the requests of an app's script. Seconds is then the time of the script, and Bytes
	// counts both directions.
	App *app.Log `json:"app,omitempty"`
	// Handshakes and Held are set if the spec asks for them.
	Handshakes *HandshakeLog `json:"handshakes,omitempty"`
	Held       *HeldLog      `json:"held,omitempty"`
	// Traffic is the traffic of primary and helpers while the client ran, if the spec asks for it.
	Traffic []Traffic `json:"traffic,omitempty"`
	// Virtual is the result of a transfer in virtual time, or of flows. Then only scheme,
	// repetition, bytes, seconds and lateness are set besides.
	Virtual *VirtualResult `json:"virtual,omitempty"`
	// Machine is that of the worker that made the transfer, if it is one of a queue.
	Machine *Machine `json:"machine,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// errTooLong is the error of transfers that exceeded their limit. A scheme with maxTimeouts of them
// is given up.
var errTooLong = errors.New("it took too long")

const maxTimeouts = 2

// maxDiscarded is how often a disturbed transfer is repeated before the machine is considered
// unfit.
const maxDiscarded = 5

// Run brings up the spec's lab and makes the transfers, schemes interleaved. It passes each result
// to emit and takes everything down again, also when ctx ends.
func Run(ctx context.Context, p RunSpec, emit func(Result)) error {
	s, err := p.newRunSession()
	if err != nil {
		return err
	}
	return s.runInNewLab(ctx, emit)
}

// runInNewLab runs the session in a new lab.
func (s *session) runInNewLab(ctx context.Context, emit func(Result)) error {
	options, done, err := s.captureHeaders(Options{Name: "run", Pcap: s.spec.Pcap})
	if err != nil {
		return err
	}
	defer done()
	return withBenchInNewLab(s.topology, options, s.spec.Seed, func(b *Bench) error {
		for _, w := range b.Lab.Warnings {
			fmt.Fprintln(os.Stderr, "warning:", w)
		}
		return s.runSpecTransfers(ctx, b, emit)
	})
}

// runSpecTransfers makes the transfers of the spec.
func (s *session) runSpecTransfers(ctx context.Context, b *Bench, emit func(Result)) error {
	p := s.spec
	if err := cmp.Or(b.prepareDir(), b.makeTransferFiles(p)); err != nil {
		return err
	}
	for id := range p.pendingTransfers(p.Skip) {
		if s.timeouts[id.scheme] >= maxTimeouts {
			continue
		}
		t := Transfer{id.scheme, id.rep, p.Size, max(1, p.Streams), p.Items, p.Upload, p.Unchecked, p.Length, p.Video,
			nil}
		if p.App != nil {
			script := p.App(id.rep)
			t.App = &script
		}
		if len(p.Items) > 0 {
			t.Size = p.totalBytes()
		}
		if err := s.runTransferInTurn(ctx, b, t, emit); err != nil {
			return err
		}
	}
	return nil
}

// makeTransferFiles makes the files that the spec's transfers fetch.
func (b *Bench) makeTransferFiles(p RunSpec) error {
	for i, n := range p.Items {
		if _, _, err := b.makeItemFile(i, n); err != nil {
			return err
		}
	}
	if b.hasItems = len(p.Items) > 0; b.hasItems {
		return nil
	}
	if p.App != nil {
		return b.makeAppFiles(p)
	}
	sizes := []unit.Bytes{p.Size}
	if p.Video != nil {
		sizes = nil
		for level := range p.Video.Ladder {
			sizes = append(sizes, p.Video.segmentSizeAt(level))
		}
	}
	for _, n := range sizes {
		if _, _, err := b.MakeFile(n); err != nil {
			return err
		}
	}
	return nil
}

// runTransferInTurn makes one transfer when it is its turn.
func (s *session) runTransferInTurn(ctx context.Context, b *Bench, t Transfer, emit func(Result)) error {
	if s.spec.WaitTurn != nil {
		done, err := s.spec.WaitTurn(ctx, t.Scheme)
		if err != nil {
			return err
		}
		defer done()
	}
	return s.runTransferTries(ctx, b, t, emit)
}

// runTransferTries makes one transfer, and repeats it if it was disturbed or as RunSpec.Tries says.
func (s *session) runTransferTries(ctx context.Context, b *Bench, t Transfer, emit func(Result)) error {
	tries := cmp.Or(s.spec.Tries, 1+maxDiscarded)
	for discarded := range tries {
		if s.spec.Trace != "" {
			b.LogDir = filepath.Join(s.spec.Trace, fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Scheme, ":", "-"), t.Rep))
			if err := os.MkdirAll(b.LogDir, 0o755); err != nil {
				return err
			}
		}
		r, err := s.runSchemeTransfer(ctx, b, t)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			r.Error = err.Error()
		}
		r.Discarded, r.Bound = discarded, s.boundSeconds(r)
		if s.spec.Objects > 0 {
			r.Objects = s.objectTimes(r)
		}
		if r.Seconds > 0 {
			r.Efficiency = r.Bound / r.Seconds
		}
		emit(r)
		if err != nil {
			if _, dead := b.Lab.Stats(false); dead != nil {
				return fmt.Errorf("%w (after: %w)", dead, err)
			}
		}
		if errors.Is(err, errTooLong) {
			s.timeouts[t.Scheme]++
			break
		}
		again := r.Disturbed && !s.spec.KeepDisturbed || err != nil && s.spec.Tries > 0
		if !again || s.spec.Skip != nil && s.spec.Skip(t.Scheme, t.Rep) {
			break
		}
	}
	return nil
}

// boundSeconds returns the least time, in seconds, in which the links could have carried the
// transferred bytes.
func (s *session) boundSeconds(r Result) float64 {
	if s.spec.Length == 0 && s.spec.Stride == 0 {
		return s.bound.Seconds()
	}
	d, err := boundStartingAt(s.topology, r.Bytes, s.spec.Upload, s.spec.startOffset(r.Rep))
	if err != nil {
		return 0
	}
	if s.spec.Video != nil {
		d = max(d, s.spec.Length)
	}
	return d.Seconds()
}

// drainTimeout bounds the wait for queues between transfers.
const drainTimeout = 30 * time.Second

// runSchemeTransfer starts the scheme, makes one transfer and stops the scheme.
func (s *session) runSchemeTransfer(ctx context.Context, b *Bench, t Transfer) (r Result, err error) {
	scheme := s.schemes[t.Scheme]
	r = Result{Scheme: t.Scheme, Rep: t.Rep, Bytes: t.Size, Streams: t.Streams, Unchecked: t.Unchecked,
		Direction: "get"}
	if t.Upload {
		r.Direction = "put"
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limits[t.Scheme], fmt.Errorf("%w: %v", errTooLong,
		s.limits[t.Scheme]))
	defer cancel()
	defer func() {
		if ctx.Err() != nil && err != nil {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		stop, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		stopped := scheme.Stop(stop, b)
		b.StopAll()
		err = cmp.Or(err, stopped, b.Lab.Rewind(), b.Lab.WaitDrained(stop), b.mergeTraces())
	}()
	idle, err := b.Lab.Stats(false) // before programs run
	if err != nil {
		return r, err
	}
	if err := scheme.Start(ctx, b); err != nil {
		return r, err
	}
	if err := b.Lab.WaitDrained(ctx); err != nil { // kernels send packets when links come up, and wake radios with them
		return r, err
	}
	if t.App != nil {
		if err := b.waitRadiosAsleep(ctx, idle); err != nil {
			return r, err
		}
	}
	if err := s.measureTransfer(ctx, b, t, &r); err != nil {
		return r, err
	}
	if b.hasItems {
		if err := r.countRequests(b); err != nil {
			return r, err
		}
	}
	return r, scheme.Verify(ctx, b, &r)
}

// measureTransfer runs the client and fills in the result.
func (s *session) measureTransfer(ctx context.Context, b *Bench, t Transfer, r *Result) error {
	c, err := newClientRun(b.Lab.Command(ctx, "primary", s.schemes[t.Scheme].Client(b, t)...))
	if err != nil {
		return err
	}
	if t.App != nil && t.App.Browser != "" {
		defer c.endInput()
		if err := c.startBeforehand(); err != nil {
			return err
		}
	}
	pinged := func() (map[string]Ping, error) { return nil, nil }
	if s.spec.Ping > 0 {
		if pinged, err = b.startPings(ctx, s.spec.Ping); err != nil {
			return err
		}
		defer pinged() // also if the transfer fails
	}
	before, err := b.Lab.Stats(false)
	if err != nil {
		return err
	}
	if err := s.recordTraffic(b, nil); err != nil {
		return err
	}
	begin, used, waited, starved := time.Now(), b.cpuTimeByNode(), b.processorWaits(), starvation.watchLongestWait()
	if err := b.Lab.StartAt(s.spec.startOffset(t.Rep)); err != nil {
		starved()
		return err
	}
	stopReports, heldLog := s.startReports(ctx, b, t), s.sampleHeld(ctx, b, t)
	clientErr := s.runTransferClient(b, t, c, before)
	r.Starved, r.Held = starved(), heldLog()
	if err := stopReports(); err != nil && clientErr == nil {
		clientErr = fmt.Errorf("report the cells of links: %w", err)
	}
	if c.cmd.Process == nil {
		return clientErr // it did not start
	}
	took := time.Since(begin)
	r.ClientCPU, r.CPU = c.cpuTime().Seconds(), map[string]float64{}
	for node, t := range b.cpuTimeByNode() {
		r.CPU[node] = max(0, t-used[node]).Seconds() // a killed program has no times
	}
	r.Waits = map[string]float64{}
	for node, t := range b.processorWaits() {
		r.Waits[node] = max(0, t-waited[node]).Seconds()
	}
	after, err := b.Lab.Stats(false)
	if err != nil {
		return err
	}
	r.countLinks(b.Lab.Topology, before, after)
	if r.Pings, err = pinged(); err != nil {
		return fmt.Errorf("pings: %w", err)
	}
	if err := cmp.Or(s.recordTraffic(b, r), s.readHandshakes(b, begin, r), s.readHeld(b, begin, r)); err != nil {
		return err
	}
	captureLost := after.PcapLost > before.PcapLost && s.captures != ""
	r.Disturbed = captureLost || after.Lateness.isDisturbed(took, len(s.spec.At) > 0) || s.starvedTooLong(r.Starved)
	if clientErr == nil {
		clientErr = s.evaluateClient(ctx, b, t, c, r)
	}
	// Changes at a fixed time must not happen before the client has started.
	if clientErr == nil && c.report == nil && t.Length == 0 && len(s.spec.At) > 0 &&
		took.Seconds()-r.Seconds > maxClientStartup.Seconds() {
		r.Disturbed = true
	}
	return clientErr
}

// starvedTooLong reports whether a wait disturbs a transfer. Over links without limits the programs
// themselves use all processors.
func (s *session) starvedTooLong(d time.Duration) bool {
	return d > maxStarved && s.topology.hasShapedLink()
}

// runTransferClient starts the client, kills nodes on time and waits for the client's end.
func (s *session) runTransferClient(b *Bench, t Transfer, c *clientRun, before Stats) error {
	if err := c.beginTransfer(); err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	for _, k := range s.kills {
		timer := time.AfterFunc(k.at, func() { b.Lab.killPrograms(k.node) })
		defer timer.Stop()
	}
	meter := &byteCounter{}
	stop := s.startTransferWatch(b, t, before, meter)
	err := c.readOutput(t, s.schemes[t.Scheme].Capabilities().ownReport, meter)
	stop()
	if c.input != nil && err == nil {
		return nil // it has reported, and ends when the clocks have stopped
	}
	if e := c.waitClientExit(); e != nil && !(t.Video == nil && t.Length > 0 &&
		(t.Upload || c.cmd.ProcessState.ExitCode() == curlTimedOut)) {
		err = fmt.Errorf("client: %w", e)
	}
	return err
}

// evaluateClient takes the client's report into the result and checks that all is right.
func (s *session) evaluateClient(ctx context.Context, b *Bench, t Transfer, c *clientRun, r *Result) error {
	switch {
	case t.Video != nil:
		return r.evaluatePlayback(c.report)
	case t.App != nil:
		return r.evaluateApp(*t.App, c.report)
	case s.schemes[t.Scheme].Capabilities().ownReport:
		return r.evaluateOnload(b, t, c.report)
	case t.Length > 0:
		return r.evaluatePartial(ctx, b, t, c.received)
	case len(t.Items) > 0:
		return r.evaluateItems(b, t, c.received, c.stderr.String())
	}
	return r.evaluateDownload(b, c.received, c.stderr.String())
}

// maxClientStartup is how long a client may take to start and to end besides its transfer. It takes
// 20 to 50 ms on an idle machine.
const maxClientStartup = 150 * time.Millisecond

// evaluateDownload takes curl's report into the result and checks that the content is right.
func (r *Result) evaluateDownload(b *Bench, got Received, report string) error {
	_, want, err := b.MakeFile(r.Bytes)
	if err != nil {
		return err
	}
	said, err := parseCurlReport(report)
	if err != nil {
		return err
	}
	r.Seconds, r.FirstByte, r.LongestGap = said.total, said.first, got.Gap
	switch {
	case said.code != 200:
		return fmt.Errorf("the web server answered %d", said.code)
	case r.Unchecked && said.bytes != r.Bytes:
		return fmt.Errorf("the file arrived with %d bytes, not %d", said.bytes, r.Bytes)
	case r.Unchecked:
		return nil
	}
	if r.SHA = got.SHA == hex.EncodeToString(want[:]); !r.SHA {
		return fmt.Errorf("the file arrived with the wrong SHA-256 (%d bytes)", got.Bytes)
	}
	return nil
}

// evaluatePartial checks a transfer that was ended before it was complete.
func (r *Result) evaluatePartial(ctx context.Context, b *Bench, t Transfer, got Received) error {
	if t.Upload {
		url := fmt.Sprintf("http://127.0.0.1:%d%s", sinkPort, lastReportPath)
		text, err := b.Run(ctx, "web", "curl", "-sS", "--max-time", "10", url)
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			return fmt.Errorf("report of the sink: %w", err)
		}
	}
	r.Bytes, r.Seconds, r.LongestGap = unit.Bytes(got.Bytes), t.Length.Seconds(), got.Gap
	want, err := b.hashPrefix(t.Size, got.Bytes)
	if err != nil {
		return err
	}
	switch r.SHA = got.SHA == hex.EncodeToString(want); {
	case got.Bytes == 0:
		return fmt.Errorf("nothing arrived in %v", t.Length)
	case got.Bytes == int64(t.Size):
		return fmt.Errorf("the file of %v was too short for %v", t.Size, t.Length)
	case !r.SHA:
		return fmt.Errorf("the first %d bytes arrived with the wrong SHA-256", got.Bytes)
	}
	return nil
}

// Sample is a snapshot of a running transfer.
type Sample struct {
	Scheme  string
	Elapsed time.Duration
	Bytes   unit.Bytes            // received by the client; 0 if unknown
	Devices map[string]unit.Bytes // as in Result
}

// watchEvery is the interval of samples.
const watchEvery = 250 * time.Millisecond

// startTransferWatch passes samples of a transfer to the spec's Watch, if set, until stop is
// called.
func (s *session) startTransferWatch(b *Bench, t Transfer, before Stats, m *byteCounter) (stop func()) {
	if s.spec.Watch == nil {
		return func() {}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(ended)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
			}
			if now, err := b.Lab.Stats(false); err == nil {
				s.spec.Watch(Sample{t.Scheme, time.Since(begin), m.countedBytes(), deviceBytes(b.Lab.Topology, t.Upload,
					before, now)})
			}
		}
	}()
	return func() { close(end); <-ended }
}

// countLinks fills in the counters of the links.
func (r *Result) countLinks(t *Topology, before, after Stats) {
	r.Lateness, r.LinkSilence = after.Lateness, after.Silence
	r.Devices, r.Links = deviceBytes(t, r.Direction == "put", before, after), map[string]unit.Bytes{}
	r.Delays = map[string]Delays{}
	towards := Downlink
	if r.Direction == "put" {
		towards = Uplink
	}
	for _, l := range after.Links {
		if l.Shaped {
			r.Delays[l.Name] = l.Lines[towards].Delays
			r.Links[l.Name] = l.Lines[towards].Count.Delivered.Bytes -
				before.Link(l.Name).Lines[towards].Count.Delivered.Bytes
		}
		for i, s := range l.Lines {
			r.Drops += s.Count.QueueDrops.Packets - before.Link(l.Name).Lines[i].Count.QueueDrops.Packets
		}
	}
}

// deviceBytes returns what arrived through each device in the direction of the data. Bytes through
// a helper have crossed both its links.
func deviceBytes(t *Topology, upload bool, before, after Stats) map[string]unit.Bytes {
	from, to := "server", "primary"
	if upload {
		from, to = to, from
	}
	carried := func(sender, receiver string) (sum unit.Bytes) {
		for _, link := range t.linksBetween(sender, receiver) {
			if end, err := t.linkEndIndex(sender, link); err == nil {
				sum += after.Link(link).Lines[end].Count.Delivered.Bytes -
					before.Link(link).Lines[end].Count.Delivered.Bytes
			}
		}
		return sum
	}
	devices := map[string]unit.Bytes{"primary": carried(from, to)}
	for _, h := range t.Helpers() {
		devices[h] = min(carried(from, h), carried(h, to))
	}
	return devices
}

// killPrograms kills all programs in a node.
func (l *Lab) killPrograms(node string) {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", l.info.PID, l.info.NS[node]), &st) == nil {
		killInside(map[uint64]bool{st.Ino: true})
	}
}
