package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// helped is the path that goes over the helper.
func (n *network) helped() (p api.Path) {
	n.Helper()
	s, err := n.Status("primary", "primary")
	if err != nil {
		n.Fatal(err)
	}
	for _, path := range s.Bonds[0].Paths {
		if path.Kind == api.Helped {
			p = path
		}
	}
	return p
}

// TestPipeBreaks: the pipe's link goes away for 3 s in the middle of a
// download, and its connection is reset in another: the helped subflow is the
// same afterwards, and every byte is right.
func TestPipeBreaks(t *testing.T) {
	n := newNetworkOf(t, "20/20/20", "", nil)
	const size = 20 * mb
	want, _ := rig.Sum(rig.Noise(size))
	for _, c := range []struct {
		name string
		hurt func(t *testing.T)
	}{
		{"link away", func(t *testing.T) {
			if err := n.Lab.Set("pipe1", "", "outage=on"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second) // of the world, not of a goroutine
			if err := n.Lab.Set("pipe1", "", "outage=off"); err != nil {
				t.Fatal(err)
			}
		}},
		{"reset", func(t *testing.T) {
			if _, err := n.Run("helper1", "ss", "-K", "dport", "=", ":7602"); err != nil {
				t.Skip("this kernel cannot kill sockets (CONFIG_INET_DIAG_DESTROY):", err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := n.helped()
			cmd := n.Command("primary", n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "40", fmt.Sprintf("http://web/%d", size))
			var errs bytes.Buffer
			cmd.Stderr = &errs
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			h := sha256.New()
			first, err := io.CopyN(h, out, 3*mb)
			if err != nil {
				t.Error(err)
			}
			got := make(chan string)
			go func() {
				rest, err := io.Copy(h, out)
				got <- fmt.Sprintf("%d:%x %v", first+rest, h.Sum(nil), err)
			}()
			c.hurt(t)
			if got := <-got; got != want+" <nil>" {
				t.Errorf("%s, want %s", got, want)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, &errs)
			}
			rig.Eventually(t, func() error {
				after := n.helped()
				if after.State != api.Up || after.ID != before.ID {
					return fmt.Errorf("%+v, before %+v", after, before)
				}
				if c.name == "reset" && after.Resumed+after.Migrated == before.Resumed+before.Migrated {
					return fmt.Errorf("it did not go on over another connection: %+v", after)
				}
				return nil
			})
			t.Logf("%+v", n.helped())
		})
	}
}
