// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

var (
	transfersFlag = flag.Uint64("transfers", 100, "how many transfers TestDigests runs")
	digestsFlag   = flag.String("digests", "",
		"a file of digests: TestDigests writes it if it is missing, and compares with it otherwise")
)

// maxListed bounds the differing seeds that TestDigests prints.
const maxListed = 5

// TestDigests guards refactorings. All that two engines send, receive, report to their controllers
// and return to their applications must stay the same for each seed, including times. Error texts
// are not part of a digest, but names of fields of cc.Ack and cc.Loss are. Write the digests before
// a change and compare after it:
//
//	go test ./pbe/transport -run '^TestDigests$' -transfers 2000 -digests FILE
//
// Without -digests it checks that repeated transfers have the same digest and that different seeds
// have different ones.
func TestDigests(t *testing.T) {
	got := digests(t, *transfersFlag)
	if *digestsFlag == "" {
		if again := digests(t, *transfersFlag); !slices.Equal(got, again) {
			t.Error("other events when the transfers are run again")
		}
		slices.Sort(got)
		if n := len(slices.Compact(got)); uint64(n) != *transfersFlag {
			t.Errorf("%d digests of %d transfers", n, *transfersFlag)
		}
		return
	}
	want, err := readDigests(*digestsFlag)
	if errors.Is(err, fs.ErrNotExist) {
		if err := writeDigests(*digestsFlag, got); err != nil {
			t.Fatal(err)
		}
		t.Logf("digests of %d transfers written to %s", len(got), *digestsFlag)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	compared, different := min(len(got), len(want)), 0
	for seed := range compared {
		if got[seed] == want[seed] {
			continue
		}
		if different++; different <= maxListed {
			t.Errorf("seed %d: %s, not %s", seed, got[seed], want[seed])
		}
	}
	t.Logf("%d transfers compared, %d different", compared, different)
}

// digests returns the digest of each transfer with a seed below n.
func digests(t *testing.T, n uint64) []string {
	list := make([]string, n)
	var next atomic.Uint64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for {
				seed := next.Add(1) - 1
				if seed >= n {
					return
				}
				d := newDigestRun(t, seed)
				d.run()
				list[seed] = d.String()
			}
		})
	}
	all.Wait()
	return list
}

// digestRun is one transfer: two engines, a network, and a script of actions.
type digestRun struct {
	w          *world
	rnd        *rand.Rand // for the script
	hash       hash.Hash
	line       []byte
	events     int
	script     []action // in order of time
	app        [2]digestApp
	recent     []flight // some sent packets, for replays
	outage     time.Duration
	held       [2]time.Duration
	corruption float64 // share of packets with modified frames
	vanishes   bool    // at the end no packet arrives any more
}

// action is one step of a script.
type action struct {
	at time.Duration
	do func()
}

// digestApp writes to an engine and reads from it.
type digestApp struct {
	left   int // bytes still to write
	ready  int // bytes that may be written now
	atOnce int // bytes read in a step
	ended  bool
	buf    []byte
}

func newDigestRun(t *testing.T, seed uint64) *digestRun {
	r := rand.New(rand.NewPCG(seed, 19))
	d := &digestRun{rnd: r, hash: sha256.New(), vanishes: r.IntN(10) == 0}
	d.w = newWorld(t, d.somePath(), seed)
	d.w.trace, d.w.refuse, d.w.drop = d.packet, d.refuse, d.drop
	if r.IntN(12) == 0 {
		d.corruption = 0.01
	}
	for i, e := range d.w.engines {
		e.controller = d.controller(i)
		if r.IntN(3) == 0 {
			e.radio.report = d.feedback(i)
		}
		if r.IntN(4) == 0 {
			e.liveness.userTimeout = time.Duration(1+r.IntN(20)) * time.Second
		}
		a := &d.app[i]
		*a = digestApp{left: r.IntN(200_000), atOnce: 64 << 10, buf: make([]byte, 64<<10)}
		switch r.IntN(20) {
		case 0:
			a.left *= 10
		case 1, 2, 3, 4, 5:
			a.left = 0
		}
		if a.ready = a.left; r.IntN(3) == 0 {
			a.ready = 0
			for range 1 + r.IntN(40) {
				n := r.IntN(20_000)
				d.schedule(time.Duration(r.Int64N(int64(4*time.Second))), func() { a.ready += n })
			}
			d.schedule(4*time.Second, func() { a.ready = a.left })
		}
	}
	for range r.IntN(12) {
		d.schedule(time.Duration(r.Int64N(int64(3*time.Second))), d.someAction())
	}
	slices.SortStableFunc(d.script, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	return d
}

func (d *digestRun) schedule(after time.Duration, do func()) {
	d.script = append(d.script, action{time.Second + after, do})
}

// somePath returns the script's next random path.
func (d *digestRun) somePath() testPath {
	r := d.rnd
	p := testPath{delay: time.Duration(200+r.IntN(80_000)) * time.Microsecond,
		rate:  unit.Rate(1+r.IntN(100)) * unit.Mbps,
		queue: time.Duration(10+r.IntN(300)) * time.Millisecond, mtu: []int{1200, 1399, 1452, 1472, 9000}[r.IntN(5)]}
	if r.IntN(10) == 0 {
		p.rate = 0
	}
	if r.IntN(2) == 0 {
		p.loss = r.Float64() * 0.06
	}
	if r.IntN(3) == 0 {
		p.overtake = r.Float64() * 0.2
	}
	if r.IntN(4) == 0 {
		p.duplicate = r.Float64() * 0.1
	}
	return p
}

// someAction returns the script's next random action.
func (d *digestRun) someAction() func() {
	w, r := d.w, d.rnd
	i, other, n := r.IntN(2), d.somePath(), r.IntN(1<<20)
	long := time.Duration(r.Int64N(int64(1500 * time.Millisecond)))
	e, a := w.engines[i], &d.app[i]
	switch r.IntN(14) {
	case 0, 1:
		return func() { w.path = other }
	case 2, 3:
		return func() { d.move(other) }
	case 4:
		return func() { d.outage = w.now + long }
	case 5:
		return func() { d.held[i] = w.now + long }
	case 6:
		return func() {
			e.receiver.limitWindow(uint64(max(n, 2*minPayload)))
		}
	case 7:
		return func() { e.pacer.maxRate = unit.Rate(n/1000) * unit.Kbps * 8 }
	case 8:
		return func() { a.atOnce = 0 }
	case 9:
		return func() { a.atOnce = 1 + n/100 }
	case 10:
		return func() { e.pendingPing = true }
	case 11:
		return func() { d.challenge(i) }
	case 12:
		return func() { e.onPacketsRefused(1, probeSizes[n%len(probeSizes)]) }
	}
	return d.replay
}

// move makes both engines continue over another path.
func (d *digestRun) move(p testPath) {
	d.w.path = p
	for i, e := range d.w.engines {
		e.switchPath(d.w.now, d.controller(i))
		e.radio.resetReceiving(nil)
		if d.rnd.IntN(2) == 0 {
			e.radio.resetReceiving(d.feedback(i))
		}
	}
}

// challenge sends a CHALLENGE from an engine.
func (d *digestRun) challenge(i int) {
	b, number := d.w.engines[i].appendChallenge(d.w.now, nil, []byte("12345678"))
	d.packet('s', i, number, b)
	d.w.push(flight{at: d.w.now + d.w.path.delay, to: 1 - i, number: number, frames: b})
}

// replay delivers earlier packets again.
func (d *digestRun) replay() {
	for range min(len(d.recent), 3) {
		f := d.recent[d.rnd.IntN(len(d.recent))]
		f.at = d.w.now + time.Millisecond
		d.w.push(f)
	}
}

// drop drops, delays and modifies packets as the script demands.
func (d *digestRun) drop(from int, f flight) bool {
	w := d.w
	if len(d.recent) < 64 || d.rnd.IntN(50) == 0 {
		d.recent = append(d.recent[max(0, len(d.recent)-63):], f)
	}
	if w.now < d.outage {
		return true
	}
	if d.corruption > 0 && d.rnd.Float64() < d.corruption {
		f.at, f.frames = w.now+w.path.delay, bytes.Clone(f.frames)
		f.frames[d.rnd.IntN(min(40, len(f.frames)))] ^= byte(1 << d.rnd.IntN(8))
		w.push(f)
		return true
	}
	if w.now < d.held[from] {
		f.at = d.held[from] + w.path.delay
		w.push(f)
		return true
	}
	return false
}

// packet records a packet that the world traces.
func (d *digestRun) packet(what byte, end int, number uint64, frames []byte) {
	d.record(what, end, number, uint64(len(frames)))
	d.hash.Write(frames)
}

// refuse closes an engine after an error of handleDataPacket, as Conn does.
func (d *digestRun) refuse(end int, err error) {
	d.record('!', end)
	d.w.engines[end].closing.closeLocally(err)
}

// record adds an event to the digest.
func (d *digestRun) record(what byte, end int, values ...uint64) {
	d.events++
	d.line = append(d.line[:0], what, byte(end))
	d.line = binary.BigEndian.AppendUint64(d.line, uint64(d.w.now))
	for _, v := range values {
		d.line = binary.BigEndian.AppendUint64(d.line, v)
	}
	d.hash.Write(d.line)
}

// run plays the script, ends the connection and waits until both ends are over.
func (d *digestRun) run() {
	if d.stepUntil(2*time.Minute, func() bool { return d.finished() && len(d.script) == 0 }); d.vanishes {
		d.outage = time.Hour
		d.w.engines[0].sender.writeToBuffer(make([]byte, 3000))
	} else {
		i := d.rnd.IntN(2)
		d.w.engines[i].closing.closeLocally(net.ErrClosed)
	}
	d.stepUntil(5*time.Minute, func() bool {
		return d.w.engines[0].closing.isFullyClosed(d.w.now) &&
			d.w.engines[1].closing.isFullyClosed(d.w.now)
	})
}

// finished reports whether both streams have arrived or the connection has ended.
func (d *digestRun) finished() bool {
	over := d.w.engines[0].closing.err != nil || d.w.engines[1].closing.err != nil
	return over || d.app[0].ended && d.app[1].ended && d.w.engines[0].sender.isStreamFlushed() &&
		d.w.engines[1].sender.isStreamFlushed()
}

// stepUntil runs the world until done returns true, or for long. It stops after very many steps.
func (d *digestRun) stepUntil(long time.Duration, done func() bool) {
	const most = 40_000
	w := d.w
	end := w.now + long
	for n := 0; n < most && w.now < end && !done(); n++ {
		for len(d.script) > 0 && d.script[0].at <= w.now {
			d.script[0].do()
			d.script = d.script[1:]
		}
		if w.alarm = end; len(d.script) > 0 {
			w.alarm = d.script[0].at
		}
		for i := range w.engines {
			d.runApp(i)
			w.send(i)
		}
		w.step()
		for i := range w.engines {
			d.recordState(i)
		}
	}
}

// runApp lets an application write and read.
func (d *digestRun) runApp(i int) {
	e, a := d.w.engines[i], &d.app[i]
	if e.closing.err == nil && a.ready > 0 {
		n := e.sender.writeToBuffer(a.buf[:min(len(a.buf), a.ready)])
		a.left, a.ready = a.left-n, a.ready-n
		d.record('w', i, uint64(n))
	}
	if a.left <= 0 {
		e.sender.fin = true
	}
	for a.atOnce > 0 || d.w.now > 10*time.Second {
		n, err := e.readAvailable(d.w.now, a.buf[:min(len(a.buf), max(a.atOnce, 1000))])
		a.ended = a.ended || err == io.EOF
		if n > 0 || err != nil {
			d.record('t', i, uint64(n))
		}
		if n == 0 || a.atOnce < len(a.buf) {
			return
		}
	}
}

// recordState records the visible state of an engine.
func (d *digestRun) recordState(i int) {
	e := d.w.engines[i]
	c := e.counts
	d.record('=', i, uint64(e.nextWakeTime(d.w.now)), uint64(e.loss.rtt.smoothed), uint64(e.loss.rtt.rttVar),
		uint64(e.loss.rtt.min), uint64(e.loss.bytesInFlight), uint64(e.rate), boolValue(e.appLimited),
		e.receiver.readOffset, uint64(e.receiver.unreadBytes()), uint64(e.sender.unsentBytes()), e.sender.buf.base,
		e.sender.acked.Size(), uint64(e.mtu.size), boolValue(e.closing.err != nil), boolValue(e.sender.isStreamFlushed()),
		uint64(e.radio.incoming.TransportRate),
		c.packets, e.sender.retransmittedSegments, e.loss.lostCount, e.loss.spuriousCount, c.wireOut, c.wireIn, c.duplicate,
		c.tooOld)
}

func boolValue(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// String returns the digest and a few figures that help to find differences.
func (d *digestRun) String() string {
	return fmt.Sprintf("%x %d %v %d %d", d.hash.Sum(nil), d.events, d.w.now, d.w.engines[0].counts.packets,
		d.w.engines[1].counts.packets)
}

// controller returns a random controller that records its calls.
func (d *digestRun) controller(end int) cc.Controller {
	name := []string{"cubic", "cubic", "bbr", "copa", "pbe", "verus", "sprout"}[d.rnd.IntN(7)]
	return &recordedController{cc.New(name, d.rnd.Uint64()), d, end}
}

// recordedController is a Controller that records all calls except Limits.
type recordedController struct {
	cc.Controller
	d   *digestRun
	end int
}

func (c *recordedController) OnSent(now time.Duration, size, inFlight unit.Bytes) {
	c.d.record('S', c.end, uint64(now), uint64(size), uint64(inFlight))
	c.Controller.OnSent(now, size, inFlight)
}

func (c *recordedController) OnAck(a cc.Ack) {
	c.d.record('A', c.end)
	fmt.Fprintf(c.d.hash, "%+v", a)
	c.Controller.OnAck(a)
}

func (c *recordedController) OnLoss(l cc.Loss) {
	c.d.record('L', c.end)
	fmt.Fprintf(c.d.hash, "%+v", l)
	c.Controller.OnLoss(l)
}

// feedback returns reports that vary with time.
func (d *digestRun) feedback(end int) reportFunc {
	return func(now, oneWay, rtprop time.Duration, _ unit.Bytes) cc.CellFeedback {
		d.record('F', end, uint64(now), uint64(oneWay), uint64(rtprop))
		return cc.CellFeedback{TransportRate: unit.Rate(1+now.Milliseconds()%50) * unit.Mbps, FairRate: unit.Mbps,
			Internet: oneWay > 30*time.Millisecond, Activated: uint8(now / time.Second)}
	}
}

func writeDigests(name string, list []string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, digest := range list {
		fmt.Fprintln(w, digest)
	}
	return errors.Join(w.Flush(), f.Close())
}

func readDigests(name string) (list []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		list = append(list, lines.Text())
	}
	return list, lines.Err()
}
