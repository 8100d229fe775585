// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"context"
	"errors"
	"math"
	"net"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/wire"
)

// TestShares: of a budget without what is kept for new devices, one device gets three quarters, two get three sevenths
// each, and a new one finds some left; a device is short when it has as much as is left.
func TestShares(t *testing.T) {
	const limit, page = 700 * unit.KB, 100
	m := NewMemory(limit * deviceReserve / (deviceReserve - 1))
	fill := func(s *Share) unit.Bytes {
		for s.Take(page) {
		}
		return s.Used()
	}
	near := func(got, want unit.Bytes) bool { return got > want-2*page && got <= want }
	a, b := m.NewShare(), m.NewShare()
	for !a.IsShort() {
		if !a.Take(page) {
			t.Fatal("refused before it was short")
		}
	}
	if !near(a.Used(), limit/2+page) || b.IsShort() {
		t.Errorf("short at %v", a.Used())
	}
	if got := fill(a); !near(got, limit*3/4) {
		t.Errorf("one device has %v", got)
	}
	if got := fill(b); !near(got, (limit-a.Used())*3/4) {
		t.Errorf("the second one has %v", got)
	}
	a.Release(a.Used())
	b.Release(b.Used())
	for more := true; more; {
		more = a.Take(page)
		more = b.Take(page) || more
	}
	c := m.NewShare()
	if !near(a.Used(), limit*3/7+page) || !near(b.Used(), limit*3/7+page) || !c.Take(page) {
		t.Errorf("two devices have %v and %v", a.Used(), b.Used())
	}
	a.Release(a.Used())
	b.Release(b.Used())
	if m.used != page {
		t.Errorf("%v are left in use", m.used)
	}
}

// TestLack: bonds count from their beginning with their first subflow. An eighth of memory and sockets is kept for
// devices that have one, and a half of that for what is open.
func TestLack(t *testing.T) {
	m := NewMemory(16 * subflowCost)
	var bonds []*Endpoint
	for len(bonds) < 100 && m.LackForDevice() == "" {
		bonds = append(bonds, New(Config{Share: m.NewShare()}))
	}
	if lack := m.LackForDevice(); len(bonds) != 14 || lack != lackOfMemory || m.LackForBond() != "" {
		t.Errorf("%d bonds; there is too little %s", len(bonds), lack)
	}
	extra := m.NewShare()
	extra.countSubflows(0, 1)
	if m.LackForBond() != lackOfMemory || extra.TakeSocket() != lackOfMemory || !extra.Take(subflowCost/16) {
		t.Error("the last part is not kept for bytes")
	}
	extra.Release(subflowCost / 16)
	extra.countSubflows(1, 0)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 { // a second time changes nothing
		bonds[0].Close(gone)
	}
	if m.LackForDevice() != "" || m.fixed != 13*subflowCost || m.sockets != 13 {
		t.Errorf("after the end of one: %v and %d sockets in use", m.fixed, m.sockets)
	}
	m.maxSockets, m.limit = 16, 32*subflowCost
	s := m.NewShare()
	for m.sockets < 100 && m.LackForDevice() == "" && s.TakeSocket() == "" {
	}
	if lack := m.LackForDevice(); m.sockets != 14 || lack != lackOfFiles || m.LackForBond() != "" {
		t.Errorf("%d sockets; there is too little %s", m.sockets, lack)
	}
	New(Config{Share: m.NewShare()})
	if s.TakeSocket() != lackOfFiles || m.LackForBond() != lackOfFiles {
		t.Errorf("%d sockets", m.sockets)
	}
	fixed := m.fixed
	if s.ReleaseSocket(); m.sockets != 14 || m.fixed != fixed-socketCost {
		t.Errorf("%d sockets and %v after a release", m.sockets, m.fixed)
	}
	m.maxSockets = 32
	if other := m.NewShare(); !other.Take(m.freeBytes()/2) || m.LackForBond() != "" || other.TakeSocket() != "" {
		t.Error("bytes that a device holds keep out streams and subflows")
	}
}

// TestSubflowShares: the subflows of a device get at most three times what is left, but for the first one of each bond.
func TestSubflowShares(t *testing.T) {
	m := NewMemory(160 * subflowCost)
	s := m.NewShare()
	for range 8 {
		New(Config{Share: s})
	}
	n := 1
	for ; s.LackForSubflow() == ""; n++ {
		s.countSubflows(n, n+1)
	}
	if left := int(m.freeBeyond(openReserve) / subflowCost); n-1 > 3*left || n-1 < 3*left-4 {
		t.Errorf("a device has %d further subflows and leaves %d", n-1, left)
	}
	if m.LackForDevice() != "" || m.NewShare().LackForSubflow() != "" {
		t.Error("nothing is left for others")
	}
	sockets := 0
	for s.TakeSocket() == "" {
		sockets++
	}
	if sockets > 3 {
		t.Errorf("%d sockets beside these subflows", sockets)
	}
}

// TestSocketShares: the sockets of a device, to destinations and of further subflows, are at most three times what is
// left.
func TestSocketShares(t *testing.T) {
	m := NewMemory(unit.GB)
	m.maxSockets = 160
	s := m.NewShare()
	s.countSubflows(0, 5)
	n := 4
	for s.TakeSocket() == "" {
		n++
	}
	if left := m.freeSocketsBeyond(openReserve); n > 3*left || n < 3*left-4 {
		t.Errorf("a device has %d sockets and leaves %d", n, left)
	}
	if lack := s.LackForSubflow(); lack != lackOfFiles {
		t.Errorf("a further subflow lacks %q", lack)
	}
	if m.LackForDevice() != "" || m.NewShare().TakeSocket() != "" {
		t.Error("nothing is left for others")
	}
}

// TestHostileBytes: a few devices that take all bytes that they can get do not keep new ones out, many of them do not
// keep out what is open, and what is admitted beside them stays within the budget, so that each gets some bytes.
func TestHostileBytes(t *testing.T) {
	const page = 16 * unit.KB
	m := NewMemory(400 * unit.MB)
	m.maxSockets = math.MaxInt32
	takeAll := func(devices int) {
		for range devices {
			for s := m.NewShare(); s.Take(page); {
			}
		}
	}
	takeAll(4)
	if lack := m.LackForDevice(); lack != "" {
		t.Fatal("bytes keep new devices out: there is too little", lack)
	}
	var honest []*Share
	for m.LackForDevice() == "" {
		honest = append(honest, m.NewShare())
		New(Config{Share: honest[len(honest)-1]})
	}
	takeAll(3)
	if lack := honest[0].TakeSocket(); lack != "" {
		t.Error("bytes keep streams out: there is too little", lack)
	}
	for n := 0; m.LackForBond() == ""; n++ {
		New(Config{Share: honest[n%len(honest)]})
	}
	t.Logf("%d devices beside hostile ones, %v left", len(honest), m.freeBytes())
	if used := m.fixed + m.used; used > m.limit {
		t.Errorf("%v in use, the limit is %v", used, m.limit)
	}
	if s := m.NewShare(); s.IsShort() || !s.Take(page) {
		t.Error("a device gets no bytes")
	}
}

// TestWriteWaitsForMemory: a write that finds no memory waits until another device releases some.
func TestWriteWaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(unit.MB)
		e := New(Config{Bond: bond.Config{OpensStreams: true}, Share: m.NewShare()})
		c, err := e.Dial("example.org:80", wire.ModeBond, 0)
		if err != nil {
			t.Fatal(err)
		}
		other, left := m.NewShare(), m.freeBytes()
		other.addUsedMemory(left)
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 1000))
			written <- err
		}()
		time.Sleep(time.Minute)
		select {
		case err := <-written:
			t.Fatalf("written without memory: %v", err)
		default:
		}
		other.Release(left)
		if err := <-written; err != nil {
			t.Error(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		e.Close(gone)
	})
}

// noMemory is a bond.Memory without memory. It counts what asks for some.
type noMemory struct{ asked atomic.Int64 }

func (m *noMemory) Take(unit.Bytes) bool {
	m.asked.Add(1)
	return false
}
func (m *noMemory) Release(unit.Bytes) {}
func (m *noMemory) IsShort() bool      { return true }

// TestWriteRetriesByOneTimer: a write that waits for memory tries again at one rate, however often it was woken.
func TestWriteRetriesByOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m noMemory
		e := New(Config{Bond: bond.Config{OpensStreams: true, Memory: &m}})
		c, err := e.Dial("example.org:80", wire.ModeBond, 0)
		if err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(make([]byte, 1000))
			written <- err
		}()
		synctest.Wait()
		perTry := m.asked.Load()
		for range 100 {
			time.Sleep(memoryRetry / 100)
			if err := c.SetReadDeadline(time.Time{}); err != nil { // wakes the write
				t.Fatal(err)
			}
			synctest.Wait()
		}
		m.asked.Store(0)
		time.Sleep(100*memoryRetry + 1)
		if n := m.asked.Load(); n == 0 || n > 101*perTry {
			t.Errorf("%d tries in the time of 100", n/perTry)
		}
		c.Close()
		if err := <-written; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		e.Close(gone)
	})
}

// TestTrim: memory is freed, rarely, when half of the peak is unused.
func TestTrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory(unit.GB)
		s := m.NewShare()
		trims := func() bool {
			before := m.trimmedAt
			m.Trim()
			return m.trimmedAt != before
		}
		for i, c := range []struct {
			take unit.Bytes
			want bool
		}{{100 * unit.MB, false}, {-40 * unit.MB, false}, {-20 * unit.MB, true}, {40 * unit.MB, false}, {-80 * unit.MB, true},
			{10 * unit.MB, false}, {-10 * unit.MB, false}} {
			s.addUsedMemory(c.take)
			time.Sleep(trimInterval)
			if got := trims(); got != c.want {
				t.Errorf("%d: trimmed is %v", i, got)
			}
		}
	})
}

// TestBudget: half of the Go runtime's limit, 1 GB without one.
func TestBudget(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	if got := NewMemory(0).Limit(); got != unit.GB {
		t.Errorf("%v without a limit", got)
	}
	debug.SetMemoryLimit(800 << 20)
	if got := NewMemory(0).Limit(); got != 400<<20 {
		t.Errorf("%v of 800 MiB", got)
	}
}
