package permit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/store"
	"mpbond/base/text"
	"mpbond/link/tcp"
	"mpbond/onload/allowance"
	"mpbond/onload/relay"
)

// Client asks a service.
type Client struct {
	Key     *identity.Key
	Address string
	Service identity.PublicKey // pinned
	Cell    string             // that the helper is in; "" if the service has one
	Options tcp.Options
}

// RequestPermit asks for a permit. Errors are faults.
func (a Client) RequestPermit(ctx context.Context) (allowance.Answer, error) {
	body, err := json.Marshal(request{Cell: a.Cell})
	if err != nil {
		return allowance.Answer{}, err
	}
	status, text, err := a.doRequest(ctx, http.MethodPost, permitPath, body, maxBody)
	if err != nil {
		return allowance.Answer{}, err
	}
	return parseAnswer(status, text)
}

// WatchPermit asks for a permit as Ask does. Later, which is not nil if one is granted, has the
// service's answer when it takes the permit back, and is closed without one when that can
// not be known any more. It ends with ctx.
func (a Client) WatchPermit(ctx context.Context) (first allowance.Answer, later <-chan allowance.Answer, err error) {
	body, err := json.Marshal(request{a.Cell, true})
	if err != nil {
		return first, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(responseTimeout, cancel)
	r, err := a.sendRequest(ctx, http.MethodPost, permitPath, body)
	if err != nil {
		cancel()
		return first, nil, err
	}
	in := json.NewDecoder(io.LimitReader(r.Body, 2*maxBody))
	next := func() (allowance.Answer, error) {
		var text json.RawMessage
		if err := in.Decode(&text); err != nil {
			return allowance.Answer{}, fault.New(fault.Protocol, fmt.Errorf("the service's answer makes no sense: %w", err), "is it the right address?")
		}
		return parseAnswer(r.StatusCode, text)
	}
	if r.StatusCode != http.StatusOK {
		_, err = parseAnswer(r.StatusCode, nil)
	} else {
		first, err = next()
	}
	if !timeout.Stop() && err == nil {
		err = fault.New(fault.Timeout, errors.New("the service's answer takes too long"), "")
	}
	if err != nil || !first.Granted || r.ContentLength >= 0 { // an older service ends its answer
		cancel()
		r.Body.Close()
		return first, nil, err
	}
	answers := make(chan allowance.Answer, 1)
	go func() {
		defer cancel()
		defer r.Body.Close()
		defer close(answers)
		if second, err := next(); err == nil && !second.Granted {
			answers <- second
		}
	}()
	return first, answers, nil
}

// doRequest makes one request, whose answer may be so long.
func (a Client) doRequest(ctx context.Context, method, path string, body []byte, most int64) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	r, err := a.sendRequest(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(r.Body, most)); err != nil {
		return 0, nil, fault.New(fault.Unreachable, fmt.Errorf("the service's answer is cut off: %w", err), "")
	}
	return r.StatusCode, text, nil
}

// sendRequest makes one request, whose answer is still to be read.
func (a Client) sendRequest(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return relay.DialTLS(ctx, a.Address, a.Options, a.Key.ClientConfig(a.Service, ALPN), responseTimeout)
	}}
	q, err := http.NewRequestWithContext(ctx, method, "https://permit"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := tr.RoundTrip(q)
	if err != nil {
		err = identity.ExplainTLS(err)
		if fault.Is(err, fault.Other) {
			err = fault.New(fault.Unreachable, err, "is the address right, and does the service run?")
		}
		if fault.Is(err, fault.UnknownDevice) {
			err = fault.New(fault.UnknownDevice, err, hintRegisterKey)
		}
		return nil, err
	}
	return r, nil
}

// Keeper keeps a helper's permit: asks for it, renews it, and keeps it in a file. Safe
// for concurrent use.
type Keeper struct {
	watchPermit WatchFunc
	log         *slog.Logger
	now         func() time.Time // a fake in tests
	changed     chan struct{}

	mu            sync.Mutex
	holder        allowance.Holder
	journal       *store.Journal
	loggedProblem string
}

// WatchFunc asks for a permit, as Asker.WatchPermit does.
type WatchFunc func(context.Context) (first allowance.Answer, later <-chan allowance.Answer, err error)

// NewKeeper makes one that keeps its permit at path. Errors are faults.
func NewKeeper(ask WatchFunc, path string, log *slog.Logger) (*Keeper, error) {
	// Without the monotonic reading, which stands still while this device sleeps: the
	// permit does not.
	return newKeeper(ask, path, log, func() time.Time { return time.Now().Round(0) })
}

// newKeeper is Keep by a clock.
func newKeeper(ask WatchFunc, path string, log *slog.Logger, now func() time.Time) (*Keeper, error) {
	k := &Keeper{watchPermit: ask, log: log, now: now, changed: make(chan struct{}, 1)}
	var kept allowance.Permit
	j, _, err := store.Open(path, lockTimeout, func(line []byte) error { // without a permit it asks for one
		kept = allowance.Permit{}
		return json.Unmarshal(line, &kept)
	})
	if err != nil {
		return nil, err
	}
	k.journal = j
	k.holder.Restore(kept, k.now())
	return k, nil
}

// Changed has a value after what Today returns may have changed other than by time.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// rewatchDelay is how soon to ask again after a service has stopped watching a permit.
const rewatchDelay = 5 * time.Second

// maxReason bounds what a service says of why it grants nothing.
const maxReason = 300

// Run asks until ctx ends, and closes the file.
func (k *Keeper) Run(ctx context.Context) {
	defer k.journal.Close()
	for ctx.Err() == nil {
		asking, cancel := context.WithCancel(ctx)
		asked := k.now()
		a, later, err := k.watchPermit(asking)
		if ctx.Err() == nil {
			k.waitToAsk(ctx, k.applyAnswer(asked, a, err), later)
		}
		cancel()
	}
}

// waitToAsk returns when it is time to ask again, at next or sooner; later is that of WatchFunc.
func (k *Keeper) waitToAsk(ctx context.Context, next time.Time, later <-chan allowance.Answer) {
	t := time.NewTimer(next.Sub(k.now()))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case a, ok := <-later:
			if later = nil; ok {
				next = k.applyAnswer(k.now(), a, nil)
			} else if sooner := k.now().Add(rewatchDelay); sooner.Before(next) {
				next = sooner
			}
			t.Reset(next.Sub(k.now()))
		}
	}
}

// applyAnswer takes what came of asking at a time, and returns when to ask again.
func (k *Keeper) applyAnswer(asked time.Time, a allowance.Answer, err error) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	kept := allowance.Permit{}
	switch {
	case err != nil:
		k.holder.NoteFailure(now, err)
	case a.Granted:
		kept = k.holder.NoteGrant(asked, a.Life)
	default:
		k.holder.NoteRefusal(now, "the operator says: "+cmp.Or(text.Short(a.Reason, maxReason), "nothing is permitted now"), a.RetryAfter)
	}
	if err == nil {
		e := k.journal.Append(kept)
		if e == nil && k.journal.NeedsRewrite() {
			e = k.journal.Rewrite(kept)
		}
		if e != nil {
			k.log.Warn("the permit is not kept", "err", e, "hint", fault.HintOf(e))
		}
	}
	text := ""
	if t := k.holder.DayLimit(now); !t.Unlimited || err != nil {
		text = t.Reason
	}
	if text != "" && text != k.loggedProblem {
		k.log.Warn("the operator's permit", "why", text, "hint", fault.HintOf(err))
	} else if text == "" && k.loggedProblem != "" {
		k.log.Info("the operator permits onloading again")
	}
	k.loggedProblem = text
	select {
	case k.changed <- struct{}{}:
	default:
	}
	return k.holder.NextRequest()
}

// DayLimit is what the permit allows now.
func (k *Keeper) DayLimit() allowance.DayLimit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holder.DayLimit(k.now())
}
