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

// runSender sends what comes, until ctx ends.
func (p *Page) runSender(ctx context.Context) {
	journal, known := p.openJournal()
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
		res, err := upload.Send(ctx, upload.Config{Devices: p.cfg.Devices, Target: p.cfg.Target, Files: p.uploadFiles(batch), MoreFiles: more, UserAgent: p.cfg.UserAgent,
			Journal: journal, Known: known, OnConfirmed: p.markConfirmed, OnProgress: p.setProgress, Log: p.cfg.Log})
		if ctx.Err() != nil {
			return // the next run goes on
		}
		for _, s := range res.Files { // also those that a former run has sent
			p.markConfirmed(s)
		}
		p.finishBatch(batch, res, err)
	}
}

// uploadFiles are what is sent of items.
func (p *Page) uploadFiles(items []*item) (list []upload.File) {
	for _, i := range items {
		list = append(list, upload.File{Path: p.dataPath(i.ID), Name: i.Name})
	}
	return list
}

// openJournal opens what tells of uploads that a former run began, beside the spool: what was
// on its way when it ended the endpoint may have. Without one that is sent under another
// name.
func (p *Page) openJournal() (*store.Journal, *upload.KnownUploads) {
	known := upload.NewKnownUploads()
	j, damage, err := store.Open(p.cfg.Dir+".jsonl", time.Second, known.LoadEntry)
	if err = errors.Join(damage, err); err != nil {
		p.cfg.Log.Warn("what was on its way is not all known: it may be sent twice", "err", err)
	}
	return j, known
}

// pruneJournal has the journal forget files that are not in the spool any more.
func (p *Page) pruneJournal(known *upload.KnownUploads, j *store.Journal) {
	p.mu.Lock()
	here := make(map[string]bool, len(p.items))
	for _, i := range p.items {
		if path, err := filepath.Abs(p.dataPath(i.ID)); err == nil && i.State != Done {
			here[path] = true
		}
	}
	p.mu.Unlock()
	if err := known.KeepOnly(here, j); err != nil {
		p.cfg.Log.Warn("the journal of the page's uploads stays long", "err", err)
	}
}

// waitForBatch waits for what is to be sent together: all that has come, when nothing else comes
// or the lines have enough to do.
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

// timeUntilBatch is how long to wait, 0 to begin.
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

// takeWaiting takes what waits.
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
		p.notifyChange()
	}
	return batch
}

// markConfirmed takes in that the endpoint has a file.
func (p *Page) markConfirmed(s upload.Sent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.items {
		if i.State == Sending && p.dataPath(i.ID) == s.File {
			i.State = Done
			if s.MaybeDuplicate {
				i.Note = "the server may have it twice: an answer was lost"
			}
			p.deleteSpooled(i.ID)
		}
	}
	p.trimDone()
	p.notifyChange()
}

func (p *Page) setProgress(now upload.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now.Devices = slices.Clone(now.Devices)
	p.uploadProgress = &now
	p.notifyChange()
}

// finishBatch takes in how it ended.
func (p *Page) finishBatch(batch []*item, res upload.Result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uploadProgress = nil
	for _, i := range batch {
		if i.State != Sending {
			continue
		}
		at := slices.IndexFunc(res.Failed, func(f upload.Failed) bool { return f.File == p.dataPath(i.ID) })
		switch {
		case at >= 0 && res.Failed[at].Kind() == fault.Exists && i.renameCount < maxRenamed:
			i.renameCount++
			i.State = Waiting // another one has its name
			p.makeNameUnique(i, i.Name)
			if err := p.writeMetadata(i); err != nil {
				p.cfg.Log.Warn("a name is not kept", "err", err)
			}
		case at >= 0:
			i.State, i.Note = Failed, res.Failed[at].Error
			if res.Failed[at].MaybeStored {
				i.Note += "; the server may have it all the same"
			}
		case err != nil:
			i.State, i.Note = Failed, err.Error()
		default:
			i.State, i.Note = Failed, "it was not sent"
		}
		if i.State == Failed {
			p.cfg.Log.Info("a file of the page was not sent", "err", i.Note)
		}
	}
	p.notifyChange()
}
