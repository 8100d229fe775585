// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
)

// moved is n bytes in a direction, or that many pieces of them, some time apart.
type moved struct {
	at     time.Duration
	up     bool
	n      unit.Bytes
	pieces int
	apart  time.Duration
}

// divideMessages returns the messages of a stream that moves bytes, to a far end with a round trip of 40 ms.
func divideMessages(moves []moved) (m Messages, all []Message, end time.Time) {
	start := time.Unix(1e9, 0)
	for _, x := range moves {
		for i := range max(x.pieces, 1) {
			end = start.Add(x.at + time.Duration(i)*x.apart)
			e, has := m.AddBytes(end, x.up, x.n, func() time.Duration { return 40 * time.Millisecond })
			if has {
				all = append(all, e)
			}
		}
	}
	return m, all, end
}

// TestMessages divides streams into messages.
func TestMessages(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	up := func(at time.Duration, n unit.Bytes) moved { return moved{at, true, n, 1, 0} }
	down := func(at time.Duration, n unit.Bytes) moved { return moved{at, false, n, 1, 0} }
	for _, c := range []struct {
		name  string
		moves []moved
		want  []Message // without End
	}{
		{"nothing", nil, nil},
		{"a request and its answer", []moved{up(0, 500), {50 * ms, false, 1000, 3, ms}},
			[]Message{{Size: 3000}, {Up: true, Size: 500}}},
		{"a request 1 ms after an answer", []moved{up(0, 500), down(80*ms, 1000), up(81*ms, 400), down(131*ms, 2000)},
			[]Message{{Up: true, Size: 500}, {Size: 1000}, {Size: 2000}, {Up: true, Size: 400}}},
		{"a slow first answer", []moved{up(0, 500), down(480*ms, 1000), up(481*ms, 400), down(525*ms, 2000)},
			[]Message{{Up: true, Size: 500}, {Size: 1000}, {Size: 2000}, {Up: true, Size: 400}}},
		{"a request while an answer arrives", []moved{up(0, 500), {50 * ms, false, 1000, 20, ms}, up(70*ms, 400),
			{71 * ms, false, 1000, 100, ms}},
			[]Message{{Up: true, Size: 500}, {Size: 120_000}, {Up: true, Size: 400}}},
		{"and it arrives slowly", []moved{up(0, 500), down(50*ms, 1000), up(60*ms, 400), {70 * ms, false, 1000, 5, 20 * ms}},
			[]Message{{Up: true, Size: 500}, {Size: 6000}, {Up: true, Size: 400}}},
		{"window updates", []moved{up(0, 500), down(50*ms, 1000), up(100*ms, 40), down(150*ms, 1000)},
			[]Message{{Size: 2000}, {Up: true, Size: 500}}},
		{"window updates of an upload", []moved{{0, true, 10_000, 100, 10 * ms}, down(600*ms, 40),
			{1000 * ms, true, 10_000, 100, 10 * ms}, down(2100*ms, 300)},
			[]Message{{Size: 300}, {Up: true, Size: 2_000_000}}},
		{"an upload while small answers arrive", []moved{{0, true, 10_000, 5, 10 * ms}, down(45*ms, 250),
			{46 * ms, true, 10_000, 9, ms}, down(60*ms, 250), {61 * ms, true, 10_000, 9, ms}},
			[]Message{{Size: 500}, {Up: true, Size: 230_000}}},
		{"a push each minute", []moved{down(0, 100), down(60*s, 200)}, []Message{{Size: 100}, {Size: 200}}},
		{"pings", []moved{up(0, 20), down(50*ms, 20), up(30*s, 20), down(30*s+50*ms, 20)}, nil},
		{"an upload with short pauses", []moved{{0, true, 1000, 3, 400 * ms}}, []Message{{Up: true, Size: 3000}}},
	} {
		m, got, _ := divideMessages(c.moves)
		got = append(got, m.EndOpen()...)
		for i := range got {
			got[i].End = time.Time{}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if len(m.EndOpen()) > 0 {
			t.Errorf("%s: a message ends twice", c.name)
		}
	}
}

// TestPresentSize checks how long an answer counts as one that still arrives.
func TestPresentSize(t *testing.T) {
	m, _, end := divideMessages([]moved{{0, true, 500, 1, 0}, {50 * time.Millisecond, false, 1000, 10, time.Millisecond}})
	for after, want := range map[time.Duration]unit.Bytes{0: 10_000, 29 * time.Millisecond: 10_000,
		31 * time.Millisecond: 0} {
		if got := m.PresentSize(end.Add(after), false); got != want {
			t.Errorf("%v after its last bytes it has %v, want %v", after, got, want)
		}
	}
	if got := m.PresentSize(end, true); got != 0 {
		t.Errorf("the request has %v", got)
	}
}
