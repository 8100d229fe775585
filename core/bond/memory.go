// SPDX-License-Identifier: Apache-2.0

package bond

import "mpbond/base/unit"

// Memory is a budget of memory that several bonds share. Bonds call its methods with the lock of
// their owner held; they must not block.
type Memory interface {
	// Take takes n bytes and reports whether that was within the budget. If not, it takes none.
	Take(n unit.Bytes) bool
	// Release returns n bytes.
	Release(n unit.Bytes)
	// IsShort reports whether the holder should take less from now on, before Take fails.
	IsShort() bool
}

// memoryExhausted is the reason of a reset for lack of memory.
const memoryExhausted = "out of memory for the device's streams"

// memoryBudget counts the memory that a bond holds: pages in use, bitmaps of arrived bytes, and
// waiting datagrams. It is bounded by maxMemory and by the budget shared with other bonds. Callers
// release what they take. Not safe for concurrent use; the shared Memory may be.
type memoryBudget struct {
	taken  unit.Bytes
	shared Memory // nil: none
}

// takeFromBudget takes n bytes and reports whether the budget permits it.
func (m *memoryBudget) takeFromBudget(n unit.Bytes) bool {
	if m.taken+n > maxMemory || m.shared != nil && !m.shared.Take(n) {
		return false
	}
	m.taken += n
	return true
}

// returnToBudget returns n bytes.
func (m *memoryBudget) returnToBudget(n unit.Bytes) {
	m.taken -= n
	if m.shared != nil {
		m.shared.Release(n)
	}
}

// isMemoryShort reports whether the bond must hold less: then it slows streams down.
func (m *memoryBudget) isMemoryShort() bool { return m.shared != nil && m.shared.IsShort() }

// detachShared returns all memory to the shared Memory and takes no more from it.
func (m *memoryBudget) detachShared() {
	if m.shared != nil {
		m.shared.Release(m.taken)
		m.shared = nil
	}
}

// ReleaseMemory returns the bond's memory to Config.Memory and takes no more from it. Call it when
// the bond has ended.
func (b *Bond) ReleaseMemory() { b.memory.detachShared() }

// MemoryTaken returns the memory that the bond holds: pages in use, bitmaps of arrived bytes, and
// waiting datagrams.
func (b *Bond) MemoryTaken() unit.Bytes { return b.memory.taken }
