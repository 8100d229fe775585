// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"mpbond/lab/shaper"
)

// daemon is the background process of one lab.
type daemon struct {
	spec  daemonSpec
	nodes map[string]*namespace
	emu   *emulator
	links []*emulatedLink
	cells map[string]*[2]*shaper.Cell // by direction

	stations []*baseStation // by name
	pcap     *capture       // or nil
	stopped  chan struct{}
	playing  bool // guarded by the emulator's thread

	warnings  []string
	guardPipe *os.File // open while this process lives: the guard waits for its end
}

// daemonProcs is more than the number of goroutines that the daemon runs. When the emulator thread
// returns from a system call, the Go scheduler must have a processor for it at once. Otherwise it
// would wait for threads without real-time priority.
const daemonProcs = 16

// RunDaemon is the main function of the background process. It reads a daemonSpec from in and
// builds the network. It then writes one line to out, with the error if there was one. It returns
// when the lab is taken down.
func RunDaemon(in io.Reader, out io.WriteCloser) error {
	runtime.GOMAXPROCS(daemonProcs)
	stdin := bufio.NewReader(in)
	d := &daemon{nodes: map[string]*namespace{}, stopped: make(chan struct{}, 4)}
	err := d.readLabSpec(stdin)
	if err == nil {
		err = d.buildNetwork()
	}
	var listener net.Listener
	if err == nil {
		listener, err = net.Listen("unix", filepath.Join(d.spec.Dir, socketName))
	}
	for _, s := range d.stations {
		if err == nil {
			err = s.openSockets(d.spec.Dir)
		}
	}
	if err == nil {
		err = d.startGuard()
	}
	var a response
	if err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(out).Encode(a)
	out.Close()
	if err != nil {
		return err
	}
	if d.spec.EndWithInput {
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			d.requestStop()
		}()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go d.acceptDaemonConns(listener)
	go d.emu.runEmulatorLoop()
	select {
	case <-signals:
	case <-d.stopped:
	}
	d.emu.stopEmulatorLoop()
	if d.pcap != nil {
		return d.pcap.closeFiles()
	}
	return nil // the guard cleans up
}

// requestStop makes RunDaemon return.
func (d *daemon) requestStop() {
	select {
	case d.stopped <- struct{}{}:
	default:
	}
}

// readLabSpec reads the spec and checks its topology.
func (d *daemon) readLabSpec(in *bufio.Reader) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("lab daemon: no topology on standard input: %w", err)
	}
	if err := json.Unmarshal(line, &d.spec); err != nil {
		return fmt.Errorf("lab daemon: %w", err)
	}
	return d.spec.Topology.Check()
}

// buildNetwork builds the whole network. The emulator does not run yet.
func (d *daemon) buildNetwork() error {
	t := d.spec.Topology
	if err := d.mountFiles(); err != nil {
		return err
	}
	if err := allowCongestion(defaultCongestion, d.buildNodes); err != nil {
		return err
	}
	d.cells = map[string]*[2]*shaper.Cell{}
	for name, c := range t.Cell {
		d.cells[name] = &[2]*shaper.Cell{}
		for dir := range d.cells[name] {
			p, err := c.Program(Direction(dir))
			if err != nil {
				return fmt.Errorf("cell %s: %w", name, err)
			}
			d.cells[name][dir] = shaper.NewCell(p)
		}
	}
	for i, name := range t.Links() {
		if err := d.buildLinkAndEnds(name, uint64(i)); err != nil {
			return err
		}
	}
	for _, name := range t.Nodes() {
		routes, err := t.nodeRoutes(name)
		if err != nil {
			return err
		}
		if err := d.nodes[name].addKernelRoutes(routes); err != nil {
			return err
		}
		if err := d.masquerade(name, t.Node[name].NAT); err != nil {
			return err
		}
	}
	var t0 packetTap
	if d.spec.Pcap != "" {
		var err error
		if d.pcap, err = newCapture(d.spec.Pcap, d.spec.PcapBytes, t); err != nil {
			return err
		}
		t0 = d.pcap
	}
	var err error
	for _, name := range slices.Sorted(maps.Keys(t.LTE)) {
		s, err := newBaseStation(name, t.LTE[name], t, d.links)
		if err != nil {
			return fmt.Errorf("lte %s: %w", name, err)
		}
		d.stations = append(d.stations, s)
	}
	d.emu, err = newEmulator(d.links, d.stations, t0)
	return err
}

// buildNodes makes a namespace for each node.
func (d *daemon) buildNodes() error {
	t := d.spec.Topology
	for _, name := range t.Nodes() {
		ns, err := newNamespace(name)
		if err != nil {
			return err
		}
		d.nodes[name] = ns
		warning, err := ns.applySysctls(t)
		if err != nil {
			return err
		}
		if warning != "" {
			d.warnings = []string{warning} // it is the same for every node
		}
	}
	return nil
}

// buildLinkAndEnds makes one link and sets up both ends.
func (d *daemon) buildLinkAndEnds(name string, index uint64) error {
	t := d.spec.Topology
	l := t.Link[name]
	if !l.Shaped() {
		if err := createVethPair(name, d.nodes[l.Ends[0]], d.nodes[l.Ends[1]]); err != nil {
			return err
		}
	} else {
		el := &emulatedLink{name: name}
		for end, node := range l.Ends {
			p, err := l.Program(Direction(end))
			if err != nil {
				return fmt.Errorf("link %s: %w", name, err)
			}
			el.lines[end] = shaper.New(p, t.Seed*1000+2*index+uint64(end))
			if l.Cell != "" {
				d.cells[l.Cell][end].Add(el.lines[end])
			}
			if el.tunFDs[end], err = d.nodes[node].openTUNDevice(name); err != nil {
				return err
			}
		}
		if _, err := l.attachRadio(el.lines[:]...); err != nil {
			return fmt.Errorf("link %s: %w", name, err)
		}
		d.links = append(d.links, el)
	}
	ends, err := t.linkAddresses(name)
	if err != nil {
		return err
	}
	for end, node := range l.Ends {
		if err := d.nodes[node].addAddresses(name, ends[end]); err != nil {
			return err
		}
	}
	return nil
}

// mountFiles gives the nodes their own /etc/hosts, with the names of the lab, and /etc/resolv.conf,
// without servers. The process was started in a new mount namespace. Later mounts of the host still
// appear in it.
func (d *daemon) mountFiles() error {
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for file, text := range map[string]string{"hosts": d.spec.Topology.hostsFileText(),
		"resolv.conf": "# the lab has no name servers\n"} {
		src := filepath.Join(d.spec.Dir, file)
		if err := os.WriteFile(src, []byte(text), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(src, "/etc/"+file, "", unix.MS_BIND, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("mount over /etc/%s: %w", file, err)
		}
	}
	return nil
}

// masquerade masquerades packets that the node forwards out of the given links.
func (d *daemon) masquerade(node string, links []string) error {
	if len(links) == 0 {
		return nil
	}
	rules := fmt.Sprintf("table inet lab { chain out { type nat hook postrouting priority srcnat;\n oifname { %s "+
		"} masquerade\n }\n}\n", strings.Join(links, ", "))
	return d.nodes[node].runInNamespace(func() error {
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rules)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("masquerade with nft: %w: %s (is nftables installed?)", err, out)
		}
		return nil
	})
}

// startGuard starts the process that cleans up after this one.
func (d *daemon) startGuard() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "lab", "guard", d.spec.Dir)
	cmd.Stdin = r
	for _, ns := range d.nodes {
		cmd.ExtraFiles = append(cmd.ExtraFiles, ns.file)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("lab guard: %w", err)
	}
	r.Close()
	d.guardPipe = w
	return nil
}

// RunGuard is the main function of the guard. It waits until in ends, that is until the daemon has
// died for whatever reason. Then it kills every process in the namespaces that it inherited as open
// files. Last, it removes the lab's runtime directory, which signals that cleanup is complete.
func RunGuard(in io.Reader, dir string) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	_, _ = io.Copy(io.Discard, in)
	inodes := map[uint64]bool{}
	for fd := 3; ; fd++ {
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			break
		}
		var fs unix.Statfs_t
		if unix.Fstatfs(fd, &fs) == nil && fs.Type == unix.NSFS_MAGIC {
			inodes[st.Ino] = true
		}
	}
	// A process may fork meanwhile: repeat until none is found.
	for range 100 {
		if killInside(inodes) == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	err := os.RemoveAll(dir)
	removeEmptyRoot(filepath.Dir(dir))
	return err
}

// acceptDaemonConns serves connections until accepting fails.
func (d *daemon) acceptDaemonConns(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			slog.Error("lab daemon: accept", "err", err)
			d.requestStop()
			return
		}
		go d.serveDaemonConn(conn)
	}
}

// serveDaemonConn serves one connection.
func (d *daemon) serveDaemonConn(conn net.Conn) {
	defer conn.Close()
	dec, enc := gob.NewDecoder(conn), gob.NewEncoder(conn)
	for {
		var r request
		if dec.Decode(&r) != nil {
			return
		}
		a, err := d.handleRequest(r)
		if err != nil {
			a = response{Error: err.Error()}
		}
		if enc.Encode(a) != nil {
			return
		}
		if r.Op == "down" && err == nil {
			d.requestStop()
		}
	}
}

// handleRequest executes one request.
func (d *daemon) handleRequest(r request) (a response, err error) {
	switch r.Op {
	case "hello":
		h := &daemonInfo{PID: os.Getpid(), NS: map[string]int{}, Topology: d.spec.Topology, User: inUserNamespace(),
			Warnings: d.warnings}
		for name, ns := range d.nodes {
			h.NS[name] = int(ns.file.Fd())
		}
		a.Info = h
	case "set":
		err = d.changeLinkSettings(r)
	case "start", "rewind":
		d.emu.runInEmulatorLoop(func(now time.Duration) {
			d.playing = r.Op == "start"
			for _, p := range d.scheduledParts() {
				if d.playing {
					p.StartAt(now, r.Into)
				} else {
					p.Rewind(now)
				}
			}
			d.emu.resetPeriod()
		})
	case "stats":
		a.Stats, err = d.collectStats(r.Reset)
	case "traffic":
		a.Traffic = d.takeTrafficLogs()
	case "down":
	default:
		err = fmt.Errorf("unknown request %q", r.Op)
	}
	return a, err
}

// scheduled is a part of the network that has schedules: a line, a cell or a base station.
type scheduled interface {
	StartAt(now, into time.Duration)
	Rewind(now time.Duration)
}

// scheduledParts returns all parts with schedules, cells before their lines.
func (d *daemon) scheduledParts() (all []scheduled) {
	for _, c := range d.cells {
		all = append(all, c[0], c[1])
	}
	for _, s := range d.stations {
		all = append(all, s)
	}
	for _, l := range d.links {
		all = append(all, l.lines[0], l.lines[1])
	}
	return all
}

// changeLinkSettings changes the settings of a link.
func (d *daemon) changeLinkSettings(r request) error {
	dirs, err := ParseDirection(r.Dir)
	if err != nil {
		return err
	}
	change, err := parseProperties(r.Props)
	if err != nil {
		return err
	}
	for _, l := range d.links {
		if l.name != r.Link {
			continue
		}
		d.emu.runInEmulatorLoop(func(now time.Duration) {
			for _, dir := range dirs {
				l.lines[dir].Apply(now, change)
			}
		})
		return nil
	}
	if d.spec.Topology.Link[r.Link] != nil {
		return fmt.Errorf("link %s is unshaped and cannot change (give it a rate or delay in the topology)", r.Link)
	}
	return fmt.Errorf("no link %q (there are %s)", r.Link, strings.Join(d.spec.Topology.Links(), ", "))
}

// parseProperties parses PROPERTY=VALUE texts.
func parseProperties(props []string) (c shaper.Change, err error) {
	if len(props) == 0 {
		return c, fmt.Errorf("nothing to set")
	}
	for _, kv := range props {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return c, fmt.Errorf("%q: write PROPERTY=VALUE, like rate=1Mbit/s", kv)
		}
		if err := c.Set(k, v); err != nil {
			return c, err
		}
	}
	if c.Others != nil {
		return c, fmt.Errorf("only the topology can set others, which belongs to a cell")
	}
	return c, nil
}

// collectStats returns the counters of all links and networks.
func (d *daemon) collectStats(reset bool) (*Stats, error) {
	s := &Stats{}
	shaped := map[string][2]LineStats{}
	var hist latenessHist
	delays := make([][2]delayHist, len(d.links))
	d.emu.runInEmulatorLoop(func(now time.Duration) {
		for k, l := range d.links {
			var lines [2]LineStats
			for i := range lines {
				lines[i] = newLineStats(l.lines[i])
				lines[i].Refused = l.refused[1-i]
			}
			if g := l.grants; g != nil {
				lines[Uplink].InFlight += len(g.held) - g.first
			}
			delays[k] = l.delays
			if s := l.station; s != nil {
				s.members[l.user].addNetworkCounts(&lines[Downlink], s.net.Waiting(l.user))
			}
			shaped[l.name] = lines
		}
		hist, s.Silence = d.emu.lateness, d.emu.silence.longest
		for _, st := range d.stations {
			s.LTE = append(s.LTE, st.readLTEStats())
		}
		if reset {
			d.emu.resetPeriod()
		}
		s.Realtime, s.Playing = d.emu.hasRealtime, d.playing
	})
	s.Lateness = hist.summarizeLateness()
	for k, l := range d.links {
		lines := shaped[l.name]
		for dir := range lines {
			lines[dir].Delays = delays[k][dir].summarizeDelays()
		}
		shaped[l.name] = lines
	}
	if d.pcap != nil {
		s.PcapLost = d.pcap.lost.Load()
	}
	t := d.spec.Topology
	for _, name := range t.Links() {
		ls := LinkStats{Name: name, Ends: t.Link[name].Ends, Shaped: t.Link[name].Shaped(), Lines: shaped[name]}
		if !ls.Shaped {
			if err := d.addVethStats(&ls); err != nil {
				return nil, err
			}
		}
		s.Links = append(s.Links, ls)
	}
	return s, nil
}

// addVethStats adds the counters of a link that is a veth pair.
func (d *daemon) addVethStats(ls *LinkStats) error {
	for end, node := range ls.Ends {
		err := d.nodes[node].runInNamespace(func() error {
			dev, err := netlink.LinkByName(ls.Name)
			if err != nil {
				return err
			}
			if st := dev.Attrs().Statistics; st != nil {
				c := &ls.Lines[end].Count
				c.Sent.Packets, c.Sent.Bytes = int64(st.TxPackets), bytesFromUint64(st.TxBytes)
				c.Delivered = c.Sent
			}
			ls.Lines[end].Rate = -1
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// inUserNamespace reports whether this process is root only in its own user namespace.
func inUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && !strings.Contains(string(b), "4294967295")
}
