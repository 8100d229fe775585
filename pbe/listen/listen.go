// Package listen keeps what the cells of one link of this device say now. It reads
// the control messages of a source, as they come or as a recording tells, and says to
// each connection over that link what goes back with its acknowledgements. It stands
// between whoever decodes messages and the connections of pbe/transport, which tell the
// senders, whose controller is PBE-CC's:
//
//	source ─ cell.Reader ─ Fusion ─ Monitor ─ Listener ─ Flow of each connection (cc.Receiver) ─ RADIO ─ cc.PBE
//
// A source is believed: see docs/security.md for what a false one can do.
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
	// freshFor, or than what is averaged over.
	freshFor = cell.Silent * time.Millisecond
	// flowIdle is how long a flow has a say in what is averaged over.
	flowIdle = 500 * time.Millisecond
	// drift is by how much the clocks of cell and device may differ: 100 ppm. By more
	// they do while a clock is set, see steady.
	drift = 10_000
	// Silence is told of after silentFor, and looked for each lookEvery.
	silentFor = time.Second
	lookEvery = 250 * time.Millisecond
	// Between attempts to open the source.
	backoffMin = 250 * time.Millisecond
	backoffMax = 5 * time.Second
	// maxRate bounds the subframes taken in a second, and maxRows the rows that they
	// make, as one subframe ends all rows before it: four times what cells say, which
	// is enough to catch up.
	maxRate = maxRows * cell.MaxCells
	maxRows = 4 * 1000
	// firstWindow is averaged over until a flow says what its round trip is.
	firstWindow = 40 * time.Millisecond
	// subframe is what a cell's numbers count.
	subframe = time.Millisecond
)

// Config is what a Listener listens to.
type Config struct {
	Source Source
	// RNTI is what the device is called in its cells; 0: as the source says.
	RNTI cell.RNTI
	// Cells are those of the source that may be given to this device, the primary one
	// first; empty: all, by number.
	Cells []cell.ID
	// Tell, if not nil, is told why nothing is heard of the cells any more, or nil: that
	// something is again, or for the first time. It is called by the goroutine of Run.
	Tell func(why error)
}

// Listener listens to the cells of one link. Make one with New; its methods are for
// any goroutine.
type Listener struct {
	cfg   Config
	open  func(context.Context) (r io.ReadCloser, kept bool, err error) // the source; a fake in tests
	epoch time.Time

	mu       sync.Mutex
	device   cc.Device
	flows    map[*Flow]bool
	prb      [cell.MaxCells]uint8
	fusion   *cell.Fusion // nil before the first head was read
	monitor  *cell.Monitor
	self     cell.RNTI
	window   time.Duration
	estimate cell.Estimate // as of row
	row      int64         // the newest; valid if rows > 0
	rows     int
	asOf     int           // rows that estimate knows
	base     time.Duration // the least of (arrival of a row − its number), a little rising
	based    time.Duration // when base was looked at
	steady   steady
	primary  cell.ID
	why      error // why the source is not read, or nil
}

// New makes a Listener, which hears nothing until it runs.
func New(cfg Config) *Listener {
	return &Listener{cfg: cfg, open: cfg.Source.Open, epoch: time.Now(), flows: map[*Flow]bool{}, self: cfg.RNTI, window: firstWindow}
}

// errOver is why nothing is heard after a recording.
var errOver = fault.New(fault.NotFound, errors.New("the recording is over"), "a file is played once; live messages come from a socket or FIFO")

// Run reads the source until ctx ends, again whenever it ends; a recording that is a
// file is played once, in the time that it took.
func (l *Listener) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { l.look(ctx) })
	var wait backoff.Backoff
	for ctx.Err() == nil {
		heard, err := l.follow(ctx)
		l.mu.Lock()
		l.why = err
		l.mu.Unlock()
		if errors.Is(err, errOver) {
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

// follow reads the source until it ends, and tells whether anything came.
func (l *Listener) follow(ctx context.Context) (heard bool, err error) {
	in, kept, err := l.open(ctx)
	if err != nil {
		return false, err
	}
	defer in.Close()
	r, err := cell.NewReader(in)
	if err != nil {
		return false, err
	}
	if err := l.begin(r); err != nil {
		return false, err
	}
	p := pace{kept: kept}
	for {
		s, err := r.Read()
		switch {
		case err == io.EOF && kept:
			return heard, errOver
		case err == io.EOF:
			return heard, fault.New(fault.Unreachable, errors.New("the source has ended"), "does whoever decodes messages still run?")
		case err != nil && kept && ctx.Err() == nil: // what it said is of the past: never again
			return heard, fmt.Errorf("%w, early: %w", errOver, err)
		case err != nil:
			return heard, err
		}
		if err := p.wait(ctx, s.Number); err != nil {
			return heard, err
		}
		heard = true
		p.rows += l.add(r, s)
	}
}

// pace holds back what comes too fast.
type pace struct {
	kept  bool // a recording: each subframe at its time
	begun bool
	start time.Time // of number from
	from  int64
	last  int64
	taken int // subframes since start, of a source that is live
	rows  int // that they made
}

func (p *pace) wait(ctx context.Context, number int64) error {
	now := time.Now()
	const second = int64(time.Second / subframe)
	var hold time.Duration
	if p.kept {
		if !p.begun || number < p.last-second || number > p.last+second { // the decoder's count began again
			p.start, p.from = now, number
		}
		p.last = number
		hold = p.start.Add(time.Duration(number-p.from) * subframe).Sub(now)
	} else {
		if now.Sub(p.start) >= time.Second {
			p.start, p.taken, p.rows = now, 0, 0
		}
		if p.taken++; p.taken > maxRate || p.rows >= maxRows {
			hold = p.start.Add(time.Second).Sub(now)
		}
	}
	p.begun = true
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

// begin is told of a recording that begins.
func (l *Listener) begin(r *cell.Reader) error {
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
		if int(c) >= len(r.PRB) || r.PRB[c] == 0 || !m.Listen(c, l.self, cell.DefaultErrorRate) {
			return fault.New(fault.Config, fmt.Errorf("the source of control messages has no cell %d, or it is named twice", c), "name the cells that it has, the primary one first")
		}
	}
	if len(cells) == 0 {
		return fault.New(fault.Config, errors.New("the source of control messages has no cells"), "does whoever decodes them hear any?")
	}
	l.prb, l.fusion, l.monitor, l.rows, l.asOf, l.why = r.PRB, cell.NewFusion(cells...), m, 0, 0, nil
	l.estimate, l.primary = cell.Estimate{}, cells[0]
	return nil
}

// add takes a subframe, and counts the rows that it makes.
func (l *Listener) add(r *cell.Reader, s cell.Subframe) (rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cfg.RNTI == 0 && r.Self != l.self {
		l.self = r.Self
		l.monitor.SetSelf(r.Self)
	}
	now := time.Since(l.epoch)
	l.monitor.SetWindow(l.average(now))
	l.fusion.Add(s, func(row *cell.Row) {
		l.monitor.Add(row)
		at := now - time.Duration(row.Number)*subframe
		if again := row.Number <= l.row || row.Number > l.row+int64(time.Second/subframe); l.rows == 0 || again {
			l.base, l.steady = at, steady{} // the decoder found its cells anew
		} else {
			l.base = min(l.base+(now-l.based)/drift, at)
		}
		if row.Told != [cell.MaxCells]bool{} {
			if least, ok := l.steady.add(now, at); ok {
				l.base = max(l.base, least)
			}
		}
		l.based, l.row = now, row.Number
		l.rows++
		rows++
	})
	return rows
}

// average is over what is averaged: the least round trip of the flows in use.
func (l *Listener) average(now time.Duration) time.Duration {
	least := time.Duration(0)
	for f := range l.flows {
		if f.rtprop > 0 && now-f.heard <= flowIdle && (least == 0 || f.rtprop < least) {
			least = f.rtprop
		}
	}
	if least > 0 {
		l.window = least
	}
	return l.window
}

// age is how long ago the newest moment was that all cells were heard of, beyond the
// time that it always takes to tell.
func (l *Listener) age(now time.Duration) time.Duration {
	return now - l.base - time.Duration(l.row)*subframe
}

// fresh tells whether what is known is of now; else why not.
func (l *Listener) fresh(now time.Duration) error {
	switch age := l.age(now); {
	case l.rows == 0 && l.why != nil:
		return l.why
	case l.rows == 0:
		return fault.New(fault.Timeout, errors.New("nothing was heard yet"), "does whoever decodes messages hear the cells?")
	case !l.self.User():
		return fault.New(fault.Config, errors.New("it is not known what this device is called in its cells (RNTI)"), "set rnti, or have the source say it")
	case age > max(freshFor, l.window) && l.why != nil:
		return l.why
	case age > max(freshFor, l.window):
		return fault.New(fault.Timeout, fmt.Errorf("what is heard is %v old", age.Round(10*time.Millisecond)), "is whoever decodes messages late, or silent?")
	case l.newest().Cells == 0:
		return fault.New(fault.Timeout, fmt.Errorf("cell %d, the primary one, is not heard", l.primary), "does whoever decodes messages hear it, and is the primary cell named first?")
	default:
		return nil
	}
}

// newest is what is known as of the last row.
func (l *Listener) newest() cell.Estimate {
	if l.asOf != l.rows {
		l.estimate, l.asOf = l.monitor.Estimate(), l.rows
	}
	return l.estimate
}

// look tells of silence and of its end.
func (l *Listener) look(ctx context.Context) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	const unknown, heard, silent = 0, 1, 2
	told, last := unknown, time.Now() // what was told last, and when something was heard
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			l.mu.Lock()
			why := l.fresh(time.Since(l.epoch))
			l.mu.Unlock()
			switch {
			case why == nil:
				if last = now; told != heard {
					told = heard
					l.tell(nil)
				}
			case told != silent && now.Sub(last) >= silentFor:
				told = silent
				l.tell(why)
			}
		}
	}
}

func (l *Listener) tell(why error) {
	if l.cfg.Tell != nil {
		l.cfg.Tell(why)
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
	s := State{Source: l.cfg.Source, Silent: l.fresh(now), Self: l.self, PRB: l.prb}
	if l.rows > 0 {
		s.Estimate = l.newest()
	}
	for f := range l.flows {
		if f.heard > 0 && now-f.heard <= flowIdle {
			s.Flows++
		}
	}
	return s
}

// Flow is one connection over the link, as one to which the capacity is told.
type Flow struct {
	l      *Listener
	r      *cc.Receiver
	rtprop time.Duration
	heard  time.Duration // its last packet; 0: none yet
}

// Flow adds a connection. The flows of a device split its capacity (cc.Device).
func (l *Listener) Flow() *Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &Flow{l: l, r: l.device.Receiver()}
	l.flows[f] = true
	return f
}

// OnPacket says what goes back for a packet with a one-way delay, by clocks that need
// not agree; rtprop is the least round trip that the sender knows, 0 for none; of more
// than is averaged over at most (cell.MaxWindow) it counts as that. Its
// first argument is of the connection's clock, which the flows of a device do not
// share. While nothing is heard of the cells it says a Capacity of 0.
func (f *Flow) OnPacket(_, oneWay, rtprop time.Duration) cc.Radio {
	l := f.l
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Since(l.epoch)
	f.heard, f.rtprop = now, min(rtprop, cell.MaxWindow*subframe)
	var c cc.Capacity
	if l.fresh(now) == nil {
		e := l.newest()
		c = cc.Capacity{Transport: e.Transport, Fair: e.FairTransport, Activated: e.Activated, Full: e.Full}
	}
	return f.r.OnPacket(now, oneWay, c)
}

// Close takes the connection out.
func (f *Flow) Close() {
	f.l.mu.Lock()
	defer f.l.mu.Unlock()
	f.l.device.Remove(f.r)
	delete(f.l.flows, f)
}
