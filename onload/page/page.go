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
	Target     upload.Target
	Devices    []upload.Device // the home line first
	Dir        string          // of the spool, which nobody else uses
	SpoolLimit unit.Bytes      // in it
	AccessCode string          // lets in
	// HostNames are those that the helper has on the local network.
	HostNames []string
	// Uplink is the helper's own line, by which nobody is let in; "" is none.
	Uplink string
	// Notice is what people should know, if anything.
	Notice    func() string
	UserAgent string
	Log       *slog.Logger

	times times // for tests
}

// times are how long things may take.
type times struct {
	readTimeout time.Duration // for a piece of a file
	gatherTime  time.Duration // for others, before what waits is sent
}

var defaultTimes = times{readTimeout: 30 * time.Second, gatherTime: 2 * time.Second}

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

	receivedAt  time.Time
	renameCount int
}

// Page is one. Its methods may be called by any goroutine.
type Page struct {
	cfg      Config
	sessions *sessions
	wake     chan struct{} // to the sender: something waits

	mu             sync.Mutex
	items          []*item // oldest first
	receiving      int
	incomingBytes  unit.Bytes // of what is received
	uploadProgress *upload.Progress
	listeners      int
	changed        chan struct{} // closed when something has
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
		if !cfg.Target.IsCollection() {
			return nil, fault.New(fault.Config, errors.New("photos go to a place, whose URL ends with a slash"), "")
		}
		cfg.Target.KeepExisting = true // two phones may both have an IMG_0001.jpg
	}
	if cfg.times == (times{}) {
		cfg.times = defaultTimes
	}
	p := &Page{cfg: cfg, sessions: newSessions(cfg.AccessCode), wake: make(chan struct{}, 1), changed: make(chan struct{})}
	return p, p.restoreSpool()
}

// notifyChange tells those who look that something has changed. With p.mu.
func (p *Page) notifyChange() {
	close(p.changed)
	p.changed = make(chan struct{})
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// usedBytes is what of the spool is taken. With p.mu.
func (p *Page) usedBytes() unit.Bytes {
	n := p.incomingBytes
	for _, i := range p.items {
		if i.State != Done {
			n += i.Size
		}
	}
	return n
}

// reserveSpace reserves a place for a file of a size.
func (p *Page) reserveSpace(size unit.Bytes) error {
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
	case size > p.cfg.SpoolLimit-p.usedBytes():
		return fault.New(fault.Limit, fmt.Errorf("the helper has no room for %v now: it keeps %v at most until they are sent", size, p.cfg.SpoolLimit), "")
	}
	p.receiving++
	p.incomingBytes += size
	return nil
}

// finishReceive gives the place back, with the file that came, or nil.
func (p *Page) finishReceive(size unit.Bytes, came *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receiving--
	p.incomingBytes -= size
	if came != nil && came.Key != "" && slices.ContainsFunc(p.items, func(o *item) bool { return o.Key == came.Key }) {
		p.deleteSpooled(came.ID) // the browser did not hear that it is here
	} else if came != nil {
		p.items = append(p.items, came)
		p.makeNameUnique(came)
		p.trimDone()
	}
	p.notifyChange()
}

// trimDone takes the oldest that are done from a list that is too long. With p.mu.
func (p *Page) trimDone() {
	for len(p.items) > maxListed {
		at := slices.IndexFunc(p.items, func(i *item) bool { return i.State == Done })
		if at < 0 {
			return
		}
		p.items = slices.Delete(p.items, at, at+1)
	}
}

// findFile is a file of the list. With p.mu.
func (p *Page) findFile(id string) (*item, error) {
	at := slices.IndexFunc(p.items, func(i *item) bool { return i.ID == id })
	if at < 0 {
		return nil, fault.New(fault.NotFound, errors.New("there is no such file in the list any more"), "")
	}
	return p.items[at], nil
}

// retryFile has a file that failed sent once more.
func (p *Page) retryFile(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, err := p.findFile(id)
	if err != nil {
		return err
	}
	if i.State == Failed {
		i.State, i.Note = Waiting, ""
		p.notifyChange()
	}
	return nil
}

// removeFile takes a file from the list, and from the spool.
func (p *Page) removeFile(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, err := p.findFile(id)
	if err != nil {
		return err
	}
	if i.State == Sending {
		return fault.New(fault.Exists, errors.New("it is being sent"), "")
	}
	p.deleteSpooled(i.ID)
	p.items = slices.DeleteFunc(p.items, func(o *item) bool { return o == i })
	p.notifyChange()
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
		s = truncateText(s, maxName-len(ext)) + ext
	}
	return cmp.Or(strings.Trim(truncateText(s, maxName), "/"), "file")
}

// truncateText is a string's first bytes, without half a letter.
func truncateText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// makeNameUnique gives a file a name that no other one of the list has: "a.jpg", "a (2).jpg".
// With p.mu.
func (p *Page) makeNameUnique(i *item, not ...string) {
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
	s.Bytes = p.usedBytes()
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
