// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net"
	"path/filepath"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/lab/shaper"
	"mpbond/pbe/cell"
)

// subframeLength is the step of a network. While there is no listener and no link has a packet
// there, a base station runs idleSubframes at once, since the thread's wake-ups are expensive.
const (
	subframeLength = time.Millisecond
	idleSubframes  = 20
)

// airPacket is a packet in a network.
type airPacket struct {
	item   lte.Item
	packet shaper.Packet
}

// baseStation runs a network in the emulator's thread. It runs each subframe at its ideal time with
// the packets that its lines have delivered by then, however late the thread is. It never pauses,
// since Users go on.
type baseStation struct {
	name         string
	net          *lte.Network
	signals      []*lte.Signal    // by user
	fading       []*lte.Fading    // by user; nil: none
	recordings   []*lte.Recording // by user; nil: the signal counts
	members      []member         // by user
	next         time.Duration    // ideal end of the next subframe
	zeroSubframe int64            // number of the subframe at time zero
	playing      bool             // time zero is set
	broadcast    *broadcast
	// messages and truth are the paths of its sockets once they are open.
	messages, truth string

	outputs    []lte.Delivery
	spare      []*airPacket
	onSubframe func(cell.Subframe)
	slot       *slot // of the current subframe; nil without listeners
}

// member is a user: a link, or one with a source.
type member struct {
	name   string
	rnti   cell.RNTI
	link   *emulatedLink
	source *lte.Source
	// handover is the time between handovers, nextHandover the time of the next since time zero.
	handover, nextHandover time.Duration
	// Counts of the link's packets in the network.
	delivered, dropped, lost shaper.Count
}

// newBaseStation returns the base station of a network and connects its links.
func newBaseStation(name string, n *LTE, t *Topology, links []*emulatedLink) (*baseStation, error) {
	cfg, users, err := n.buildConfig(t, name)
	if err != nil {
		return nil, err
	}
	s := &baseStation{name: name, next: subframeLength, broadcast: newBroadcast(cfg, users)}
	if only := t.onlyDevice(name); only != "" && t.Link[only].LTE.Handover == "" {
		s.broadcast.ownRNTI = t.Link[only].LTE.RNTI
	}
	if n.Samples != nil {
		for i, c := range cfg.Cells {
			ch, err := n.Samples.newRadioChannel(cfg.Seed + uint64(i))
			if err != nil {
				return nil, err
			}
			s.broadcast.transmitters = append(s.broadcast.transmitters, newTransmitter(i, c.PRB, ch,
				cfg.Seed+uint64(i)))
		}
	}
	for i, u := range users {
		if r := u.recording; r != nil {
			cfg.Users[i].Rate = func(number int64) unit.Rate { return r.At(s.timeSinceStart(number)) }
		}
		s.signals = append(s.signals, u.signal)
		if s.fading = append(s.fading, nil); n.Detailed {
			s.fading[i] = lte.NewFading(cfg.Seed+uint64(i)<<32, lte.FadingDeviation)
		}
		cfg.Users[i].SINR = s.signalOf(i)
		s.recordings = append(s.recordings, u.recording)
		m := member{name: u.name, rnti: u.RNTI, source: u.source, handover: u.handover, nextHandover: u.handover}
		for _, l := range links {
			if u.isLink && l.name == u.name {
				m.link = l
				l.station, l.user = s, i
				if n.Detailed {
					l.grants = &grantQueue{uplink: lte.NewUplink(cfg.Seed + uint64(i)<<32)}
				}
			}
		}
		s.members = append(s.members, m)
	}
	s.net = lte.New(cfg)
	s.onSubframe = func(f cell.Subframe) {
		if s.slot != nil {
			s.slot.copyCellSubframe(f)
		}
	}
	return s, nil
}

// signalOf returns the signal of a user by subframe. It must be called once for each.
func (s *baseStation) signalOf(u int) func(number int64) float64 {
	return func(number int64) float64 {
		v := s.signals[u].At(s.timeSinceStart(number))
		if f := s.fading[u]; f != nil {
			v += f.Next()
		}
		return v
	}
}

// timeSinceStart returns the time from time zero to the beginning of a subframe, negative if there
// is no time zero.
func (s *baseStation) timeSinceStart(number int64) time.Duration {
	if !s.playing {
		return -1
	}
	return time.Duration(number-s.zeroSubframe) * subframeLength
}

// StartAt makes the current time that far after time zero of signals and sources.
func (s *baseStation) StartAt(_, into time.Duration) {
	s.playing, s.zeroSubframe = true, s.net.Number()-int64(into/subframeLength)
}

// Rewind removes time zero.
func (s *baseStation) Rewind(time.Duration) {
	s.playing = false
	for u := range s.members {
		s.members[u].nextHandover = s.members[u].handover
	}
}

// nextSubframeTime returns when to call runSubframes next.
func (s *baseStation) nextSubframeTime() time.Duration {
	if s.broadcast.listenerCount.Load() > 0 {
		return s.next
	}
	for u := range s.members {
		l := s.members[u].link
		if l == nil {
			continue
		}
		if queued, flying := l.lines[Downlink].Pending(); queued > 0 || flying > 0 || s.net.Waiting(u) > 0 {
			return s.next
		}
	}
	return s.next + (idleSubframes-1)*subframeLength
}

// runSubframes runs all subframes that have ended by now.
func (s *baseStation) runSubframes(e *emulator, now time.Duration) {
	for ; s.next <= now; s.next += subframeLength {
		for u := range s.members {
			m := &s.members[u]
			s.handOver(u, m)
			if m.source != nil {
				m.source.Offer(s.net, u, s.timeSinceStart(s.net.Number()))
				continue
			}
			for {
				p, _, ok := m.link.lines[Downlink].Deliver(s.next)
				if !ok {
					break
				}
				if !s.offerPacket(u, p) {
					m.dropped.Add(p.Size)
					e.releaseBuffer(p.Data)
				}
			}
		}
		s.slot = s.broadcast.beginSlot(s.net.Number())
		s.outputs = s.net.Step(s.outputs[:0], s.onSubframe)
		if s.slot != nil {
			for u := range s.members {
				s.slot.truth = append(s.slot.truth, s.net.Truth(u))
			}
			s.broadcast.commitSlot()
		}
		for _, o := range s.outputs {
			s.deliverFromAir(e, o)
		}
	}
}

// handOver moves user u to another cell if that is due.
func (s *baseStation) handOver(u int, m *member) {
	if m.handover == 0 || s.timeSinceStart(s.net.Number()) < m.nextHandover {
		return
	}
	m.rnti = firstHandoverRNTI + cell.RNTI(u*handoverRNTIs) + cell.RNTI(m.nextHandover/m.handover)%handoverRNTIs
	m.nextHandover += m.handover
	s.net.Handover(u, int64(handoverGap/subframeLength), m.rnti, true)
}

// offerPacket queues a packet of user u. It returns false if the queue is full.
func (s *baseStation) offerPacket(u int, p shaper.Packet) bool {
	if len(s.spare) == 0 {
		s.spare = append(s.spare, &airPacket{})
	}
	c := s.spare[len(s.spare)-1]
	c.packet, c.item.Size, c.item.Tag = p, p.Size, c
	if !s.net.Offer(u, &c.item) {
		return false
	}
	s.spare = s.spare[:len(s.spare)-1]
	return true
}

// deliverFromAir delivers a packet that has left the air interface.
func (s *baseStation) deliverFromAir(e *emulator, o lte.Delivery) {
	m := &s.members[o.User]
	if m.source != nil {
		m.source.Recycle(o.Item)
		return
	}
	c := o.Item.Tag.(*airPacket)
	p := c.packet
	c.packet = shaper.Packet{}
	s.spare = append(s.spare, c)
	if o.Lost {
		m.lost.Add(p.Size)
		e.releaseBuffer(p.Data)
		return
	}
	m.delivered.Add(p.Size)
	e.deliverToReceiver(m.link, Downlink, p, s.next)
}

// addNetworkCounts makes the statistics of a link's downlink cover both its parts.
func (m *member) addNetworkCounts(l *LineStats, waiting unit.Bytes) {
	l.Count.Delivered = m.delivered
	l.Count.QueueDrops.Packets += m.dropped.Packets
	l.Count.QueueDrops.Bytes += m.dropped.Bytes
	l.Count.LossDrops.Packets += m.lost.Packets
	l.Count.LossDrops.Bytes += m.lost.Bytes
	l.Queued += waiting
}

// messagesPath returns the socket of a network's control messages in a lab's directory.
func messagesPath(dir, network string) string { return filepath.Join(dir, network+".cells") }

// openSockets serves the network's output at sockets in dir.
func (s *baseStation) openSockets(dir string) error {
	s.messages, s.truth = messagesPath(dir, s.name), filepath.Join(dir, s.name+".truth")
	messages, err := net.Listen("unix", s.messages)
	if err != nil {
		return fmt.Errorf("lte %s: %w", s.name, err)
	}
	truth, err := net.Listen("unix", s.truth)
	if err != nil {
		return fmt.Errorf("lte %s: %w", s.name, err)
	}
	for i, m := range s.broadcast.transmitters {
		m.socketPath = filepath.Join(dir, fmt.Sprintf("%s.%d.sc16", s.name, i))
		l, err := net.Listen("unix", m.socketPath)
		if err != nil {
			return fmt.Errorf("lte %s: %w", s.name, err)
		}
		go s.broadcast.acceptListeners(l, &m.listeners, func(*listener) error { return nil })
		go m.transmitLoop(nil)
	}
	go s.broadcast.acceptListeners(messages, &s.broadcast.listeners, s.broadcast.setupMessages)
	go s.broadcast.acceptListeners(truth, &s.broadcast.listeners, s.broadcast.setupTruth)
	go s.broadcast.deliverLoop(nil)
	return nil
}

// readLTEStats returns the network's statistics.
func (s *baseStation) readLTEStats() LTEStats {
	st := LTEStats{Name: s.name, Messages: s.messages, Truth: s.truth, Number: s.net.Number(),
		Listeners: int(s.broadcast.listenerCount.Load()), Dropped: s.broadcast.droppedListeners.Load(),
		Missed: s.broadcast.missedSubframes.Load()}
	for _, m := range s.broadcast.transmitters {
		st.Samples = append(st.Samples, SamplesStats{Socket: m.socketPath, Rate: m.rate,
			Silent: m.silentSubframes.Load()})
	}
	for u, m := range s.members {
		t, at := s.net.Truth(u), s.timeSinceStart(s.net.Number())
		v := LTEUserStats{Name: m.name, RNTI: m.rnti, Link: m.link != nil, Carriers: t.Carriers, Waiting: t.Waiting,
			Delivered: t.Delivered, Physical: ratePerSecond(t.Physical), Fair: ratePerSecond(t.Fair)}
		if r := s.recordings[u]; r != nil {
			now := r.At(at)
			v.Recorded = &now
		} else {
			v.SINR = s.signals[u].At(at)
		}
		st.Users = append(st.Users, v)
	}
	return st
}

// ratePerSecond converts bits of a subframe into a rate.
func ratePerSecond(bits float64) unit.Rate {
	return unit.Rate(bits * float64(time.Second/subframeLength))
}
