// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/core/trace"
	"mpbond/link/wire"
)

// Options configure a run.
type Options struct {
	// Control names the congestion control of all TCP connections: cubic or bbr.
	Control string
	// Eta is the reinjection threshold; 0 is the default.
	Eta float64
	// Trace, if not nil, gets the events of both ends.
	Trace func(trace.Event)
}

// Result is what one scheme made of a workload.
type Result struct {
	Scheme string        `json:"scheme"`
	Time   time.Duration `json:"time"`
	// Gap is the longest time between bytes at the reading app, from the first byte on.
	Gap time.Duration `json:"gap"`
	// Twice counts the bytes that were given to a second subflow. Duplicate counts those that
	// arrived twice. Both are of all objects.
	Twice     unit.Bytes `json:"twice"`
	Duplicate unit.Bytes `json:"duplicate"`
	Total     unit.Bytes `json:"total"` // payload of all objects
	Events    int        `json:"events"`
	Err       string     `json:"error,omitempty"`
}

// Sizes of a request and of the answer to an upload, and when the first object begins.
const (
	requestSize = 200
	replySize   = 200
	startAt     = time.Second
	runLimit    = time.Hour
)

// carrier carries exchanges of an app.
type carrier interface {
	// exchange sends up bytes on stream i, gets down bytes, and calls done. progress is called when
	// bytes in the direction of the data arrive.
	exchange(i int, up, down uint64, progress func(), done func())
}

// driver runs a workload over a carrier.
type driver struct {
	sim      *sim
	workload *Workload
	carrier  carrier
	object   int
	left     int // streams of the object
	began    time.Duration
	last     time.Duration // when bytes arrived last; 0: none yet
	result   Result
	done     bool
}

// begin starts the next object.
func (d *driver) begin() {
	w := d.workload
	d.object++
	d.left, d.began, d.last, d.result.Gap = w.Streams, d.sim.now, 0, 0
	d.result.Total += w.Size
	for i := range w.Streams {
		up, down := uint64(requestSize), w.part(i)
		if w.Direction == Upload {
			up, down = up+down, replySize
		}
		d.carrier.exchange(i, up, down, d.progress, d.finish)
	}
}

// progress records that bytes have arrived.
func (d *driver) progress() {
	if d.last > 0 {
		d.result.Gap = max(d.result.Gap, d.sim.now-d.last)
	}
	d.last = d.sim.now
}

// finish records the end of a stream.
func (d *driver) finish() {
	if d.left--; d.left > 0 {
		return
	}
	if d.object < d.workload.Objects {
		d.begin()
		return
	}
	d.result.Time, d.done = d.sim.now-d.began, true
}

// run handles events until the workload is done.
func (d *driver) run(failed func() error) Result {
	d.sim.schedule(startAt, func(*packet) { d.begin() }, nil)
	for !d.done {
		if err := failed(); err != nil {
			d.result.Err = err.Error()
			break
		}
		if !d.sim.step(runLimit) {
			d.result.Err = "nothing is left to happen"
			break
		}
	}
	d.result.Events = d.sim.count
	return d.result
}

// RunSingle runs a workload over plain TCP along one path, end to end: through a helper it is
// routed. Each stream has a connection.
func RunSingle(n *Network, path int, w *Workload, o Options) Result {
	s := newSim(n.Seed)
	up, down := linesOf(s, &n.Paths[path])
	c := &plain{sim: s, up: up, down: down, workload: w, control: o.Control, seed: n.Seed}
	d := &driver{sim: s, workload: w, carrier: c, result: Result{Scheme: "single:" + n.Paths[path].Name}}
	return d.run(func() error { return nil })
}

// plain carries streams over TCP connections.
type plain struct {
	sim      *sim
	up, down []*line
	workload *Workload
	control  string
	seed     uint64
	conns    []*plainConn
}

// plainConn is a connection of plain.
type plainConn struct {
	client, server *endpoint
	wanted, asked  uint64 // positions of the end of the answer and of the request
	answer         int
	answered       bool
	progress, done func()
}

// exchange implements carrier.
func (c *plain) exchange(i int, up, down uint64, progress, done func()) {
	if i < len(c.conns) {
		c.conns[i].begin(c.workload, up, down, progress, done)
		return
	}
	a, b := connect(c.sim, c.up, c.down, c.control, c.seed+uint64(2*i))
	p := &plainConn{client: a, server: b}
	c.conns = append(c.conns, p)
	a.onData, b.onData = p.readAnswer, p.readRequest
	a.open(func() { p.begin(c.workload, up, down, progress, done) })
}

// open does the handshake and calls done.
func (e *endpoint) open(done func()) {
	wait := firstTimeout
	var retry *timer
	retry = newTimer(e.sim, func() {
		e.sendProbe()
		retry.set(e.sim.now + wait)
		wait *= 2
	})
	e.onAnswer = func() {
		retry.stop()
		done()
	}
	retry.fire()
}

// begin sends a request.
func (p *plainConn) begin(w *Workload, up, down uint64, progress, done func()) {
	p.asked += up
	p.wanted += down
	p.answer, p.answered, p.progress, p.done = int(down), false, progress, done
	if w.Direction == Upload {
		p.progress = nil
		p.server.onData = func() { progress(); p.readRequest() }
	}
	p.client.write(int(up))
}

// readRequest reads at the server and answers.
func (p *plainConn) readRequest() {
	p.server.consume(p.server.receiver.next)
	if p.server.receiver.next == p.asked && !p.answered {
		p.answered = true
		p.server.write(p.answer)
	}
}

// readAnswer reads at the client.
func (p *plainConn) readAnswer() {
	p.client.consume(p.client.receiver.next)
	if p.progress != nil {
		p.progress()
	}
	if p.client.receiver.next == p.wanted {
		p.done()
	}
}

// RunBond runs a workload over a bond with that scheduler.
func RunBond(n *Network, scheduler string, w *Workload, o Options) Result {
	s := newSim(n.Seed)
	b, err := newBonded(s, scheduler, o.Eta, o.Trace)
	if err != nil {
		return Result{Scheme: scheduler, Err: err.Error()}
	}
	for i := range n.Paths {
		b.addPath(wire.SubflowID(i+1), &n.Paths[i], o.Control, n.Seed+uint64(8*i))
	}
	c := &bondCarrier{net: b, workload: w}
	b.ends[primary].onStream = func(*bond.Stream) {}
	b.ends[server].onStream = c.accept
	for i, e := range b.ends {
		e.onChange = func(s *bond.Stream) {
			if a, ok := s.User.(*bondApp); ok {
				a.handle(i)
			}
		}
	}
	d := &driver{sim: s, workload: w, carrier: c, result: Result{Scheme: scheduler}}
	r := d.run(func() error { return b.err })
	for _, e := range b.ends {
		st := e.bond.Stats()
		r.Twice += st.LostSubflow + st.ReinjectedSilent + st.ReinjectedTail + st.Redundant
		r.Duplicate += st.Duplicate
	}
	return r
}

// addPath adds the subflow of a path, with its helper.
func (b *bonded) addPath(id wire.SubflowID, p *Path, control string, seed uint64) {
	up, down := linesOf(b.sim, p)
	rtt := baseRoundTrip(up, down)
	if len(p.Hops) == 1 {
		x, y := connect(b.sim, up, down, control, seed)
		u, d := newChannel(x, y), newChannel(y, x)
		b.addSubflow(id, false, [2]*channel{u, d}, [2]*channel{d, u}, rtt)
		return
	}
	x, h := connect(b.sim, up[:1], down[1:], control, seed)
	g, y := connect(b.sim, up[1:], down[:1], control, seed+2)
	pipeUp, pipeDown := newChannel(x, h), newChannel(h, x)
	hsUp, hsDown := newChannel(g, y), newChannel(y, g)
	newHelper(b.sim, pipeUp, pipeDown, hsDown, hsUp)
	b.addSubflow(id, true, [2]*channel{pipeUp, hsDown}, [2]*channel{pipeDown, hsUp}, rtt)
}

// bondCarrier carries exchanges over streams of a bond.
type bondCarrier struct {
	net      *bonded
	workload *Workload
	apps     []*bondApp
	opened   int // streams that the server has accepted
	reached  bool
}

// bondApp is the app at both ends of a stream.
type bondApp struct {
	carrier        *bondCarrier
	streams        [2]*bond.Stream
	toWrite, got   [2]uint64 // by end
	written        [2]uint64
	asked, wanted  uint64
	ended          [2]bool
	answered       bool
	waitsForOpen   bool
	progress, done func()
}

// exchange implements carrier. The first object waits until the stream is known to be open, as the
// proxy of a primary makes apps wait for an unknown destination.
func (c *bondCarrier) exchange(_ int, up, down uint64, progress, done func()) {
	e := c.net.ends[primary]
	s, err := e.bond.OpenStream("web:80")
	if err != nil {
		c.net.fail(err)
		return
	}
	a := &bondApp{carrier: c, asked: up, wanted: down, progress: progress, done: done, waitsForOpen: !c.reached}
	a.streams[primary], s.User = s, a
	a.toWrite[primary] = up
	c.apps = append(c.apps, a)
	c.net.sim.schedule(c.net.sim.now, func(*packet) {
		a.handle(primary)
		e.process()
	}, nil)
}

// accept takes a stream at the server.
func (c *bondCarrier) accept(s *bond.Stream) {
	if c.opened >= len(c.apps) {
		c.net.fail(fmt.Errorf("stream %d was never opened", s.ID()))
		return
	}
	a := c.apps[s.ID()-1]
	c.opened++
	a.streams[server], s.User = s, a
	s.SetOpened()
	a.handle(server)
}

// zeros is what apps write.
var zeros [256 << 10]byte

// handle lets the app of an end write and read what it can.
func (a *bondApp) handle(i int) {
	s := a.streams[i]
	if err := s.Err(); err != nil {
		a.carrier.net.fail(fmt.Errorf("stream %d: %w", s.ID(), err))
		return
	}
	if n := s.Readable(); n > 0 {
		s.Consume(n)
		a.got[i] += uint64(n)
		a.read(i)
	}
	if i == primary && a.waitsForOpen {
		if !s.Opened() {
			return
		}
		a.waitsForOpen, a.carrier.reached = false, true
	}
	for a.written[i] < a.toWrite[i] {
		n := s.Write(zeros[:min(uint64(len(zeros)), a.toWrite[i]-a.written[i])])
		if n == 0 {
			return
		}
		a.written[i] += uint64(n)
	}
	if a.written[i] > 0 && !s.WriteClosed() {
		s.CloseWrite()
	}
	if s.EOF() && !a.ended[i] {
		a.ended[i] = true
		s.Consume(0)
	}
}

// read handles what the app of an end has read.
func (a *bondApp) read(i int) {
	if isData := (i == primary) == (a.carrier.workload.Direction == Download); isData {
		a.progress()
	}
	if i == server && a.got[server] == a.asked && !a.answered {
		a.answered = true
		a.toWrite[server] = a.wanted
	}
	if i == primary && a.got[primary] == a.wanted {
		a.carrier.net.sim.schedule(a.carrier.net.sim.now, func(*packet) { a.done() }, nil)
	}
}
