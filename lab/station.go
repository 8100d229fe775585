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

// subframe is the step of a network. While nobody hears it and no link has a packet
// there, a station makes idleSubframes at once: the thread's wake-ups are what costs.
const (
	subframe      = time.Millisecond
	idleSubframes = 20
)

// parcel is a packet in a network.
type parcel struct {
	item   lte.Item
	packet shaper.Packet
}

// station runs a network in the emulator's thread: each subframe at its ideal time,
// with what its lines have brought by then, however late the thread is. It never
// rests, since Users go on.
type station struct {
	name    string
	net     *lte.Network
	signals []*lte.Signal // by user
	members []member      // by user
	next    time.Duration // ideal time of the end of the next subframe
	zero    int64         // number of the subframe at which time zero was
	playing bool          // there was one
	air     *broadcast
	// messages and truth are where it is heard, once it is open.
	messages, truth string

	out   []lte.Out
	spare []*parcel
	hear  func(cell.Subframe)
	slot  *slot // of the subframe that is made, nil if nobody hears
}

// member is a user: a link, or one with a source.
type member struct {
	name   string
	rnti   cell.RNTI
	link   *emuLink
	source *lte.Source
	// What happened to packets of the link in the network.
	delivered, dropped, lost shaper.Count
}

func newStation(name string, n *LTE, t *Topology, links []*emuLink) (*station, error) {
	cfg, users, err := n.config(t, name)
	if err != nil {
		return nil, err
	}
	s := &station{name: name, next: subframe, air: newBroadcast(cfg, users)}
	if only := t.only(name); only != "" {
		s.air.self = t.Link[only].LTE.RNTI
	}
	if n.Samples != nil {
		for i, c := range cfg.Cells {
			ch, err := n.Samples.channel(cfg.Seed + uint64(i))
			if err != nil {
				return nil, err
			}
			s.air.masts = append(s.air.masts, newMast(i, c.PRB, ch, cfg.Seed+uint64(i)))
		}
	}
	for i, u := range users {
		cfg.Users[i].SINR = func(number int64) float64 { return u.signal.At(s.since(number)) }
		s.signals = append(s.signals, u.signal)
		m := member{name: u.name, rnti: u.RNTI, source: u.source}
		for _, l := range links {
			if u.link && l.name == u.name {
				m.link = l
				l.station, l.user = s, i
			}
		}
		s.members = append(s.members, m)
	}
	s.net = lte.New(cfg)
	s.hear = func(f cell.Subframe) {
		if s.slot != nil {
			s.slot.add(f)
		}
	}
	return s, nil
}

// since is the time of the beginning of a subframe after time zero, or before it
// negative.
func (s *station) since(number int64) time.Duration {
	if !s.playing {
		return -1
	}
	return time.Duration(number-s.zero) * subframe
}

// StartAt makes now so long after time zero of signals and sources.
func (s *station) StartAt(_, into time.Duration) {
	s.playing, s.zero = true, s.net.Number()-int64(into/subframe)
}

// Rewind has no time zero any more.
func (s *station) Rewind(time.Duration) { s.playing = false }

// due is when advance is to be called next.
func (s *station) due() time.Duration {
	if s.air.hearers.Load() > 0 {
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
	return s.next + (idleSubframes-1)*subframe
}

// advance makes all subframes that have ended by now.
func (s *station) advance(e *emulator, now time.Duration) {
	for ; s.next <= now; s.next += subframe {
		for u := range s.members {
			m := &s.members[u]
			if m.source != nil {
				m.source.Offer(s.net, u, s.since(s.net.Number()))
				continue
			}
			for {
				p, _, ok := m.link.lines[Downlink].Deliver(s.next)
				if !ok {
					break
				}
				if !s.offer(u, p) {
					m.dropped.Add(p.Size)
					e.put(p.Data)
				}
			}
		}
		s.slot = s.air.begin(s.net.Number())
		s.out = s.net.Step(s.out[:0], s.hear)
		if s.slot != nil {
			for u := range s.members {
				s.slot.truth = append(s.slot.truth, s.net.Truth(u))
			}
			s.air.commit()
		}
		for _, o := range s.out {
			s.leave(e, o)
		}
	}
}

func (s *station) offer(u int, p shaper.Packet) bool {
	if len(s.spare) == 0 {
		s.spare = append(s.spare, &parcel{})
	}
	c := s.spare[len(s.spare)-1]
	c.packet, c.item.Size, c.item.Tag = p, p.Size, c
	if !s.net.Offer(u, &c.item) {
		return false
	}
	s.spare = s.spare[:len(s.spare)-1]
	return true
}

// leave hands over what has come over the air.
func (s *station) leave(e *emulator, o lte.Out) {
	m := &s.members[o.User]
	if m.source != nil {
		m.source.Back(o.Item)
		return
	}
	c := o.Item.Tag.(*parcel)
	p := c.packet
	c.packet = shaper.Packet{}
	s.spare = append(s.spare, c)
	if o.Lost {
		m.lost.Add(p.Size)
		e.put(p.Data)
		return
	}
	m.delivered.Add(p.Size)
	e.handOver(m.link, Downlink, p, s.next)
}

// amend makes the statistics of a link's downlink those of both of its parts.
func (m *member) amend(l *LineStats, waiting unit.Bytes) {
	l.Count.Delivered = m.delivered
	l.Count.QueueDrops.Packets += m.dropped.Packets
	l.Count.QueueDrops.Bytes += m.dropped.Bytes
	l.Count.LossDrops.Packets += m.lost.Packets
	l.Count.LossDrops.Bytes += m.lost.Bytes
	l.Queued += waiting
}

// messagesAt is the socket in a lab's directory at which a network is heard.
func messagesAt(dir, network string) string { return filepath.Join(dir, network+".cells") }

// open begins to serve what the network tells, at sockets in dir.
func (s *station) open(dir string) error {
	s.messages, s.truth = messagesAt(dir, s.name), filepath.Join(dir, s.name+".truth")
	messages, err := net.Listen("unix", s.messages)
	if err != nil {
		return fmt.Errorf("lte %s: %w", s.name, err)
	}
	truth, err := net.Listen("unix", s.truth)
	if err != nil {
		return fmt.Errorf("lte %s: %w", s.name, err)
	}
	for i, m := range s.air.masts {
		m.path = filepath.Join(dir, fmt.Sprintf("%s.%d.sc16", s.name, i))
		l, err := net.Listen("unix", m.path)
		if err != nil {
			return fmt.Errorf("lte %s: %w", s.name, err)
		}
		go s.air.serve(l, &m.to, func(*hearer) error { return nil })
		go m.run(nil)
	}
	go s.air.serve(messages, &s.air.told, s.air.messages)
	go s.air.serve(truth, &s.air.told, s.air.truth)
	go s.air.run(nil)
	return nil
}

// stats is what the network knows of itself.
func (s *station) stats() LTEStats {
	st := LTEStats{Name: s.name, Messages: s.messages, Truth: s.truth, Number: s.net.Number(), Hearers: int(s.air.hearers.Load()), Dropped: s.air.dropped.Load(), Missed: s.air.missed.Load()}
	for _, m := range s.air.masts {
		st.Samples = append(st.Samples, SamplesStats{Socket: m.path, Rate: m.rate, Silent: m.silent.Load()})
	}
	for u, m := range s.members {
		t := s.net.Truth(u)
		st.Users = append(st.Users, LTEUserStats{Name: m.name, RNTI: m.rnti, Link: m.link != nil, SINR: s.signals[u].At(s.since(s.net.Number())),
			Carriers: t.Carriers, Waiting: t.Waiting, Delivered: t.Delivered, Physical: perSecond(t.Physical), Fair: perSecond(t.Fair)})
	}
	return st
}

// perSecond is the rate of so many bits in each subframe.
func perSecond(bits float64) unit.Rate { return unit.Rate(bits * float64(time.Second/subframe)) }
