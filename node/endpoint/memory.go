// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"math"
	"runtime/debug"
	"sync"
	"time"

	"mpbond/base/unit"
)

// Memory is the memory budget of all bonds of this process. Each device has a Share, whose limit
// depends on what is left: a device is short when it has as much as is left for others, and gets
// nothing more at three times that. So a single device gets three quarters at most, n devices leave
// 1/(3n+1), and each new device finds some left (dynamic thresholds: Choudhury and Hahne, IEEE/ACM
// ToN 1998). Safe for concurrent use.
type Memory struct {
	limit unit.Bytes

	mu        sync.Mutex
	used      unit.Bytes
	peak      unit.Bytes // of used, since the last Trim that freed memory
	trimmedAt time.Time  // time of that Trim
}

// Tuning.
const (
	// defaultBudget is the budget if the Go runtime has no limit.
	defaultBudget = unit.GB
	// minTrim is the least that makes Trim free memory.
	minTrim      = 16 * unit.MB
	trimInterval = 5 * time.Second
	// subflowCost is the memory of an idle subflow with its bond. While bytes pass it takes up to 64 KB to read and
	// 148 KB to write, for moments: that comes from the other half of the limit.
	subflowCost = 128 * unit.KB
)

// NewMemory returns a budget of n bytes; 0 is half of the Go runtime's memory limit.
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

// Trim returns memory that is no longer used to the system, if it is much. Call it every few
// seconds.
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

// Share is the part of a Memory that one device uses. It implements bond.Memory.
type Share struct {
	memory *Memory
	used   unit.Bytes // guarded by memory.mu
}

// NewShare returns an empty Share.
func (m *Memory) NewShare() *Share { return &Share{memory: m} }

// Used returns the bytes that the device uses.
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
	s.addUsedMemory(n)
	return true
}

// takeWithoutLimit counts n bytes without a limit. A nil Share counts nothing.
func (s *Share) takeWithoutLimit(n unit.Bytes) {
	if s == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.addUsedMemory(n)
}

// addUsedMemory counts n bytes. memory.mu must be held.
func (s *Share) addUsedMemory(n unit.Bytes) {
	s.used += n
	s.memory.used += n
	s.memory.peak = max(s.memory.peak, s.memory.used)
}

// Release implements bond.Memory.
func (s *Share) Release(n unit.Bytes) { s.takeWithoutLimit(-n) }

// IsShort implements bond.Memory.
func (s *Share) IsShort() bool {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.used > s.memory.limit-s.memory.used
}
