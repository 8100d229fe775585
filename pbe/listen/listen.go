// Package listen keeps what the cells of one link of this device say now. It reads
// the control messages of a source, as they come or as a recording tells, and says to
// each connection over that link what goes back with its acknowledgements. It stands
// between whoever decodes messages and the connections of pbe/transport, which tell the
// senders, whose controller is PBE-CC's:
//
//	source ─ cell.Reader ─ Fusion ─ Monitor ─ Listener ─ Flow of each connection (cc.Receiver) ─ RADIO ─ cc.PBE
//
// A source is believed: see docs/explanation/security.md for what a false one can do.
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
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

// Tuning.
const (
	// What a decoder says of a moment is too old when the moment is longer ago than
	// maxEstimateAge, or than what is averaged over.
	maxEstimateAge = cell.SilentAfter * time.Millisecond
	// flowIdleTimeout is how long a flow has a say in what is averaged over.
	flowIdleTimeout = 500 * time.Millisecond
	// maxClockDrift is by how much the clocks of cell and device may differ: 100 ppm. By more
	// they do while a clock is set, see steady.
	maxClockDrift = 10_000
	// Silence is told of after silenceTimeout, and looked for each silenceCheckInterval.
	silenceTimeout       = time.Second
	silenceCheckInterval = 250 * time.Millisecond
	// Between attempts to open the source.
	backoffMin = 250 * time.Millisecond
	backoffMax = 5 * time.Second
	// maxSubframesPerSecond bounds the subframes taken in a second, and maxRowsPerSecond the rows that they
	// make, as one subframe ends all rows before it: four times what cells say, which
	// is enough to catch up.
	maxSubframesPerSecond = maxRowsPerSecond * cell.MaxCells
	maxRowsPerSecond      = 4 * 1000
	// initialWindow is averaged over until a flow says what its round trip is.
	initialWindow = 40 * time.Millisecond
	// subframeDuration is what a cell's numbers count.
	subframeDuration = time.Millisecond
)

// Config is what a Listener listens to.
type Config struct {
	Source Source
	// RNTI is what the device is called in its cells; 0: as the source says.
	RNTI cell.RNTI
	// Cells are those of the source that may be given to this device, the primary one
	// first; empty: all, by number.
	Cells []cell.ID
	// OnSilence, if not nil, is told why nothing is heard of the cells any more, or nil: that
	// something is again, or for the first time. It is called by the goroutine of Run.
	OnSilence func(why error)
}

// Listener listens to the cells of one link. Make one with New; its methods are for
// any goroutine.
type Listener struct {
	cfg   Config
	open  func(context.Context) (r io.ReadCloser, kept bool, err error) // the source; a fake in tests
	epoch time.Time

	mu           sync.Mutex
	device       cc.Device
	flows        map[*Flow]bool
	prb          [cell.MaxCells]uint8
	fusion       *cell.Fusion // nil before the first head was read
	monitor      *cell.Monitor
	self         cell.RNTI
	window       time.Duration
	estimate     cell.Estimate // as of row
	newestRow    int64         // the newest; valid if rows > 0
	rows         int
	estimateRows int           // rows that estimate knows
	baseDelay    time.Duration // the least of (arrival of a row − its number), a little rising
	baseUpdated  time.Duration // when base was looked at
	steadyDelay  steadyDelay
	primary      cell.ID
	sourceErr    error // sourceErr the source is not read, or nil
}

// New makes a Listener, which hears nothing until it runs.
func New(cfg Config) *Listener {
	return &Listener{cfg: cfg, open: cfg.Source.Open, epoch: time.Now(), flows: map[*Flow]bool{}, self: cfg.RNTI, window: initialWindow}
}

// errRecordingEnded is why nothing is heard after a recording.
var errRecordingEnded = fault.New(fault.NotFound, errors.New("the recording is over"), "a file is played once; live messages come from a socket or FIFO")

// Run reads the source until ctx ends, again whenever it ends; a recording that is a
// file is played once, in the time that it took.
func (l *Listener) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { l.watchSilence(ctx) })
	var wait backoff.Backoff
	for ctx.Err() == nil {
		heard, err := l.readSource(ctx)
		l.mu.Lock()
		l.sourceErr = err
		l.mu.Unlock()
		if errors.Is(err, errRecordingEnded) {
			return
		}
		if heard {
			wait.Reset()
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait.Double(backoffMin, backoffMax)):
		}
	}
}

// readSource reads the source until it ends, and tells whether anything came.
func (l *Listener) readSource(ctx context.Context) (heard bool, err error) {
	in, kept, err := l.open(ctx)
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
	p := pacer{isFile: kept}
	for {
		s, err := r.Read()
		switch {
		case err == io.EOF && kept:
			return heard, errRecordingEnded
		case err == io.EOF:
			return heard, fault.New(fault.Unreachable, errors.New("the source has ended"), "does whoever decodes messages still run?")
		case err != nil && kept && ctx.Err() == nil: // what it said is of the past: never again
			return heard, fmt.Errorf("%w, early: %w", errRecordingEnded, err)
		case err != nil:
			return heard, err
		}
		if err := p.waitForSubframe(ctx, s.Number); err != nil {
			return heard, err
		}
		heard = true
		p.rows += l.addSubframe(r, s)
	}
}

// pacer holds back what comes too fast.
type pacer struct {
	isFile  bool // a recording: each subframe at its time
	started bool
	start   time.Time // of number from
	from    int64
	last    int64
	taken   int // subframes since start, of a source that is live
	rows    int // that they made
}

func (p *pacer) waitForSubframe(ctx context.Context, number int64) error {
	now := time.Now()
	const second = int64(time.Second / subframeDuration)
	var hold time.Duration
	if p.isFile {
		if !p.started || number < p.last-second || number > p.last+second { // the decoder's count began again
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

// startRecording is told of a recording that begins.
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
	for _, c := range cells {
		if int(c) >= len(r.PRB) || r.PRB[c] == 0 || !m.AddCell(c, l.self, cell.DefaultErrorRate) {
			return fault.New(fault.Config, fmt.Errorf("the source of control messages has no cell %d, or it is named twice", c), "name the cells that it has, the primary one first")
		}
	}
	if len(cells) == 0 {
		return fault.New(fault.Config, errors.New("the source of control messages has no cells"), "does whoever decodes them hear any?")
	}
	l.prb, l.fusion, l.monitor, l.rows, l.estimateRows, l.sourceErr = r.PRB, cell.NewFusion(cells...), m, 0, 0, nil
	l.estimate, l.primary = cell.Estimate{}, cells[0]
	return nil
}

// addSubframe takes a subframe, and counts the rows that it makes.
func (l *Listener) addSubframe(r *cell.Reader, s cell.Subframe) (rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.RNTI == 0 && r.Self != l.self {
		l.self = r.Self
		l.monitor.SetSelf(r.Self)
	}
	now := time.Since(l.epoch)
	l.monitor.SetWindow(l.averagingWindow(now))
	l.fusion.Add(s, func(row *cell.Row) {
		l.monitor.Add(row)
		at := now - time.Duration(row.Number)*subframeDuration
		if again := row.Number <= l.newestRow || row.Number > l.newestRow+int64(time.Second/subframeDuration); l.rows == 0 || again {
			l.baseDelay, l.steadyDelay = at, steadyDelay{} // the decoder found its cells anew
		} else {
			l.baseDelay = min(l.baseDelay+(now-l.baseUpdated)/maxClockDrift, at)
		}
		if row.Received != [cell.MaxCells]bool{} {
			if least, ok := l.steadyDelay.addRow(now, at); ok {
				l.baseDelay = max(l.baseDelay, least)
			}
		}
		l.baseUpdated, l.newestRow = now, row.Number
		l.rows++
		rows++
	})
	return rows
}

// averagingWindow is over what is averaged: the least round trip of the flows in use.
func (l *Listener) averagingWindow(now time.Duration) time.Duration {
	least := time.Duration(0)
	for f := range l.flows {
		if f.rtprop > 0 && now-f.lastPacket <= flowIdleTimeout && (least == 0 || f.rtprop < least) {
			least = f.rtprop
		}
	}
	if least > 0 {
		l.window = least
	}
	return l.window
}

// estimateAge is how long ago the newest moment was that all cells were heard of, beyond the
// time that it always takes to tell.
func (l *Listener) estimateAge(now time.Duration) time.Duration {
	return now - l.baseDelay - time.Duration(l.newestRow)*subframeDuration
}

// checkFreshness tells whether what is known is of now; else why not.
func (l *Listener) checkFreshness(now time.Duration) error {
	switch age := l.estimateAge(now); {
	case l.rows == 0 && l.sourceErr != nil:
		return l.sourceErr
	case l.rows == 0:
		return fault.New(fault.Timeout, errors.New("nothing was heard yet"), "does whoever decodes messages hear the cells?")
	case !l.self.IsUser():
		return fault.New(fault.Config, errors.New("it is not known what this device is called in its cells (RNTI)"), "set rnti, or have the source say it")
	case age > max(maxEstimateAge, l.window) && l.sourceErr != nil:
		return l.sourceErr
	case age > max(maxEstimateAge, l.window):
		return fault.New(fault.Timeout, fmt.Errorf("what is heard is %v old", age.Round(10*time.Millisecond)), "is whoever decodes messages late, or silent?")
	case l.newestEstimate().Cells == 0:
		return fault.New(fault.Timeout, fmt.Errorf("cell %d, the primary one, is not heard", l.primary), "does whoever decodes messages hear it, and is the primary cell named first?")
	default:
		return nil
	}
}

// newestEstimate is what is known as of the last row.
func (l *Listener) newestEstimate() cell.Estimate {
	if l.estimateRows != l.rows {
		l.estimate, l.estimateRows = l.monitor.Estimate(), l.rows
	}
	return l.estimate
}

// watchSilence tells of silence and of its end.
func (l *Listener) watchSilence(ctx context.Context) {
	t := time.NewTicker(silenceCheckInterval)
	defer t.Stop()
	const unknown, heard, silent = 0, 1, 2
	told, last := unknown, time.Now() // what was told last, and when something was heard
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			l.mu.Lock()
			why := l.checkFreshness(time.Since(l.epoch))
			l.mu.Unlock()
			switch {
			case why == nil:
				if last = now; told != heard {
					told = heard
					l.reportSilence(nil)
				}
			case told != silent && now.Sub(last) >= silenceTimeout:
				told = silent
				l.reportSilence(why)
			}
		}
	}
}

func (l *Listener) reportSilence(why error) {
	if l.cfg.OnSilence != nil {
		l.cfg.OnSilence(why)
	}
}

// State is what a Listener knows now.
type State struct {
	Source Source
	// Silent is why nothing that is known is of now; nil: it is.
	Silent error
	// Self is what the device is called, 0 if that is not known.
	Self cell.RNTI
	// PRB is the width of each cell of the source.
	PRB [cell.MaxCells]uint8
	// Estimate is the newest, however old.
	Estimate cell.Estimate
	// Flows counts those that had a packet of late: they share the capacity.
	Flows int
}

// State tells what is known now.
func (l *Listener) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.epoch)
	s := State{Source: l.cfg.Source, Silent: l.checkFreshness(now), Self: l.self, PRB: l.prb}
	if l.rows > 0 {
		s.Estimate = l.newestEstimate()
	}
	for f := range l.flows {
		if f.lastPacket > 0 && now-f.lastPacket <= flowIdleTimeout {
			s.Flows++
		}
	}
	return s
}

// Flow is one connection over the link, as one to which the capacity is told.
type Flow struct {
	listener   *Listener
	receiver   *cc.Receiver
	rtprop     time.Duration
	lastPacket time.Duration // its last packet; 0: none yet
}

// Flow adds a connection. The flows of a device split its capacity (cc.Device).
func (l *Listener) Flow() *Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &Flow{listener: l, receiver: l.device.AddReceiver()}
	l.flows[f] = true
	return f
}

// OnPacket says what goes back for a packet with a one-way delay, by clocks that need
// not agree; rtprop is the least round trip that the sender knows, 0 for none; of more
// than is averaged over at most (cell.MaxWindow) it counts as that. Its
// first argument is of the connection's clock, which the flows of a device do not
// share. While nothing is heard of the cells it says a Capacity of 0.
func (f *Flow) OnPacket(_, oneWay, rtprop time.Duration) cc.Radio {
	l := f.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.epoch)
	f.lastPacket, f.rtprop = now, min(rtprop, cell.MaxWindow*subframeDuration)
	var c cc.Capacity
	if l.checkFreshness(now) == nil {
		e := l.newestEstimate()
		c = cc.Capacity{Transport: e.Transport, Fair: e.FairTransport, Activated: e.Activated, Full: e.Full}
	}
	return f.receiver.OnPacket(now, oneWay, c)
}

// Close takes the connection out.
func (f *Flow) Close() {
	f.listener.mu.Lock()
	defer f.listener.mu.Unlock()
	f.listener.device.RemoveReceiver(f.receiver)
	delete(f.listener.flows, f)
}
