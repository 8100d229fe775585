// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"math"
	"runtime/debug"
	"sync"
	"time"

	"mpbond/base/unit"
)

// Memory is the budget of all bonds of this process: memory, and the sockets that it may open. Each
// device has a Share, whose quota of bytes depends on what is left: a device is short when it has more
// than its quota, and gets nothing more at three times that. The quota is what is left beyond the part that
// is kept for new devices, so that the bytes of some do not keep these out. n devices leave 1/(3n+1) of the
// rest, and each new device finds some left (dynamic thresholds: Choudhury and Hahne, IEEE/ACM ToN 1998).
//
// Bonds and subflows take their memory without a limit: the owner refuses further ones when LackForDevice,
// LackForBond or Share.LackForSubflow names something. Safe for concurrent use.
type Memory struct {
	limit      unit.Bytes
	maxSockets int

	mu        sync.Mutex
	sockets   int
	fixed     unit.Bytes // of subflows and sockets
	used      unit.Bytes // of bytes that devices hold
	peak      unit.Bytes // of fixed and used, since the last Trim that freed memory
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
	// socketCost is the memory of a socket to a destination, without what is buffered: the socket, and the goroutines
	// that serve it.
	socketCost = 32 * unit.KB
	// Of memory and sockets one part in deviceReserve is kept for the devices that have a bond, and one in openReserve,
	// which is less, for what is open. So a full process first refuses devices, then subflows and streams, and what is
	// open goes on.
	deviceReserve, openReserve = 8, 16
	// One part in minQuota of what is left is the least quota of a device: at a full process open streams go on, and
	// it takes many devices to use up what is kept.
	minQuota = 32
	// otherFiles is how many files the process may open besides the sockets of bonds: handshakes, which the server
	// bounds, connections that are being closed, logs. At most one part in otherFilesShare of all is kept for them.
	otherFiles, otherFilesShare = 1024, 4
)

// What there can be too little of.
const lackOfMemory, lackOfFiles = "memory", "open files"

// NewMemory returns a budget of n bytes; 0 is half of the Go runtime's memory limit.
func NewMemory(n unit.Bytes) *Memory {
	if n == 0 {
		n = defaultBudget
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			n = unit.Bytes(limit) / 2
		}
	}
	files := maxFiles()
	return &Memory{limit: n, maxSockets: files - min(otherFiles, files/otherFilesShare)}
}

// Limit returns the budget.
func (m *Memory) Limit() unit.Bytes { return m.limit }

// LackForDevice returns what there is too little of for the bond of one more device, as words for
// people; "" if there is room.
func (m *Memory) LackForDevice() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.findLack(subflowCost, deviceReserve)
}

// LackForBond is LackForDevice for one more bond of a device that has one.
func (m *Memory) LackForBond() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.findLack(subflowCost, openReserve)
}

// findLack returns what there is too little of for a socket with n bytes, if one part in reserve is kept. mu must be
// held.
func (m *Memory) findLack(n unit.Bytes, reserve int) string {
	switch {
	case n > m.freeBeyond(reserve):
		return lackOfMemory
	case m.freeSocketsBeyond(reserve) < 1:
		return lackOfFiles
	}
	return ""
}

// freeBeyond returns how much memory is left if one part in reserve is kept; it may be negative. mu must be held.
func (m *Memory) freeBeyond(reserve int) unit.Bytes {
	return m.freeBytes() - m.limit/unit.Bytes(reserve)
}

// freeSocketsBeyond is freeBeyond for sockets.
func (m *Memory) freeSocketsBeyond(reserve int) int {
	return m.maxSockets - m.sockets - m.maxSockets/reserve
}

// quotaAfter returns the quota of each device once n more bytes are taken. mu must be held.
func (m *Memory) quotaAfter(n unit.Bytes) unit.Bytes {
	return max(m.freeBeyond(deviceReserve)-n, (m.freeBytes()-n)/minQuota)
}

// Trim returns memory that is no longer used to the system, if it is much. Call it every few
// seconds.
func (m *Memory) Trim() {
	m.mu.Lock()
	used := m.fixed + m.used
	free := m.peak-used >= max(minTrim, m.peak/2) && time.Since(m.trimmedAt) >= trimInterval
	if free {
		m.peak, m.trimmedAt = used, time.Now()
	}
	m.mu.Unlock()
	if free {
		debug.FreeOSMemory()
	}
}

// Share is the part of a Memory that one device uses. It implements bond.Memory.
type Share struct {
	memory *Memory

	// Guarded by memory.mu.
	used    unit.Bytes // without subflows and sockets
	sockets int        // to destinations, and of subflows without the first one of each bond
	fixed   unit.Bytes // of these
}

// NewShare returns an empty Share.
func (m *Memory) NewShare() *Share { return &Share{memory: m} }

// Used returns the bytes that the device holds, without its subflows and sockets.
func (s *Share) Used() unit.Bytes {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.used
}

// Take implements bond.Memory.
func (s *Share) Take(n unit.Bytes) bool {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if s.used+n > 3*s.memory.quotaAfter(n) {
		return false
	}
	s.addUsedMemory(n)
	return true
}

// LackForSubflow is LackForDevice for one more subflow of a bond of the device that has one. As with bytes, the
// subflows and sockets of a device get at most three times what is left. It counts nothing: Endpoint.Attach does.
func (s *Share) LackForSubflow() string {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.findLack(subflowCost)
}

// TakeSocket counts a socket to a destination, with the memory to serve it, until ReleaseSocket. If the device may not
// have it, it counts nothing and returns what there is too little of, as LackForSubflow does; else "".
func (s *Share) TakeSocket() (lack string) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if lack := s.findLack(socketCost); lack != "" {
		return lack
	}
	s.addFixed(1, socketCost)
	s.memory.addFixed(1, socketCost)
	return ""
}

// findLack returns what there is too little of for one more socket of the device with n bytes. memory.mu must be held.
func (s *Share) findLack(n unit.Bytes) string {
	if lack := s.memory.findLack(n, openReserve); lack != "" {
		return lack
	}
	switch {
	case s.fixed+n > 3*(s.memory.freeBeyond(openReserve)-n):
		return lackOfMemory
	case s.sockets+1 > 3*(s.memory.freeSocketsBeyond(openReserve)-1):
		return lackOfFiles
	}
	return ""
}

// ReleaseSocket returns what TakeSocket has counted.
func (s *Share) ReleaseSocket() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.addFixed(-1, -socketCost)
	s.memory.addFixed(-1, -socketCost)
}

// countSubflows counts the subflows of a bond with their sockets, without a limit: there were before, there are now.
// A nil Share counts nothing.
func (s *Share) countSubflows(before, now int) {
	if s == nil {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	further := max(now-1, 0) - max(before-1, 0)
	s.addFixed(further, unit.Bytes(further)*subflowCost)
	s.memory.addFixed(now-before, unit.Bytes(now-before)*subflowCost)
}

// addFixed counts sockets of the device with their memory. memory.mu must be held.
func (s *Share) addFixed(sockets int, n unit.Bytes) {
	s.sockets += sockets
	s.fixed += n
}

// addUsedMemory counts n bytes. memory.mu must be held.
func (s *Share) addUsedMemory(n unit.Bytes) {
	s.used += n
	s.memory.used += n
	s.memory.updatePeak()
}

// addFixed counts sockets with their memory. mu must be held.
func (m *Memory) addFixed(sockets int, n unit.Bytes) {
	m.sockets += sockets
	m.fixed += n
	m.updatePeak()
}

// updatePeak updates peak. mu must be held.
func (m *Memory) updatePeak() { m.peak = max(m.peak, m.fixed+m.used) }

// freeBytes returns how much memory is left. mu must be held.
func (m *Memory) freeBytes() unit.Bytes { return m.limit - m.fixed - m.used }

// Release implements bond.Memory.
func (s *Share) Release(n unit.Bytes) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.addUsedMemory(-n)
}

// IsShort implements bond.Memory.
func (s *Share) IsShort() bool {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	return s.used > s.memory.quotaAfter(0)
}
