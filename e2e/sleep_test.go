package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var asleep = flag.Duration("asleep", 4*time.Second, "how long devices sleep in TestSleep; longer than the 3 s after which a silent subflow is given up")

// sleep stops what runs in a node, whose links take nothing, for a while.
func (n *network) sleep(node string, links ...string) {
	n.Helper()
	n.signal(node, syscall.SIGSTOP)
	n.outage("on", links...)
	time.Sleep(*asleep) // of the world, not of a goroutine
	n.outage("off", links...)
	n.signal(node, syscall.SIGCONT)
}

// outage takes links away, or gives them back.
func (n *network) outage(state string, links ...string) {
	n.Helper()
	for _, l := range links {
		if err := n.l.Set(l, "", "outage="+state); err != nil {
			n.Fatal(err)
		}
	}
}

// TestSleep: helper and primary sleep for longer than the others wait for them,
// and the helper is switched off and comes back at another address, with a
// download and an upload going on. The helper is back by itself and carries its
// part, and every byte is right.
func TestSleep(t *testing.T) {
	n := newNetworkOf(t, "10/20/20", "", nil)
	n.signal("primary", syscall.SIGKILL)
	config := filepath.Join(n.dir, "primary.toml")
	writeFile(t, config, "resume = \"2s\"\n") // pipes are given up sooner
	n.start("primary", n.mpbond, "primary", "--name", "laptop", "--config", config)
	n.await(2)
	const down, up = 7 * mb, mb
	want, _ := sum(noise(down))
	file := filepath.Join(n.dir, "upload")
	writeNoise(t, file, up)
	sent, _ := sum(noise(up))
	for _, c := range []struct {
		name string
		away func()
	}{
		{"the helper sleeps", func() { n.sleep("helper1", "hs1", "pipe1") }},
		{"the primary sleeps", func() { n.sleep("primary", "ps", "pipe1") }},
		{"the helper starts again at another address", func() {
			n.signal("helper1", syscall.SIGKILL)
			n.readdress("helper1", "pipe1", time.Second)
			n.start("helper1", n.mpbond, "helper", "--name", "phone")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := fmt.Sprint((time.Minute + 2**asleep).Seconds())
			d := n.transfer("--max-time", limit, fmt.Sprintf("http://web/%d", down))
			u := n.transfer("--max-time", limit, "-T", file, "http://web/")
			<-d.begun
			c.away()
			back, before := time.Now(), n.linkBytes("pipe1")
			n.await(2)
			t.Logf("two subflows after %v", time.Since(back).Round(time.Millisecond))
			for _, x := range []*transfer{d, u} {
				if <-x.done; x.err != nil {
					t.Errorf("%v %s", x.err, &x.errs)
				}
			}
			if d.got != want {
				t.Errorf("got %s, want %s", d.got, want)
			}
			if got, _ := sum(strings.NewReader(sent)); u.got != got {
				t.Error("other bytes were received than sent")
			}
			t.Logf("all was there after %v; the pipe has carried %d bytes since", time.Since(back).Round(time.Millisecond), n.linkBytes("pipe1")-before)
		})
	}
}
