// SPDX-License-Identifier: Apache-2.0

// Package listen keeps the current state of the cells of one link of this device. It reads the
// control messages of a source, live or from a recording, and computes the feedback that each
// connection over that link returns with its acknowledgements. It stands between the decoder of
// messages and the connections of pbe/transport, which report to the senders with PBE-CC:
//
//	source ─ cell.Reader ─ Fusion ─ Monitor ─ Listener ─ Flow of each connection (cc.Receiver) ─ RADIO ─ cc.PBE
//
// Sources are trusted: see docs/explanation/security.md for what a false one can do.
package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// Tuning.
const (
	// An estimate is stale when its subframe is older than maxEstimateAge, or than the averaging
	// window.
	maxEstimateAge = cell.SilentAfter * time.Millisecond
	// flowIdleTimeout is how long after its last packet a flow affects the averaging window.
	flowIdleTimeout = 500 * time.Millisecond
	// Clocks of cell and device may differ by 1/maxClockDrift: 100 ppm. They differ by more while a
	// clock is being set, see steadyDelay.
	maxClockDrift = 10_000
	// Silence is reported after silenceTimeout and checked every silenceCheckInterval.
	silenceTimeout       = time.Second
	silenceCheckInterval = 250 * time.Millisecond
	// Wait between attempts to open the source.
	backoffMin = 250 * time.Millisecond
	backoffMax = 5 * time.Second
	// maxSubframesPerSecond bounds the subframes read in a second, and maxRowsPerSecond the rows
	// that they make, since one subframe completes all rows before it. Four times the rate of a
	// cell is enough to catch up.
	maxSubframesPerSecond = maxRowsPerSecond * cell.MaxCells
	maxRowsPerSecond      = 4 * 1000
	// initialWindow is the averaging window until a flow reports its round trip.
	initialWindow    = 40 * time.Millisecond
	subframeDuration = time.Millisecond
)

// Config configures a Listener.
type Config struct {
	Source Source
	// RNTI is the device's name in its cells; 0 takes it from the source. If the source does not name it, or
	// the name is stale, it is found by what arrives (cell.Monitor.CompareArrivals).
	RNTI cell.RNTI
	// Cells are the cells of the source that may serve this device, the primary one first. Empty
	// means all, by number.
	Cells []cell.ID
	// OnSilence, if not nil, receives the reason when the cells fall silent, and nil when messages
	// arrive again or for the first time. The goroutine of Run calls it.
	OnSilence func(reason error)
	// OnFound, if not nil, receives the RNTI when another one was found by what arrives, a quarter of a second
	// later at most. The goroutine of Run calls it.
	OnFound func(cell.RNTI)
}

// Listener listens to the cells of one link. Make one with New; its methods are safe for concurrent
// use.
type Listener struct {
	cfg   Config
	open  func(context.Context) (r io.ReadCloser, isFile bool, err error) // replaced in tests
	epoch time.Time

	mu           sync.Mutex
	device       cc.Device
	flows        map[*Flow]bool
	prb          [cell.MaxCells]uint8
	fusion       *cell.Fusion // nil before the first head is read
	monitor      *cell.Monitor
	self         cell.RNTI // of this device, 0 if unknown
	sourceSelf   cell.RNTI // as the source names it
	found        cell.RNTI // self, if it was found by what arrives
	window       time.Duration
	estimate     cell.Estimate // as of newestRow
	newestRow    int64         // number of the newest row; valid if rows > 0
	rows         int
	estimateRows int           // rows in estimate
	baseDelay    time.Duration // minimum of (arrival of a row − its number), slowly rising
	baseUpdated  time.Duration // when baseDelay was updated
	steadyDelay  steadyDelay
	primary      cell.ID
	sourceErr    error // why the source cannot be read, or nil
}

// New returns a Listener that is idle until Run.
func New(cfg Config) *Listener {
	return &Listener{cfg: cfg, open: cfg.Source.Open, epoch: time.Now(), flows: map[*Flow]bool{}, self: cfg.RNTI,
		window: initialWindow}
}

// errRecordingEnded is the reason for silence after a recording.
var errRecordingEnded = fault.New(fault.NotFound, errors.New("the recording has ended"),
	"a file is played once; use a socket or FIFO for live messages")

// Run reads the source until ctx ends and reopens it whenever it ends. It plays a recording in a
// file once, at its original speed.
func (l *Listener) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { l.watchSilence(ctx) })
	var wait backoff.Backoff
	for ctx.Err() == nil {
		received, err := l.readSource(ctx)
		l.mu.Lock()
		l.sourceErr = err
		l.mu.Unlock()
		if errors.Is(err, errRecordingEnded) {
			return
		}
		if received {
			wait.Reset()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Double(backoffMin, backoffMax)):
		}
	}
}

// readSource reads the source until it ends. It reports whether any message arrived.
func (l *Listener) readSource(ctx context.Context) (received bool, err error) {
	in, isFile, err := l.open(ctx)
	if err != nil {
		return false, err
	}
	defer in.Close()
	r, err := cell.NewReader(in)
	if err != nil {
		return false, err
	}
	if err := l.startRecording(r); err != nil {
		return false, err
	}
	p := pacer{isFile: isFile}
	for {
		s, err := r.Read()
		switch {
		case err == io.EOF && isFile:
			return received, errRecordingEnded
		case err == io.EOF:
			return received, fault.New(fault.Unreachable, errors.New("the source of control messages has ended"),
				"check that the decoder is still running")
		case err != nil && isFile && ctx.Err() == nil: // a recording is not played again
			return received, fmt.Errorf("%w, early: %w", errRecordingEnded, err)
		case err != nil:
			return received, err
		}
		if err := p.waitForSubframe(ctx, s.Number); err != nil {
			return received, err
		}
		received = true
		p.rows += l.processSubframe(r, s)
	}
}

// pacer limits the rate of subframes.
type pacer struct {
	isFile  bool // a recording: each subframe at its original time
	started bool
	start   time.Time // when number from was read
	from    int64
	last    int64
	taken   int // subframes since start, for a live source
	rows    int // rows since start
}

// waitForSubframe waits until a subframe may be taken: one of a file at its time, one of a live
// source at once unless this second's limits are reached. It returns ctx's error if ctx ends first.
func (p *pacer) waitForSubframe(ctx context.Context, number int64) error {
	now := time.Now()
	const second = int64(time.Second / subframeDuration)
	var hold time.Duration
	if p.isFile {
		if !p.started || number < p.last-second || number > p.last+second { // the decoder's count restarted
			p.start, p.from = now, number
		}
		p.last = number
		hold = p.start.Add(time.Duration(number-p.from) * subframeDuration).Sub(now)
	} else {
		if now.Sub(p.start) >= time.Second {
			p.start, p.taken, p.rows = now, 0, 0
		}
		if p.taken++; p.taken > maxSubframesPerSecond || p.rows >= maxRowsPerSecond {
			hold = p.start.Add(time.Second).Sub(now)
		}
	}
	p.started = true
	if hold <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(hold)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// startRecording resets the state for a new recording or a reopened source.
func (l *Listener) startRecording(r *cell.Reader) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	cells := l.cfg.Cells
	if len(cells) == 0 {
		for c, prb := range r.PRB {
			if prb > 0 {
				cells = append(cells, cell.ID(c))
			}
		}
	}
	m := cell.NewMonitor()
	m.CompareArrivals(l.cfg.RNTI == 0)
	for _, c := range cells {
		if int(c) >= len(r.PRB) || r.PRB[c] == 0 || !m.AddCell(c, l.self, cell.DefaultErrorRate) {
			return fault.New(fault.Config,
				fmt.Errorf("cell %d is missing in the source of control messages, or configured twice", c),
				"list the cells of the source, the primary one first")
		}
	}
	if len(cells) == 0 {
		return fault.New(fault.Config, errors.New("the source of control messages has no cells"),
			"check that the decoder receives a cell")
	}
	l.prb, l.fusion, l.monitor, l.rows, l.estimateRows, l.sourceErr = r.PRB, cell.NewFusion(cells...), m, 0, 0, nil
	l.estimate, l.primary, l.sourceSelf = cell.Estimate{}, cells[0], 0
	return nil
}

// processSubframe adds a subframe and returns the number of rows that it completes.
func (l *Listener) processSubframe(r *cell.Reader, s cell.Subframe) (rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.RNTI == 0 && r.Self != l.sourceSelf {
		l.self, l.sourceSelf, l.found = r.Self, r.Self, 0
		l.monitor.SetSelf(r.Self)
	}
	now := time.Since(l.epoch)
	l.monitor.SetWindow(l.averagingWindow(now))
	l.fusion.Add(s, func(row *cell.Row) {
		l.monitor.Add(row)
		if self := l.monitor.Self(); self != l.self {
			l.self, l.found = self, self
		}
		at := now - time.Duration(row.Number)*subframeDuration
		if restarted := row.Number <= l.newestRow ||
			row.Number > l.newestRow+int64(time.Second/subframeDuration); l.rows == 0 || restarted {
			l.baseDelay, l.steadyDelay = at, steadyDelay{} // the decoder has reacquired its cells
		} else {
			l.baseDelay = min(l.baseDelay+(now-l.baseUpdated)/maxClockDrift, at)
		}
		if row.Received != [cell.MaxCells]bool{} {
			if minDelay, ok := l.steadyDelay.addRowDelay(now, at); ok {
				l.baseDelay = max(l.baseDelay, minDelay)
			}
		}
		l.baseUpdated, l.newestRow = now, row.Number
		l.rows++
		rows++
	})
	return rows
}

// averagingWindow returns the least round trip of the active flows. mu must be held.
func (l *Listener) averagingWindow(now time.Duration) time.Duration {
	shortest := time.Duration(0)
	for f := range l.flows {
		if f.rtprop > 0 && now-f.lastPacket <= flowIdleTimeout && (shortest == 0 || f.rtprop < shortest) {
			shortest = f.rtprop
		}
	}
	if shortest > 0 {
		l.window = shortest
	}
	return l.window
}

// estimateAge returns how long ago all cells were last received, less the usual delay of messages.
// mu must be held.
func (l *Listener) estimateAge(now time.Duration) time.Duration {
	return now - l.baseDelay - time.Duration(l.newestRow)*subframeDuration
}

// checkCurrent returns nil if the estimate is current, else the reason. mu must be held.
func (l *Listener) checkCurrent(now time.Duration) error {
	switch age := l.estimateAge(now); {
	case l.rows == 0 && l.sourceErr != nil:
		return l.sourceErr
	case l.rows == 0:
		return fault.New(fault.Timeout, errors.New("no control messages yet"),
			"check that the decoder receives the cells")
	case !l.self.IsUser():
		return errUnknownRNTI
	case l.isSelfStale() && l.cfg.RNTI != 0:
		return fault.New(fault.Config, fmt.Errorf("RNTI %#x is stale: its grants do not explain what arrives",
			uint16(l.self)), "the network gives a new one with each connection: leave rnti out, then it is found")
	case l.isSelfStale():
		return fault.New(fault.Timeout, fmt.Errorf("RNTI %#x is stale: its grants do not explain what arrives",
			uint16(l.self)), "the new one is searched for; it is found while data arrive over these cells")
	case age > max(maxEstimateAge, l.window) && l.sourceErr != nil:
		return l.sourceErr
	case age > max(maxEstimateAge, l.window):
		return fault.New(fault.Timeout, fmt.Errorf("the newest control messages are %v old",
			age.Round(10*time.Millisecond)), "check that the decoder runs and keeps up")
	case l.newestEstimate().Cells == 0:
		return fault.New(fault.Timeout, fmt.Errorf("no messages of the primary cell %d", l.primary),
			"check that the decoder receives it, and that the primary cell is listed first")
	default:
		return nil
	}
}

// errUnknownRNTI is the reason for no feedback before the device's RNTI is known.
var errUnknownRNTI = fault.New(fault.Config, errors.New("the RNTI of this device is not known yet"),
	"it is found while data arrive over the cells; a source that asks the modem knows it at once")

// isSelfStale reports whether the RNTI is known to be wrong. mu must be held.
func (l *Listener) isSelfStale() bool { return l.monitor != nil && l.monitor.IsSelfStale() }

// newestEstimate returns the estimate as of the last row. mu must be held.
func (l *Listener) newestEstimate() cell.Estimate {
	if l.estimateRows != l.rows {
		l.estimate, l.estimateRows = l.monitor.Estimate(), l.rows
	}
	return l.estimate
}

// watchSilence reports when messages stop and when they arrive again.
func (l *Listener) watchSilence(ctx context.Context) {
	t := time.NewTicker(silenceCheckInterval)
	defer t.Stop()
	const unknown, current, silent = 0, 1, 2
	lastReport, lastCurrent := unknown, time.Now() // the last report, and when the estimate was last current
	lastFound := cell.RNTI(0)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			l.mu.Lock()
			reason, found := l.checkCurrent(time.Since(l.epoch)), l.found
			if errors.Is(reason, errUnknownRNTI) {
				reason = nil // the messages arrive; it is found with the first data
			}
			l.mu.Unlock()
			if found != lastFound && found != 0 && l.cfg.OnFound != nil {
				l.cfg.OnFound(found)
			}
			lastFound = found
			switch {
			case reason == nil:
				if lastCurrent = now; lastReport != current {
					lastReport = current
					l.reportSilence(nil)
				}
			case lastReport != silent && now.Sub(lastCurrent) >= silenceTimeout:
				lastReport = silent
				l.reportSilence(reason)
			}
		}
	}
}

// reportSilence passes on why no messages arrive, or nil if they do again.
func (l *Listener) reportSilence(reason error) {
	if l.cfg.OnSilence != nil {
		l.cfg.OnSilence(reason)
	}
}

// State is the current state of a Listener.
type State struct {
	Source Source
	// Silent is why the estimate is not current, or nil.
	Silent error
	// Self is the device's RNTI, 0 if unknown. Found reports that it was found by what arrives.
	Self  cell.RNTI
	Found bool
	// PRB is the width of each cell of the source.
	PRB [cell.MaxCells]uint8
	// Estimate is the newest one, however old.
	Estimate cell.Estimate
	// OtherApps is the rate at which the device receives other data over the cells than those of its flows.
	OtherApps unit.Rate
	// Flows counts the flows with recent packets: they share the capacity.
	Flows int
}

// State returns the current state.
func (l *Listener) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.epoch)
	s := State{Source: l.cfg.Source, Silent: l.checkCurrent(now), Self: l.self, Found: l.found != 0,
		PRB: l.prb}
	if l.rows > 0 {
		s.Estimate, s.OtherApps = l.newestEstimate(), l.monitor.OtherRate()
	}
	for f := range l.flows {
		if f.lastPacket > 0 && now-f.lastPacket <= flowIdleTimeout {
			s.Flows++
		}
	}
	return s
}

// Flow is one connection over the link, to which the capacity is reported.
type Flow struct {
	listener   *Listener
	receiver   *cc.Receiver
	rtprop     time.Duration
	lastPacket time.Duration // time of the last packet; 0 if none
}

// Flow adds a connection. The flows of a device split its capacity (cc.Device).
func (l *Listener) Flow() *Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &Flow{listener: l, receiver: l.device.AddReceiver()}
	l.flows[f] = true
	return f
}

// OnPacket returns the feedback for a packet with the one-way delay oneWay, by clocks that need not
// agree. rtprop is the least round trip that the sender knows, 0 for none; it is limited to
// cell.MaxWindow. size counts the packet's bytes with headers. The first argument is the time of the
// connection's clock and is ignored, since the flows of a device do not share it. Without current estimates the
// feedback has a TransportRate of 0.
func (f *Flow) OnPacket(_, oneWay, rtprop time.Duration, size unit.Bytes) cc.CellFeedback {
	l := f.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.epoch)
	f.lastPacket, f.rtprop = now, min(rtprop, cell.MaxWindow*subframeDuration)
	if l.rows > 0 {
		l.monitor.AddArrival(int64((now-l.baseDelay)/subframeDuration), size)
	}
	c := cc.CellRates{Invalid: l.isSelfStale()}
	if l.checkCurrent(now) == nil {
		e := l.newestEstimate()
		c = cc.CellRates{Transport: e.Transport, Fair: e.FairTransport, Activated: e.Activated,
			Inactive: e.Inactive, Full: e.Full}
	}
	return f.receiver.OnPacket(now, oneWay, c)
}

// Close removes the connection.
func (f *Flow) Close() {
	f.listener.mu.Lock()
	defer f.listener.mu.Unlock()
	f.listener.device.RemoveReceiver(f.receiver)
	delete(f.listener.flows, f)
}
