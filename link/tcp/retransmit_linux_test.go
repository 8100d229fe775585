// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRetransmitOften: the bound on the time between retransmissions follows the round trip, and stays
// the kernel's own without the option.
func TestRetransmitOften(t *testing.T) {
	boundOf := func(c *Conn) (bound time.Duration) {
		t.Helper()
		if err := controlRawConn(c.raw, func(fd int) error {
			ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS)
			bound = time.Duration(ms) * time.Millisecond
			return err
		}); err != nil {
			t.Skip("this kernel has no TCP_RTO_MAX_MS (it came with Linux 6.15)")
		}
		return bound
	}
	a, _ := connPair(t, Options{})
	if got := boundOf(a); got != maxRetransmitBound {
		t.Errorf("without the option %v", got)
	}
	a, _ = connPair(t, Options{RetransmitOften: true, UserTimeout: time.Minute})
	if got := boundOf(a); got != retransmitBound {
		t.Errorf("with the option %v", got)
	}
	for _, c := range []struct{ srtt, want time.Duration }{
		{2 * time.Second, 8 * time.Second},
		{1500 * time.Millisecond, 8 * time.Second}, // a small change changes nothing
		{100 * time.Millisecond, time.Second},
		{time.Hour, maxRetransmitBound},
	} {
		if err := controlRawConn(a.raw, func(fd int) error {
			a.boundRetransmitTimeout(fd, c.srtt)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if got := boundOf(a); got != c.want {
			t.Errorf("round trip %v: %v, want %v", c.srtt, got, c.want)
		}
	}
}
