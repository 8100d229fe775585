// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"mpbond/base/unit"
	"mpbond/lab/lte"
	"mpbond/lab/shaper"
)

// Tuning of the emulator thread. With a goroutine per link and Go's timers, packets were 0.5 ms
// late at 10 Mbit/s on a machine of two cores. So one thread does everything and asks the kernel
// for exact wake-ups.
const (
	bufferSize    = 2048    // a packet of the links' MTU (1500) fits
	bufferChunk   = 1024    // buffers allocated at once
	memoryLimit   = 1 << 30 // the collector is off below this
	fifoPriority  = 10      // SCHED_FIFO: any value above 0 precedes all ordinary threads
	readsPerWake  = 64      // packets read from one TUN before deliveries are checked again
	eventsPerWake = 64
)

// emulatedLink is one emulated link: a TUN device at each end and a line for each direction.
// lines[Uplink] carries from end 0 to end 1.
type emulatedLink struct {
	name    string
	tunFDs  [2]int // by end
	lines   [2]*shaper.Line
	refused [2]int64 // packets that the kernel of that end did not accept
	traffic [2]trafficLog
	delays  [2]delayHist // by line
	// station is the mobile network behind the Downlink line, where the link is the given user; or
	// nil.
	station *baseStation
	user    int
	// grants holds packets behind the Uplink line until the device may send; nil: they need no grant.
	grants *grantQueue
}

// grantQueue holds packets of an uplink until they are granted blocks.
type grantQueue struct {
	uplink *lte.Uplink
	held   []heldPacket // in order, from the index first on
	first  int
}

// heldPacket is a packet that leaves at a time.
type heldPacket struct {
	packet shaper.Packet
	at     time.Duration
}

// packetTap sees packets as a capture at one end of a link would. Implementations must not keep
// data and must not block: they run in the emulator's thread.
type packetTap interface {
	observePacket(link string, end int, data []byte)
}

// emulator moves packets between TUN devices as the lines decide. All its fields belong to the
// thread that runs runEmulatorLoop; other threads use runInEmulatorLoop.
type emulator struct {
	links       []*emulatedLink
	stations    []*baseStation
	tap         packetTap // or nil
	base        time.Time
	lateness    latenessHist
	silence     silenceMeter
	hasRealtime bool
	// recording appends to the traffic logs of links, without limit.
	recording   bool
	freeBuffers [][]byte
	epollFD     int
	wakeFD      int // eventfd: calls is not empty
	calls       chan func(now time.Duration)
	stopped     bool
}

// newEmulator prepares the emulator; runEmulatorLoop starts it. The caller keeps the descriptors of
// links.
func newEmulator(links []*emulatedLink, stations []*baseStation, t packetTap) (*emulator, error) {
	e := &emulator{links: links, stations: stations, tap: t, base: time.Now(), calls: make(chan func(time.Duration),
		16)}
	var err error
	if e.epollFD, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if e.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	watch := func(fd int, id int32) error {
		return unix.EpollCtl(e.epollFD, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: id})
	}
	if err := watch(e.wakeFD, -1); err != nil {
		return nil, err
	}
	for i, l := range links {
		for end, fd := range l.tunFDs {
			if err := watch(fd, int32(2*i+end)); err != nil {
				return nil, fmt.Errorf("epoll %s: %w", l.name, err)
			}
			l.lines[end].Drop = func(p shaper.Packet) { e.releaseBuffer(p.Data) }
		}
	}
	return e, nil
}

// runInEmulatorLoop runs f in the emulator's thread and returns when f has returned.
func (e *emulator) runInEmulatorLoop(f func(now time.Duration)) {
	done := make(chan struct{})
	e.calls <- func(now time.Duration) { f(now); close(done) }
	one := [8]byte{1}
	_, _ = unix.Write(e.wakeFD, one[:])
	<-done
}

// emulatorTime returns the time since newEmulator.
func (e *emulator) emulatorTime() time.Duration { return time.Since(e.base) }

// runEmulatorLoop takes over the calling goroutine's thread until stopEmulatorLoop is called.
func (e *emulator) runEmulatorLoop() {
	runtime.LockOSThread() // never unlocked: the thread ends with its priority
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: fifoPriority,
		Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	e.hasRealtime = unix.SchedSetAttr(0, &attr, 0) == nil
	if e.hasRealtime {
		raiseRuntimeMonitor(&attr)
	} else {
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20) // second best, where allowed
	}
	events := make([]unix.EpollEvent, eventsPerWake)
	for !e.stopped {
		next, wait := e.deliverDue()
		for _, ev := range events[:e.waitEvents(events, next, wait)] {
			if ev.Fd < 0 {
				e.serveCalls()
			} else {
				e.readPacketsFromEnd(e.links[ev.Fd/2], int(ev.Fd%2))
			}
		}
	}
}

// raiseRuntimeMonitor gives the scheduling of the emulator's thread to the thread of Go's runtime that
// looks at threads in system calls (sysmon). While it looks at one, that thread spins at the end of its
// call (setBlockOnExitSyscall, since Go 1.26). A real-time thread that has preempted
// sysmon on its processor would spin until sysmon moves to another one: for milliseconds, and up to
// 0.95 s if none is idle. With one priority, neither preempts the other.
//
// It is the first thread that a program starts (runtime.main). If that changes, nothing else breaks.
func raiseRuntimeMonitor(attr *unix.SchedAttr) {
	if tid, ok := runtimeMonitor(); ok {
		_ = unix.SchedSetAttr(tid, attr, 0)
	}
}

// runtimeMonitor returns the thread that a process starts first.
func runtimeMonitor() (tid int, ok bool) {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0, false
	}
	for _, t := range threads {
		if n, err := strconv.Atoi(t.Name()); err == nil && n != os.Getpid() && (!ok || n < tid) {
			tid, ok = n, true
		}
	}
	return tid, ok
}

// stopEmulatorLoop ends runEmulatorLoop. Later calls of runInEmulatorLoop block for ever.
func (e *emulator) stopEmulatorLoop() { e.runInEmulatorLoop(func(time.Duration) { e.stopped = true }) }

// waitEvents waits for packets until the time next, or without limit if wait is false.
func (e *emulator) waitEvents(events []unix.EpollEvent, next time.Duration, wait bool) int {
	var ts *unix.Timespec
	if wait {
		t := unix.NsecToTimespec(int64(max(0, next-e.emulatorTime())))
		ts = &t
	}
	n, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(e.epollFD), uintptr(unsafe.Pointer(&events[0])),
		uintptr(len(events)), uintptr(unsafe.Pointer(ts)), 0, 0)
	if errno != 0 {
		return 0 // EINTR: the caller retries
	}
	return int(n)
}

// serveCalls runs the functions of runInEmulatorLoop.
func (e *emulator) serveCalls() {
	var buf [8]byte
	_, _ = unix.Read(e.wakeFD, buf[:])
	for {
		select {
		case f := <-e.calls:
			f(e.emulatorTime())
		default:
			return
		}
	}
}

// readPacketsFromEnd moves packets from one end of a link into its line.
func (e *emulator) readPacketsFromEnd(l *emulatedLink, end int) {
	for range readsPerWake {
		buf := e.takeBuffer()
		n, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(l.tunFDs[end]), uintptr(unsafe.Pointer(&buf[0])),
			bufferSize)
		if errno != 0 || n == 0 {
			e.releaseBuffer(buf)
			return
		}
		if e.tap != nil {
			e.tap.observePacket(l.name, end, buf[:n])
		}
		now := e.emulatorTime()
		switch taken := l.lines[end].Enqueue(now, shaper.Packet{Size: unit.Bytes(n), Data: buf[:n]}); {
		case !taken:
			e.releaseBuffer(buf)
		case e.recording:
			l.traffic[end].logTrafficPacket(now, int(n))
		}
		e.silence.notePacketTime(now)
	}
}

// deliverDue delivers all packets that are due. It returns when the next packet is due, if any is
// on its way.
func (e *emulator) deliverDue() (next time.Duration, wait bool) {
	for _, s := range e.stations {
		s.runSubframes(e, e.emulatorTime())
		if at := s.nextSubframeTime(); !wait || at < next {
			next, wait = at, true
		}
	}
	for _, l := range e.links {
		for end, line := range l.lines {
			if l.station != nil && Direction(end) == Downlink {
				continue // its station takes its packets
			}
			for {
				now := e.emulatorTime()
				at, ok := line.Due()
				if !ok {
					break
				}
				if at > now {
					if !wait || at < next {
						next, wait = at, true
					}
					break
				}
				p, due, ok := line.Deliver(now)
				if !ok {
					continue // the line changed, and so did its Due
				}
				if l.grants != nil && Direction(end) == Uplink {
					l.grants.held = append(l.grants.held, heldPacket{p, l.grants.uplink.NextGrant(due)})
					continue
				}
				e.deliverToReceiver(l, Direction(end), p, due)
			}
		}
		if at, ok := e.deliverGranted(l); ok && (!wait || at < next) {
			next, wait = at, true
		}
	}
	return next, wait
}

// deliverGranted delivers what has been granted blocks. It returns when the next packet of the link's grantQueue is
// due, if there is one.
func (e *emulator) deliverGranted(l *emulatedLink) (next time.Duration, ok bool) {
	g := l.grants
	if g == nil {
		return 0, false
	}
	for ; g.first < len(g.held); g.first++ {
		h := g.held[g.first]
		if h.at > e.emulatorTime() {
			return h.at, true
		}
		e.deliverToReceiver(l, Uplink, h.packet, h.at)
	}
	g.held, g.first = g.held[:0], 0
	return 0, false
}

// deliverToReceiver delivers a packet to its receiver. due is its ideal time of arrival.
func (e *emulator) deliverToReceiver(l *emulatedLink, dir Direction, p shaper.Packet, due time.Duration) {
	now := e.emulatorTime()
	e.writePacketToEnd(l, 1-int(dir), p.Data)
	e.lateness.addLateness(now - due)
	e.silence.notePacketTime(now)
	l.delays[dir].countPacketDelay(now - p.At)
}

// resetPeriod begins a new period of lateness, silence and delays.
func (e *emulator) resetPeriod() {
	e.lateness, e.silence = latenessHist{}, silenceMeter{}
	for _, l := range e.links {
		l.delays = [2]delayHist{}
	}
}

// writePacketToEnd gives a packet to the kernel of one end and releases its buffer.
func (e *emulator) writePacketToEnd(l *emulatedLink, end int, data []byte) {
	_, _, errno := syscall.RawSyscall(unix.SYS_WRITE, uintptr(l.tunFDs[end]), uintptr(unsafe.Pointer(&data[0])),
		uintptr(len(data)))
	if errno != 0 {
		l.refused[end]++ // the device is down, or the kernel is out of memory
		e.releaseBuffer(data)
		return
	}
	if e.tap != nil {
		e.tap.observePacket(l.name, end, data)
	}
	if e.recording {
		l.traffic[end].logTrafficPacket(e.emulatorTime(), -len(data))
	}
	e.releaseBuffer(data)
}

// takeBuffer returns a free buffer.
func (e *emulator) takeBuffer() []byte {
	if len(e.freeBuffers) == 0 {
		chunk := make([]byte, bufferChunk*bufferSize)
		for i := range bufferChunk {
			e.freeBuffers = append(e.freeBuffers, chunk[i*bufferSize:(i+1)*bufferSize:(i+1)*bufferSize])
		}
	}
	b := e.freeBuffers[len(e.freeBuffers)-1]
	e.freeBuffers = e.freeBuffers[:len(e.freeBuffers)-1]
	return b
}

// releaseBuffer takes a buffer back.
func (e *emulator) releaseBuffer(b []byte) { e.freeBuffers = append(e.freeBuffers, b[:bufferSize]) }
