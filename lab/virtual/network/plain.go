// SPDX-License-Identifier: Apache-2.0

package network

// RunSingle runs a workload over plain TCP along one path, end to end: through a helper it is
// routed. Each stream has a connection.
func RunSingle(n *Network, path int, w *Workload, o Options) Result {
	s := newSimulation(n.Seed, o.DrawSeed)
	up, down := newPathLines(s, &n.Paths[path])
	c := &plain{sim: s, up: up, down: down, workload: w, control: o.plainControl(), seed: n.Seed}
	d := &driver{sim: s, workload: w, exchanger: c, limit: o.Limit,
		result: Result{Scheme: "single:" + n.Paths[path].Name, DrawSeed: o.DrawSeed}}
	d.finished = o.Finished
	return d.runWorkload(func() error { return nil })
}

// plainControl returns the congestion control of plain TCP.
func (o Options) plainControl() string {
	if o.Control == ChosenByHop {
		return "cubic"
	}
	return o.Control
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
	client, server *tcpEnd
	requested      uint64   // end of the last request, as a position of the client's bytes
	wanted         uint64   // end of its answer, as a position of the server's
	answers        []answer // that the server owes, oldest first
	progress, done func()
}

// answer is what the server sends when it has read that much.
type answer struct {
	after uint64
	size  int
}

// exchangePayload implements exchanger.
func (c *plain) exchangePayload(i int, up, down uint64, progress, done func()) {
	if i < len(c.conns) {
		c.conns[i].sendPlainRequest(c.workload, up, down, progress, done)
		return
	}
	a, b := connectTCPEnds(c.sim, c.up, c.down, c.control, c.seed+uint64(2*i))
	p := &plainConn{client: a, server: b}
	c.conns = append(c.conns, p)
	a.onData, b.onData = p.readAnswer, p.readRequest
	a.doHandshake(func() { p.sendPlainRequest(c.workload, up, down, progress, done) })
}

// doHandshake does the handshake and calls done.
func (e *tcpEnd) doHandshake(done func()) {
	wait := firstTimeout
	var retry *timer
	retry = newSimTimer(e.sim, func() {
		e.sendAckProbe()
		retry.setDueTime(e.sim.now + wait)
		wait *= 2
	})
	e.onAnswer = func() {
		retry.clearDueTime()
		done()
	}
	retry.fire()
}

// sendPlainRequest sends a request.
func (p *plainConn) sendPlainRequest(w *Workload, up, down uint64, progress, done func()) {
	p.requested += up
	p.wanted += down
	p.answers = append(p.answers, answer{p.requested, int(down)})
	p.progress, p.done = progress, done
	if w.Direction == Upload {
		p.progress = nil
		p.server.onData = func() { progress(); p.readRequest() }
	}
	p.client.writeAppBytes(int(up))
}

// readRequest reads at the server and answers.
func (p *plainConn) readRequest() {
	p.server.recordAppRead(p.server.receiver.next)
	for len(p.answers) > 0 && p.server.receiver.next >= p.answers[0].after {
		n := p.answers[0].size
		p.answers = p.answers[1:]
		p.server.writeAppBytes(n)
	}
}

// readAnswer reads at the client.
func (p *plainConn) readAnswer() {
	p.client.recordAppRead(p.client.receiver.next)
	if p.progress != nil {
		p.progress()
	}
	if p.client.receiver.next == p.wanted {
		p.done()
	}
}
