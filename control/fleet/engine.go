// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"time"
)

// checkWatch returns when ctx ends, or when the engine answers although nothing has come by the watch for a while.
func (m *Member) checkWatch(ctx context.Context) {
	began := time.Now()
	for waitFor(ctx, beatInterval) {
		if m.beatsReturn() || time.Since(began) <= silenceLimit || m.isReading() {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, engineTimeout)
		_, err := m.store.Get(asking, Devices, beatKey(m.cfg.Name))
		cancel()
		if err == nil {
			return
		}
	}
}

// checkEngine notices, until ctx ends, that the engine is lost or back, and that what is known has become too old. It
// runs beside the watches, which an engine may end as soon as they begin.
func (m *Member) checkEngine(ctx context.Context) {
	for waitFor(ctx, beatInterval) {
		_, isFresh := m.directory.age()
		if m.wasFresh.Swap(isFresh) != isFresh {
			m.notify() // devices are served no more, or again
		}
		if isBack := m.beatsReturn(); isBack || !m.isReading() {
			m.setEngineLost(!isBack)
		}
	}
}

// beatsReturn reports whether a beat of the last seconds has returned.
func (m *Member) beatsReturn() bool {
	age, isFresh := m.directory.age()
	return age <= silenceLimit && (isFresh || age > 0)
}

// isReading reports whether the watch of the devices has reported something lately: after it has begun, reading all
// devices may take longer than a beat.
func (m *Member) isReading() bool {
	return time.Since(time.Unix(0, m.lastChange.Load())) <= silenceLimit
}
