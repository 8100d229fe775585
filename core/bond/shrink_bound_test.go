// SPDX-License-Identifier: Apache-2.0

package bond

import "testing"

// TestShrinkIsBounded: however slowly a scenario fails, it is made smaller
// within the events that may be spent on it.
func TestShrinkIsBounded(t *testing.T) {
	for name, spoil := range map[string]func(*simNet){
		"time does not pass": func(n *simNet) {
			n.sabotage = func(d int) { n.at(n.now, d, func() {}) }
		},
		"nothing is acknowledged": func(n *simNet) {
			n.sabotage = func(d int) {
				b := n.ends[d]
				b.acks.pending = false
				for _, p := range b.subflows.list {
					p.ack.owed = false
				}
			}
		},
	} {
		sc := newScenario(7)
		var l simulation
		out := l.run(sc, nil, spoil)
		if out.failed == nil {
			t.Errorf("%s: it does not fail", name)
			continue
		}
		small, events := shrink(sc, spoil)
		if again := l.run(small, nil, spoil); again.failed == nil {
			t.Errorf("%s: the small one does not fail", name)
		}
		t.Logf("%s: %d events, then %d to make it smaller: %.60q", name, out.events, events, out.failed.text)
		if events > shrinkEvents {
			t.Errorf("%s: %d events were spent on making it smaller", name, events)
		}
		if len(small.subflows) > 1 || len(small.streams) > 1 {
			t.Errorf("%s: %d subflows and %d streams are left", name, len(small.subflows), len(small.streams))
		}
	}
}
