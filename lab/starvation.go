// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxStarved is how long an ordinary program may wait for a processor. A measurement with a longer
// wait is disturbed: the programs of a transfer are ordinary ones too, and nothing else shows their
// pauses, since an emulator without packets is never late. The queues of many links hold some 50
// ms.
const maxStarved = 50 * time.Millisecond

// starvationTick is how often the watchers wake.
const starvationTick = 5 * time.Millisecond

// starvation watches all processors while at least one measurement runs in this process.
var starvation starvationWatch

// starvationWatch measures how late ordinary threads wake. There is one on each processor, which
// cannot move to another: so it also shows pauses of a processor that some programs can avoid. Its
// methods are safe for concurrent use.
type starvationWatch struct {
	mu      sync.Mutex
	running map[*starvationPeriod]bool // guarded by mu
	stop    chan struct{}              // ends the watchers; nil without any; guarded by mu
}

// starvationPeriod is the time of one measurement: the longest wait of a processor in it, and the
// sum of all waits that are longer than a tick.
type starvationPeriod struct{ worst, sum time.Duration } // guarded by starvationWatch.mu

// watchLongestWait begins a period. The returned function ends it and returns the longest wait in
// it.
func (w *starvationWatch) watchLongestWait() (end func() time.Duration) {
	whole := w.beginPeriod()
	return func() time.Duration { return whole().worst }
}

// beginPeriod is like begin with all that a period measures.
func (w *starvationWatch) beginPeriod() (end func() starvationPeriod) {
	p := &starvationPeriod{}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.running) == 0 {
		w.running, w.stop = map[*starvationPeriod]bool{}, make(chan struct{})
		for _, cpu := range allowedProcessors() {
			go w.watchProcessor(cpu, w.stop)
		}
	}
	w.running[p] = true
	return func() starvationPeriod {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.running, p); len(w.running) == 0 && w.stop != nil {
			close(w.stop)
			w.stop = nil
		}
		return *p
	}
}

// allowedProcessors returns the processors that this process may use.
func allowedProcessors() (all []int) {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return []int{-1}
	}
	for cpu := range len(set) * strconv.IntSize {
		if set.IsSet(cpu) {
			all = append(all, cpu)
		}
	}
	return all
}

// watchProcessor measures one processor until stop is closed. With cpu -1 its thread may use any.
func (w *starvationWatch) watchProcessor(cpu int, stop chan struct{}) {
	runtime.LockOSThread() // never unlocked: the thread ends with its affinity
	if cpu >= 0 {
		var set unix.CPUSet
		set.Set(cpu)
		_ = unix.SchedSetaffinity(0, &set) // otherwise it measures any processor
	}
	wait := unix.NsecToTimespec(int64(starvationTick))
	for {
		before := time.Now()
		_ = unix.Nanosleep(&wait, nil)
		w.addProcessorWait(time.Since(before) - starvationTick)
		select {
		case <-stop:
			return
		default:
		}
	}
}

// addProcessorWait counts a wait for all periods that run.
func (w *starvationWatch) addProcessorWait(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.running {
		p.worst = max(p.worst, d)
		if d > starvationTick {
			p.sum += d
		}
	}
}

// processorWait returns how long the threads of a process have waited for a processor so far, added
// up. Threads that have ended do not count.
func processorWait(pid int) (sum time.Duration) {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat")
	for _, name := range files {
		text, _ := os.ReadFile(name) // it ends meanwhile, or the kernel does not count
		sum += parseProcessorWait(string(text))
	}
	return sum
}

// parseProcessorWait returns the second number of a schedstat file: nanoseconds in a run queue.
func parseProcessorWait(text string) time.Duration {
	var ran, waited int64
	if n, _ := fmt.Sscan(text, &ran, &waited); n < 2 {
		return 0
	}
	return time.Duration(waited)
}
