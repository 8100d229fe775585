// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// failing is a carrier that cannot reach a primary.
type failing struct {
	pipe.Carrier
	err func() error // nil: it can
}

func (f failing) Dial(ctx context.Context, addr string) (pipe.Conn, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Carrier.Dial(ctx, addr)
}

// reportsAt is a dialer of servers that counts reports.
type reportsAt struct {
	down bool // no server is reachable

	mu sync.Mutex
	at []time.Time
}

func (r *reportsAt) Dial(context.Context, string) (pipe.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.at); n == 0 || time.Since(r.at[n-1]) > 0 { // one report may try several servers
		r.at = append(r.at, time.Now())
	}
	if r.down {
		return nil, errors.New("no server")
	}
	here, there := pipe.MemoryPipe()
	go func() {
		_, _ = io.Copy(io.Discard, there)
		there.Close()
	}()
	return here, nil
}

// TestReportsBackOff: a helper reports an unreachable primary to the server at once and every ten
// minutes while that lasts. It reports little more often if the cause changes, the primary comes
// and goes, or no server is reachable.
func TestReportsBackOff(t *testing.T) {
	refused, silent := fmt.Errorf("dial: %w", syscall.ECONNREFUSED), fmt.Errorf("dial: %w", os.ErrDeadlineExceeded)
	began := time.Time{}
	turns := func(each time.Duration, errs ...error) func() error {
		return func() error { return errs[int(time.Since(began)/each)%len(errs)] }
	}
	for name, c := range map[string]struct {
		err         func() error
		down        bool
		least, most int // reports in three hours
	}{
		"lasting":             {func() error { return refused }, false, 18, 19},
		"changing":            {turns(7*time.Second, refused, silent), false, 15, 30},
		"changing slowly":     {turns(90*time.Second, refused, silent), false, 15, 30},
		"coming and going":    {turns(40*time.Second, nil, silent), false, 10, 30},
		"no server":           {func() error { return refused }, true, 15, 30},
		"changing, no server": {turns(7*time.Second, refused, silent), true, 15, 30},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began = time.Now()
				servers := &reportsAt{down: c.down}
				w := &testWorld{t: t, pipes: inMemory(), servers: inMemory()}
				w.listenAll("x:1")
				w.prepare = func(h *Helper) {
					h.calls.carrier = failing{w.pipes, c.err}
					h.dialWith(servers)
				}
				taken := make(chan struct{})
				go func() { // takes pipes, which end when the primary leaves
					defer close(taken)
					for {
						conn, err := w.pl.Accept()
						if err != nil {
							return
						}
						p, err := pipe.Accept(
							t.Context(),
							conn,
							keys().primary.ServerConfig(wire.PipeALPN, func(identity.PublicKey) bool { return true }),
						)
						if err != nil {
							continue
						}
						time.AfterFunc(10*time.Second, func() { p.Close() })
					}
				}()
				w.startHelper(Config{Primaries: []string{"laptop@192.0.2.7:7601"}})
				time.Sleep(3 * time.Hour)
				w.stop()
				w.pl.Close()
				<-taken
				servers.mu.Lock()
				defer servers.mu.Unlock()
				n := len(servers.at)
				if n < c.least || n > c.most {
					t.Errorf("%d reports in three hours, want %d to %d", n, c.least, c.most)
				}
				if n > 0 && servers.at[0].Sub(began) > 2*time.Minute {
					t.Errorf("the first one came after %v", servers.at[0].Sub(began))
				}
				for i := 1; i < n; i++ {
					if d := servers.at[i].Sub(servers.at[i-1]); d < minReportBackoff*3/4 {
						t.Errorf("a report came %v after another one", d)
					}
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// TestReported: the same trouble is reported again after repeatInterval, another one not before the
// wait, which grows while causes change.
func TestReported(t *testing.T) {
	var r reportRecord
	began := time.Unix(1e9, 0)
	now := began
	report := func(code wire.Code, at string, left bool) bool {
		if !r.isReportDue(code, at, now) {
			return false
		}
		r.recordReport(code, at, now, left)
		return true
	}
	if !report(wire.CodeTimeout, "a", true) || report(wire.CodeTimeout, "a", true) {
		t.Error("it is not reported at once, or twice")
	}
	for now = began.Add(minReportBackoff); !report(wire.CodeTimeout, "a", true); now = now.Add(time.Second) {
	}
	if took := now.Sub(began); took != repeatInterval {
		t.Errorf("what lasts is reported again after %v", took)
	}
	last, n := now, 0
	for i := range int(3 * time.Hour / time.Second) {
		now = now.Add(time.Second)
		if !report([]wire.Code{wire.CodeTimeout, wire.CodeConnRefused}[i%2], "a", true) {
			continue
		}
		if w := now.Sub(last); w < minReportBackoff*3/4 || w > repeatInterval {
			t.Errorf("report %d of a changing cause came after %v", n, w)
		}
		last, n = now, n+1
	}
	if n < 15 || n > 30 {
		t.Errorf("%d reports of a changing cause in three hours", n)
	}
	now = last.Add(2 * repeatInterval)
	if report(wire.CodeTimeout, "x", false); !r.repeatAt.Equal(r.nextAt) {
		t.Error("what could not be left waits as long as what was")
	}
}
