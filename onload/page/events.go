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
	keepAliveInterval = 15 * time.Second // that somebody is still there
)

// pageState is what browsers are told: all of it, each time.
type pageState struct {
	To    string       `json:"to"`
	Note  string       `json:"note,omitempty"`
	Room  unit.Bytes   `json:"room"` // left in the spool
	Files []item       `json:"files"`
	Now   *uploadState `json:"now,omitempty"`
}

// uploadState is what goes up now.
type uploadState struct {
	Bytes unit.Bytes  `json:"bytes"`
	Size  unit.Bytes  `json:"size"`
	Lines []lineState `json:"lines"`
}

type lineState struct {
	Name  string     `json:"name"`
	Bytes unit.Bytes `json:"bytes"`
	Rate  unit.Rate  `json:"rate_bps"`
	Down  string     `json:"down,omitempty"`
}

// snapshot is what there is to tell, and what is closed when that changes.
func (p *Page) snapshot() (v pageState, changed <-chan struct{}) {
	if p.cfg.Notice != nil {
		v.Note = p.cfg.Notice()
	}
	if u, err := url.Parse(p.cfg.Target.URL); err == nil {
		v.To = u.Host
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v.Room, v.Files = max(0, p.cfg.SpoolLimit-p.usedBytes()), make([]item, 0, len(p.items))
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

// serveEvents tells what there is, and all changes, until nobody listens or the helper ends.
func (p *Page) serveEvents(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	full := p.listeners >= maxListeners
	if !full {
		p.listeners++
	}
	p.mu.Unlock()
	if full {
		writeError(w, http.StatusTooManyRequests, "as many look at this page as may")
		return
	}
	defer func() { p.mu.Lock(); p.listeners--; p.mu.Unlock() }()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // nothing more is to come
	for {
		v, changed := p.snapshot()
		text, err := json.Marshal(v)
		if err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(keepAliveInterval))
		if _, err := w.Write([]byte("data: " + string(text) + "\n\n")); err != nil || out.Flush() != nil {
			return
		}
		if !waitFor(r, minEventInterval, nil) || !waitFor(r, keepAliveInterval, changed) {
			return
		}
	}
}

// waitFor waits for so long, or until something is closed; false ends it all.
func waitFor(r *http.Request, long time.Duration, until <-chan struct{}) bool {
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
