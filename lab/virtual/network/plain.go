// SPDX-License-Identifier: Apache-2.0

package network

// RunSingle runs a workload over plain TCP along one path, end to end: through a helper it is
// routed. Each stream has a connection.
func RunSingle(n *Network, path int, w *Workload, o Options) Result {
	s := newSim(n.Seed, o.DrawSeed)
	up, down := linesOf(s, &n.Paths[path])
	c := &plain{sim: s, up: up, down: down, workload: w, control: o.plainControl(), seed: n.Seed}
	d := &driver{sim: s, workload: w, exchanger: c, limit: o.Limit,
		result: Result{Scheme: "single:" + n.Paths[path].Name, DrawSeed: o.DrawSeed}}
	return d.run(func() error { return nil })
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

// exchange implements exchanger.
func (c *plain) exchange(i int, up, down uint64, progress, done func()) {
	if i < len(c.conns) {
		c.conns[i].sendRequest(c.workload, up, down, progress, done)
		return
	}
	a, b := connectTCPEnds(c.sim, c.up, c.down, c.control, c.seed+uint64(2*i))
	p := &plainConn{client: a, server: b}
	c.conns = append(c.conns, p)
	a.onData, b.onData = p.readAnswer, p.readRequest
	a.doHandshake(func() { p.sendRequest(c.workload, up, down, progress, done) })
}

// doHandshake does the handshake and calls done.
func (e *tcpEnd) doHandshake(done func()) {
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

// sendRequest sends a request.
func (p *plainConn) sendRequest(w *Workload, up, down uint64, progress, done func()) {
	p.requested += up
	p.wanted += down
	p.answers = append(p.answers, answer{p.requested, int(down)})
	p.progress, p.done = progress, done
	if w.Direction == Upload {
		p.progress = nil
		p.server.onData = func() { progress(); p.readRequest() }
	}
	p.client.write(int(up))
}

// readRequest reads at the server and answers.
func (p *plainConn) readRequest() {
	p.server.consume(p.server.receiver.next)
	for len(p.answers) > 0 && p.server.receiver.next >= p.answers[0].after {
		n := p.answers[0].size
		p.answers = p.answers[1:]
		p.server.write(n)
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
