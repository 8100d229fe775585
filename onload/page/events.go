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
	maxReaders = 16
	tellEvery  = 200 * time.Millisecond
	sayAfter   = 15 * time.Second // that somebody is still there
)

// view is what browsers are told: all of it, each time.
type view struct {
	To    string     `json:"to"`
	Note  string     `json:"note,omitempty"`
	Room  unit.Bytes `json:"room"` // left in the spool
	Files []item     `json:"files"`
	Now   *sending   `json:"now,omitempty"`
}

// sending is what goes up now.
type sending struct {
	Bytes unit.Bytes `json:"bytes"`
	Size  unit.Bytes `json:"size"`
	Lines []line     `json:"lines"`
}

type line struct {
	Name  string     `json:"name"`
	Bytes unit.Bytes `json:"bytes"`
	Rate  unit.Rate  `json:"rate_bps"`
	Down  string     `json:"down,omitempty"`
}

// look is what there is to tell, and what is closed when that changes.
func (p *Page) look() (v view, changed <-chan struct{}) {
	if p.cfg.Note != nil {
		v.Note = p.cfg.Note()
	}
	if u, err := url.Parse(p.cfg.Target.URL); err == nil {
		v.To = u.Host
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v.Room, v.Files = max(0, p.cfg.Room-p.used()), make([]item, 0, len(p.items))
	for _, i := range p.items {
		v.Files = append(v.Files, *i)
	}
	if p.now != nil {
		v.Now = &sending{Bytes: p.now.Bytes, Size: p.now.Size}
		for _, d := range p.now.Devices {
			l := line{Name: d.Device, Bytes: d.Bytes, Rate: d.Rate}
			if d.Down != nil {
				l.Down = d.Down.Error()
			}
			v.Now.Lines = append(v.Now.Lines, l)
		}
	}
	return v, p.changed
}

// events tells what there is, and all changes, until nobody listens or the helper ends.
func (p *Page) events(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	full := p.readers >= maxReaders
	if !full {
		p.readers++
	}
	p.mu.Unlock()
	if full {
		refuse(w, http.StatusTooManyRequests, "as many look at this page as may")
		return
	}
	defer func() { p.mu.Lock(); p.readers--; p.mu.Unlock() }()
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // nothing more is to come
	for {
		v, changed := p.look()
		text, err := json.Marshal(v)
		if err != nil {
			return
		}
		_ = out.SetWriteDeadline(time.Now().Add(sayAfter))
		if _, err := w.Write([]byte("data: " + string(text) + "\n\n")); err != nil || out.Flush() != nil {
			return
		}
		if !wait(r, tellEvery, nil) || !wait(r, sayAfter, changed) {
			return
		}
	}
}

// wait waits for so long, or until something is closed; false ends it all.
func wait(r *http.Request, long time.Duration, until <-chan struct{}) bool {
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
