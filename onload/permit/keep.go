// SPDX-License-Identifier: Apache-2.0

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

// Client requests permits from a service.
type Client struct {
	Key     *identity.Key
	Address string
	Service identity.PublicKey // pinned
	Cell    string             // of the helper; "" if the service has a single cell
	Options tcp.Options
}

// RequestPermit requests a permit. Errors are faults.
func (a Client) RequestPermit(ctx context.Context) (allowance.Answer, error) {
	body, err := json.Marshal(request{Cell: a.Cell})
	if err != nil {
		return allowance.Answer{}, err
	}
	status, text, err := a.requestAndReadBody(ctx, http.MethodPost, permitPath, body, maxBody)
	if err != nil {
		return allowance.Answer{}, err
	}
	return parsePermitAnswer(status, text)
}

// WatchPermit requests a permit and watches it. If a permit is granted, later is not nil. It
// delivers the response with which the service revokes the permit, and is closed without one when
// the service stops watching. It ends with ctx.
func (a Client) WatchPermit(ctx context.Context) (first allowance.Answer, later <-chan allowance.Answer, err error) {
	body, err := json.Marshal(request{a.Cell, true})
	if err != nil {
		return first, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	timeout := time.AfterFunc(responseTimeout, cancel)
	r, err := a.sendServiceRequest(ctx, http.MethodPost, permitPath, body)
	if err != nil {
		cancel()
		return first, nil, err
	}
	in := json.NewDecoder(io.LimitReader(r.Body, 2*maxBody))
	readAnswer := func() (allowance.Answer, error) {
		var text json.RawMessage
		if err := in.Decode(&text); err != nil {
			return allowance.Answer{},
				fault.New(fault.Protocol, fmt.Errorf("invalid response of the permit service: %w", err),
					"check the address of the permit service")
		}
		return parsePermitAnswer(r.StatusCode, text)
	}
	if r.StatusCode != http.StatusOK {
		_, err = parsePermitAnswer(r.StatusCode, nil)
	} else {
		first, err = readAnswer()
	}
	if !timeout.Stop() && err == nil {
		err = fault.New(fault.Timeout, errors.New("the permit service responds too slowly"), "")
	}
	if err != nil || !first.Granted || r.ContentLength >= 0 { // an older service ends its response
		cancel()
		r.Body.Close()
		return first, nil, err
	}
	answers := make(chan allowance.Answer, 1)
	go func() {
		defer cancel()
		defer r.Body.Close()
		defer close(answers)
		if second, err := readAnswer(); err == nil && !second.Granted {
			answers <- second
		}
	}()
	return first, answers, nil
}

// requestAndReadBody sends one request and reads the response, at most limit bytes.
func (a Client) requestAndReadBody(
	ctx context.Context,
	method, path string,
	body []byte,
	most int64,
) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, responseTimeout)
	defer cancel()
	r, err := a.sendServiceRequest(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(r.Body, most)); err != nil {
		return 0, nil, fault.New(fault.Unreachable,
			fmt.Errorf("the response of the permit service is truncated: %w", err), "")
	}
	return r.StatusCode, text, nil
}

// sendServiceRequest sends one request and returns the response with an open body.
func (a Client) sendServiceRequest(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody,
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
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
			err = fault.New(fault.Unreachable, err, "check the address and that the permit service is running")
		}
		if fault.Is(err, fault.UnknownDevice) {
			err = fault.New(fault.UnknownDevice, err, hintRegisterKey)
		}
		return nil, err
	}
	return r, nil
}

// Keeper requests the permit of a helper, renews it and stores it in a file. It is safe for
// concurrent use.
type Keeper struct {
	watchPermit WatchFunc
	log         *slog.Logger
	now         func() time.Time // a fake in tests
	changed     chan struct{}

	mu            sync.Mutex
	holder        allowance.Holder
	journal       *store.Journal
	loggedProblem string // the last one that was logged
}

// WatchFunc requests and watches a permit, as Client.WatchPermit does.
type WatchFunc func(context.Context) (first allowance.Answer, later <-chan allowance.Answer, err error)

// NewKeeper returns a Keeper that stores its permit at path. Errors are faults.
func NewKeeper(ask WatchFunc, path string, log *slog.Logger) (*Keeper, error) {
	// Round strips the monotonic clock, which stops while the device sleeps; permits expire all the
	// same.
	return newKeeperWithClock(ask, path, log, func() time.Time { return time.Now().Round(0) })
}

// newKeeperWithClock is NewKeeper with a given clock.
func newKeeperWithClock(ask WatchFunc, path string, log *slog.Logger, now func() time.Time) (*Keeper, error) {
	k := &Keeper{watchPermit: ask, log: log, now: now, changed: make(chan struct{}, 1)}
	var kept allowance.Permit
	// damage is harmless: without a permit it requests one
	j, _, err := store.Open(path, lockTimeout, func(line []byte) error {
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

// Changed returns a channel that receives a value when the result of DayLimit may have changed,
// other than by time.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// rewatchDelay is the delay until the next request after the service has stopped watching.
const rewatchDelay = 5 * time.Second

// maxReason bounds the reason of a refusal, in bytes.
const maxReason = 300

// Run requests permits until ctx ends, and closes the file.
func (k *Keeper) Run(ctx context.Context) {
	defer k.journal.Close()
	for ctx.Err() == nil {
		requestCtx, cancel := context.WithCancel(ctx)
		requestedAt := k.now()
		a, later, err := k.watchPermit(requestCtx)
		if ctx.Err() == nil {
			k.waitForRequest(ctx, k.applyAnswer(requestedAt, a, err), later)
		}
		cancel()
	}
}

// waitForRequest waits until the next request is due, at next or earlier. later is that of
// WatchFunc.
func (k *Keeper) waitForRequest(ctx context.Context, next time.Time, later <-chan allowance.Answer) {
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

// applyAnswer records the result of a request and returns when the next one is due.
func (k *Keeper) applyAnswer(requestedAt time.Time, a allowance.Answer, err error) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	kept := allowance.Permit{}
	switch {
	case err != nil:
		k.holder.NoteFailure(now, err)
	case a.Granted:
		kept = k.holder.NoteGrant(requestedAt, a.Life)
	default:
		k.holder.NoteRefusal(now, "the operator refuses: "+cmp.Or(text.Short(a.Reason, maxReason),
			"no reason given"), a.RetryAfter)
	}
	if err == nil {
		e := k.journal.Append(kept)
		if e == nil && k.journal.NeedsRewrite() {
			e = k.journal.Rewrite(kept)
		}
		if e != nil {
			k.log.Warn("permit not stored", "err", e, "hint", fault.HintOf(e))
		}
	}
	text := ""
	if t := k.holder.DayLimit(now); !t.Unlimited || err != nil {
		text = t.Reason
	}
	if text != "" && text != k.loggedProblem {
		k.log.Warn("no permit of the operator", "why", text, "hint", fault.HintOf(err))
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

// DayLimit returns what the permit allows now.
func (k *Keeper) DayLimit() allowance.DayLimit {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holder.DayLimit(k.now())
}
