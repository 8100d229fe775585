// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/onload/allowance"
)

const (
	// ClockTolerance is how much the clocks of services that share may differ.
	ClockTolerance = 5 * time.Second
	// MaxSharedPermits bounds the permits of a cell that services share: they are one record.
	MaxSharedPermits = 200
	// engineTimeout bounds what one answer may ask of the engine; it is less than responseTimeout.
	engineTimeout = 4 * time.Second
	// writeInterval is the least time between two writes of loads, retryInterval the wait after a failure.
	writeInterval, retryInterval = 500 * time.Millisecond, time.Second
	// maxProblems bounds what a hostile engine can have reported.
	maxProblems = 64
)

// Shared keeps what several services share, so that together they grant what one would: the permits
// of each cell, of which a service replaces the revision that it has read, and the loads that each
// service knows. Errors are faults. Safe for concurrent use.
type Shared interface {
	// ReadPermits returns the permits of a cell and their revision, 0 if there are none yet.
	ReadPermits(ctx context.Context, cell string) (permits []byte, revision uint64, err error)
	// ReplacePermits replaces permits of that revision, and reports whether they still had it. After an
	// error it may have replaced them.
	ReplacePermits(ctx context.Context, cell string, permits []byte, revision uint64) (done bool, err error)
	// WriteLoad writes the load of a cell that this service knows.
	WriteLoad(ctx context.Context, cell string, load []byte) error
	// WatchLoads calls take with the loads that other services know, and with each later one, until ctx
	// ends, which is no error.
	WatchLoads(ctx context.Context, take func(service, cell string, load []byte)) error
	// Describe describes the engine in a few words, for people.
	Describe() string
}

// sharing is a service's part in what several services share.
type sharing struct {
	Shared
	// permitLock holds a token while this service reads or replaces permits: so the issuer never goes back
	// to older ones.
	permitLock chan struct{}
	// revision is, by cell, the least revision that the engine must have: with a lower one it has
	// lost permits. permitLock must be held.
	revision map[string]uint64
	wake     chan struct{} // of capacity 1: something is to be written

	// The service's mu guards the rest.
	loads    map[string]sharedLoad      // by cell: not written yet
	revoked  map[string]map[string]bool // devices by cell: not written yet
	problems map[string]problem         // by what they cause
}

// problem is a problem that is not over.
type problem struct {
	text string
	ends time.Time // without being reported again; zero: never
}

// sharedLoad is the load of a cell that one service knows, as it is written.
type sharedLoad struct {
	Load float64   `json:"load"`
	At   time.Time `json:"at"`
}

// NewSharedService returns a service that shares permits and loads with other services, in place of
// a file. The caller must call Share. Without the engine it grants nothing.
func NewSharedService(id Identity, rules allowance.Rules, cells []string, shared Shared, log *slog.Logger) *Service {
	rules.ClockTolerance = ClockTolerance
	rules.MaxPermits = min(rules.MaxPermits, MaxSharedPermits)
	return &Service{key: id.Key, trust: id.Trust, log: log, now: time.Now,
		issuer: allowance.NewIssuer(rules, cells...), watchers: map[string]*watcher{},
		sharing: &sharing{Shared: shared, permitLock: make(chan struct{}, 1), revision: map[string]uint64{},
			wake: make(chan struct{}, 1), loads: map[string]sharedLoad{}, revoked: map[string]map[string]bool{},
			problems: map[string]problem{}}}
}

// Share writes the loads that this service knows, and reads those of others, until ctx ends.
func (s *Service) Share(ctx context.Context) {
	var g sync.WaitGroup
	g.Go(func() { s.watchLoads(ctx) })
	g.Go(func() { s.writeChanges(ctx) })
	g.Wait()
}

// CheckShared returns an error if the permits of a cell cannot be read.
func (s *Service) CheckShared(ctx context.Context, cell string) error {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	return s.readPermits(ctx, cell)
}

// requestShared answers a request of a device. An error means that the engine does not let it
// decide: then the device keeps a permit that it has until that expires.
func (s *Service) requestShared(ctx context.Context, device, cell string) (a allowance.Answer, err error) {
	s.mu.Lock()
	a, refused := s.issuer.RefuseAny(s.now(), cell)
	s.mu.Unlock()
	if refused { // whatever the engine says
		return a, nil
	}
	// a device that is gone may have its permit all the same: it asks again
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engineTimeout)
	defer cancel()
	err = s.editPermits(ctx, a.Cell, func(now time.Time) { a = s.issuer.RequestPermit(now, device, a.Cell) })
	s.noteProblem(grantsNothing, err)
	return a, err
}

// editPermits gives the issuer the newest permits of a cell, calls edit with mu held, and writes what
// it has changed. It repeats that while other services are faster.
func (s *Service) editPermits(ctx context.Context, cell string, edit func(now time.Time)) error {
	return s.inTurn(ctx, func() error {
		for ctx.Err() == nil {
			before, revision, err := s.takePermits(ctx, cell)
			if err != nil {
				return err
			}
			s.mu.Lock()
			now := s.now()
			edit(now)
			p := s.issuer.CellPermits(now, cell)
			s.mu.Unlock()
			after, err := json.Marshal(p)
			isEmpty := revision == 0 && len(p.Permits) == 0 && p.LastWaiting.IsZero()
			if err != nil || isEmpty || bytes.Equal(before, after) {
				return err
			}
			done, err := s.sharing.ReplacePermits(ctx, cell, after, revision)
			if done {
				s.sharing.revision[cell] = revision + 1 // or more
			}
			if done || err != nil {
				return err
			}
		}
		return fault.New(fault.Timeout, errors.New("other permit services are always faster"), "")
	})
}

// readPermits gives the issuer the newest permits of a cell.
func (s *Service) readPermits(ctx context.Context, cell string) error {
	return s.inTurn(ctx, func() error {
		_, _, err := s.takePermits(ctx, cell)
		return err
	})
}

// inTurn calls f while no other call reads or replaces permits.
func (s *Service) inTurn(ctx context.Context, f func() error) error {
	select {
	case s.sharing.permitLock <- struct{}{}:
		defer func() { <-s.sharing.permitLock }()
		return f()
	case <-ctx.Done():
		return fault.New(fault.Timeout, errors.New("the engine answers too slowly"), "")
	}
}

// takePermits reads the permits of a cell into the issuer. If the engine has lost them, as by a restored
// backup, those that the issuer knows count too. The caller must have the turn.
func (s *Service) takePermits(ctx context.Context, cell string) (record []byte, revision uint64, err error) {
	record, revision, err = s.sharing.ReadPermits(ctx, cell)
	if err != nil {
		return nil, 0, err
	}
	var p allowance.CellPermits
	if revision != 0 {
		if err := json.Unmarshal(record, &p); err != nil {
			return nil, 0, fault.New(fault.Integrity, fmt.Errorf("the permits of cell %s are damaged: %w", cell, err),
				"stop all permit services for the life of a permit, and delete that record in the engine")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.sharing.revision; revision >= last[cell] {
		last[cell] = revision
	} else {
		p.Permits = append(s.issuer.CellPermits(s.now(), cell).Permits, p.Permits...)
	}
	s.issuer.SetCellPermits(s.now(), cell, p)
	return record, revision, nil
}

// noteLoad has a load written for other services. mu must be held.
func (h *sharing) noteLoad(cell string, load float64, at time.Time) {
	if load >= 0 && load <= 1 {
		h.loads[cell] = sharedLoad{load, at.UTC()}
		h.wakeUp()
	}
}

// noteRevoked has a revoked permit removed from those of the cell. mu must be held.
func (h *sharing) noteRevoked(cell, device string) {
	if h.revoked[cell] == nil {
		h.revoked[cell] = map[string]bool{}
	}
	h.revoked[cell][device] = true
	h.wakeUp()
}

func (h *sharing) wakeUp() {
	select {
	case h.wake <- struct{}{}:
	default: // it will see this too
	}
}

// writeChanges writes loads and revocations until ctx ends.
func (s *Service) writeChanges(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.sharing.wake:
		}
		wait := writeInterval
		if !s.writeLoads(ctx) || !s.writeRevoked(ctx) {
			wait = retryInterval
			s.sharing.wakeUp()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// writeLoads writes the loads that are new, and reports whether all were written.
func (s *Service) writeLoads(ctx context.Context) bool {
	s.mu.Lock()
	list := maps.Clone(s.sharing.loads)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	for cell, l := range list {
		record, err := json.Marshal(l)
		if err == nil {
			err = s.sharing.WriteLoad(ctx, cell, record)
		}
		if s.noteProblem(hidesLoads, err); err != nil {
			return false
		}
		s.mu.Lock()
		if s.sharing.loads[cell] == l {
			delete(s.sharing.loads, cell)
		}
		s.mu.Unlock()
	}
	return true
}

// writeRevoked removes permits from those of their cells, and reports whether all were removed. One
// that cannot be removed before the cell has room again counts until it expires: its device may have
// asked another service meanwhile.
func (s *Service) writeRevoked(ctx context.Context) bool {
	s.mu.Lock()
	list := s.sharing.revoked
	s.sharing.revoked = map[string]map[string]bool{}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	allWritten := true
	for cell, devices := range list {
		err := s.editPermits(ctx, cell, func(now time.Time) {
			for d := range devices {
				s.issuer.Revoke(now, d, cell)
			}
		})
		s.noteProblem(grantsNothing, err)
		if err == nil {
			continue
		}
		allWritten = false
		s.mu.Lock()
		for d := range devices {
			s.sharing.noteRevoked(cell, d)
		}
		s.mu.Unlock()
	}
	return allWritten
}

// watchLoads takes the loads that other services know until ctx ends.
func (s *Service) watchLoads(ctx context.Context) {
	for lastError := ""; ctx.Err() == nil; {
		err := s.sharing.WatchLoads(ctx, s.takeLoad)
		if err != nil && ctx.Err() == nil && err.Error() != lastError {
			lastError = err.Error()
			s.log.Warn("the loads of other services are not known", "err", err, "hint", fault.HintOf(err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// takeLoad takes the load of a cell that another service knows. Its age counts from when it was
// measured or came, whichever is earlier: so a clock that is ahead makes no load younger.
func (s *Service) takeLoad(service, cell string, record []byte) {
	var l sharedLoad
	if err := json.Unmarshal(record, &l); err != nil {
		s.log.Debug("load ignored", "service", service, "cell", cell, "err", err)
		return
	}
	s.mu.Lock()
	now, at := s.now(), l.At
	var err error
	if at.After(now.Add(ClockTolerance)) {
		err = fault.New(fault.Other, errors.New("its clock is ahead of this one's"), "set the clocks of all services by NTP")
	}
	if at.After(now) {
		at = now
	}
	s.issuer.SetLoadFrom(service, cell, l.Load, at)
	s.revokeLoaded(cell)
	s.mu.Unlock()
	s.noteProblemFor(maxLoadAge, "the permits of service "+service+" may be too many", err) // it may be gone then
}

// What problems cause.
const (
	grantsNothing = "no permits are granted or renewed"
	hidesLoads    = "other services do not learn the loads that this one knows"
)

// noteProblem notes what an error causes, or that it is over, and logs either once.
func (s *Service) noteProblem(effect string, err error) { s.noteProblemFor(0, effect, err) }

// noteProblemFor notes a problem that is over after some time unless it is noted again; 0: never.
func (s *Service) noteProblemFor(life time.Duration, effect string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ends time.Time
	if life > 0 {
		ends = s.now().Add(life)
	}
	s.endProblems()
	problems := s.sharing.problems
	_, known := problems[effect]
	switch {
	case err == nil && known:
		s.endProblem(effect)
	case err != nil && known:
		problems[effect] = problem{err.Error(), ends}
	case err != nil && len(problems) < maxProblems:
		problems[effect] = problem{err.Error(), ends}
		s.log.Warn(effect, "engine", s.sharing.Describe(), "err", err, "hint", fault.HintOf(err))
	}
}

// readAllPermits gives the issuer the newest permits of all cells. Without the engine those that are
// known stay.
func (s *Service) readAllPermits(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	s.mu.Lock()
	cells, _ := s.issuer.Cells(s.now())
	s.mu.Unlock()
	for _, c := range cells {
		if err := s.readPermits(ctx, c.Name); err != nil {
			s.noteProblem(grantsNothing, err)
			return
		}
	}
	s.noteProblem(grantsNothing, nil)
}

// endProblems forgets the problems whose time is over, and logs that. mu must be held.
func (s *Service) endProblems() {
	for effect, p := range s.sharing.problems {
		if !p.ends.IsZero() && s.now().After(p.ends) {
			s.endProblem(effect)
		}
	}
}

// endProblem forgets a problem that is over, and logs that. mu must be held.
func (s *Service) endProblem(effect string) {
	delete(s.sharing.problems, effect)
	s.log.Info("no longer: "+effect, "engine", s.sharing.Describe())
}

// listProblems lists the problems. mu must be held.
func (s *Service) listProblems() (list []string) {
	s.endProblems()
	problems := s.sharing.problems
	for _, effect := range slices.Sorted(maps.Keys(problems)) {
		list = append(list, effect+": "+problems[effect].text)
	}
	return list
}
