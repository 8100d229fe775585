package bond

import "mpbond/base/unit"

// Memory is a budget that a bond takes memory from, and shares with others. Its methods
// may be called with the bond's owner's lock held and must not block.
type Memory interface {
	// Take counts n bytes as taken, unless that is too much.
	Take(n unit.Bytes) bool
	// Release gives bytes back.
	Release(n unit.Bytes)
	// IsShort reports whether the holder should take less from now on, before Take refuses.
	IsShort() bool
}

// memoryExhausted is why a stream is reset.
const memoryExhausted = "the memory for the device's streams is used up"

// memoryBudget counts the memory that a bond holds: pages in use, marks of what has arrived
// in them, and datagrams that wait. It is bounded by maxMemory and by what is shared with
// other bonds. Who takes bytes from it gives back as many. Not safe for concurrent use; the
// shared Memory may be.
type memoryBudget struct {
	taken  unit.Bytes
	shared Memory // nil: none
}

// take counts n bytes as held and reports whether they may be held.
func (m *memoryBudget) take(n unit.Bytes) bool {
	if m.taken+n > maxMemory || m.shared != nil && !m.shared.Take(n) {
		return false
	}
	m.taken += n
	return true
}

// release counts n bytes as no longer held.
func (m *memoryBudget) release(n unit.Bytes) {
	m.taken -= n
	if m.shared != nil {
		m.shared.Release(n)
	}
}

// isShort reports whether the bond must hold less: then streams are pushed back.
func (m *memoryBudget) isShort() bool { return m.shared != nil && m.shared.IsShort() }

// detachShared gives all that is held back to the shared Memory and takes nothing more from it.
func (m *memoryBudget) detachShared() {
	if m.shared != nil {
		m.shared.Release(m.taken)
		m.shared = nil
	}
}

// ReleaseMemory gives back what the bond still has of Config.Memory, and takes nothing more
// from there: it is at its end.
func (b *Bond) ReleaseMemory() { b.memory.detachShared() }

// MemoryTaken returns the memory that the bond has taken: pages in use, marks of what
// has arrived in them, and datagrams that wait.
func (b *Bond) MemoryTaken() unit.Bytes { return b.memory.taken }
