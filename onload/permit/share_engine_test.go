// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"mpbond/base/fault"
)

// memoryEngine is an engine in memory that tests can stop.
type memoryEngine struct {
	lost      atomic.Bool // nothing is done
	losesNext atomic.Bool // the next change is made, and its answer is lost
	during    func()      // is called while permits are replaced; nil: nothing is

	mu       sync.Mutex
	permits  map[string][]byte
	revision map[string]uint64
	loads    map[[2]string][]byte // by service and cell
	watchers map[int]func(service, cell string, load []byte)
	next     int
}

func newMemoryEngine() *memoryEngine {
	return &memoryEngine{permits: map[string][]byte{}, revision: map[string]uint64{}, loads: map[[2]string][]byte{},
		watchers: map[int]func(string, string, []byte){}}
}

var errLost = fault.New(fault.Unreachable, errors.New("the engine is lost"), "wait")

// memoryCells is one service's view of a memoryEngine.
type memoryCells struct {
	*memoryEngine
	service string
}

func (e memoryCells) Describe() string { return "memory" }

func (e memoryCells) ReadPermits(_ context.Context, cell string) ([]byte, uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost.Load() {
		return nil, 0, errLost
	}
	return e.permits[cell], e.revision[cell], nil
}

func (e memoryCells) ReplacePermits(_ context.Context, cell string, permits []byte, revision uint64) (bool, error) {
	if e.during != nil {
		e.during()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost.Load() {
		return false, errLost
	}
	if e.revision[cell] != revision {
		return false, nil
	}
	e.permits[cell], e.revision[cell] = bytes.Clone(permits), revision+1
	if e.losesNext.Swap(false) {
		return false, errLost
	}
	return true, nil
}

func (e memoryCells) WriteLoad(_ context.Context, cell string, load []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lost.Load() {
		return errLost
	}
	e.loads[[2]string{e.service, cell}] = bytes.Clone(load)
	for _, take := range e.watchers {
		take(e.service, cell, load)
	}
	return nil
}

func (e memoryCells) WatchLoads(ctx context.Context, take func(service, cell string, load []byte)) error {
	others := func(service, cell string, load []byte) {
		if service != e.service {
			take(service, cell, load)
		}
	}
	e.mu.Lock()
	for k, load := range e.loads {
		others(k[0], k[1], load)
	}
	e.next++
	id := e.next
	e.watchers[id] = others
	e.mu.Unlock()
	<-ctx.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.watchers, id)
	return nil
}
