// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Video is media in segments of equal length, each at the bitrates of a ladder. Segments of one
// bitrate have equal size. The media continues after the played part.
type Video struct {
	Ladder  []unit.Rate   `json:"ladder_bps"` // ascending; a single rate does not adapt
	Segment time.Duration `json:"segment_ns"`
}

func (v Video) segmentSizeAt(level int) unit.Bytes { return v.Ladder[level].Bytes(v.Segment) }

func (v Video) checkLadder() error {
	if len(v.Ladder) == 0 || v.Segment <= 0 || v.Segment > maxMediaBuffer || !slices.IsSorted(v.Ladder) ||
		v.segmentSizeAt(0) <= 0 {
		return fmt.Errorf("video: bitrates must ascend, and segments may be up to %v long", maxMediaBuffer)
	}
	return nil
}

// Behaviour of the player that its paper does not specify.
const (
	// maxMediaBuffer is the most media a player holds, as in common players (dash.js and hls.js
	// hold 30 s).
	maxMediaBuffer = 30 * time.Second
	// startBuffer is the media needed to start playing, and to resume after a stall.
	startBuffer = 2 * time.Second
	// bitrateShare is the largest part of the throughput that a segment's bitrate may take.
	bitrateShare = 0.75
	// rateSegments is how many last segments the throughput is the harmonic mean of.
	rateSegments = 3
)

// Playback is the report of a player.
type Playback struct {
	Bitrate    float64        `json:"bitrate_bps"` // time-weighted mean of what was played
	Switches   int            `json:"switches"`    // changes of bitrate in what was played
	Stalls     int            `json:"stalls"`
	Stalled    float64        `json:"stalled_seconds"`
	StallRatio float64        `json:"stall_ratio"` // stalled / played
	StartUp    float64        `json:"start_up_seconds"`
	Played     float64        `json:"played_seconds"` // of media
	Seconds    float64        `json:"seconds"`        // from the first request to the end
	Bytes      unit.Bytes     `json:"bytes"`          // of whole segments, including those that were not played
	Segments   []VideoSegment `json:"segments"`
}

// VideoSegment is a segment that was fetched completely.
type VideoSegment struct {
	Rate    unit.Rate `json:"rate_bps"`
	At      float64   `json:"at_seconds"` // when it was complete
	Seconds float64   `json:"seconds"`    // from its request to its last byte
	Buffer  float64   `json:"buffer_seconds"`
}

// playback is a player without its network: its buffer and its next request. Times count from the
// first request and never go back.
type playback struct {
	video  Video
	length time.Duration // of media to play

	accountedUntil time.Duration // time up to which the fields below hold
	played         time.Duration // of media, like buffered
	buffered       time.Duration
	playing        bool
	started        bool
	start          time.Duration // when playing began
	stalls         int
	stalled        time.Duration
	rates          []float64 // bit/s of the last segments
	bytes          unit.Bytes
	segments       []VideoSegment
}

// advancePlayback lets time pass until now.
func (p *playback) advancePlayback(now time.Duration) {
	d := now - p.accountedUntil
	p.accountedUntil = now
	if p.isPlaybackOver() {
		return
	}
	if p.playing {
		m := min(d, p.buffered, p.length-p.played)
		p.played += m
		p.buffered -= m
		if d -= m; d == 0 || p.isPlaybackOver() {
			return
		}
		p.playing = false
		p.stalls++
	}
	if p.started {
		p.stalled += d
	}
}

func (p *playback) isPlaybackOver() bool { return p.played >= p.length }

// timeToPlaybackEnd returns when the playback ends if certain: nothing more needs to be fetched.
// advancePlayback must have been called.
func (p *playback) timeToPlaybackEnd() (after time.Duration, certain bool) {
	left := p.length - p.played
	return left, p.playing && p.buffered >= left
}

// nextSegmentRequest returns the level of the segment to request now, or how long to wait.
func (p *playback) nextSegmentRequest(now time.Duration) (level int, wait time.Duration) {
	p.advancePlayback(now)
	if over := p.buffered + p.video.Segment - maxMediaBuffer; over > 0 {
		if after, certain := p.timeToPlaybackEnd(); certain {
			over = min(over, after)
		}
		return 0, over
	}
	return p.chooseLevel(), 0
}

// chooseLevel returns the highest level that the throughput allows, the lowest one while the
// throughput is unknown.
func (p *playback) chooseLevel() (level int) {
	if len(p.rates) == 0 {
		return 0
	}
	inverse := 0.0
	for _, r := range p.rates {
		inverse += 1 / r
	}
	most := bitrateShare * float64(len(p.rates)) / inverse
	for i, r := range p.video.Ladder {
		if float64(r) <= most {
			level = i
		}
	}
	return level
}

// addFetchedSegment adds a segment that took that long to fetch.
func (p *playback) addFetchedSegment(now time.Duration, level int, took time.Duration) {
	p.advancePlayback(now)
	p.buffered += p.video.Segment
	size := p.video.segmentSizeAt(level)
	p.bytes += size
	p.segments = append(p.segments, VideoSegment{p.video.Ladder[level], now.Seconds(), took.Seconds(),
		p.buffered.Seconds()})
	p.rates = append(p.rates, float64(8*size)/max(took, time.Microsecond).Seconds())
	p.rates = p.rates[max(0, len(p.rates)-rateSegments):]
	if p.playing || p.buffered < min(startBuffer, p.length-p.played) {
		return
	}
	p.playing = true
	if !p.started {
		p.started, p.start = true, now
	}
}

// summarizePlayback returns the report. advancePlayback must have been called.
func (p *playback) summarizePlayback() Playback {
	r := Playback{Stalls: p.stalls, Stalled: p.stalled.Seconds(), StartUp: p.start.Seconds(),
		Played: p.played.Seconds(), Seconds: p.accountedUntil.Seconds(),
		Bytes: p.bytes, Segments: p.segments}
	if p.played == 0 {
		return r
	}
	r.StallRatio = r.Stalled / r.Played
	left := p.played
	for i, s := range p.segments {
		part := min(left, p.video.Segment)
		if left -= part; part == 0 {
			break
		}
		r.Bitrate += float64(s.Rate) * part.Seconds() / r.Played
		if i > 0 && s.Rate != p.segments[i-1].Rate {
			r.Switches++
		}
	}
	return r
}
