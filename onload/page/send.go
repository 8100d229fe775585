// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/store"
	"mpbond/onload/upload"
)

// runUploadLoop uploads waiting files until ctx ends.
func (p *Page) runUploadLoop(ctx context.Context) {
	journal, known := p.openUploadJournal()
	if journal != nil {
		defer journal.Close()
	}
	for {
		batch := p.waitForBatch(ctx)
		if batch == nil {
			return
		}
		p.pruneJournal(known, journal)
		more := func() []upload.File {
			next := p.takeWaiting()
			batch = append(batch, next...)
			return p.uploadFiles(next)
		}
		res, err := upload.Send(ctx, upload.Config{Devices: p.cfg.Devices, Target: p.cfg.Target,
			Files: p.uploadFiles(batch), MoreFiles: more, UserAgent: p.cfg.UserAgent,
			Journal: journal, Known: known, OnConfirmed: p.markFileConfirmed, OnProgress: p.setProgress, Log: p.cfg.Log})
		if ctx.Err() != nil {
			return // the next run resumes
		}
		for _, s := range res.Files { // includes files that an earlier run has sent
			p.markFileConfirmed(s)
		}
		p.finishBatch(batch, res, err)
	}
}

// uploadFiles returns the upload entries of items.
func (p *Page) uploadFiles(items []*item) (list []upload.File) {
	for _, i := range items {
		list = append(list, upload.File{Path: p.spoolDataPath(i.ID), Name: i.Name})
	}
	return list
}

// openUploadJournal opens the journal of uploads of earlier runs, beside the spool. The server may
// have files that were being sent when the last run ended; without a journal they are sent again
// under another name.
func (p *Page) openUploadJournal() (*store.Journal, *upload.KnownUploads) {
	known := upload.NewKnownUploads()
	j, damage, err := store.Open(p.cfg.Dir+".jsonl", time.Second, known.LoadEntry)
	if err = errors.Join(damage, err); err != nil {
		p.cfg.Log.Warn("upload journal incomplete, files may be sent twice", "err", err)
	}
	return j, known
}

// pruneJournal removes files from the journal that are not in the spool any more.
func (p *Page) pruneJournal(known *upload.KnownUploads, j *store.Journal) {
	p.mu.Lock()
	spooled := make(map[string]bool, len(p.items))
	for _, i := range p.items {
		if path, err := filepath.Abs(p.spoolDataPath(i.ID)); err == nil && i.State != Done {
			spooled[path] = true
		}
	}
	p.mu.Unlock()
	if err := known.KeepOnly(spooled, j); err != nil {
		p.cfg.Log.Warn("upload journal not pruned", "err", err)
	}
}

// waitForBatch waits for files and returns those to be sent together: when no more are being
// received, or when there are enough for all devices. It returns nil when ctx ends.
func (p *Page) waitForBatch(ctx context.Context) (batch []*item) {
	for {
		left := p.timeUntilBatch(time.Now())
		if left == 0 {
			return p.takeWaiting()
		}
		wait := time.NewTimer(left)
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-p.wake:
		case <-wait.C:
		}
		wait.Stop()
	}
}

// timeUntilBatch returns how long to wait before the waiting files are sent; 0 means now.
func (p *Page) timeUntilBatch(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, oldest := 0, now
	for _, i := range p.items {
		if i.State == Waiting {
			n++
			if i.receivedAt.Before(oldest) {
				oldest = i.receivedAt
			}
		}
	}
	switch waits := now.Sub(oldest); {
	case n == 0:
		return time.Hour
	case p.receiving == 0, n >= 2*len(p.cfg.Devices), waits >= p.cfg.times.gatherTime:
		return 0
	default:
		return p.cfg.times.gatherTime - waits
	}
}

// takeWaiting marks the waiting files as being sent and returns them.
func (p *Page) takeWaiting() (batch []*item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.items {
		if i.State == Waiting {
			i.State = Sending
			batch = append(batch, i)
		}
	}
	if len(batch) > 0 {
		p.notifyPageChange()
	}
	return batch
}

// markFileConfirmed records that the server has confirmed a file.
func (p *Page) markFileConfirmed(s upload.Sent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.items {
		if i.State == Sending && p.spoolDataPath(i.ID) == s.File {
			i.State = Done
			if s.MaybeDuplicate {
				i.Note = "the server may have it twice: a response was lost"
			}
			p.deleteSpooled(i.ID)
		}
	}
	p.trimDoneFiles()
	p.notifyPageChange()
}

// setProgress records the progress of the current upload.
func (p *Page) setProgress(now upload.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now.Devices = slices.Clone(now.Devices)
	p.uploadProgress = &now
	p.notifyPageChange()
}

// finishBatch records the result of an upload.
func (p *Page) finishBatch(batch []*item, res upload.Result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uploadProgress = nil
	for _, i := range batch {
		if i.State != Sending {
			continue
		}
		at := slices.IndexFunc(res.Failed, func(f upload.Failed) bool { return f.File == p.spoolDataPath(i.ID) })
		switch {
		case at >= 0 && res.Failed[at].Kind() == fault.Exists && i.renameCount < maxRenamed:
			i.renameCount++
			i.State = Waiting // the server has another file of that name
			p.makeNameUnique(i, i.Name)
			if err := p.writeMetadata(i); err != nil {
				p.cfg.Log.Warn("file name not stored", "err", err)
			}
		case at >= 0:
			i.State, i.Note = Failed, res.Failed[at].Error
			if res.Failed[at].MaybeStored {
				i.Note += "; the server may have it anyway"
			}
		case err != nil:
			i.State, i.Note = Failed, err.Error()
		default:
			i.State, i.Note = Failed, "the file was not sent"
		}
		if i.State == Failed {
			p.cfg.Log.Info("file not sent", "err", i.Note)
		}
	}
	p.notifyPageChange()
}
