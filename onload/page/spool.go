// SPDX-License-Identifier: Apache-2.0

package page

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/userfile"
)

// readSize is the most that is read at once; each piece has its own deadline.
const readSize = 64 << 10

// spoolDataPath returns the path of a file's bytes, metadataPath that of its metadata. If the
// metadata exists, the bytes are complete.
func (p *Page) spoolDataPath(id string) string { return filepath.Join(p.cfg.Dir, id+".data") }
func (p *Page) metadataPath(id string) string  { return filepath.Join(p.cfg.Dir, id+".json") }

// deleteSpooled removes a file from the spool.
func (p *Page) deleteSpooled(id string) {
	for _, name := range []string{p.metadataPath(id), p.spoolDataPath(id)} {
		if err := userfile.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			p.cfg.Log.Warn("file not removed from the spool", "err", err)
		}
	}
}

// receiveFile stores a file's bytes from r. It calls more before each piece.
func (p *Page) receiveFile(i *item, r io.Reader, more func()) (err error) {
	if err := p.reserveSpace(i.Size); err != nil {
		return err
	}
	i.ID, i.Name, i.State = rand.Text(), sanitizeFileName(i.Name), Waiting
	defer func() {
		came := i
		if err != nil {
			p.deleteSpooled(i.ID)
			came = nil
		}
		p.finishReceive(i.Size, came)
	}()
	if err := p.writeSpoolData(i, r, more); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			return fault.New(fault.Limit, errors.New("the disk of the helper is full"), "")
		}
		return err
	}
	i.receivedAt = time.Now()
	return p.writeMetadata(i)
}

// writeSpoolData writes a file's bytes to the disk and syncs them.
func (p *Page) writeSpoolData(i *item, r io.Reader, more func()) error {
	f, err := userfile.OpenFile(p.spoolDataPath(i.ID), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	piece := make([]byte, readSize)
	for left := int64(i.Size); left > 0; {
		more()
		n, err := io.ReadFull(r, piece[:min(left, readSize)])
		if err != nil {
			return fault.New(fault.Protocol, fmt.Errorf("the browser aborted: %w", err), "")
		}
		if _, err := f.Write(piece[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

// writeMetadata writes the metadata of a file to the disk.
func (p *Page) writeMetadata(i *item) error {
	text, err := json.Marshal(item{ID: i.ID, Name: i.Name, Size: i.Size, Key: i.Key})
	if err != nil {
		return err
	}
	next := p.metadataPath(i.ID) + ".next"
	f, err := userfile.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := userfile.Rename(next, p.metadataPath(i.ID)); err != nil {
		return err
	}
	if dir, err := userfile.Open(p.cfg.Dir); err == nil { // so that both names survive a power failure
		_ = dir.Sync()
		dir.Close()
	}
	return nil
}

// restoreSpool restores the complete files of an earlier run, even if their names are unreadable,
// and removes the rest, which was never acknowledged.
func (p *Page) restoreSpool() error {
	if err := userfile.MkdirAll(p.cfg.Dir, 0o700); err != nil {
		return err
	}
	list, err := userfile.ReadDir(p.cfg.Dir) // sorted by name
	if err != nil {
		return err
	}
	for _, e := range list {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		st, err := userfile.Lstat(p.spoolDataPath(id))
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		var i item
		text, err := userfile.ReadFile(filepath.Join(p.cfg.Dir, e.Name()))
		if err == nil {
			err = json.Unmarshal(text, &i)
		}
		if err != nil || i.ID != id {
			p.cfg.Log.Warn("metadata of a spooled file unreadable", "file", id, "err", err)
			i = item{Size: unit.Bytes(st.Size())}
		}
		o := &item{ID: id, Name: sanitizeFileName(i.Name), Size: unit.Bytes(st.Size()), State: Waiting,
			Key: i.Key, receivedAt: st.ModTime()}
		if o.Size != i.Size {
			o.State, o.Note = Failed, fmt.Sprintf("the helper has %v of the file instead of %v", o.Size, i.Size)
		}
		p.items = append(p.items, o)
	}
	slices.SortStableFunc(p.items, func(a, b *item) int { return a.receivedAt.Compare(b.receivedAt) })
	for _, i := range p.items {
		p.makeNameUnique(i)
	}
	for _, e := range list {
		id, _, _ := strings.Cut(e.Name(), ".")
		if _, err := p.findListedFile(id); err != nil && !e.IsDir() {
			_ = userfile.Remove(filepath.Join(p.cfg.Dir, e.Name()))
		}
	}
	return nil
}
