// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"net/url"
	"strconv"
	"strings"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

// parseHLSPlaylist parses a playlist of HTTP Live Streaming (RFC 8216) as far as it lists segments
// or other playlists. It ignores unknown tags; an invalid tag affects only its segment. It reports
// whether text is a playlist.
func parseHLSPlaylist(at *url.URL, text string) (listing, bool) {
	if text = strings.TrimPrefix(text, "\ufeff"); !strings.HasPrefix(text, "#EXTM3U") {
		return listing{}, false
	}
	r := hlsParser{collector: collector{base: at, remaining: maxSegments},
		listing: listing{groups: map[string]string{}}, track: &track{id: playlistID(at)}, id: playlistID(at)}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if tag, ok := strings.CutPrefix(line, "#"); ok {
			r.processHLSTag(tag)
		} else if !r.processURILine(line) {
			break
		}
	}
	if len(r.track.entries) > 0 {
		r.tracks = []*track{r.track}
	}
	r.listing.urlBytes = r.collector.urlBytes
	return r.listing, true
}

// playlistID returns the URL of a playlist without the parameters of a reload (_HLS_msn and
// others).
func playlistID(u *url.URL) string {
	v := *u
	v.Fragment = ""
	if strings.Contains(v.RawQuery, "_HLS_") {
		var keep []string
		for part := range strings.SplitSeq(v.RawQuery, "&") {
			if !strings.HasPrefix(part, "_HLS_") {
				keep = append(keep, part)
			}
		}
		v.RawQuery = strings.Join(keep, "&")
	}
	return v.String()
}

// hlsParser is the state of parsing a playlist.
type hlsParser struct {
	collector
	listing
	track *track
	id    string

	next    entry // tags of the next segment
	number  int64
	init    segmentKey // last EXT-X-MAP
	variant bool
	end     segmentKey // end of the last byte range
}

// processHLSTag processes a tag.
func (r *hlsParser) processHLSTag(tag string) {
	name, value, _ := strings.Cut(tag, ":")
	switch name {
	case "EXTINF":
		text, _, _ := strings.Cut(value, ",")
		s, _ := strconv.ParseFloat(strings.TrimSpace(text), 64)
		r.next.duration = secondsToDuration(s)
	case "EXT-X-BYTERANGE":
		r.next.from, r.next.to = parseByteRange(value)
	case "EXT-X-MEDIA-SEQUENCE":
		r.number, _ = strconv.ParseInt(value, 10, 64)
	case "EXT-X-MAP":
		a := parseAttributes(value)
		k := segmentKey{r.resolveReference(a["URI"]), 0, board.Unknown}
		if a["BYTERANGE"] != "" {
			if k.from, k.to = parseByteRange(a["BYTERANGE"]); k.from < 0 {
				k.from = 0 // an EXT-X-MAP without offset begins at 0
			}
		}
		if a["URI"] != "" && k != r.init {
			r.init = k
			r.addTrackEntry(r.track, entry{segmentKey: k, number: r.number, isInit: true})
		}
	case "EXT-X-STREAM-INF":
		r.variant = true
	case "EXT-X-MEDIA":
		a := parseAttributes(value)
		r.notePlaylistGroup(a["URI"], a["TYPE"])
	}
}

// parseByteRange parses "LENGTH@FROM". Without an offset, from is -1 and to is the length.
func parseByteRange(s string) (from, to unit.Bytes) {
	length, offset, hasOffset := strings.Cut(strings.TrimSpace(s), "@")
	n, err := strconv.ParseUint(length, 10, 48)
	at, err2 := strconv.ParseUint(offset, 10, 48)
	if err != nil || hasOffset && err2 != nil {
		return 0, 0 // an empty range is not added
	}
	if !hasOffset {
		return -1, unit.Bytes(n)
	}
	return unit.Bytes(at), unit.Bytes(at + n)
}

// processURILine processes a URI line: a segment or, in a multivariant playlist, another playlist.
// It returns false at the limit of segments.
func (r *hlsParser) processURILine(ref string) bool {
	if r.variant {
		r.variant = false
		r.notePlaylistGroup(ref, "variants")
		return true
	}
	e := r.next
	r.next = entry{}
	e.url, e.number = r.resolveReference(ref), r.number
	r.number++
	switch {
	case e.from == -1 && r.end.url == e.url: // follows the last byte range
		e.from, e.to = r.end.to, r.end.to+e.to
	case e.from == -1:
		e.from = 0
	case e.from == 0 && e.to == 0:
		e.to = board.Unknown
	}
	r.end = e.segmentKey
	return r.addTrackEntry(r.track, e)
}

// notePlaylistGroup records the group of another playlist.
func (r *hlsParser) notePlaylistGroup(ref, group string) {
	if u, err := url.Parse(r.resolveReference(ref)); ref != "" && err == nil && u.Host != "" &&
		len(r.groups) < maxTracks &&
		len(group) < maxURLLength {
		r.groups[playlistID(u)] = r.id + " " + group
	}
}

// parseAttributes parses an attribute list, NAME=VALUE,NAME="VALUE".
func parseAttributes(s string) map[string]string {
	all := map[string]string{}
	for s != "" {
		name, rest, ok := strings.Cut(s, "=")
		if !ok {
			break
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			value, rest, _ = strings.Cut(rest[1:], `"`)
			_, s, _ = strings.Cut(rest, ",")
		} else {
			value, s, _ = strings.Cut(rest, ",")
		}
		all[strings.TrimSpace(name)] = value
	}
	return all
}
