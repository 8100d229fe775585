// SPDX-License-Identifier: Apache-2.0

// Package page is a web page of a helper for the local network: photos that users choose
// or drop in a browser are uploaded over the mobile link of the helper and the home line
// together, to the target that the owner has configured. The browser needs no part of
// mpbond. Package onload/upload sends the files.
//
//	browser ── HTTP, local network ── page: spool ── onload/upload ┬─ home line
//	                                                               └─ mobile link
//
//	page.go    configuration and list of files
//	serve.go   HTTP requests
//	listen.go  limits of connections
//	login.go   access code and sessions
//	spool.go   files on the helper's disk, until they are confirmed
//	send.go    uploads
//	line.go    the mobile link, while it may be used
//	events.go  state sent to browsers
//
// A file is done when the upload server has confirmed it. Until then the page says that
// the file is with the helper.
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

// Port is the default TCP port of the page.
const Port = 7607

// Limits.
const (
	maxListed    = 500 // files; those that are done are removed first
	maxReceiving = 8   // files received at once
	maxName      = 200 // bytes of a file name
	maxKey       = 40  // bytes of a browser's key
	maxRenamed   = 20  // renames of a file after name conflicts at the server
)

// Config configures a Page.
type Config struct {
	Target     upload.Target
	Devices    []upload.Device // the home line first
	Dir        string          // of the spool, used by nothing else
	SpoolLimit unit.Bytes      // bytes in the spool
	AccessCode string          // that users enter
	// HostNames are the names of the helper in the local network.
	HostNames []string
	// Uplink is the interface of the mobile link, from which the page cannot be reached; "" is
	// none.
	Uplink string
	// Notice returns a message for users, or "".
	Notice    func() string
	UserAgent string
	Log       *slog.Logger

	times times // for tests
}

// times are the time limits of a page.
type times struct {
	readTimeout time.Duration // for a piece of a file
	gatherTime  time.Duration // to wait for further files before sending
}

// defaultTimes are used unless a test sets others.
var defaultTimes = times{readTimeout: 30 * time.Second, gatherTime: 2 * time.Second}

// State is the progress of a file.
type State string

// States.
const (
	Waiting State = "waiting" // complete in the spool
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
	Note  string     `json:"note,omitempty"` // reason of a failure, or other information
	Key   string     `json:"key,omitempty"`  // chosen by the browser, which may send the file again

	receivedAt  time.Time
	renameCount int
}

// Page is the web page of a helper. Its methods may be called by any goroutine.
type Page struct {
	cfg      Config
	sessions *sessions
	wake     chan struct{} // to the sender: a file is waiting

	mu             sync.Mutex
	items          []*item // oldest first
	receiving      int
	incomingBytes  unit.Bytes // of files being received
	uploadProgress *upload.Progress
	listeners      int
	changed        chan struct{} // closed on the next change
}

// New returns a page. It restores the files of its spool.
func New(cfg Config) (*Page, error) {
	if len(cfg.Devices) == 0 {
		return nil, errors.New("no device to send over")
	}
	if err := cfg.Target.Check(); err != nil {
		return nil, err
	}
	if cfg.Target.Method != upload.Post {
		if !cfg.Target.IsCollection() {
			return nil, fault.New(fault.Config,
				errors.New("the target URL of photos must end with a slash"), "add a slash to the URL")
		}
		cfg.Target.KeepExisting = true // two phones may both have an IMG_0001.jpg
	}
	if cfg.times == (times{}) {
		cfg.times = defaultTimes
	}
	p := &Page{cfg: cfg, sessions: newSessions(cfg.AccessCode), wake: make(chan struct{}, 1),
		changed: make(chan struct{})}
	return p, p.restoreSpool()
}

// notifyPageChange wakes the sender and all browsers. mu must be held.
func (p *Page) notifyPageChange() {
	close(p.changed)
	p.changed = make(chan struct{})
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// usedSpoolBytes returns how many bytes of the spool are used or reserved. mu must be held.
func (p *Page) usedSpoolBytes() unit.Bytes {
	n := p.incomingBytes
	for _, i := range p.items {
		if i.State != Done {
			n += i.Size
		}
	}
	return n
}

// reserveSpace reserves space for a file.
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
		return fault.New(fault.Limit,
			fmt.Errorf("the helper accepts no more files now: it has %d, including %d being received",
				open, p.receiving), "")
	case size > p.cfg.SpoolLimit-p.usedSpoolBytes():
		return fault.New(fault.Limit, fmt.Errorf("the helper has no space for %v now: its limit is %v of unsent files",
			size, p.cfg.SpoolLimit), "")
	}
	p.receiving++
	p.incomingBytes += size
	return nil
}

// finishReceive releases the space of a file and adds the received file, if not nil, to the list.
func (p *Page) finishReceive(size unit.Bytes, came *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.receiving--
	p.incomingBytes -= size
	if came != nil && came.Key != "" && slices.ContainsFunc(p.items, func(o *item) bool { return o.Key == came.Key }) {
		p.deleteSpooled(came.ID) // the browser missed the response and sent it again
	} else if came != nil {
		p.items = append(p.items, came)
		p.makeNameUnique(came)
		p.trimDoneFiles()
	}
	p.notifyPageChange()
}

// trimDoneFiles removes the oldest finished files from a list that is too long. mu must be held.
func (p *Page) trimDoneFiles() {
	for len(p.items) > maxListed {
		at := slices.IndexFunc(p.items, func(i *item) bool { return i.State == Done })
		if at < 0 {
			return
		}
		p.items = slices.Delete(p.items, at, at+1)
	}
}

// findListedFile returns a file of the list. mu must be held.
func (p *Page) findListedFile(id string) (*item, error) {
	at := slices.IndexFunc(p.items, func(i *item) bool { return i.ID == id })
	if at < 0 {
		return nil, fault.New(fault.NotFound, errors.New("the file is no longer in the list"), "")
	}
	return p.items[at], nil
}

// retryFailedFile sends a failed file again.
func (p *Page) retryFailedFile(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, err := p.findListedFile(id)
	if err != nil {
		return err
	}
	if i.State == Failed {
		i.State, i.Note = Waiting, ""
		p.notifyPageChange()
	}
	return nil
}

// removeFile removes a file from the list and the spool.
func (p *Page) removeFile(id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, err := p.findListedFile(id)
	if err != nil {
		return err
	}
	if i.State == Sending {
		return fault.New(fault.Exists, errors.New("the file is being sent"), "")
	}
	p.deleteSpooled(i.ID)
	p.items = slices.DeleteFunc(p.items, func(o *item) bool { return o == i })
	p.notifyPageChange()
	return nil
}

// sanitizeFileName returns a valid file name for servers: without folders and unprintable
// characters, and not too long.
func sanitizeFileName(s string) string {
	s = path.Base("/" + strings.ReplaceAll(strings.ToValidUTF8(s, "_"), `\`, "/"))
	s = strings.Map(func(r rune) rune {
		if !text.IsPrintable(r) || r != ' ' && unicode.IsSpace(r) {
			return '_'
		}
		return r
	}, s)
	s = strings.Trim(s, " .")
	if ext := path.Ext(s); len(s) > maxName && len(ext) < 20 {
		s = truncateToBytes(s, maxName-len(ext)) + ext
	}
	return cmp.Or(strings.Trim(truncateToBytes(s, maxName), "/"), "file")
}

// truncateToBytes returns the first n bytes of a string, without a partial character.
func truncateToBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// makeNameUnique changes the name of a file so that no other file in the list has it, and it is
// none of not: "a.jpg", "a (2).jpg". mu must be held.
func (p *Page) makeNameUnique(i *item, not ...string) {
	name, ext := strings.TrimSuffix(i.Name, path.Ext(i.Name)), path.Ext(i.Name)
	if at := strings.LastIndex(name, " ("); at > 0 && len(not) > 0 && strings.HasSuffix(name, ")") {
		name = name[:at]
	}
	taken := func(s string) bool {
		return slices.Contains(not, s) ||
			slices.ContainsFunc(p.items, func(o *item) bool { return o != i && o.Name == s })
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

// Status summarizes the files of a page.
type Status struct {
	Waiting, Done, Failed int
	Bytes                 unit.Bytes // in the spool
}

// Status returns the current state. It may be called at any time.
func (p *Page) Status() (s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Bytes = p.usedSpoolBytes()
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
