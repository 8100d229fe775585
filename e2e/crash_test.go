package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/e2e/rig"
)

// cutServer is a web server that ends answers by closing (HTTP/1.0), so that only the
// way in which TCP ends tells a whole answer from a part. It prints how each upload
// ended: "upload N: end" or "upload N: reset", with N from the path.
func cutServer(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			in := bufio.NewReader(c)
			line, err := in.ReadString('\n')
			if err != nil { // somebody looked whether it listens
				return
			}
			if strings.HasPrefix(line, "GET") {
				_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n")
				for range 20_000 { // some 20 s
					if _, err := c.Write(make([]byte, 1000)); err != nil {
						return
					}
					time.Sleep(time.Millisecond)
				}
				return
			}
			var number int
			_, _ = fmt.Sscanf(line, "PUT /%d", &number)
			how := "end"
			if _, err := io.Copy(io.Discard, in); errors.Is(err, syscall.ECONNRESET) {
				how = "reset"
			} else if err != nil {
				how = err.Error()
			}
			fmt.Printf("upload %d: %s\n", number, how)
		}()
	}
}

// newCrashNetwork is newNetwork with a cutServer, whose process it returns, and without
// the race detector, with which processes start slowly.
func newCrashNetwork(t *testing.T) (*network, *rig.Process) {
	t.Helper()
	n := &network{Network: rig.New(t, rig.Options{Lab: rig.House(t, "60/60/60")})}
	n.run(nil)
	cut := n.Start("web", os.Args[0], "lab", "cut", ":81")
	rig.Eventually(t, func() error { // the proxy reports a port that is closed
		_, err := n.Run("web", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/81")
		return err
	})
	return n, cut
}

// TestKilledPrimaryResetsApps: a part of an answer never looks like the whole when the
// primary is killed, whatever way the app takes. It may be killed more often within a
// minute than its server lets a device have bonds.
func TestKilledPrimaryResetsApps(t *testing.T) {
	t.Parallel() // it judges neither rates nor times
	n, _ := newCrashNetwork(t)
	curl := []string{"curl", "-gsSfN", "--max-time", "60"}
	by4, by6 := fmt.Sprintf("http://%s:81/", n.web4), fmt.Sprintf("http://[%s]:81/", n.web6)
	ways := [][]string{
		append(curl, "--socks5-hostname", "127.0.0.1:1080", by4),
		append(curl, "--socks5-hostname", "127.0.0.1:1080", by6),
		append(curl, "-0", "-x", "http://127.0.0.1:1080", by4),
		append(curl, "-p", "-x", "http://127.0.0.1:1080", by6),
		append([]string{n.Mpbond, "run", "--"}, append(curl, by4)...),
		append([]string{n.Mpbond, "run", "--"}, append(curl, by6)...),
	}
	for round := range 10 {
		var apps []*transfer
		for _, way := range ways[round%2*3:][:3] {
			apps = append(apps, n.begin(20_000, way...))
		}
		for _, x := range apps {
			<-x.begun
		}
		n.signal("primary", syscall.SIGKILL)
		for _, x := range apps {
			if <-x.done; x.err == nil {
				t.Errorf("round %d: %v took %s for the whole", round, x.cmd.Args, x.got)
			} else if !strings.HasPrefix(x.errs.String(), "curl: (56)") {
				t.Errorf("round %d: %v: %v %s", round, x.cmd.Args, x.err, &x.errs)
			}
		}
		n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
		rig.Eventually(t, func() error {
			up, err := n.Up()
			if err == nil && len(up) == 0 {
				err = errors.New("no subflow is up")
			}
			return err
		})
	}
}

// TestKilledServerResetsUploads: a part of an upload never looks like the whole to the
// web server when the bonding server is killed, or crashes as the Go runtime does.
func TestKilledServerResetsUploads(t *testing.T) {
	t.Parallel() // it judges neither rates nor times
	n, web := newCrashNetwork(t)
	file := filepath.Join(n.Dir, "upload")
	writeNoise(t, file, 20*mb)
	number := 0
	for round := range 4 {
		var apps []*transfer
		began := number
		for i := range 5 {
			at := []string{n.web4, "[" + n.web6 + "]"}[i%2]
			x := n.begin(0, "curl", "-gsSfN", "--max-time", "60", "--limit-rate", "1M", "-H", "Expect:", "--socks5-hostname", "127.0.0.1:1080", "-T", file, fmt.Sprintf("http://%s:81/%d", at, number))
			apps, number = append(apps, x), number+1
		}
		rig.Eventually(t, func() error {
			s, err := n.Status("server", "server")
			for _, b := range s.Bonds {
				for _, p := range b.Paths {
					if p.State == "up" && b.Streams >= 5 && p.RxBytes > 200_000 {
						return err
					}
				}
			}
			return errors.New("the uploads have not begun")
		})
		crashed := n.of("server")
		crashed.End([]os.Signal{syscall.SIGKILL, syscall.SIGABRT}[round%2])
		n.All = slices.DeleteFunc(n.All, func(p *rig.Process) bool { return p == crashed }) // its exit code is that of a crash
		for i := began; i < number; i++ {
			rig.Eventually(t, func() error {
				for line := range strings.Lines(web.Log.String()) {
					if how, ok := strings.CutPrefix(line, fmt.Sprintf("upload %d: ", i)); ok {
						if how != "reset\n" {
							t.Errorf("round %d: upload %d ended with %s", round, i, how)
						}
						return nil
					}
				}
				return fmt.Errorf("upload %d has not ended", i)
			})
		}
		n.startServer()
		for _, x := range apps {
			if <-x.done; x.err == nil {
				t.Errorf("round %d: an upload succeeded", round)
			}
		}
	}
}
