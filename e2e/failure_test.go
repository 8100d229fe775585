// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mpbond/e2e/rig"
	"mpbond/link/wire"
)

// processIn returns the process that was started last in a node.
func (n *network) processIn(node string) *rig.Process {
	n.Helper()
	for i := len(n.All) - 1; i >= 0; i-- {
		if n.All[i].Node == node {
			return n.All[i]
		}
	}
	n.Fatalf("nothing runs in %s", node)
	return nil
}

// signalProcess sends a signal to a node's process and waits for its exit after SIGKILL.
func (n *network) signalProcess(node string, s syscall.Signal) {
	n.Helper()
	p := n.processIn(node)
	if err := p.Cmd.Process.Signal(s); err != nil {
		n.Fatal(node, err)
	}
	if s == syscall.SIGKILL {
		<-p.Done
	}
}

// freezeProcess stops a node's process for d.
func (n *network) freezeProcess(d time.Duration, node string) {
	n.Helper()
	n.signalProcess(node, syscall.SIGSTOP)
	time.Sleep(d)
	n.signalProcess(node, syscall.SIGCONT)
}

// silenceLinks takes links down for d.
func (n *network) silenceLinks(d time.Duration, links ...string) {
	n.Helper()
	for _, to := range []string{"outage=on", "outage=off"} {
		for _, l := range links {
			if err := n.Lab.Set(l, "", to); err != nil {
				n.Error(err)
			}
		}
		if to == "outage=on" {
			time.Sleep(d)
		}
	}
}

// startServer starts the server, by another command if there is one, and waits until it is up.
func (n *network) startServer(by ...string) {
	n.Helper()
	p := n.Start("server", append(by, n.Mpbond, "server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16")...)
	rig.Eventually(n, func() error {
		if !strings.Contains(p.Log.String(), "server is up") {
			return errors.New("the server is not up")
		}
		return nil
	})
}

// transfer is a transfer by an app, in progress.
type transfer struct {
	cmd   *exec.Cmd
	errs  bytes.Buffer
	begun chan struct{} // closed when its first bytes have arrived
	done  chan struct{} // closed when the app has exited
	got   string        // rig.Sum of all bytes, valid once done is closed
	err   error
}

// startTransfer starts a transfer by curl through the proxy.
func (n *network) startTransfer(args ...string) *transfer {
	n.Helper()
	curl := []string{"curl", "-sSfN", "--max-time", "60", "-H", "Expect:", "--socks5-hostname", "127.0.0.1:1080"}
	return n.startAppTransfer(1000, append(curl, args...)...)
}

// startAppTransfer starts a transfer by an app. It has begun when some bytes have arrived.
func (n *network) startAppTransfer(some int64, app ...string) *transfer {
	n.Helper()
	x := &transfer{begun: make(chan struct{}), done: make(chan struct{})}
	x.cmd = n.Command("primary", app...)
	x.cmd.Stderr = &x.errs
	out, err := x.cmd.StdoutPipe()
	if err != nil {
		n.Fatal(err)
	}
	if err := x.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	go func() {
		defer close(x.done)
		h := sha256.New()
		begun := sync.OnceFunc(func() { close(x.begun) })
		defer begun()
		first, _ := io.CopyN(h, out, some)
		begun()
		rest, _ := io.Copy(h, out)
		x.err = x.cmd.Wait()
		x.got = fmt.Sprintf("%d:%x", first+rest, h.Sum(nil))
	}()
	n.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		<-x.done
	})
	return x
}

// expectReset waits for the end of a transfer. curl must report a reset while receiving, not an
// early but orderly end.
func (n *network) expectReset(x *transfer, within time.Duration) {
	n.Helper()
	select {
	case <-x.done:
	case <-time.After(within):
		n.Errorf("the stream is still open after %v", within)
		return
	}
	var exit *exec.ExitError
	if !errors.As(x.err, &exit) || exit.ExitCode() != 56 || !strings.Contains(x.errs.String(), "reset") {
		n.Errorf("the stream ended with %v %s, want a reset", x.err, &x.errs)
	}
}

var allLinks = []string{"ps", "hs1", "pipe1"}

// TestFailures makes several parts fail at once in the middle of a download and an upload. Both
// must arrive complete.
func TestFailures(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWith(t, "5/5/5", "", nil)
	const size = 3 * mb
	want, _ := rig.Sum(rig.Noise(size))
	file := filepath.Join(n.Dir, "upload")
	writeNoise(t, file, size)
	for _, f := range []struct {
		name string
		fail func()
	}{
		{"primary frozen for 3 s", func() { n.freezeProcess(3*time.Second, "primary") }},
		{"helper frozen for 3 s and PS-path silent for 2 s", func() {
			var both sync.WaitGroup
			both.Go(func() { n.freezeProcess(3*time.Second, "helper1") })
			both.Go(func() { n.silenceLinks(2*time.Second, "ps") })
			both.Wait()
		}},
		{"server frozen for 3 s and HS-path silent for 4 s", func() {
			var both sync.WaitGroup
			both.Go(func() { n.freezeProcess(3*time.Second, "server") })
			both.Go(func() { n.silenceLinks(4*time.Second, "hs1") })
			both.Wait()
		}},
		{"all links silent for 5 s", func() { n.silenceLinks(5*time.Second, allLinks...) }},
		{"helper killed and PS-path silent for 3 s", func() {
			n.signalProcess("helper1", syscall.SIGKILL)
			n.silenceLinks(3*time.Second, "ps")
			n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
		}},
	} {
		t.Run(f.name, func(t *testing.T) {
			down := n.startTransfer(fmt.Sprintf("http://web/%d", size))
			up := n.startTransfer("-T", file, "http://web/")
			<-down.begun
			began := time.Now()
			f.fail()
			back := time.Now()
			for _, x := range []*transfer{down, up} {
				<-x.done
				if x.err != nil {
					t.Errorf("%v %s", x.err, &x.errs)
				}
			}
			if down.got != want {
				t.Errorf("got %s, want %s", down.got, want)
			}
			// the answer is the sum of the received bytes
			if got, _ := rig.Sum(strings.NewReader(want)); up.got != got {
				t.Error("the server received other bytes than were sent")
			}
			t.Logf("failures for %v; complete %v later", back.Sub(began).Round(time.Millisecond),
				time.Since(back).Round(time.Millisecond))
			n.Await(2)
		})
	}
}

// TestServerKilled: streams end with a reset when the server is back. New ones work promptly after
// its return, whatever the absence.
func TestServerKilled(t *testing.T) {
	t.Parallel() // its bound is far above the time of a quiet machine
	n := newNetwork(t)
	for _, absence := range []time.Duration{500 * time.Millisecond, 15 * time.Second} {
		t.Run(absence.String(), func(t *testing.T) {
			busy := n.startTransfer("--limit-rate", "1M", fmt.Sprintf("http://web/%d", 1000*mb))
			idle := n.startTransfer("http://web/idle")
			<-busy.begun
			<-idle.begun
			n.signalProcess("server", syscall.SIGKILL)
			time.Sleep(absence) // the length of the fault
			n.startServer()
			began := time.Now()
			early := n.startTransfer(fmt.Sprintf("http://web/%d", 100_000)) // before the primary knows
			<-early.done
			if want, _ := rig.Sum(rig.Noise(100_000)); early.err != nil || early.got != want {
				t.Errorf("a new stream: %v %s", early.err, &early.errs)
			}
			took := time.Since(began)
			t.Logf("a new stream was complete %v after the server's return", took.Round(time.Millisecond))
			if took > promptly {
				t.Errorf("a new stream took %v", took)
			}
			n.expectReset(busy, rig.Patience)
			n.expectReset(idle, rig.Patience)
			n.Await(2)
		})
	}
	t.Run("without streams", func(t *testing.T) {
		n.signalProcess("server", syscall.SIGKILL)
		time.Sleep(5 * time.Second) // the length of the fault: the primary tries ever less often
		n.startServer()
		began := time.Now()
		if x := n.startTransfer(fmt.Sprintf("http://web/%d", 100_000)); true {
			<-x.done
			if took := time.Since(began); x.err != nil || took > promptly {
				t.Errorf("a new stream took %v: %v %s", took, x.err, &x.errs)
			}
		}
		n.Await(2)
	})
}

// TestGiveUp: streams survive an absence of all paths shorter than give_up and are reset after a
// longer one. A killed primary frees its place at the helper once the pipe can no longer be
// resumed.
func TestGiveUp(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	n.signalProcess("primary", syscall.SIGKILL)
	rig.Eventually(t, func() error { // seconds: until then the pipe may resume
		s, err := n.Status("helper1", "helper")
		if err == nil && s.Helper.Subflows != 0 {
			err = errors.New("the helper still relays")
		}
		return err
	})
	config := filepath.Join(n.Dir, "primary.toml")
	writeFile(t, config, "give_up = \"3s\"\nresume = \"4s\"\n")
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--config", config)
	n.Await(2)
	const size = 10 * mb
	want, _ := rig.Sum(rig.Noise(size))
	x := n.startTransfer("--limit-rate", "4M", fmt.Sprintf("http://web/%d", size))
	<-x.begun
	n.silenceLinks(2*time.Second, allLinks...)
	if <-x.done; x.err != nil || x.got != want {
		t.Errorf("after a short absence: %v %s", x.err, &x.errs)
	}
	x = n.startTransfer("--limit-rate", "4M", fmt.Sprintf("http://web/%d", 100*mb))
	<-x.begun
	began := time.Now()
	for _, l := range allLinks {
		if err := n.Lab.Set(l, "", "outage=on"); err != nil {
			t.Fatal(err)
		}
	}
	// Silence is noticed within seconds, and a silent subflow is given up after 3 s. The helped
	// one, if its pipe is seen to be away, is given up only when the pipe can no longer be resumed.
	n.expectReset(x, 3*time.Second+4*time.Second+3*time.Second+rig.Patience)
	if d := time.Since(began); d < 3*time.Second {
		t.Errorf("the stream was given up after %v", d)
	}
	rig.Eventually(t, func() error { // the app may notice first
		if !strings.Contains(n.processIn("primary").Log.String(), "no way to the server") {
			return fmt.Errorf("the primary does not say why: %v", wire.CodeTimeout)
		}
		return nil
	})
}
