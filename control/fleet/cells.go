// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// maxCellName bounds the name of a cell, so that a key has room for the name of a service beside it.
const maxCellName = 64

// Cells keeps what several permit services share of mobile cells. What the records mean is theirs to say: package
// onload/permit, whose Shared it implements. Safe for concurrent use.
type Cells struct {
	store   Store
	service string
}

// NewCells returns the records for a permit service, whose name no other one may have.
func NewCells(store Store, service string) (*Cells, error) {
	if err := identity.CheckName(service); err != nil {
		return nil, fault.New(fault.Config, err, "set --name to a name that no other permit service has")
	}
	return &Cells{store, service}, nil
}

// CheckCell returns an error unless a cell of that name can be shared.
func CheckCell(name string) error {
	if len(name) > maxCellName || CheckKey(name) != nil || strings.Contains(name, ".") {
		return fault.New(fault.Usage, fmt.Errorf("the name %.80q of a cell cannot be shared", name),
			fmt.Sprintf("use 1 to %d letters, digits, '-' and '_'", maxCellName))
	}
	return nil
}

// Describe describes the engine in a few words, for people.
func (c *Cells) Describe() string { return c.store.Describe() }

// ReadPermits returns the permits of a cell and their revision, 0 if there are none.
func (c *Cells) ReadPermits(ctx context.Context, cell string) (permits []byte, revision uint64, err error) {
	r, err := c.store.Get(ctx, Permits, cell)
	if errors.Is(err, ErrNoRecord) {
		return nil, 0, nil
	}
	return r.Value, r.Revision, err
}

// ReplacePermits replaces the permits of a cell if they have that revision, and reports whether they had.
func (c *Cells) ReplacePermits(ctx context.Context, cell string, permits []byte, revision uint64) (done bool,
	err error) {
	if revision == 0 {
		_, err = c.store.Create(ctx, Permits, cell, permits, 0)
	} else {
		_, err = c.store.Update(ctx, Permits, Record{Key: cell, Value: permits, Revision: revision})
	}
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// WriteLoad writes the load of a cell that this service knows. It ends after LoadLife.
func (c *Cells) WriteLoad(ctx context.Context, cell string, load []byte) error {
	_, err := c.store.Put(ctx, Loads, cell+"."+c.service, load)
	return err
}

// WatchLoads calls take with the loads that other services know, and with each later one, until ctx ends, which is
// no error.
func (c *Cells) WatchLoads(ctx context.Context, take func(service, cell string, load []byte)) error {
	return c.store.Watch(ctx, Loads, func(ch Change) {
		cell, service, ok := strings.Cut(ch.Key, ".")
		if ok && !ch.IsGone && service != c.service {
			take(service, cell, ch.Value)
		}
	})
}
