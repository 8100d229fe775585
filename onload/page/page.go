// Package page is a helper's own page on the local network: photos that are chosen or
// dropped in a browser go up over the helper's line and the home line together, to where
// the helper's owner said. It stands before onload/upload, which sends them, and after
// any browser, which needs nothing of mpbond.
//
//	browser ── HTTP, on the local network ── page: spool ── onload/upload ── home line
//	                                                                      └─ own line
//
//	page.go    what it needs, and its list of files
//	serve.go   requests: who is let in, and what they may ask for
//	door.go    connections: how many, and from where
//	enter.go   codes and sessions
//	spool.go   files on the helper's disk, until they are confirmed
//	send.go    uploads
//	line.go    the helper's own line, while it may be used
//	events.go  what browsers are told
//
// A file is done when the endpoint has confirmed it; what the helper has received is
// said to be with the helper, and no more.
package page

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/onload/upload"
)

// Port is where the page is if nothing else is said.
const Port = 7607

// Limits.
const (
	maxListed    = 500 // files, of which those that are done go first
	maxReceiving = 8   // files at once
	maxName      = 200 // bytes of a name
	maxKey       = 40  // bytes of a browser's
	maxRenamed   = 20  // times, since the endpoint has another file of that name
)

// Config is what a Page needs.
type Config struct {
	Target  upload.Target
	Devices []upload.Device // the home line first
	Dir     string          // of the spool, which nobody else uses
	Room    unit.Bytes      // in it
	Code    string          // lets in
	// Names are those that the helper has on the local network.
	Names []string
	// Away is the helper's own line, by which nobody is let in; "" is none.
	Away string
	// Note is what people should know, if anything.
	Note      func() string
	UserAgent string
	Log       *slog.Logger

	times times // for tests
}

// times are how long things may take.
type times struct {
	read   time.Duration // for a piece of a file
	gather time.Duration // for others, before what waits is sent
}

var usual = times{read: 30 * time.Second, gather: 2 * time.Second}

// State is how far a file is.
type State string

// States.
const (
	Waiting State = "waiting" // whole in the spool
	Sending State = "sending"
	Done    State = "done" // confirmed
	Failed  State = "failed"
)

// item is a file of the list.
type item struct {
	ID    string     `json:"id"`
	Name  string     `json:"name"`
	Size  unit.Bytes `json:"size"`
	State State      `json:"state"`
	Note  string     `json:"note,omitempty"` // why it failed, or what to know of it
	Key   string     `json:"key,omitempty"`  // what the browser calls it, which may send it again

	arrived time.Time
	renamed int
}

// Page is one. Its methods may be called by any goroutine.
type Page struct {
	cfg   Config
	doors *sessions
	wake  chan struct{} // to the sender: something waits

	mu        sync.Mutex
	items     []*item // oldest first
	receiving int
	coming    unit.Bytes // of what is received
	now       *upload.Progress
	readers   int
	changed   chan struct{} // closed when something has
}

// New makes one, which goes on with what its spool has.
func New(cfg Config) (*Page, error) {
	if len(cfg.Devices) == 0 {
		return nil, errors.New("no line to send by")
	}
	if err := cfg.Target.Check(); err != nil {
		return nil, err
	}
	if cfg.Target.Method != upload.Post {
		if !cfg.Target.Place() {
			return nil, fault.New(fault.Config, errors.New("photos go to a place, whose URL ends with a slash"), "")
		}
		cfg.Target.Keep = true // two phones may both have an IMG_0001.jpg
	}
	if cfg.times == (times{}) {
		cfg.times = usual
	}
	p := &Page{cfg: cfg, doors: newSessions(cfg.Code), wake: make(chan struct{}, 1), changed: make(chan struct{})}
	return p, p.restore()
}

// touch tells those who look that something has changed. With p.mu.
func (p *Page) touch() {
	close(p.changed)
	p.changed = make(chan struct{})
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// used is what of the spool is taken. With p.mu.
func (p *Page) used() unit.Bytes {
	n := p.coming
	for _, i := range p.items {
		if i.State != Done {
			n += i.Size
		}
	}
	return n
}

// take reserves a place for a file of a size.
func (p *Page) take(size unit.Bytes) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := p.receiving
	for _, i := range p.items {
		if i.State != Done {
			open++
		}
	}
	switch {
	case p.receiving >= maxReceiving, open >= maxListed:
		return fault.New(fault.Limit, fmt.Errorf("the helper has as many files as it takes: %d, %d of them on their way to it", open, p.receiving), "")
	case size > p.cfg.Room-p.used():
		return fault.New(fault.Limit, fmt.Errorf("the helper has no room for %v now: it keeps %v at most until they are sent", size, p.cfg.Room), "")
	}
	p.receiving++
	p.coming += size
	return nil
}

// give gives the place back, with the file that came, or nil.
func (p *Page) give(size unit.Bytes, came *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receiving--
	p.coming -= size
	if came != nil && came.Key != "" && slices.ContainsFunc(p.items, func(o *item) bool { return o.Key == came.Key }) {
		p.drop(came.ID) // the browser did not hear that it is here
	} else if came != nil {
		p.items = append(p.items, came)
		p.rename(came)
		p.forget()
	}
	p.touch()
}

// forget takes the oldest that are done from a list that is too long. With p.mu.
func (p *Page) forget() {
	for len(p.items) > maxListed {
		at := slices.IndexFunc(p.items, func(i *item) bool { return i.State == Done })
		if at < 0 {
			return
		}
		p.items = slices.Delete(p.items, at, at+1)
	}
}

// find is a file of the list. With p.mu.
func (p *Page) find(id string) (*item, error) {
	at := slices.IndexFunc(p.items, func(i *item) bool { return i.ID == id })
	if at < 0 {
		return nil, fault.New(fault.NotFound, errors.New("there is no such file in the list any more"), "")
	}
	return p.items[at], nil
}

// again has a file that failed sent once more.
func (p *Page) again(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, err := p.find(id)
	if err != nil {
		return err
	}
	if i.State == Failed {
		i.State, i.Note = Waiting, ""
		p.touch()
	}
	return nil
}

// remove takes a file from the list, and from the spool.
func (p *Page) remove(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, err := p.find(id)
	if err != nil {
		return err
	}
	if i.State == Sending {
		return fault.New(fault.Exists, errors.New("it is being sent"), "")
	}
	p.drop(i.ID)
	p.items = slices.DeleteFunc(p.items, func(o *item) bool { return o == i })
	p.touch()
	return nil
}

// safeName makes a browser's name of a file one for a server: no folders, nothing that
// cannot be shown.
func safeName(s string) string {
	s = path.Base("/" + strings.ReplaceAll(strings.ToValidUTF8(s, "_"), `\`, "/"))
	s = strings.Map(func(r rune) rune {
		if !text.IsPrintable(r) || r != ' ' && unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, s)
	s = strings.Trim(s, " .")
	if ext := path.Ext(s); len(s) > maxName && len(ext) < 20 {
		s = cut(s, maxName-len(ext)) + ext
	}
	return cmp.Or(strings.Trim(cut(s, maxName), "/"), "file")
}

// cut is a string's first bytes, without half a letter.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// rename gives a file a name that no other one of the list has: "a.jpg", "a (2).jpg".
// With p.mu.
func (p *Page) rename(i *item, not ...string) {
	name, ext := strings.TrimSuffix(i.Name, path.Ext(i.Name)), path.Ext(i.Name)
	if at := strings.LastIndex(name, " ("); at > 0 && len(not) > 0 && strings.HasSuffix(name, ")") {
		name = name[:at]
	}
	taken := func(s string) bool {
		return slices.Contains(not, s) || slices.ContainsFunc(p.items, func(o *item) bool { return o != i && o.Name == s })
	}
	for n := 1; ; n++ {
		if n > 1 || len(not) == 0 {
			i.Name = name + ext
			if n > 1 {
				i.Name = fmt.Sprintf("%s (%d)%s", name, n, ext)
			}
			if !taken(i.Name) {
				return
			}
		}
	}
}

// Status is what there is to do.
type Status struct {
	Waiting, Done, Failed int
	Bytes                 unit.Bytes // in the spool
}

// Status may be called at any time.
func (p *Page) Status() (s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Bytes = p.used()
	for _, i := range p.items {
		switch i.State {
		case Done:
			s.Done++
		case Failed:
			s.Failed++
		default:
			s.Waiting++
		}
	}
	return s
}
