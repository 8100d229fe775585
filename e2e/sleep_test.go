// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/e2e/rig"
)

var sleepTime = flag.Duration("asleep", 3500*time.Millisecond,
	"how long devices sleep in TestSleep; longer than the 3 s after which a silent subflow is given up")

// sleepNode stops the process in a node and takes its links down, for sleepTime.
func (n *network) sleepNode(node string, links ...string) {
	n.Helper()
	n.signalProcess(node, syscall.SIGSTOP)
	n.silenceLinks(*sleepTime, links...)
	n.signalProcess(node, syscall.SIGCONT)
}

// TestSleep: helper and primary sleep for longer than the others wait for them. Then the helper is
// switched off and returns with another address. A download and an upload run meanwhile. The helper
// returns by itself and carries its part, and every byte is right.
func TestSleep(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWith(t, "5/10/10", "", nil)
	n.signalProcess("primary", syscall.SIGKILL)
	config := filepath.Join(n.Dir, "primary.toml")
	writeFile(t, config, "resume = \"2s\"\n") // pipes are given up sooner
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--config", config)
	n.Await(2)
	const down, up = 7 * mb / 2, mb / 2
	want, _ := rig.Sum(rig.Noise(down))
	file := filepath.Join(n.Dir, "upload")
	writeNoise(t, file, up)
	sent, _ := rig.Sum(rig.Noise(up))
	for _, c := range []struct {
		name string
		away func()
	}{
		{"the helper sleeps", func() { n.sleepNode("helper1", "hs1", "pipe1") }},
		{"the primary sleeps", func() { n.sleepNode("primary", "ps", "pipe1") }},
		{"the helper starts again at another address", func() {
			n.signalProcess("helper1", syscall.SIGKILL)
			n.changeAddress("helper1", "pipe1", time.Second)
			n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := fmt.Sprint((time.Minute + 2**sleepTime).Seconds())
			d := n.startTransfer("--max-time", limit, fmt.Sprintf("http://web/%d", down))
			u := n.startTransfer("--max-time", limit, "-T", file, "http://web/")
			<-d.begun
			c.away()
			back, before := time.Now(), n.LinkBytes("pipe1")
			rig.Eventually(t, func() error {
				if len(n.helpedSubflows()) == 0 {
					return errors.New("no subflow by the helper")
				}
				return nil
			})
			t.Logf("a subflow by the helper after %v", time.Since(back).Round(time.Millisecond))
			for _, x := range []*transfer{d, u} {
				if <-x.done; x.err != nil {
					t.Errorf("%v %s", x.err, &x.errs)
				}
			}
			if d.got != want {
				t.Errorf("got %s, want %s", d.got, want)
			}
			if got, _ := rig.Sum(strings.NewReader(sent)); u.got != got {
				t.Error("the server received other bytes than were sent")
			}
			t.Logf("complete after %v; the pipe has carried %d bytes since", time.Since(back).Round(time.Millisecond),
				n.LinkBytes("pipe1")-before)
		})
	}
}
