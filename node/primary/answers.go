// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/node/endpoint"
)

// leastForecast is the size of an answer at which its rest is forecast. The forecast is checked if
// the rest has at least as many bytes.
const leastForecast = 16 * unit.KB

// answerForecast is the forecast of the rest of an answer.
type answerForecast struct {
	at       time.Time // zero: none was made
	arrived  unit.Bytes
	devices  []endpoint.NamedCandidate
	subflows []policy.Subflow
	others   []unit.Bytes // of openAnswers.listOthers
}

// forecastAnswer records what an answer competes with when its first bytes have arrived.
func (h *streamHistory) forecastAnswer(now time.Time, arrived unit.Bytes) answerForecast {
	list := h.stream.Candidates(false)
	return answerForecast{now, arrived, list, h.places.subflowsForDirection(list, false),
		h.memory.open.listOthers(&h.progress, now)}
}

// compareWith compares the forecast with the answer. Subflows that it could use at its beginning or
// at its end count.
func (a answerForecast) compareWith(x policy.Message, atEnd []endpoint.NamedCandidate) policy.Forecast {
	rest := x.Size - a.arrived
	f := policy.Forecast{At: x.End, Bytes: rest, Took: x.End.Sub(a.at)}
	for i := range a.subflows {
		a.subflows[i].Allowed = a.devices[i].Allowed || slices.ContainsFunc(atEnd, func(c endpoint.NamedCandidate) bool {
			return c.ID == a.devices[i].ID && c.Allowed
		})
		if a.subflows[i].Allowed {
			f.Subflows++
		}
	}
	f.Expected = policy.TransferTime(a.subflows, rest+bytesBeforeEnd(rest, a.others))
	return f
}

// bytesBeforeEnd returns how many bytes of other answers, of such sizes so far, are expected to arrive before
// the rest of one. Subflows carry the answers in turn. Each of the others is expected to have as many bytes
// left as have arrived (policy.Demand), and no less than a forecast is made for.
func bytesBeforeEnd(rest unit.Bytes, others []unit.Bytes) (n unit.Bytes) {
	for _, size := range others {
		n += min(rest, max(size, leastForecast))
	}
	return n
}

// openAnswers knows all streams, since their answers share the subflows. The zero value has none. Safe for
// concurrent use.
type openAnswers struct {
	mu      sync.Mutex
	streams map[*answerProgress]struct{}
}

// answerProgress is how much of its present answer a stream has. One goroutine writes it at a time, others may
// read it meanwhile. The zero value has no answer.
type answerProgress struct {
	lastRequest, lastBytes atomic.Int64 // Unix times in ns; 0: there were none
	size                   atomic.Int64 // bytes so far
}

const (
	// answerTimeout is how long after a request its answer is awaited.
	answerTimeout = time.Second
	// longestPause is how long an answer may pause, and still count as one that arrives.
	longestPause = 200 * time.Millisecond
	// mostOthers bounds the answers that a forecast considers.
	mostOthers = 1000
)

// addStream adds a stream.
func (o *openAnswers) addStream(p *answerProgress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.streams == nil {
		o.streams = map[*answerProgress]struct{}{}
	}
	o.streams[p] = struct{}{}
}

// removeStream removes a stream that has ended.
func (o *openAnswers) removeStream(p *answerProgress) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.streams, p)
}

// listOthers returns the sizes so far of the answers that arrive on other streams than own, 0 for those that
// were asked for only. It returns mostOthers at most.
func (o *openAnswers) listOthers(own *answerProgress, now time.Time) (sizes []unit.Bytes) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p := range o.streams {
		if size, open := p.sizeIfOpen(now); open && p != own && len(sizes) < mostOthers {
			sizes = append(sizes, size)
		}
	}
	return sizes
}

// recordRequest records that bytes were sent that may be a request.
func (p *answerProgress) recordRequest(now time.Time) { p.lastRequest.Store(now.UnixNano()) }

// recordBytes records that bytes arrived, with which the answer has a size.
func (p *answerProgress) recordBytes(now time.Time, size unit.Bytes) {
	p.size.Store(int64(size))
	p.lastBytes.Store(now.UnixNano())
}

// sizeIfOpen returns the size of an answer that arrives, or is asked for, as far as can be known.
func (p *answerProgress) sizeIfOpen(now time.Time) (size unit.Bytes, open bool) {
	request, arrived := p.lastRequest.Load(), p.lastBytes.Load()
	if request > arrived {
		return 0, now.UnixNano()-request < int64(answerTimeout)
	}
	return unit.Bytes(p.size.Load()), arrived > 0 && now.UnixNano()-arrived < int64(longestPause)
}
