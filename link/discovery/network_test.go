// SPDX-License-Identifier: Apache-2.0

//go:build linux

package discovery

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mpbond/base/waittest"
)

// TestAnnounceAndFind checks that a service is found on each network, by its address there, and
// only by a query; and that it is no longer found after its announcement has ended.
func TestAnnounceAndFind(t *testing.T) {
	const inside = "MPBOND_TEST_INSIDE" // a network namespace
	if os.Getenv(inside) == "" {
		if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
			t.Skip("needs root and ip, for networks of its own")
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestAnnounceAndFind$")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	const setUp = `echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 # which says things of its own accord
		ip link set lo up && for i in 1 2; do
		ip link add n$i type veth peer name other$i && ip addr add 10.0.$i.1/24 dev n$i &&
		ip link set n$i up && ip link set other$i up || exit; done`
	if out, err := exec.Command("sh", "-c", setUp).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var announcing sync.WaitGroup
	defer announcing.Wait()
	defer cancel()
	announcing.Go(func() { Announce(ctx, Announcement{Pipes, "K7QF", 7602}, nil, slog.New(slog.DiscardHandler)) })
	find := func(s Service) []Found {
		t.Helper()
		list, err := Find(t.Context(), s, 200*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(list, func(a, b Found) int { return a.Addr.Compare(b.Addr) })
		return list
	}
	want := []Found{{"K7QF", netip.MustParseAddrPort("10.0.1.1:7602")},
		{"K7QF", netip.MustParseAddrPort("10.0.2.1:7602")}}
	waittest.UntilSuccess(t, func() error {
		if got := find(Pipes); !slices.Equal(got, want) {
			return fmt.Errorf("found %v, want %v", got, want)
		}
		return nil
	})
	before := receivedBytes(t)
	if got := find(Codes); len(got) > 0 {
		t.Errorf("of another service: %v", got)
	}
	if after := receivedBytes(t); after[0] == before[0] || after[1] == before[1] {
		t.Errorf("not asked on both networks: %v bytes came, then %v", before, after)
	}
	cancel()
	announcing.Wait()
	if got := find(Pipes); len(got) > 0 {
		t.Errorf("found when it has ended: %v", got)
	}
}

// receivedBytes returns the received bytes at the other ends of both networks.
func receivedBytes(t *testing.T) (n [2]string) {
	b, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		_, of, _ := strings.Cut(string(b), fmt.Sprintf("other%d:", i+1))
		n[i] = strings.Fields(of)[0]
	}
	return n
}
