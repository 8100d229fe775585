// SPDX-License-Identifier: Apache-2.0

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

// entry is a line of the journal: the state of a file at a target. A later entry of the same file
// replaces it. Files that a server may store twice, and files that must not replace others, get an
// entry before they are sent.
type entry struct {
	Target  string     `json:"target"` // ID of the target
	Path    string     `json:"path"`
	URL     string     `json:"url"`
	Size    unit.Bytes `json:"size"`
	Changed time.Time  `json:"changed"`

	Done           Proof  `json:"done,omitempty"`            // confirmed
	MaybeDuplicate bool   `json:"maybe_duplicate,omitempty"` // may be stored twice
	OldDuplicate   bool   `json:"twice,omitempty"`           // MaybeDuplicate in journals of former versions
	Key            string `json:"key,omitempty"`             // idempotency key of a form
	// the server may have it: a form, or a file that must not replace one
	Begun  bool         `json:"begun,omitempty"`
	Upload string       `json:"upload,omitempty"` // S3: ID of a multipart upload
	Part   unit.Bytes   `json:"part,omitempty"`   // size of its parts
	Parts  map[int]part `json:"parts,omitempty"`  // confirmed parts
	Gone   bool         `json:"gone,omitempty"`   // the file has no state any more
}

// entryKey identifies the file of an entry.
type entryKey struct{ target, path, url string }

// KnownUploads is the content of a journal. It is not safe for concurrent use.
type KnownUploads struct{ entries map[entryKey]entry }

// NewKnownUploads returns the content of an empty journal.
func NewKnownUploads() *KnownUploads { return &KnownUploads{map[entryKey]entry{}} }

// LoadEntry adds a line of a journal.
func (k *KnownUploads) LoadEntry(line []byte) error {
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return err
	}
	if e.Path == "" || e.URL == "" || e.Size < 0 {
		return errors.New("journal entry without a valid file")
	}
	e.MaybeDuplicate, e.OldDuplicate = e.MaybeDuplicate || e.OldDuplicate, false
	k.applyJournalEntry(e)
	return nil
}

// applyJournalEntry adds an entry, or merges the parts of a multipart upload.
func (k *KnownUploads) applyJournalEntry(e entry) {
	at := entryKey{e.Target, e.Path, e.URL}
	if e.Gone {
		delete(k.entries, at)
		return
	}
	// each entry has one part
	if old, ok := k.entries[at]; ok && e.Upload != "" && old.Upload == e.Upload {
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

// KeepOnly removes the entries of files other than those at the given absolute paths, also from
// journal j if that is not nil.
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

// IsEmpty reports whether there are no entries.
func (k *KnownUploads) IsEmpty() bool { return len(k.entries) == 0 }

// fileJournal stores the state of files at a target, in known and in the journal if there is one.
type fileJournal struct {
	target  string // ID
	known   *KnownUploads
	journal *store.Journal
	log     *slog.Logger
}

// newJournalEntry returns an entry of a file without any state.
func (n *fileJournal) newJournalEntry(f *file) entry {
	return entry{Target: n.target, Path: f.absPath, URL: f.url, Size: f.size, Changed: f.modTime}
}

// saveJournalEntry stores an entry. If the journal cannot be written it logs a warning, and the
// upload continues.
func (n *fileJournal) saveJournalEntry(x entry) {
	n.known.applyJournalEntry(x)
	if n.journal == nil {
		return
	}
	if err := n.journal.Append(x); err != nil {
		n.log.Warn("upload journal not written, confirmed files would be sent again", "err", err)
	}
}

// restoreFile restores the state that an earlier run stored for an unchanged file.
func (n *fileJournal) restoreFile(f *file) {
	x := n.newJournalEntry(f)
	old, ok := n.known.entries[entryKey{x.Target, x.Path, x.URL}]
	if !ok || old.Size != f.size || !old.Changed.Equal(f.modTime) {
		return
	}
	switch {
	case old.Done != "":
		f.state, f.proof, f.earlier, f.maybeDuplicate = done, old.Done, true, old.MaybeDuplicate
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

// clearConfirmed removes the entries of the files once all are confirmed, so that the next run
// sends them again.
func (n *fileJournal) clearConfirmed(files []*file) {
	if slices.ContainsFunc(files, func(f *file) bool { return f.state != done }) {
		return
	}
	for _, f := range files {
		x := n.newJournalEntry(f)
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
		n.log.Warn("upload journal not cleared, the same files would not be sent again", "err", err)
	}
}
