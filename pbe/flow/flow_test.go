// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	j := Job{Length: time.Second}
	if err := j.ParseFlows(7, []string{"bbr@10.0.0.1", "kernel:cubic@fd00::1"}); err != nil || len(j.Flows) != 2 ||
		j.Flows[1] != (Flow{"kernel:cubic", "fd00::1", 8}) {
		t.Errorf("%v, %+v", err, j)
	}
	for _, bad := range []string{"", "bbr", "bbr@", "nothing@10.0.0.1", "kernel:@10.0.0.1", "@10.0.0.1"} {
		j := Job{Length: time.Second}
		if err := j.ParseFlows(1, []string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if err := new(Job).ParseFlows(1, []string{"bbr@10.0.0.1"}); err == nil {
		t.Error("a job of no time was taken")
	}
}
