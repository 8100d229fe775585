// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"mpbond/base/waittest"
)

// Pings measure the known delays of a link, and nothing of a link that loses everything.
func TestPings(t *testing.T) {
	t.Parallel()
	l := startLab(t, `
[node.primary]
[node.server]
[node.web]
[link.near]
ends = ["primary", "server"]
delay = "5ms"
[link.near.up]
delay = "15ms"
[link.veth]
ends = ["primary", "server"]
[link.core]
ends = ["server", "web"]
`, Options{})
	b := newBenchInLab(l, 1)
	if err := b.prepareDir(); err != nil {
		t.Fatal(err)
	}
	defer b.StopAll()
	stop, err := b.startPings(t.Context(), 5*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	// Ten more than the one of each link that was answered.
	before := l.sentDown(t, "near")
	waittest.Until(t, "ten pings", func() bool { return l.sentDown(t, "near") >= before+10 })
	all, err := stop()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := stop(); err != nil || len(again) != len(all) {
		t.Errorf("ended again: %v, %v", again, err)
	}
	p := all["near"]
	if len(all) != 1 || p.Sent < 10 || int(p.Back.Packets)+p.Lost != p.Sent || p.Back.Packets == 0 ||
		p.Down.Packets != p.Back.Packets {
		t.Errorf("%+v", all)
	}
	if p.Down.P50 < 5*time.Millisecond || p.Back.P50 < 20*time.Millisecond || p.Back.P50 < p.Down.P50 {
		t.Errorf("5 ms and 20 ms are the least: %+v", p)
	}
}

// The error names the link without answers.
func TestPingsUnanswered(t *testing.T) {
	job := pingJob{Every: time.Millisecond, First: 20 * time.Millisecond, To: map[string]string{"cell2": "127.0.0.1"}}
	if c, err := net.Dial("udp4", fmt.Sprintf("127.0.0.1:%d", pingPort)); err != nil {
		t.Skipf("no loopback here: %v", err)
	} else {
		c.Close()
	}
	in, out := io.Pipe()
	defer out.Close()
	if err := job.pingUntilEOF(in, io.Discard); err == nil || !strings.Contains(err.Error(), "cell2") {
		t.Errorf("nothing answers: %v", err)
	}
}

// sentDown returns how many packets have entered a link at its second end.
func (l *Lab) sentDown(t *testing.T, link string) int64 {
	t.Helper()
	s, err := l.Stats(false)
	if err != nil {
		t.Fatal(err)
	}
	return s.Link(link).Lines[Downlink].Count.Sent.Packets
}
