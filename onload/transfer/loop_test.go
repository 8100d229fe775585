// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/onload/board"
)

const second = unit.Bytes(1_000_000) // carried by a line of 8 Mbit/s in one second

// goodLine returns a line of 8 Mbit/s.
func goodLine() *fakeLine { return &fakeLine{latency: 20 * time.Millisecond, rate: second} }

// expectAll checks that all objects are complete within a time.
func (r *fakeTask) expectAll(err error, within time.Duration) {
	r.t.Helper()
	for i, at := range r.whole {
		if err != nil || at == 0 || r.have[i].Size() != r.size {
			r.t.Errorf("%v; object %d: %v of %v, %v", err, i, r.have[i].Size(), r.size, r.failed[i])
		}
	}
	if took := time.Since(r.begun); took > within {
		r.t.Errorf("it took %v instead of %v", took, within)
	}
}

// TestShared checks that two devices carry ranges of one object, and whole objects without ranges.
func TestShared(t *testing.T) {
	runTask(t, itemSpec{1, 10 * second, true}, []*fakeLine{goodLine(), goodLine()}, nil, func(r *fakeTask) {
		r.expectAll(r.Run(r.t.Context(), r), 6*time.Second)
		if r.reports < 20 {
			t.Errorf("%d reports", r.reports)
		}
	})
	runTask(t, itemSpec{10, second, false}, []*fakeLine{goodLine(), goodLine()}, nil, func(r *fakeTask) {
		r.expectAll(r.Run(r.t.Context(), r), 6*time.Second)
		if a, b := r.lines[0].jobs, r.lines[1].jobs; a < 4 || b < 4 {
			t.Errorf("%d and %d jobs", a, b)
		}
	})
}

// TestComesBack checks that a failing device is suspended, longer each time, and used again when it
// works; its items continue over another device.
func TestComesBack(t *testing.T) {
	flaky, suspensions := goodLine(), 0
	runTask(t, itemSpec{1, 20 * second, true}, []*fakeLine{goodLine(), flaky},
		func(c *Config) { c.OnSuspend = func(string, error) { suspensions++ } }, func(r *fakeTask) {
			r.runAfter(2*time.Second, func() { flaky.err = errLine })
			r.runAfter(7*time.Second, func() {
				if s := r.Usage(time.Now())[1]; !errors.Is(s.Down, errLine) {
					t.Errorf("it is used: %v", s.Down)
				}
				// the tries are at about 2, 2.5, 3.5 and 5.5 s
				if suspensions != 4 {
					t.Errorf("it has failed %d times", suspensions)
				}
				flaky.err = nil
			})
			// the next try is at about 9.5 s
			r.expectAll(r.Run(r.t.Context(), r), 14250*time.Millisecond)
			if s := r.Usage(time.Now())[1]; s.Down != nil || s.Bytes < 5*second {
				t.Errorf("%+v", s)
			}
		})
}

// TestSlow checks that a slow item without ranges is also fetched over another device; the loser is
// dropped and counts as wasted.
func TestSlow(t *testing.T) {
	slow := goodLine()
	slow.rate = second / 50
	runTask(t, itemSpec{2, 2 * second, false}, []*fakeLine{goodLine(), slow}, nil, func(r *fakeTask) {
		r.expectAll(r.Run(r.t.Context(), r), 6*time.Second)
		list := r.Usage(time.Now())
		if r.dropped != 1 || list[1].Wasted != list[1].Bytes || list[1].Bytes == 0 || list[0].Wasted > 0 {
			t.Errorf("%d dropped, %+v", r.dropped, list)
		}
	})
}

// TestShortened checks that a slow range ends where another device has taken its end.
func TestShortened(t *testing.T) {
	slow := goodLine()
	slow.rate = second / 10
	runTask(t, itemSpec{1, 10 * second, true}, []*fakeLine{slow, goodLine()}, nil, func(r *fakeTask) {
		r.expectAll(r.Run(r.t.Context(), r), 10500*time.Millisecond)
		if list := r.Usage(time.Now()); list[0].Bytes > 2*second || list[0].Wasted+list[1].Wasted > second {
			t.Errorf("%+v", list)
		}
	})
}

// TestQuiet checks that a job without a response, or without bytes, is cancelled and tried
// elsewhere.
func TestQuiet(t *testing.T) {
	for want, silent := range map[error]*fakeLine{errNoAnswer: {latency: time.Hour},
		errStalled: {latency: time.Millisecond}} {
		var why error
		runTask(t, itemSpec{1, second, true}, []*fakeLine{silent},
			func(c *Config) { c.OnSuspend = func(_ string, err error) { why = err } }, func(r *fakeTask) {
				r.runAfter(10200*time.Millisecond, func() { *silent = *goodLine() })
				r.expectAll(r.Run(r.t.Context(), r), 13*time.Second)
				if !errors.Is(why, want) {
					t.Errorf("%v instead of %v", why, want)
				}
			})
	}
}

// TestCancel checks that jobs end with the loop, and that Run returns the cause.
func TestCancel(t *testing.T) {
	runTask(t, itemSpec{3, 100 * second, true}, []*fakeLine{goodLine(), goodLine()}, nil, func(r *fakeTask) {
		ctx, cancel := context.WithCancelCause(r.t.Context())
		r.runAfter(3*time.Second, func() { // the lock is held
			if cancel(errTest); !r.IsClosing() {
				r.t.Error("failures after the end of the caller's context count")
			}
		})
		err := r.Run(ctx, r)
		if took := time.Since(r.begun); !errors.Is(err, errTest) || took > 3100*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
		for id, err := range r.ended {
			if !errors.Is(err, ErrDropped) {
				t.Errorf("job %d: %v", id, err)
			}
		}
		if list := r.Usage(time.Now()); list[0].Down != nil || list[0].Bytes < 2*second || !r.IsClosing() {
			t.Errorf("%+v", list)
		}
	})
}

// TestAllFail checks when the task is given up: without any response of a server, after three
// failures of each device; otherwise when no device will be tried before the idle timeout ends.
// While devices may join, only the idle timeout counts.
func TestAllFail(t *testing.T) {
	busy := &Refusal{Err: errors.New("503")}
	for name, c := range map[string]struct {
		err         error
		join        bool
		least, most time.Duration
		says        string
	}{
		"unreachable": {errLine, false, time.Second, 3 * time.Second, "no line"},
		"may join":    {errLine, true, time.Minute, 65 * time.Second, "no line"},
		"busy":        {busy, false, 40 * time.Second, 65 * time.Second, "503"},
		"for long": {&Refusal{RetryAfter: 10 * time.Minute, Err: errors.New("503")}, false, 0, time.Second,
			"asks to retry after 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := goodLine(), goodLine()
			a.err, b.err = c.err, c.err
			runTask(t, itemSpec{2, second, false}, []*fakeLine{a, b}, func(cfg *Config) {
				if c.join {
					cfg.NewDevices = make(chan Device)
				}
			}, func(r *fakeTask) {
				err := r.Run(r.t.Context(), r)
				if took := time.Since(r.begun); err != nil || took < c.least || took > c.most {
					t.Errorf("%v after %v", err, took)
				}
				for i, why := range r.failed {
					if why == nil || !strings.Contains(why.Error(), c.says) {
						t.Errorf("object %d: %v", i, why)
					}
				}
			})
		})
	}
}

// TestExcluded checks that an object excluded from one device comes over another, and that an
// object excluded from all is given up with the reasons, except while devices may join.
func TestExcluded(t *testing.T) {
	no, busy := goodLine(), goodLine()
	no.err = &Refusal{Verdict: Exclude, Err: errors.New("404")}
	runTask(t, itemSpec{3, second, false}, []*fakeLine{no, goodLine()}, nil,
		func(r *fakeTask) { r.expectAll(r.Run(r.t.Context(), r), 4*time.Second) })
	runTask(t, itemSpec{1, second, false}, []*fakeLine{no}, nil, func(r *fakeTask) {
		if err := r.Run(r.t.Context(), r); err != nil || r.failed[0] == nil || r.failed[0].Error() != "404" {
			t.Errorf("%v, %v", err, r.failed)
		}
	})
	runTask(t, itemSpec{1, second, false}, []*fakeLine{no, busy}, func(c *Config) {
		joins := make(chan Device)
		c.NewDevices, c.Devices = joins, c.Devices[:1]
		go func() {
			time.Sleep(10 * time.Second)
			joins <- testDevice(1)
			close(joins)
		}()
	}, func(r *fakeTask) { r.expectAll(r.Run(r.t.Context(), r), 12*time.Second) })
}

// TestWarm checks that a device is used after its warm-up, is suspended if that fails, and is left
// out without a client.
func TestWarm(t *testing.T) {
	runTask(t, itemSpec{4, second, false}, []*fakeLine{goodLine(), goodLine(), goodLine()}, func(c *Config) {
		c.NewClient = func(d Device) *http.Client {
			if d.Name == "c" {
				return nil
			}
			return &http.Client{}
		}
		c.WarmUp = func(w *Worker) func(context.Context) error {
			if w.IsLocal() {
				return nil
			}
			return func(context.Context) error { time.Sleep(time.Second); return errLine }
		}
	}, func(r *fakeTask) {
		r.runAfter(1200*time.Millisecond, func() {
			if r.lines[1].jobs > 0 || r.Workers()[1].IsUp() {
				t.Error("it is used")
			}
		})
		r.expectAll(r.Run(r.t.Context(), r), 4*time.Second)
		if len(r.Workers()) != 2 || r.lines[1].jobs == 0 {
			t.Errorf("%d devices, %d jobs", len(r.Workers()), r.lines[1].jobs)
		}
	})
}

// TestSends checks that sent bytes count only when confirmed, and that handed-over bytes do not
// clear the failures of a device.
func TestSends(t *testing.T) {
	bad := goodLine()
	bad.breaks = second / 2
	var waits []time.Duration
	last := time.Duration(0)
	begun := time.Now()
	runTask(t, itemSpec{1, second, false}, []*fakeLine{bad}, func(c *Config) {
		begun = time.Now()
		c.Upload = true
		c.OnSuspend = func(string, error) {
			now := time.Since(begun)
			waits = append(waits, now-last)
			last = now
		}
	}, func(r *fakeTask) {
		r.Workers()[0].NoteResponse()
		r.runAfter(8*time.Second, func() { bad.breaks = 0 })
		r.expectAll(r.Run(r.t.Context(), r), 13*time.Second)
		for i := 1; i < len(waits); i++ {
			if waits[i] < waits[i-1]+300*time.Millisecond {
				t.Errorf("the back-off does not grow: %v", waits)
			}
		}
	})
}

// TestRandom checks that under random faults each object is complete once all devices work again,
// all bytes are counted, and each job ends once.
func TestRandom(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		lines := make([]*fakeLine, 1+rng.IntN(4))
		for i := range lines {
			lines[i] = &fakeLine{latency: time.Duration(rng.IntN(300)) * time.Millisecond,
				rate: second/20 + unit.Bytes(rng.Int64N(int64(second)))}
		}
		runTask(t, itemSpec{1 + rng.IntN(8), second/4 + unit.Bytes(rng.Int64N(int64(second))),
			rng.IntN(2) == 0}, lines, func(c *Config) {
			c.Concurrency = 1 + rng.IntN(4)
			c.Scheduler, _ = board.New(board.Names()[rng.IntN(len(board.Names()))])
		}, func(r *fakeTask) {
			for range rng.IntN(10) {
				l := lines[rng.IntN(len(lines))]
				r.runAfter(time.Duration(rng.IntN(20_000))*time.Millisecond, func() {
					switch rng.IntN(4) {
					case 0:
						l.err = errLine
					case 1:
						l.err = &Refusal{RetryAfter: time.Second, Err: errors.New("503")}
					case 2:
						l.breaks = second / 10
					case 3:
						l.rate = 0
					}
				})
			}
			r.runAfter(21*time.Second, func() {
				for _, l := range lines {
					l.err, l.breaks, l.rate = nil, 0, max(l.rate, second/4)
				}
			})
			r.Loop.Times.IdleTimeout = time.Hour
			r.Workers()[0].NoteResponse()
			ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Minute)
			defer cancel()
			r.expectAll(r.Run(ctx, r), 3*time.Minute)
			sum := unit.Bytes(0)
			for _, s := range r.Usage(time.Now()) {
				sum += s.Bytes - s.Wasted
			}
			if want := r.size * unit.Bytes(len(r.whole)); sum != want {
				t.Errorf("%v of use, instead of %v", sum, want)
			}
			if t.Failed() {
				t.Fatalf("seed %d: %d lines, %s, split %v, concurrency %d", seed, len(lines),
					r.Scheduler.Name(), r.split, r.Concurrency)
			}
		})
	}
}
