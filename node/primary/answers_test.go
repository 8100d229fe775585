// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

// TestOpenAnswers checks which answers share the subflows with one: those that arrive, and those that were asked for,
// until they end.
func TestOpenAnswers(t *testing.T) {
	now := time.Unix(1, 0)
	var own, idle, ended, arriving, asked, askedAgain, late answerProgress
	var o openAnswers
	for _, p := range []*answerProgress{&own, &idle, &ended, &arriving, &asked, &askedAgain, &late} {
		o.addStream(p)
	}
	own.recordBytes(now, 1000)
	ended.recordBytes(now.Add(-longestPause), 2000)
	arriving.recordRequest(now.Add(-time.Minute))
	arriving.recordBytes(now.Add(-longestPause+1), 3000)
	asked.recordRequest(now.Add(-answerTimeout + 1))
	askedAgain.recordBytes(now.Add(-2), 4000)
	askedAgain.recordRequest(now.Add(-1))
	late.recordRequest(now.Add(-answerTimeout))
	sizes := o.listOthers(&own, now)
	slices.Sort(sizes)
	if want := []unit.Bytes{0, 0, 3000}; !slices.Equal(sizes, want) {
		t.Errorf("%v, want %v", sizes, want)
	}
	o.removeStream(&arriving)
	o.removeStream(&asked)
	if sizes := o.listOthers(&own, now); !slices.Equal(sizes, []unit.Bytes{0}) {
		t.Errorf("after two have ended: %v", sizes)
	}
	for range mostOthers {
		o.addStream(&answerProgress{})
		var p answerProgress
		p.recordBytes(now, 1)
		o.addStream(&p)
	}
	if n := len(o.listOthers(&own, now)); n != mostOthers {
		t.Errorf("%d of more than %d", n, mostOthers)
	}
}

// TestBytesBeforeEnd checks what arrives before the end of an answer.
func TestBytesBeforeEnd(t *testing.T) {
	for _, c := range []struct {
		rest   unit.Bytes
		others []unit.Bytes
		want   unit.Bytes
	}{
		{100_000, nil, 0},
		{100_000, []unit.Bytes{40_000, 0, 900_000}, 40_000 + leastForecast + 100_000},
		{10_000, []unit.Bytes{40_000, 0}, 20_000},
	} {
		if got := bytesBeforeEnd(c.rest, c.others); got != c.want {
			t.Errorf("%d beside %v: %d, want %d", c.rest, c.others, got, c.want)
		}
	}
}

// TestForecastsOfAnswersTogether checks that answers which arrive together are expected to take longer, and that
// streams that have ended are not.
func TestForecastsOfAnswersTogether(t *testing.T) {
	var m historyMemory
	var places placeRates
	places.known.Store(&map[string]policy.SubflowRecord{"": {Down: 8 * unit.Mbps}})
	expected := func() time.Duration {
		s := openStream(&m)
		s.places = &places
		s.fetchAnswer(700_000)
		s.RecordEnd(s.now, true)
		list, _ := m.listForecasts()
		return list[0].Expected
	}
	alone := expected()
	other := openStream(&m)
	other.RecordMovedBytes(other.now.Add(time.Millisecond), true, 200)
	if more := expected() - alone; more.Round(time.Millisecond) != 16*time.Millisecond {
		t.Errorf("beside another answer it is expected %v later", more)
	}
	other.RecordMovedBytes(other.now.Add(50*time.Millisecond), false, 100_000)
	if more := expected() - alone; more.Round(time.Millisecond) != 100*time.Millisecond {
		t.Errorf("beside 100 KB of another answer it is expected %v later", more)
	}
	other.RecordEnd(other.now, true)
	if again := expected(); again != alone {
		t.Errorf("after the other one it is expected in %v, before in %v", again, alone)
	}
	if n := len(m.open.streams); n > 0 {
		t.Errorf("%d streams are left", n)
	}
}
