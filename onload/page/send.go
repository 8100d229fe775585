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

// send sends what comes, until ctx ends.
func (p *Page) send(ctx context.Context) {
	journal, known := p.journal()
	if journal != nil {
		defer journal.Close()
	}
	for {
		batch := p.await(ctx)
		if batch == nil {
			return
		}
		p.prune(known, journal)
		more := func() []upload.File {
			next := p.begin()
			batch = append(batch, next...)
			return p.files(next)
		}
		res, err := upload.Send(ctx, upload.Config{Devices: p.cfg.Devices, Target: p.cfg.Target, Files: p.files(batch), More: more, UserAgent: p.cfg.UserAgent,
			Journal: journal, Known: known, Confirmed: p.confirmed, Progress: p.progress, Log: p.cfg.Log})
		if ctx.Err() != nil {
			return // the next run goes on
		}
		for _, s := range res.Files { // also those that a former run has sent
			p.confirmed(s)
		}
		p.settle(batch, res, err)
	}
}

// files are what is sent of items.
func (p *Page) files(items []*item) (list []upload.File) {
	for _, i := range items {
		list = append(list, upload.File{Path: p.data(i.ID), Name: i.Name})
	}
	return list
}

// journal opens what tells of uploads that a former run began, beside the spool: what was
// on its way when it ended the endpoint may have. Without one that is sent under another
// name.
func (p *Page) journal() (*store.Journal, *upload.Known) {
	known := upload.NewKnown()
	j, damage, err := store.Open(p.cfg.Dir+".jsonl", time.Second, known.Take)
	if err = errors.Join(damage, err); err != nil {
		p.cfg.Log.Warn("what was on its way is not all known: it may be sent twice", "err", err)
	}
	return j, known
}

// prune has the journal forget files that are not in the spool any more.
func (p *Page) prune(known *upload.Known, j *store.Journal) {
	p.mu.Lock()
	here := make(map[string]bool, len(p.items))
	for _, i := range p.items {
		if path, err := filepath.Abs(p.data(i.ID)); err == nil && i.State != Done {
			here[path] = true
		}
	}
	p.mu.Unlock()
	if err := known.Keep(here, j); err != nil {
		p.cfg.Log.Warn("the journal of the page's uploads stays long", "err", err)
	}
}

// await waits for what is to be sent together: all that has come, when nothing else comes
// or the lines have enough to do.
func (p *Page) await(ctx context.Context) (batch []*item) {
	for {
		left := p.due(time.Now())
		if left == 0 {
			return p.begin()
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

// due is how long to wait, 0 to begin.
func (p *Page) due(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, oldest := 0, now
	for _, i := range p.items {
		if i.State == Waiting {
			n++
			if i.arrived.Before(oldest) {
				oldest = i.arrived
			}
		}
	}
	switch waits := now.Sub(oldest); {
	case n == 0:
		return time.Hour
	case p.receiving == 0, n >= 2*len(p.cfg.Devices), waits >= p.cfg.times.gather:
		return 0
	default:
		return p.cfg.times.gather - waits
	}
}

// begin takes what waits.
func (p *Page) begin() (batch []*item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.items {
		if i.State == Waiting {
			i.State = Sending
			batch = append(batch, i)
		}
	}
	if len(batch) > 0 {
		p.touch()
	}
	return batch
}

// confirmed takes in that the endpoint has a file.
func (p *Page) confirmed(s upload.Sent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.items {
		if i.State == Sending && p.data(i.ID) == s.File {
			i.State = Done
			if s.Twice {
				i.Note = "the server may have it twice: an answer was lost"
			}
			p.drop(i.ID)
		}
	}
	p.forget()
	p.touch()
}

func (p *Page) progress(now upload.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now.Devices = slices.Clone(now.Devices)
	p.now = &now
	p.touch()
}

// settle takes in how it ended.
func (p *Page) settle(batch []*item, res upload.Result, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = nil
	for _, i := range batch {
		if i.State != Sending {
			continue
		}
		at := slices.IndexFunc(res.Failed, func(f upload.Failed) bool { return f.File == p.data(i.ID) })
		switch {
		case at >= 0 && res.Failed[at].Kind() == fault.Exists && i.renamed < maxRenamed:
			i.renamed++
			i.State = Waiting // another one has its name
			p.rename(i, i.Name)
			if err := p.note(i); err != nil {
				p.cfg.Log.Warn("a name is not kept", "err", err)
			}
		case at >= 0:
			i.State, i.Note = Failed, res.Failed[at].Error
			if res.Failed[at].There {
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
	p.touch()
}
