// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"sync"
	"testing"
)

// TestLabsStartTogether checks that nodes of labs that start at the same time all get the default
// congestion control, although the host may not allow it.
func TestLabsStartTogether(t *testing.T) {
	needLab(t)
	var labs sync.WaitGroup
	failures := make([]error, 8)
	for i := range failures {
		labs.Go(func() {
			for range 20 {
				failures[i] = errors.Join(failures[i], allowCongestion(defaultCongestion, func() error {
					ns, err := newNamespace("a")
					if err != nil {
						return err
					}
					defer ns.file.Close()
					return ns.runInNamespace(func() error {
						if warning := setDefaultCongestion(); warning != "" {
							return errors.New(warning)
						}
						return nil
					})
				}))
			}
		})
	}
	labs.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Error(err)
	}
}
