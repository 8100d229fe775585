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

	mu        sync.Mutex
	used      unit.Bytes
	peak      unit.Bytes // of used, since Trim gave memory back
	trimmedAt time.Time  // when that was
}

// Tuning.
const (
	// defaultBudget is the budget where the Go runtime has no limit.
	defaultBudget = unit.GB
	// minTrim is what makes Trim worth the work.
	minTrim      = 16 * unit.MB
	trimInterval = 5 * time.Second
	// subflowCost is what a subflow takes: buffers of TLS, of the reader, of a segment.
	subflowCost = 256 * unit.KB
)

// NewMemory makes a budget of n bytes; 0 is half of the Go runtime's memory limit.
func NewMemory(n unit.Bytes) *Memory {
	if n == 0 {
		n = defaultBudget
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
	free := m.peak-m.used >= max(minTrim, m.peak/2) && time.Since(m.trimmedAt) >= trimInterval
	if free {
		m.peak, m.trimmedAt = m.used, time.Now()
	}
	m.mu.Unlock()
	if free {
		debug.FreeOSMemory()
	}
}

// Share is what one device has of a Memory. It implements bond.Memory.
type Share struct {
	memory *Memory
	used   unit.Bytes // guarded by m.mu
}

// NewShare makes one.
func (m *Memory) NewShare() *Share { return &Share{memory: m} }

// Used returns how much the device has.
func (s *Share) Used() unit.Bytes {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.used
}

// Take implements bond.Memory.
func (s *Share) Take(n unit.Bytes) bool {
	m := s.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.used+n > 3*(m.limit-m.used-n) {
		return false
	}
	s.addBytes(n)
	return true
}

// forceTake counts n bytes that are taken anyway. A nil Share counts nothing.
func (s *Share) forceTake(n unit.Bytes) {
	if s == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.addBytes(n)
}

// addBytes counts n bytes. m.mu must be held.
func (s *Share) addBytes(n unit.Bytes) {
	s.used += n
	s.memory.used += n
	s.memory.peak = max(s.memory.peak, s.memory.used)
}

// Release implements bond.Memory.
func (s *Share) Release(n unit.Bytes) { s.forceTake(-n) }

// IsShort implements bond.Memory.
func (s *Share) IsShort() bool {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.used > s.memory.limit-s.memory.used
}
