// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/link/splice"
	"mpbond/onload/board"
)

// newHandler returns the handler of players. own is the address of the proxy.
func (p *Proxy) newHandler(own string) http.Handler {
	return splice.GuardResponses(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			p.serveTunnel(w, r, own)
		case r.URL.Scheme != "http" || r.URL.Host == "":
			http.Error(w, "mpbond: this is a proxy: set it as the HTTP proxy of a video player", http.StatusBadRequest)
		case r.URL.Host == own:
			http.Error(w, "mpbond: the request is for the proxy itself", http.StatusLoopDetected)
		case r.Method != http.MethodGet || isConditional(r.Header) || r.ContentLength != 0 || !p.serveSegment(w, r):
			p.forward.ServeHTTP(w, r)
		}
	}))
}

// rewriteRequest forwards a request unchanged, except for codings that inspectResponse cannot
// decode.
func rewriteRequest(r *httputil.ProxyRequest) {
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	coding := "identity" // otherwise the transport would request gzip and decode it
	if acceptsGzip(r.In.Header) {
		coding = "gzip"
	}
	r.Out.Header.Set("Accept-Encoding", coding)
}

// acceptsGzip reports whether a player accepts the coding gzip.
func acceptsGzip(h http.Header) bool {
	for coding := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			return !strings.HasPrefix(strings.ReplaceAll(weight, " ", ""), "q=0") ||
				strings.ContainsAny(weight, "123456789")
		}
	}
	return false
}

// replyUnreachable replies that the server cannot be reached.
func (p *Proxy) replyUnreachable(w http.ResponseWriter, r *http.Request, err error) {
	p.Log.Debug("server unreachable", "url", r.URL.Redacted(), "err", err)
	w.WriteHeader(http.StatusBadGateway)
}

// serveTunnel carries an encrypted connection over the local device.
func (p *Proxy) serveTunnel(w http.ResponseWriter, r *http.Request, own string) {
	if r.Host == own || p.Dial == nil {
		w.WriteHeader(http.StatusLoopDetected)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), stallTimeout)
	defer cancel()
	up, err := p.Dial(ctx, "tcp", r.Host)
	if err != nil {
		p.replyUnreachable(w, r, err)
		return
	}
	splice.ResetOnExit(up)
	defer up.Close() // resets the connection unless it has ended cleanly
	down, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if c, ok := down.(*splice.WebConn); ok {
		down = c.Conn
	}
	defer down.Close() // see up
	if !p.prefetcher.startTunnel() {
		return
	}
	defer p.prefetcher.activeReplies.Done()
	early := make([]byte, buffered.Reader.Buffered())
	_, _ = io.ReadFull(buffered, early)
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if _, err := up.Write(early); err != nil {
		return
	}
	defer context.AfterFunc(r.Context(), func() { down.Close(); up.Close() })()
	_, _, _ = splice.Both(down, up)
}

// isConditional reports whether the response depends on what the player has already. If-Range is
// checked later: browsers send it with each range but the first.
func isConditional(h http.Header) bool {
	return slices.ContainsFunc([]string{"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since"},
		func(name string) bool { return h.Get(name) != "" })
}

// inspectResponse reads playlists and redirects in forwarded responses.
func (p *Proxy) inspectResponse(r *http.Response) error {
	if to := resolveHTTPURL(r.Request.URL, r.Header.Get("Location")); isRedirect(r.StatusCode) && to != "" {
		p.prefetcher.noteRedirect(r.Request.URL, to)
	}
	kind := playlistKind(r)
	if kind == "" {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxPlaylist+1))
	r.Body = &replayBody{bytes.NewReader(data), r.Body, err}
	if err != nil || len(data) > maxPlaylist {
		return nil // the player gets the body anyway
	}
	if strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil
		}
		if data, err = io.ReadAll(io.LimitReader(z, maxPlaylist+1)); err != nil || len(data) > maxPlaylist {
			return nil
		}
	}
	off := time.Duration(0)
	if date, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		off = time.Until(date)
	}
	p.prefetcher.addPlaylist(r.Request.URL, kind, string(data), off)
	return nil
}

// playlistKind returns the kind of a playlist by its media type or else its file name, or "" if the
// response is none.
func playlistKind(r *http.Response) string {
	if r.Request.Method != http.MethodGet || !hasWholeObject(r) {
		return ""
	}
	typ, _, _ := strings.Cut(strings.ToLower(r.Header.Get("Content-Type")), ";")
	switch strings.TrimSpace(typ) {
	case "application/vnd.apple.mpegurl", "application/x-mpegurl", "audio/mpegurl", "audio/x-mpegurl":
		return "hls"
	case "application/dash+xml":
		return "dash"
	}
	switch path.Ext(r.Request.URL.Path) {
	case ".m3u8":
		return "hls"
	case ".mpd":
		return "dash"
	}
	return ""
}

// hasWholeObject reports whether a response has the whole object. A range from the first byte to
// the last counts: libavformat always requests "bytes=0-".
func hasWholeObject(r *http.Response) bool {
	if r.StatusCode != http.StatusPartialContent {
		return r.StatusCode == http.StatusOK
	}
	var last, size int64
	n, _ := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes 0-%d/%d", &last, &size)
	return n == 2 && last == size-1 && (r.ContentLength < 0 || r.ContentLength == size)
}

// replayBody returns the bytes already read of a body, then the rest.
type replayBody struct {
	read *bytes.Reader
	rest io.ReadCloser
	err  error
}

// Read implements io.Reader.
func (a *replayBody) Read(b []byte) (int, error) {
	if a.read.Len() > 0 {
		return a.read.Read(b)
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.rest.Read(b)
}

// Close implements io.Closer.
func (a *replayBody) Close() error { return a.rest.Close() }

// parseRange parses the Range field of a request. ok is false unless it is absent or a single
// range.
func parseRange(h http.Header) (from, to unit.Bytes, ok bool) {
	all := h.Values("Range")
	if len(all) == 0 {
		return 0, board.Unknown, true
	}
	text, ok := strings.CutPrefix(all[0], "bytes=")
	first, last, ok2 := strings.Cut(text, "-")
	a, err := strconv.ParseUint(first, 10, 48)
	if len(all) > 1 || !ok || !ok2 || err != nil {
		return 0, 0, false
	}
	if last == "" {
		return unit.Bytes(a), board.Unknown, true
	}
	b, err := strconv.ParseUint(last, 10, 48)
	return unit.Bytes(a), unit.Bytes(b + 1), err == nil && a <= b
}

// serveSegment serves a request with a segment that was prefetched or is being fetched. If it
// reports false, nothing has been written.
func (p *Proxy) serveSegment(w http.ResponseWriter, r *http.Request) bool {
	from, to, ok := parseRange(r.Header)
	if !ok {
		return false
	}
	s := p.prefetcher.requestSegment(r, from, to)
	if s == nil {
		return false
	}
	served := reply{prefetcher: p.prefetcher, segment: s, request: r, writer: w, from: 0, to: board.Unknown}
	if s.to == board.Unknown && r.Header.Get("Range") != "" {
		served.ranged, served.from, served.to = true, from, to
	}
	defer func() { p.prefetcher.releaseSegment(s, served.complete) }()
	return served.writeToPlayer()
}

// reply is a response to a player.
type reply struct {
	prefetcher *prefetcher
	segment    *segment
	request    *http.Request
	writer     http.ResponseWriter
	ranged     bool // the player requests a range of a segment that is listed as a whole
	from, to   unit.Bytes
	complete   bool // the player has received it
}

// writeToPlayer writes the response. It reports false if nothing was written.
func (y *reply) writeToPlayer() bool {
	var started bool
	var of *response
	var sent []byte // all bytes written, from the beginning of the segment
	at := y.from
	for {
		y.prefetcher.loop.Lock()
		have, more := y.segment.receivedPrefix()
		now, abandoned, isComplete := y.segment.response, y.segment.leftToPlayer, y.segment.complete
		y.prefetcher.loop.Unlock()
		switch {
		case abandoned && !started:
			return false
		case abandoned:
			panic(http.ErrAbortHandler) // a truncated body must not look complete
		case !started && now != nil && (now.size != board.Unknown || isComplete):
			size := now.size
			if isComplete {
				size = unit.Bytes(len(have))
			}
			if !y.matchesRequest(now, size) {
				y.prefetcher.noteMismatch(y.segment)
				return false
			}
			y.writeReplyHeader(now, size)
			started, of, at = true, now, y.from
		}
		if started {
			if now.size != of.size || !continuesSent(sent, have, isComplete) {
				panic(http.ErrAbortHandler) // another device brings other bytes
			}
			if to := min(unit.Bytes(len(have)), y.to); to > at {
				if _, err := y.writer.Write(have[at:to]); err != nil {
					return true
				}
				at, sent = to, have[:to]
				_ = http.NewResponseController(y.writer).Flush()
				continue
			}
			if at >= y.to {
				y.complete = true
				return true
			}
		}
		select {
		case <-more:
		case <-y.request.Context().Done():
			return true
		}
	}
}

// continuesSent reports whether received begins with sent. Slices of the same memory need no
// comparison.
func continuesSent(sent, have []byte, whole bool) bool {
	n := min(len(sent), len(have))
	return n == 0 || (n == len(sent) || !whole) && (&sent[0] == &have[0] || bytes.Equal(sent[:n], have[:n]))
}

// matchesRequest reports whether a response fits this request.
func (y *reply) matchesRequest(a *response, size unit.Bytes) bool {
	names := []string{"Cookie", "Authorization"}
	for _, v := range a.header.Values("Vary") {
		for name := range strings.SplitSeq(v, ",") {
			names = append(names, textproto.TrimString(name))
		}
	}
	for _, name := range names {
		if name == "*" || !strings.EqualFold(name, "Accept-Encoding") &&
			!slices.Equal(y.segment.requestHeader.Values(name), y.request.Header.Values(name)) {
			return false
		}
	}
	switch of := y.request.Header.Get("If-Range"); {
	case isRedirect(a.status):
		y.ranged, y.from, y.to = false, 0, 0
	case of != "" && of != a.etag && of != a.modified:
		return false
	case !y.ranged:
		y.from, y.to = 0, size
	case !a.acceptsRanges && y.from == 0: // then the server would send the whole
		y.ranged, y.to = false, size
	case !a.acceptsRanges || y.from >= size:
		return false
	case y.to == board.Unknown || y.to > size:
		y.to = size
	}
	return true
}

// writeReplyHeader writes the status and header like the server does.
func (y *reply) writeReplyHeader(a *response, size unit.Bytes) {
	h := y.writer.Header()
	for name, v := range a.header {
		h[name] = slices.Clone(v)
	}
	removeHopHeaders(h)
	h.Set("Content-Length", strconv.FormatInt(int64(y.to-y.from), 10))
	status := a.status
	if isRedirect(status) { // without the body of the redirect
		h.Del("Content-Encoding")
		h.Del("Content-Digest")
	}
	if y.ranged {
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", y.from, y.to-1, size))
		h.Del("Content-Digest")
	}
	y.writer.WriteHeader(status)
}

// removeHopHeaders removes the fields of a single connection.
func removeHopHeaders(h http.Header) {
	for _, v := range h.Values("Connection") {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate",
		"Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade"} {
		h.Del(name)
	}
}

// prefetchHeader returns the header of a prefetch request, made from the header of a player's
// request for another segment.
func prefetchHeader(player http.Header, sameHost bool) http.Header {
	h := player.Clone()
	removeHopHeaders(h)
	h.Del("Range")
	h.Del("If-Range")
	h.Set("Accept-Encoding", "identity")
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // omit the default of the client
	}
	if !sameHost {
		h.Del("Cookie")
		h.Del("Authorization")
	}
	return h
}
