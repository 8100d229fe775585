package endpoint

import (
	"math"
	"runtime/debug"
	"sync"
	"time"

	"mpbond/base/unit"
)

// Memory is the budget of all bonds of this process. Each device has a Share of it, which
// depends on what is left: a device is Short when it has as much as is left for others,
// and gets nothing more at three times that. So one device alone gets three quarters
// at most, n devices leave the part 1/(3n+1), and each one that comes finds some left
// (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN 1998). Safe for concurrent use.
type Memory struct {
	limit unit.Bytes

	mu   sync.Mutex
	used unit.Bytes
	peak unit.Bytes // of used, since Trim gave memory back
	trim time.Time  // when that was
}

// Tuning.
const (
	// unlimited is the budget where the Go runtime has no limit.
	unlimited = unit.GB
	// leastTrim is what makes Trim worth the work.
	leastTrim = 16 * unit.MB
	trimEvery = 5 * time.Second
	// subflowCost is what a subflow takes: buffers of TLS, of the reader, of a segment.
	subflowCost = 256 * unit.KB
)

// NewMemory makes a budget of n bytes; 0 is half of the Go runtime's memory limit.
func NewMemory(n unit.Bytes) *Memory {
	if n == 0 {
		n = unlimited
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			n = unit.Bytes(limit) / 2
		}
	}
	return &Memory{limit: n}
}

// Limit returns the budget.
func (m *Memory) Limit() unit.Bytes { return m.limit }

// Trim gives the memory that was used, and is not any more, back to the system, if it is
// much. It is to be called every few seconds.
func (m *Memory) Trim() {
	m.mu.Lock()
	free := m.peak-m.used >= max(leastTrim, m.peak/2) && time.Since(m.trim) >= trimEvery
	if free {
		m.peak, m.trim = m.used, time.Now()
	}
	m.mu.Unlock()
	if free {
		debug.FreeOSMemory()
	}
}

// Share is what one device has of a Memory. It implements bond.Memory.
type Share struct {
	m    *Memory
	used unit.Bytes // guarded by m.mu
}

// Share makes one.
func (m *Memory) Share() *Share { return &Share{m: m} }

// Used returns how much the device has.
func (s *Share) Used() unit.Bytes {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.used
}

// Take implements bond.Memory.
func (s *Share) Take(n unit.Bytes) bool {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.used+n > 3*(m.limit-m.used-n) {
		return false
	}
	s.add(n)
	return true
}

// hold counts n bytes that are taken anyway. A nil Share counts nothing.
func (s *Share) hold(n unit.Bytes) {
	if s == nil {
		return
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.add(n)
}

// add counts n bytes. m.mu must be held.
func (s *Share) add(n unit.Bytes) {
	s.used += n
	s.m.used += n
	s.m.peak = max(s.m.peak, s.m.used)
}

// Give implements bond.Memory.
func (s *Share) Give(n unit.Bytes) { s.hold(-n) }

// Short implements bond.Memory.
func (s *Share) Short() bool {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.used > s.m.limit-s.m.used
}
