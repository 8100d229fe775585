// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"mpbond/base/unit"
)

// Limits of events.
const (
	maxListeners      = 16
	minEventInterval  = 200 * time.Millisecond
	keepAliveInterval = 15 * time.Second // between events without changes
)

// pageState is the complete state that each event sends to browsers.
type pageState struct {
	To    string       `json:"to"`
	Note  string       `json:"note,omitempty"`
	Room  unit.Bytes   `json:"room"` // free bytes of the spool
	Files []item       `json:"files"`
	Now   *uploadState `json:"now,omitempty"`
}

// uploadState is the progress of the current upload.
type uploadState struct {
	Bytes unit.Bytes  `json:"bytes"`
	Size  unit.Bytes  `json:"size"`
	Lines []lineState `json:"lines"`
}

// lineState is the progress of one device.
type lineState struct {
	Name  string     `json:"name"`
	Bytes unit.Bytes `json:"bytes"`
	Rate  unit.Rate  `json:"rate_bps"`
	Down  string     `json:"down,omitempty"`
}

// snapshotPageState returns the current state and a channel that is closed on the next change.
func (p *Page) snapshotPageState() (v pageState, changed <-chan struct{}) {
	if p.cfg.Notice != nil {
		v.Note = p.cfg.Notice()
	}
	if u, err := url.Parse(p.cfg.Target.URL); err == nil {
		v.To = u.Host
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v.Room, v.Files = max(0, p.cfg.SpoolLimit-p.usedSpoolBytes()), make([]item, 0, len(p.items))
	for _, i := range p.items {
		v.Files = append(v.Files, *i)
	}
	if p.uploadProgress != nil {
		v.Now = &uploadState{Bytes: p.uploadProgress.Bytes, Size: p.uploadProgress.Size}
		for _, d := range p.uploadProgress.Devices {
			l := lineState{Name: d.Device, Bytes: d.Bytes, Rate: d.Rate}
			if d.Down != nil {
				l.Down = d.Down.Error()
			}
			v.Now.Lines = append(v.Now.Lines, l)
		}
	}
	return v, p.changed
}

// serveEvents sends the state and all changes until the browser disconnects or the server ends.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	isFull := p.listeners >= maxListeners
	if !isFull {
		p.listeners++
	}
	p.mu.Unlock()
	if isFull {
		writeError(w, http.StatusTooManyRequests, "too many browsers have this page open")
		return
	}
	defer func() { p.mu.Lock(); p.listeners--; p.mu.Unlock() }()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // the request is complete
	for {
		v, changed := p.snapshotPageState()
		text, err := json.Marshal(v)
		if err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(keepAliveInterval))
		if _, err := w.Write([]byte("data: " + string(text) + "\n\n")); err != nil || out.Flush() != nil {
			return
		}
		if !waitDuringRequest(r, minEventInterval, nil) || !waitDuringRequest(r, keepAliveInterval, changed) {
			return
		}
	}
}

// waitDuringRequest waits for a time or until a channel is closed. It returns false when the
// request ends.
func waitDuringRequest(r *http.Request, long time.Duration, until <-chan struct{}) bool {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-until:
	case <-t.C:
	}
	return true
}
