package permit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"mpbond/fault"
	"mpbond/identity"
	"mpbond/onload/allow"
	"mpbond/onload/relay"
	"mpbond/store"
	"mpbond/tcp"
)

// Asker asks a service.
type Asker struct {
	Key     *identity.Key
	Address string
	Service identity.PublicKey // pinned
	Cell    string             // that the helper is in; "" if the service has one
	Options tcp.Options
}

// Ask asks for a permit. Errors are faults.
func (a Asker) Ask(ctx context.Context) (allow.Answer, error) {
	body, err := json.Marshal(request{a.Cell})
	if err != nil {
		return allow.Answer{}, err
	}
	status, text, err := a.call(ctx, http.MethodPost, path, body, maxBody)
	if err != nil {
		return allow.Answer{}, err
	}
	return parse(status, text)
}

// call makes one request, whose answer may be so long.
func (a Asker) call(ctx context.Context, method, path string, body []byte, most int64) (status int, text []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody, DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return relay.Call(ctx, a.Address, a.Options, a.Key.Client(a.Service, ALPN), answerTime)
	}}
	q, err := http.NewRequestWithContext(ctx, method, "https://permit"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := tr.RoundTrip(q)
	if err != nil {
		err = identity.Explain(err)
		if fault.Is(err, fault.Other) {
			err = fault.New(fault.Unreachable, err, "is the address right, and does the service run?")
		}
		if fault.Is(err, fault.UnknownDevice) {
			err = fault.New(fault.UnknownDevice, err, hintKnown)
		}
		return 0, nil, err
	}
	defer r.Body.Close()
	if text, err = io.ReadAll(io.LimitReader(r.Body, most)); err != nil {
		return 0, nil, fault.New(fault.Unreachable, fmt.Errorf("the service's answer is cut off: %w", err), "")
	}
	return r.StatusCode, text, nil
}

// Keeper keeps a helper's permit: asks for it, renews it, and keeps it in a file. Safe
// for concurrent use.
type Keeper struct {
	ask func(context.Context) (allow.Answer, error)
	log *slog.Logger
	now func() time.Time // a fake in tests

	mu      sync.Mutex
	holder  allow.Holder
	journal *store.Journal
	told    string
}

// Keep makes one that keeps its permit at path. Errors are faults.
func Keep(ask func(context.Context) (allow.Answer, error), path string, log *slog.Logger) (*Keeper, error) {
	// Without the monotonic reading, which stands still while this device sleeps: the
	// permit does not.
	return keep(ask, path, log, func() time.Time { return time.Now().Round(0) })
}

// keep is Keep by a clock.
func keep(ask func(context.Context) (allow.Answer, error), path string, log *slog.Logger, now func() time.Time) (*Keeper, error) {
	k := &Keeper{ask: ask, log: log, now: now}
	var kept allow.Permit
	j, _, err := store.Open(path, fileWait, func(line []byte) error { // without a permit it asks for one
		kept = allow.Permit{}
		return json.Unmarshal(line, &kept)
	})
	if err != nil {
		return nil, err
	}
	k.journal = j
	k.holder.Restore(kept, k.now())
	return k, nil
}

// Run asks until ctx ends, and closes the file.
func (k *Keeper) Run(ctx context.Context) {
	defer k.journal.Close()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		asked := k.now()
		a, err := k.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		t.Reset(k.take(asked, a, err).Sub(k.now()))
	}
}

// take takes what came of asking at a time, and returns when to ask again.
func (k *Keeper) take(asked time.Time, a allow.Answer, err error) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	kept := allow.Permit{}
	switch {
	case err != nil:
		k.holder.Failed(now, err)
	case a.Granted:
		kept = k.holder.Granted(asked, a.Life)
	default:
		k.holder.Refused(now, "the operator says: "+clean(a.Why), a.Again)
	}
	if err == nil {
		e := k.journal.Append(kept)
		if e == nil && k.journal.Long() {
			e = k.journal.Rewrite(kept)
		}
		if e != nil {
			k.log.Warn("the permit is not kept", "err", e, "hint", fault.HintOf(e))
		}
	}
	text := ""
	if t := k.holder.Today(now); !t.Free || err != nil {
		text = t.Why
	}
	if text != "" && text != k.told {
		k.log.Warn("the operator's permit", "why", text, "hint", fault.HintOf(err))
	} else if text == "" && k.told != "" {
		k.log.Info("the operator permits onloading again")
	}
	k.told = text
	return k.holder.Next()
}

// clean is what can be shown of what a service says.
func clean(s string) string {
	if s == "" {
		return "nothing is permitted now"
	}
	return relay.Plain(s)
}

// Today is what the permit allows now.
func (k *Keeper) Today() allow.Today {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holder.Today(k.now())
}
