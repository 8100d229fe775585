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

// entryKey is what an entry is about.
type entryKey struct{ target, path, url string }

// KnownUploads is what a journal had.
type KnownUploads struct{ entries map[entryKey]entry }

// NewKnownUploads is nothing.
func NewKnownUploads() *KnownUploads { return &KnownUploads{map[entryKey]entry{}} }

// LoadEntry takes in a line of a journal.
func (k *KnownUploads) LoadEntry(line []byte) error {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	if e.Path == "" || e.URL == "" || e.Size < 0 {
		return errors.New("no file")
	}
	k.putEntry(e)
	return nil
}

func (k *KnownUploads) putEntry(e entry) {
	at := entryKey{e.Target, e.Path, e.URL}
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

// KeepOnly forgets what is of other files than those at these absolute paths, in a journal too,
// if there is one.
func (k *KnownUploads) KeepOnly(paths map[string]bool, j *store.Journal) error {
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

// IsEmpty tells whether nothing is known.
func (k *KnownUploads) IsEmpty() bool { return len(k.entries) == 0 }

// fileJournal keeps what is confirmed at a target: in Known, and in a journal if there is one.
type fileJournal struct {
	target  string // its ID
	known   *KnownUploads
	journal *store.Journal
	log     *slog.Logger
}

// newEntry is the line of a file of which nothing is known.
func (n *fileJournal) newEntry(f *file) entry {
	return entry{Target: n.target, Path: f.absPath, URL: f.url, Size: f.size, Changed: f.modTime}
}

// saveEntry writes a line. What cannot be written is told, and sent all the same.
func (n *fileJournal) saveEntry(x entry) {
	n.known.putEntry(x)
	if n.journal == nil {
		return
	}
	if err := n.journal.Append(x); err != nil {
		n.log.Warn("the journal of an upload could not be written: what is confirmed would be sent again", "err", err)
	}
}

// restoreFile takes up what an earlier run knew of a file.
func (n *fileJournal) restoreFile(f *file) {
	x := n.newEntry(f)
	old, ok := n.known.entries[entryKey{x.Target, x.Path, x.URL}]
	if !ok || old.Size != f.size || !old.Changed.Equal(f.modTime) {
		return
	}
	switch {
	case old.Done != "":
		f.state, f.proof, f.earlier, f.maybeDuplicate = done, old.Done, true, old.Twice
	case old.Begun:
		f.maybeStored = true
		if old.Key != "" {
			f.idempotencyKey = old.Key
		}
	case old.Upload != "" && old.Part > 0:
		f.multipart = multipartUpload{uploadID: old.Upload, partSize: old.Part, confirmed: old.Parts}
		f.maybeStored = f.unconfirmedBytes() == 0
	}
}

// clearConfirmed has the journal forget the files once all are confirmed: the next run sends them
// again, as it was told.
func (n *fileJournal) clearConfirmed(files []*file) {
	if slices.ContainsFunc(files, func(f *file) bool { return f.state != done }) {
		return
	}
	for _, f := range files {
		x := n.newEntry(f)
		delete(n.known.entries, entryKey{x.Target, x.Path, x.URL})
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
