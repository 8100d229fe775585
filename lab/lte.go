// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/lab/shaper"
	"mpbond/lab/vary"
	"mpbond/pbe/cell"
)

// LTE is a mobile network (package lte). Links of a topology are devices in it. It may have further
// users, of which only the traffic is modelled.
type LTE struct {
	Carriers []Carrier `toml:"carriers" json:"carriers"`
	// Scheduler is "equal" (shares; the default unless Detailed) or "proportional" (fair).
	Scheduler string `toml:"scheduler" json:"scheduler,omitempty"`
	Seed      uint64 `toml:"seed" json:"seed,omitempty"`
	// Detailed adds what real cells have. Block sizes follow a CQI that is 8 ms old, errors follow from the signal, which
	// also fades, and retransmissions add up. The scheduler is proportional unless Scheduler says otherwise, and grants
	// whole groups of blocks. Further carriers come when the present ones are used to 97 %. Links sleep after 100 ms
	// without a grant, and send when they are granted uplink blocks.
	Detailed bool             `toml:"detailed" json:"detailed,omitempty"`
	Samples  *Samples         `toml:"samples" json:"samples,omitempty"`
	User     map[string]*User `toml:"user" json:"user,omitempty"`
}

// Carrier is one carrier of a network. The first has number 0, which is its cell.ID in control
// messages.
type Carrier struct {
	PRB    int `toml:"prb" json:"prb"`
	Layers int `toml:"layers" json:"layers,omitempty"` // 1 or 2 (default)
	// Control is the mean number of users of control traffic in each subframe.
	Control float64 `toml:"control" json:"control,omitempty"`
}

// Device are the properties of links and Users as members of a network.
type Device struct {
	// Signal, Walk or Trace gives the signal level, in dB over noise and neighbours or in dBm
	// (lte.Signal): "18dB"; points in time with straight lines between them, "5s: -105dBm"; or a
	// file of such points with "seconds,level" in each line.
	Signal string   `toml:"signal" json:"signal,omitempty"`
	Walk   []string `toml:"walk" json:"walk,omitempty"`
	Trace  string   `toml:"trace" json:"trace,omitempty"` // relative to the topology's file
	// Rates or Recording, instead of a signal, gives the rate at which the first carrier would send packets to this
	// device alone: points in time, "1.5s: 3Mbit/s", each of which holds until the next; or a file in mahimahi's format,
	// which repeats.
	Rates     []string `toml:"rates" json:"rates,omitempty"`
	Recording string   `toml:"recording" json:"recording,omitempty"` // relative to the topology's file
	Loop      string   `toml:"loop" json:"loop,omitempty"`           // walk, trace or rates repeat at this interval
	// ErrorRate is p: a block of L bits is wrong with probability 1−(1−p)^L.
	ErrorRate float64 `toml:"error_rate" json:"error_rate,omitempty"`
	// Carriers are the carriers that the network may give it, the first one always. Empty: all.
	Carriers []int `toml:"carriers" json:"carriers,omitempty"`
}

// LTELink makes a link a device of a network. Packets to its first end pass a queue there after the
// rest of that direction, the wired part. The other direction is as on other links.
type LTELink struct {
	Network string    `toml:"network" json:"network"`
	RNTI    cell.RNTI `toml:"rnti" json:"rnti"`
	Queue   string    `toml:"queue" json:"queue,omitempty"` // default: defaultAirQueue
	// Handover is the time after which the device moves to another cell, again and again: handoverGap without
	// service, and another RNTI, which nobody reports. Empty: never.
	Handover string `toml:"handover" json:"handover,omitempty"`
	Device
}

// defaultAirQueue is the base station's default queue for a device. It is as long as that of the
// default cell in docs/explanation/pbe.md, which holds 125 ms.
const defaultAirQueue = 750 * unit.KB

// Handovers of a link: the time without service; the first RNTI after one, and how many each user has in turn. They end
// before firstUserRNTI.
const (
	handoverGap                 = 50 * time.Millisecond
	firstHandoverRNTI cell.RNTI = 0x8000
	handoverRNTIs               = 512
)

// User is a device of which only the traffic is modelled.
type User struct {
	Rate string `toml:"rate" json:"rate,omitempty"` // default: it always has data to send
	// On and Off alternate from time zero. Without them it always sends.
	On  string `toml:"on" json:"on,omitempty"`
	Off string `toml:"off" json:"off,omitempty"`
	Device
}

// firstUserRNTI is the RNTI of a network's first User by name. The others follow.
const firstUserRNTI cell.RNTI = 0xE000

// maxControlUsers bounds the users of control traffic in a subframe, so that enough of its messages
// are left.
const maxControlUsers = 8

// maxUsers is the limit of lte.Config.
const maxUsers = 40

// airUser is a user of a network, ready to run.
type airUser struct {
	name   string // of the link or User
	isLink bool
	signal *lte.Signal
	// recording is the rate that takes the place of the signal; nil: none.
	recording *lte.Recording
	source    *lte.Source // nil for a link
	// handover is the time between handovers of a link, 0 for none.
	handover time.Duration
	lte.UserConfig
}

// buildConfig returns the network's configuration and users: first links, then Users, each by name.
// The signal of each user at a subframe must be set from users[i].signal.
func (n *LTE) buildConfig(t *Topology, name string) (cfg lte.Config, users []airUser, err error) {
	cfg.Seed = t.Seed*1000 + n.Seed
	cfg.CarriersByUse = n.Detailed
	switch n.Scheduler {
	case "":
		if n.Detailed {
			cfg.Scheduler = lte.ProportionalFair
		}
	case "equal":
	case "proportional":
		cfg.Scheduler = lte.ProportionalFair
	default:
		return cfg, nil, fmt.Errorf("scheduler %q: write equal or proportional", n.Scheduler)
	}
	if len(n.Carriers) == 0 || len(n.Carriers) > cell.MaxCells {
		return cfg, nil, fmt.Errorf("%d carriers: write 1 to %d, like carriers = [{prb = 50}]", len(n.Carriers),
			cell.MaxCells)
	}
	for i, c := range n.Carriers {
		if c.Layers == 0 {
			c.Layers = 2
		}
		switch {
		case !slices.Contains([]int{6, 15, 25, 50, 75, 100}, c.PRB):
			return cfg, nil, fmt.Errorf("carrier %d: prb %d: LTE has 6, 15, 25, 50, 75 and 100", i, c.PRB)
		case c.Layers < 1 || c.Layers > 2:
			return cfg, nil, fmt.Errorf("carrier %d: layers %d: write 1 or 2", i, c.Layers)
		case !(c.Control >= 0 && c.Control <= maxControlUsers):
			return cfg, nil, fmt.Errorf("carrier %d: control %v: write a mean from 0 to %d", i, c.Control,
				maxControlUsers)
		}
		cfg.Cells = append(cfg.Cells, lte.CellConfig{PRB: c.PRB, Layers: c.Layers, Control: c.Control,
			Groups: n.Samples != nil || n.Detailed})
	}
	if n.Samples != nil {
		if _, err := n.Samples.newRadioChannel(0); err != nil {
			return cfg, nil, err
		}
	}
	for _, link := range t.Links() {
		l := t.Link[link].LTE
		if l == nil || l.Network != name {
			continue
		}
		u, err := l.newLinkUser(len(n.Carriers))
		if err != nil {
			return cfg, nil, fmt.Errorf("link %s: %w", link, err)
		}
		u.name = link
		users = append(users, u)
	}
	for i, user := range slices.Sorted(maps.Keys(n.User)) {
		u, err := n.User[user].newOtherUser(len(n.Carriers))
		switch {
		case err != nil:
		case !namePattern.MatchString(user):
			err = fmt.Errorf("a name is a letter, then up to 14 letters, digits, - or _")
		case t.Link[user] != nil:
			err = fmt.Errorf("a link has that name")
		}
		if err != nil {
			return cfg, nil, fmt.Errorf("user %s: %w", user, err)
		}
		u.name, u.RNTI = user, firstUserRNTI+cell.RNTI(i)
		users = append(users, u)
	}
	if n.Samples != nil {
		for _, u := range users {
			if u.recording != nil {
				return cfg, nil, fmt.Errorf("%s: samples have blocks of the standard's sizes, which rates and "+
					"recordings do not keep to", u.name)
			}
		}
	}
	if len(users) > maxUsers {
		return cfg, nil, fmt.Errorf("%d links and users: %d at most", len(users), maxUsers)
	}
	seen := map[cell.RNTI]string{}
	for _, u := range users {
		u.Adapts = n.Detailed
		u.Sleeps = n.Detailed && u.isLink
		if other := seen[u.RNTI]; other != "" {
			return cfg, nil, fmt.Errorf("%s and %s have the same rnti %#x", other, u.name, uint16(u.RNTI))
		}
		seen[u.RNTI] = u.name
		cfg.Users = append(cfg.Users, u.UserConfig)
	}
	return cfg, users, nil
}

// newLinkUser returns the user of a link, without its name.
func (l *LTELink) newLinkUser(carriers int) (u airUser, err error) {
	if u, err = l.Device.newDeviceUser(carriers); err != nil {
		return u, err
	}
	u.isLink, u.RNTI, u.Buffer = true, l.RNTI, defaultAirQueue
	if !l.RNTI.IsUser() {
		return u, fmt.Errorf("rnti %#x: write the RNTI of a device, like 0x4601", uint16(l.RNTI))
	}
	if l.Queue != "" {
		u.Buffer, err = unit.ParseBytes(l.Queue)
		if err == nil && u.Buffer < bufferSize {
			err = fmt.Errorf("queue %q: a packet must fit", l.Queue)
		}
	}
	if l.Handover != "" && err == nil {
		u.handover, err = time.ParseDuration(l.Handover)
		if err != nil || u.handover < 2*handoverGap {
			err = fmt.Errorf("handover %q: write a time of at least %v, like 5s", l.Handover, 2*handoverGap)
		}
	}
	return u, err
}

// newOtherUser returns the user, without name and RNTI.
func (m *User) newOtherUser(carriers int) (u airUser, err error) {
	if u, err = m.Device.newDeviceUser(carriers); err != nil {
		return u, err
	}
	u.source = &lte.Source{}
	if m.Rate != "" {
		if u.source.Rate, err = unit.ParseRate(m.Rate); err != nil || u.source.Rate <= 0 || u.source.Rate > unit.Gbps {
			return u, fmt.Errorf("rate %q: write a rate up to 1Gbit/s, like 60Mbit/s, or omit it for a user that "+
				"always has data to send", m.Rate)
		}
		u.Buffer = u.source.Rate.Bytes(time.Second) // bounds the queue of a user with too high a rate
	}
	if (m.On == "") != (m.Off == "") {
		return u, fmt.Errorf("write both on and off, or neither")
	}
	if m.On != "" {
		var err1, err2 error
		u.source.On, err1 = time.ParseDuration(m.On)
		u.source.Off, err2 = time.ParseDuration(m.Off)
		if err1 != nil || err2 != nil || u.source.On <= 0 || u.source.Off <= 0 {
			return u, fmt.Errorf("on %q, off %q: write them like 4s", m.On, m.Off)
		}
	}
	return u, nil
}

// newDeviceUser returns the user that the device describes, without name and RNTI, or an error if a
// setting is impossible. It reads trace files.
func (d Device) newDeviceUser(carriers int) (u airUser, err error) {
	if u.signal, u.recording, err = d.parseRadio(); err != nil {
		return u, err
	}
	if !(d.ErrorRate >= 0 && d.ErrorRate <= 1e-3) {
		return u, fmt.Errorf("error_rate %v: write a share of bits from 0 to 1e-3, like 2e-6", d.ErrorRate)
	}
	u.ErrorRate, u.Cells = d.ErrorRate, d.Carriers
	if u.recording != nil {
		if len(d.Carriers) > 0 && !slices.Equal(d.Carriers, []int{0}) {
			return u, fmt.Errorf("carriers %v: a device with rates or a recording has carrier 0 only", d.Carriers)
		}
		carriers = 1
	}
	if len(d.Carriers) == 0 {
		for i := range carriers {
			u.Cells = append(u.Cells, i)
		}
	}
	for i, c := range d.Carriers {
		if c < 0 || c >= carriers || slices.Contains(d.Carriers[:i], c) {
			return u, fmt.Errorf("carriers %v: name each once, of 0 to %d", d.Carriers, carriers-1)
		}
	}
	return u, nil
}

// parseRadio returns the device's signal, or its recording.
func (d Device) parseRadio() (signal *lte.Signal, recording *lte.Recording, err error) {
	given := 0
	for _, is := range []bool{d.Signal != "", d.Walk != nil, d.Trace != "", d.Rates != nil, d.Recording != ""} {
		if is {
			given++
		}
	}
	if given != 1 {
		return nil, nil, fmt.Errorf("write one of signal = \"18dB\", walk = [\"0s: -85dBm\", \"5s: -105dBm\"], " +
			"trace = \"FILE\", rates = [\"0s: 20Mbit/s\"] and recording = \"FILE\"")
	}
	var loop time.Duration
	if d.Loop != "" {
		if d.Recording != "" {
			return nil, nil, fmt.Errorf("loop %q: a recording repeats by itself", d.Loop)
		}
		if loop, err = time.ParseDuration(d.Loop); err != nil || loop <= 0 {
			return nil, nil, fmt.Errorf("loop %q: write it like 10s", d.Loop)
		}
	}
	steady := lte.Steady(0) // of a device with a recording, whose signal nobody asks for
	switch {
	case d.Signal != "":
		v, err := lte.ParseLevel(d.Signal)
		return lte.Steady(v), nil, err
	case d.Walk != nil:
		signal, err = lte.ParseWalk(d.Walk, loop)
		return signal, nil, err
	case d.Rates != nil:
		recording, err = lte.ParseRates(d.Rates, loop)
		return steady, recording, err
	case d.Recording != "":
		p, err := readRadioFile("recording", d.Recording, vary.ReadMahimahi)
		if err != nil {
			return nil, nil, err
		}
		if p.Rates = p.Rates[:len(p.Rates)-1]; len(p.Rates) == 0 { // the last step may be incomplete
			return nil, nil, fmt.Errorf("%s: a recording lasts at least %v", d.Recording, 2*p.Step)
		}
		return steady, lte.NewRecording(p.Step, p.Rates), nil
	}
	signal, err = readRadioFile("trace", d.Trace, func(r io.Reader) (*lte.Signal, error) {
		return lte.ReadSignal(r, loop)
	})
	return signal, nil, err
}

// readRadioFile reads the file of a device's signal or rates, which a key of the topology names.
func readRadioFile[T any](key, file string, read func(io.Reader) (T, error)) (v T, err error) {
	f, err := os.Open(file)
	if err != nil {
		return v, fmt.Errorf("%s: %w", key, err)
	}
	defer f.Close()
	if v, err = read(f); err != nil {
		return v, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

// onlyDevice returns the link that is a device of a network, "" unless there is exactly one.
func (t *Topology) onlyDevice(network string) (link string) {
	for _, name := range t.Links() {
		if l := t.Link[name].LTE; l != nil && l.Network == network {
			if link != "" {
				return ""
			}
			link = name
		}
	}
	return link
}

// allDevices returns the devices of all links and Users.
func (t *Topology) allDevices() (all []*Device) {
	for _, l := range t.Link {
		if l.LTE != nil {
			all = append(all, &l.LTE.Device)
		}
	}
	for _, n := range t.LTE {
		for _, u := range n.User {
			all = append(all, &u.Device)
		}
	}
	return all
}

// checkLTENetworks returns the first error in the mobile networks and their links.
func (t *Topology) checkLTENetworks() error {
	for _, name := range slices.Sorted(maps.Keys(t.LTE)) {
		if !namePattern.MatchString(name) {
			return fmt.Errorf("lte %q: a name is a letter, then up to 14 letters, digits, - or _", name)
		}
		if _, _, err := t.LTE[name].buildConfig(t, name); err != nil {
			return fmt.Errorf("lte %s: %w", name, err)
		}
	}
	for _, name := range t.Links() {
		switch l := t.Link[name]; {
		case l.LTE == nil:
		case t.LTE[l.LTE.Network] == nil:
			return fmt.Errorf("link %s: no network %q (write [lte.%s])", name, l.LTE.Network, l.LTE.Network)
		case l.Cell != "":
			return fmt.Errorf("link %s: a device of lte %s cannot be in a cell", name, l.LTE.Network)
		}
	}
	return nil
}

// addAirRate limits the program of a link's downlink to the most that the network would give the link, without other
// users: its recorded rate, or the rate at the best signal.
func (t *Topology) addAirRate(p *shaper.Program, link string) error {
	u, cfg, err := t.airUserOf(link)
	if err != nil {
		return err
	}
	if u.recording == nil {
		p.Base.Rate = min(p.Base.Rate, peakRate(u, cfg))
		return nil
	}
	limit := p.Base.Rate
	if len(p.Tracks)+len(p.Grants) > 0 { // the wired part varies as well
		p.Base.Rate = min(limit, u.recording.Best())
		return nil
	}
	var track shaper.Track
	track.Loop = u.recording.Each(func(at time.Duration, rate unit.Rate) {
		rate = min(rate, limit)
		track.Changes = append(track.Changes, shaper.Change{At: at, Rate: &rate})
	})
	p.Base.Rate = *track.Changes[0].Rate
	p.Tracks = append(p.Tracks, track)
	return nil
}

// airUserOf returns a link as a user of its network, and the network's configuration.
func (t *Topology) airUserOf(link string) (u airUser, cfg lte.Config, err error) {
	network := t.Link[link].LTE.Network
	cfg, users, err := t.LTE[network].buildConfig(t, network)
	if err != nil {
		return u, cfg, err
	}
	return users[slices.IndexFunc(users, func(u airUser) bool { return u.name == link })], cfg, nil
}

// peakRate returns the rate of a user without others, always at its best signal.
func peakRate(u airUser, cfg lte.Config) unit.Rate {
	sum := 0.0
	for _, c := range u.Cells {
		sum += cfg.Cells[c].Bits(u.signal.Best()) * (1 - cell.Overhead) * 1000
	}
	return unit.Rate(sum)
}

// makeAbsolute makes a file name absolute that is relative to dir.
func makeAbsolute(file *string, dir string) (err error) {
	if *file != "" && !filepath.IsAbs(*file) {
		*file, err = filepath.Abs(filepath.Join(dir, *file))
	}
	return err
}
