// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"mpbond/lab/coupled"
)

// coupledUse is a use of the coupled congestion controls, which the kernel knows while this process has
// at least one.
type coupledUse struct{ released sync.Once }

// registeredCoupled counts the uses. Cells run at once, and the kernel takes each name once.
var registeredCoupled struct {
	sync.Mutex
	uses   int
	kernel *coupled.Kernel
}

// useCoupled makes the kernel know coupled congestion controls until release.
func useCoupled() (*coupledUse, error) {
	r := &registeredCoupled
	r.Lock()
	defer r.Unlock()
	if r.uses == 0 {
		kernel, err := coupled.Register()
		if err != nil {
			return nil, err
		}
		r.kernel = kernel
	}
	r.uses++
	return &coupledUse{}, nil
}

// release ends the use. It may be called again, and on nil.
func (u *coupledUse) release() (err error) {
	if u == nil {
		return nil
	}
	u.released.Do(func() {
		r := &registeredCoupled
		r.Lock()
		defer r.Unlock()
		if r.uses--; r.uses == 0 {
			err = r.kernel.Close()
			r.kernel = nil
		}
	})
	return err
}

// checkCoupled registers the algorithms once, to see whether this machine accepts them.
var checkCoupled = sync.OnceValue(func() error {
	use, err := useCoupled()
	return errors.Join(err, use.release())
})

// CheckScheme reports why this machine's kernel cannot run a scheme that it knows, or nil.
func CheckScheme(name string) error {
	scheme, err := newSchemeByName(name)
	if k, is := scheme.(*mptcpScheme); err == nil && is {
		if _, is := coupled.Named(k.congestion); is {
			return checkCoupled()
		}
	}
	return nil
}

// setCongestion sets the congestion control of all nodes, if the scheme names one, and remembers what
// they had. Connections made afterwards use it. Stop restores it, also after an error.
func (k *mptcpScheme) setCongestion(ctx context.Context, b *Bench) (err error) {
	if k.congestion == "" {
		return nil
	}
	name := k.congestion
	if a, ok := coupled.Named(name); ok {
		if k.coupled, err = useCoupled(); err != nil {
			return err
		}
		name = coupled.CongestionName(a)
	}
	k.congestionBefore = map[string]string{}
	for node := range b.Lab.Topology.Node {
		before, err := b.Run(ctx, node, "cat", sysctlFile(congestionKey))
		if err != nil {
			return err
		}
		k.congestionBefore[node] = strings.TrimSpace(before)
		if err := setNodeCongestion(ctx, b, node, name); err != nil {
			return fmt.Errorf("mptcp:cc=%s: %w", k.congestion, err)
		}
	}
	return nil
}

// restoreCongestion gives each node the congestion control that it had.
func (k *mptcpScheme) restoreCongestion(ctx context.Context, b *Bench) error {
	var all []error
	for node, name := range k.congestionBefore {
		if err := setNodeCongestion(ctx, b, node, name); err != nil {
			all = append(all, err)
			continue
		}
		delete(k.congestionBefore, node)
	}
	return errors.Join(append(all, k.coupled.release())...)
}

func setNodeCongestion(ctx context.Context, b *Bench, node, name string) error {
	return allowCongestion(name, func() error {
		_, err := b.Run(ctx, node, "sh", "-c", `echo "$1" > "$2"`, "sh", name, sysctlFile(congestionKey))
		return err
	})
}
