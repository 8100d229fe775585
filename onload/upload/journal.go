package upload

import (
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"mpbond/base/store"
	"mpbond/base/unit"
)

// entry is a line of the journal: what is known of a file at a target. A later one
// replaces it. Forms, which a server may keep twice, and what must not replace anything
// have one before they are sent too.
type entry struct {
	Target  string     `json:"target"` // its ID
	Path    string     `json:"path"`
	URL     string     `json:"url"`
	Size    unit.Bytes `json:"size"`
	Changed time.Time  `json:"changed"`

	Done   Proof        `json:"done,omitempty"`   // confirmed
	Twice  bool         `json:"twice,omitempty"`  // and may be there twice
	Key    string       `json:"key,omitempty"`    // of a form
	Begun  bool         `json:"begun,omitempty"`  // the server may have it: a form, or what is not to be replaced
	Upload string       `json:"upload,omitempty"` // S3's name of what is begun
	Part   unit.Bytes   `json:"part,omitempty"`   // size of its parts
	Parts  map[int]part `json:"parts,omitempty"`  // confirmed
	Gone   bool         `json:"gone,omitempty"`   // nothing is known any more
}

// place is what an entry is about.
type place struct{ target, path, url string }

// Known is what a journal had.
type Known struct{ entries map[place]entry }

// NewKnown is nothing.
func NewKnown() *Known { return &Known{map[place]entry{}} }

// Take takes in a line of a journal.
func (k *Known) Take(line []byte) error {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	if e.Path == "" || e.URL == "" || e.Size < 0 {
		return errors.New("no file")
	}
	k.put(e)
	return nil
}

func (k *Known) put(e entry) {
	at := place{e.Target, e.Path, e.URL}
	if e.Gone {
		delete(k.entries, at)
		return
	}
	if old, ok := k.entries[at]; ok && e.Upload != "" && old.Upload == e.Upload { // parts come one by one
		if e.Parts == nil {
			e.Parts = map[int]part{}
		}
		for n, p := range old.Parts {
			if _, ok := e.Parts[n]; !ok {
				e.Parts[n] = p
			}
		}
	}
	k.entries[at] = e
}

// Keep forgets what is of other files than those at these absolute paths, in a journal too,
// if there is one.
func (k *Known) Keep(paths map[string]bool, j *store.Journal) error {
	var lines []any
	all := len(k.entries)
	for at, e := range k.entries {
		if !paths[at.path] {
			delete(k.entries, at)
			continue
		}
		lines = append(lines, e)
	}
	if j == nil || len(lines) == all {
		return nil
	}
	return j.Rewrite(lines...)
}

// Empty tells whether nothing is known.
func (k *Known) Empty() bool { return len(k.entries) == 0 }

// notes keeps what is confirmed at a target: in Known, and in a journal if there is one.
type notes struct {
	target  string // its ID
	known   *Known
	journal *store.Journal
	log     *slog.Logger
}

// entry is the line of a file of which nothing is known.
func (n *notes) entry(f *file) entry {
	return entry{Target: n.target, Path: f.full, URL: f.url, Size: f.size, Changed: f.changed}
}

// put writes a line. What cannot be written is told, and sent all the same.
func (n *notes) put(x entry) {
	n.known.put(x)
	if n.journal == nil {
		return
	}
	if err := n.journal.Append(x); err != nil {
		n.log.Warn("the journal of an upload could not be written: what is confirmed would be sent again", "err", err)
	}
}

// recall takes up what an earlier run knew of a file.
func (n *notes) recall(f *file) {
	x := n.entry(f)
	old, ok := n.known.entries[place{x.Target, x.Path, x.URL}]
	if !ok || old.Size != f.size || !old.Changed.Equal(f.changed) {
		return
	}
	switch {
	case old.Done != "":
		f.state, f.proof, f.earlier, f.twice = done, old.Done, true, old.Twice
	case old.Begun:
		f.lost = true
		if old.Key != "" {
			f.key = old.Key
		}
	case old.Upload != "" && old.Part > 0:
		f.parts = partsOf{id: old.Upload, size: old.Part, have: old.Parts}
		f.lost = f.unsent() == 0
	}
}

// clear has the journal forget the files once all are confirmed: the next run sends them
// again, as it was told.
func (n *notes) clear(files []*file) {
	if slices.ContainsFunc(files, func(f *file) bool { return f.state != done }) {
		return
	}
	for _, f := range files {
		x := n.entry(f)
		delete(n.known.entries, place{x.Target, x.Path, x.URL})
	}
	if n.journal == nil {
		return
	}
	lines := make([]any, 0, len(n.known.entries))
	for _, x := range n.known.entries {
		lines = append(lines, x)
	}
	if err := n.journal.Rewrite(lines...); err != nil {
		n.log.Warn("the journal of an upload could not be cleared: the same files would not be sent again", "err", err)
	}
}
