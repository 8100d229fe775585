// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

// Elements and attributes of an MPD (ISO/IEC 23009-1) that describe segments. Times are in seconds.
type (
	mpd struct {
		XMLName  xml.Name `xml:"MPD"`
		Type     string   `xml:"type,attr"`
		Start    string   `xml:"availabilityStartTime,attr"`
		Duration string   `xml:"mediaPresentationDuration,attr"`
		Depth    string   `xml:"timeShiftBufferDepth,attr"`
		BaseURL  []string `xml:"BaseURL"`
		Periods  []period `xml:"Period"`

		location    *url.URL
		clockOffset time.Duration // how far the clock of the server is ahead
	}
	period struct {
		Start    string   `xml:"start,attr"`
		Duration string   `xml:"duration,attr"`
		BaseURL  []string `xml:"BaseURL"`
		addressing
		Sets []adaptationSet `xml:"AdaptationSet"`
	}
	adaptationSet struct {
		BaseURL []string `xml:"BaseURL"`
		addressing
		Representations []representation `xml:"Representation"`
	}
	representation struct {
		ID        string   `xml:"id,attr"`
		Bandwidth string   `xml:"bandwidth,attr"`
		BaseURL   []string `xml:"BaseURL"`
		addressing
	}
	// addressing is how segments are named. A representation with neither (SegmentBase) is not
	// prefetched: the player finds byte ranges in the file itself.
	addressing struct {
		Template *segmentInfo `xml:"SegmentTemplate"`
		List     *segmentInfo `xml:"SegmentList"`
	}
	segmentInfo struct {
		Timescale   string          `xml:"timescale,attr"`
		Duration    string          `xml:"duration,attr"`
		StartNumber string          `xml:"startNumber,attr"`
		Offset      string          `xml:"presentationTimeOffset,attr"`
		Media       string          `xml:"media,attr"`
		Init        string          `xml:"initialization,attr"`
		InitURL     *urlRange       `xml:"Initialization"`
		Timeline    []timelineEntry `xml:"SegmentTimeline>S"`
		URLs        []urlPart       `xml:"SegmentURL"`
	}
	urlRange struct {
		URL   string `xml:"sourceURL,attr"`
		Range string `xml:"range,attr"`
	}
	urlPart struct {
		Media string `xml:"media,attr"`
		Range string `xml:"mediaRange,attr"`
	}
	timelineEntry struct {
		T *uint64 `xml:"t,attr"`
		D uint64  `xml:"d,attr"`
		R int64   `xml:"r,attr"`
	}
)

// parseMPD parses an MPD; it returns nil for invalid XML. clockOffset is how far the clock of the
// server is ahead.
func parseMPD(at *url.URL, text string, clockOffset time.Duration) *mpd {
	m := &mpd{location: at, clockOffset: clockOffset}
	if xml.Unmarshal([]byte(text), m) != nil {
		return nil
	}
	return m
}

// isDynamic reports whether segments are added over time without a reload of the MPD.
func (m *mpd) isDynamic() bool { return m.Type == "dynamic" }

// listSegments returns the segments that are available at a time.
func (m *mpd) listSegments(now time.Time) (l listing) {
	id := playlistID(m.location)
	a, tracks := &collector{remaining: maxSegments}, 0
	begin, start := time.Time{}, time.Duration(0)
	if m.isDynamic() {
		begin, _ = time.Parse(time.RFC3339, addUTCZone(m.Start))
	}
	for i, p := range m.Periods {
		if s, ok := parseDuration(p.Start); ok {
			start = s
		}
		length, known := parseDuration(p.Duration)
		if next := i + 1; !known && next < len(m.Periods) {
			if s, ok := parseDuration(m.Periods[next].Start); ok {
				length, known = s-start, true
			}
		}
		if whole, ok := parseDuration(m.Duration); !known && ok {
			length, known = whole-start, true
		}
		if !known {
			length = -1
		}
		w := availability{length: length, from: 0, to: length}
		if m.isDynamic() {
			w.limitToLive(now.Add(m.clockOffset).Sub(begin)-start, m.Depth)
		}
		for j, s := range p.Sets {
			group := fmt.Sprintf("%s %d %d", id, i, j)
			for k, rep := range s.Representations {
				if tracks++; tracks > maxTracks || len(rep.ID) > maxURLLength {
					continue
				}
				t := &track{id: fmt.Sprintf("%s %d %s", group, k, rep.ID), group: group}
				a.base = m.location
				for _, b := range [][]string{m.BaseURL, p.BaseURL, s.BaseURL, rep.BaseURL} {
					if len(b) > 0 {
						if u, err := a.base.Parse(strings.TrimSpace(b[0])); err == nil {
							a.base = u
						}
					}
				}
				a.addRepresentation(t, inheritAddressing(p.addressing, s.addressing, rep.addressing), rep, w)
				if len(t.entries) > 0 {
					l.tracks = append(l.tracks, t)
				}
			}
		}
		start += max(0, length)
	}
	l.urlBytes = a.urlBytes
	return l
}

// availability is the available part of a period, relative to its start. length and to are negative
// if unknown.
type availability struct{ length, from, to time.Duration }

// limitToLive limits the availability to the live window at a time.
func (w *availability) limitToLive(now time.Duration, depth string) {
	if w.to < 0 || now < w.to {
		w.to = max(0, now)
	}
	const lately = 10 * time.Minute // players are rarely further behind
	back := lately
	if d, ok := parseDuration(depth); ok {
		back = min(back, d)
	}
	w.from = max(0, now-back)
}

// addUTCZone adds the zone UTC to a time without a zone.
func addUTCZone(s string) string {
	if len(s) < 6 || strings.HasSuffix(s, "Z") || strings.ContainsAny(s[len(s)-6:], "+-") {
		return s
	}
	return s + "Z"
}

// inheritAddressing merges the addressing of a representation with that of its parents: missing
// values are inherited.
func inheritAddressing(all ...addressing) (a addressing) {
	merge := func(into, s *segmentInfo) *segmentInfo {
		if s == nil || into == nil {
			return cmp.Or(s, into)
		}
		m := *s
		for _, f := range []struct {
			to   *string
			from string
		}{{&m.Timescale, into.Timescale}, {&m.Duration, into.Duration}, {&m.StartNumber, into.StartNumber},
			{&m.Offset, into.Offset}, {&m.Media, into.Media}, {&m.Init, into.Init}} {
			*f.to = cmp.Or(*f.to, f.from)
		}
		m.InitURL = cmp.Or(m.InitURL, into.InitURL)
		if m.Timeline == nil {
			m.Timeline = into.Timeline
		}
		if m.URLs == nil {
			m.URLs = into.URLs
		}
		return &m
	}
	for _, s := range all {
		a.Template, a.List = merge(a.Template, s.Template), merge(a.List, s.List)
	}
	return a
}

// addRepresentation adds the segments of a representation to t.
func (a *collector) addRepresentation(t *track, by addressing, rep representation, w availability) {
	s := cmp.Or(by.Template, by.List)
	if s == nil {
		return
	}
	scale := max(1, parseNumber(s.Timescale, 1))
	inTicks := func(d time.Duration) uint64 { return uint64(max(0, d.Seconds()) * float64(scale)) }
	length := func(ticks uint64) time.Duration { return secondsToDuration(float64(ticks) / float64(scale)) }
	first := parseNumber(s.StartNumber, 1)
	if u := s.InitURL; u != nil {
		k := segmentKey{a.resolveReference(u.URL), 0, board.Unknown}
		if u.Range != "" {
			k.from, k.to = parseMediaRange(u.Range)
		}
		a.addTrackEntry(t, entry{segmentKey: k, isInit: true})
	} else if s.Init != "" && len(s.Init) <= maxURLLength {
		a.addTrackEntry(t, entry{segmentKey: segmentKey{a.resolveReference(fillTemplate(s.Init, rep, 0, 0)), 0,
			board.Unknown}, isInit: true})
	}
	step := parseNumber(s.Duration, 0)
	// enqueueSegment adds the segment of an index, which begins at a time in ticks.
	addSegment := func(i, at, ticks uint64) bool {
		if a.remaining <= 0 {
			return false
		}
		e := entry{number: int64(first + i), duration: length(ticks), segmentKey: segmentKey{to: board.Unknown}}
		if len(s.Timeline) > 0 {
			e.number = int64(at) // stable when the MPD is reloaded
		}
		if by.Template != nil {
			if e.url = a.resolveReference(fillTemplate(s.Media, rep, first+i, at)); e.url == "" {
				return false // the other segments cannot be resolved either
			}
		} else {
			if i >= uint64(len(s.URLs)) {
				return false
			}
			u := s.URLs[i]
			e.url = a.resolveReference(u.Media)
			if u.Range != "" {
				e.from, e.to = parseMediaRange(u.Range)
			}
		}
		return a.addTrackEntry(t, e)
	}
	if by.Template != nil && (s.Media == "" || len(s.Media) > maxURLLength) {
		return
	}
	switch {
	case len(s.Timeline) > 0:
		s.walkTimeline(w, inTicks, addSegment)
	case step > 0:
		from := inTicks(w.from) / step
		to := inTicks(w.to) / step // only complete segments
		if w.to == w.length && inTicks(w.to)%step != 0 {
			to++ // the last segment is shorter
		}
		if by.List != nil && by.Template == nil {
			from, to = 0, uint64(len(s.URLs))
		} else if w.to < 0 {
			return // the number of segments is unknown
		}
		for i := from; i < to && addSegment(i, i*step, step); i++ {
		}
	default:
		for i := range uint64(len(s.URLs)) {
			addSegment(i, 0, 0)
		}
	}
}

// walkTimeline passes the segments of a SegmentTimeline to enqueueSegment until that returns false.
func (s *segmentInfo) walkTimeline(
	w availability,
	inTicks func(time.Duration) uint64,
	addSegment func(i, at, ticks uint64) bool,
) {
	end := uint64(0)
	if w.to >= 0 {
		end = parseNumber(s.Offset, 0) + inTicks(w.to)
	}
	at, i := uint64(0), uint64(0)
	for n, x := range s.Timeline {
		if x.T != nil {
			at = *x.T
		}
		if x.D == 0 {
			return
		}
		for r := int64(0); r <= x.R || x.R < 0; r++ {
			until := end
			if n+1 < len(s.Timeline) && s.Timeline[n+1].T != nil {
				until = *s.Timeline[n+1].T
			}
			if x.R < 0 && at >= until || !addSegment(i, at, x.D) || at+x.D < at {
				break
			}
			at, i = at+x.D, i+1
		}
	}
}

// parseMediaRange parses "0-99". An invalid range becomes empty.
func parseMediaRange(s string) (from, to unit.Bytes) {
	first, last, _ := strings.Cut(s, "-")
	a, err := strconv.ParseUint(first, 10, 48)
	b, err2 := strconv.ParseUint(last, 10, 48)
	if err != nil || err2 != nil {
		return 0, 0
	}
	return unit.Bytes(a), unit.Bytes(b + 1)
}

// parseNumber parses a decimal number; it returns the given default for an invalid one.
func parseNumber(s string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 48); err == nil {
		return n
	}
	return otherwise
}

// templateVariable matches an identifier of a segment template.
var templateVariable = regexp.MustCompile(`\$(RepresentationID|Number|Time|Bandwidth|)(%0([0-9]{1,2})d)?\$`)

// fillTemplate replaces the identifiers of a segment template.
func fillTemplate(template string, rep representation, num, at uint64) string {
	return templateVariable.ReplaceAllStringFunc(template, func(v string) string {
		m := templateVariable.FindStringSubmatch(v)
		width, _ := strconv.Atoi(m[3])
		switch m[1] {
		case "RepresentationID":
			return rep.ID
		case "Bandwidth":
			return fmt.Sprintf("%0*d", width, parseNumber(rep.Bandwidth, 0))
		case "Number":
			return fmt.Sprintf("%0*d", width, num)
		case "Time":
			return fmt.Sprintf("%0*d", width, at)
		}
		return "$"
	})
}

// isoDuration matches a duration of XML Schema without years and months.
var isoDuration = regexp.MustCompile(`^P(?:([0-9.]+)D)?(?:T(?:([0-9.]+)H)?(?:([0-9.]+)M)?(?:([0-9.]+)S)?)?$`)

// parseDuration parses a duration of XML Schema of days and less, like "PT1H2.5S".
func parseDuration(s string) (time.Duration, bool) {
	m := isoDuration.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil || len(s) < 3 {
		return 0, false
	}
	sum := 0.0
	for i, each := range []float64{86400, 3600, 60, 1} {
		n, _ := strconv.ParseFloat(m[i+1], 64)
		sum += n * each
	}
	return time.Duration(min(sum, 1e9) * float64(time.Second)), true
}
