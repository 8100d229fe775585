// Package pair tests how three devices that know nothing of each other become a
// bond: codes, finding each other, and being cut off again. The real program
// runs in the lab, one process for each command that a person types.
package pair

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/api"
	"mpbond/lab"
)

const (
	mb       = 1_000_000
	patience = 30 * time.Second // bounds every wait: what takes so long has failed
)

// The lab starts its own binary as daemon and guard; in tests that is the test
// binary. It is the web server of the lab too.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		if err := program(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/exec.(*Cmd).Wait")) // of the lab's daemon, for a moment
}

func program(args []string) error {
	switch args[0] {
	case "daemon":
		return lab.Daemon(os.Stdin, os.Stdout)
	case "guard":
		return lab.Guard(os.Stdin, args[1])
	case "web":
		return http.ListenAndServe(args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n, err := strconv.ParseInt(r.URL.Path[1:], 10, 64)
			if err != nil {
				http.NotFound(w, r)
				return
			}
			_, _ = io.Copy(w, noise(n))
		}))
	}
	return fmt.Errorf("unknown program %q", args)
}

// noise is n bytes that are always the same.
func noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }

// journal keeps what a process prints.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// process is one that runs in a node until it is ended, or the test is.
type process struct {
	t    testing.TB
	node string
	cmd  *exec.Cmd
	done chan struct{}
	log  journal
	err  error // once done is closed
}

// network is a house with the real program, and no key in it yet.
type network struct {
	testing.TB
	l      *lab.Lab
	mpbond string
	dir    string // of keys and sockets
	all    []*process
}

func newNetwork(t testing.TB, house string) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: `mpbond run` sets up redirection")
	}
	for _, p := range []string{"ip", "nft", "curl", "nsenter"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	topology, err := lab.House(house)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pair") // short: a socket's path has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
	n := &network{TB: t, mpbond: filepath.Join(t.TempDir(), "mpbond"), dir: dir}
	if out, err := exec.Command("go", "build", "-o", n.mpbond, "mpbond/cmd/mpbond").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if n.l, err = lab.Up(topology, lab.Options{Name: "pair", Tied: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.down)
	n.start("web", os.Args[0], "lab", "web", ":80")
	return n
}

// down ends everything.
func (n *network) down() {
	n.Helper()
	for _, p := range n.all {
		p.stop()
		if n.Failed() {
			n.Errorf("-- %s:\n%s", p.node, &p.log)
		}
	}
	if err := n.l.Down(); err != nil {
		n.Error(err)
	}
}

// command prepares a program in a node.
func (n *network) command(node string, argv ...string) *exec.Cmd {
	n.Helper()
	cmd, err := n.l.Command(context.Background(), node, argv...)
	if err != nil {
		n.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "MPBOND_HOME="+filepath.Join(n.dir, node))
	return cmd
}

// start starts a program that runs on.
func (n *network) start(node string, argv ...string) *process {
	n.Helper()
	p := &process{t: n.TB, node: node, cmd: n.command(node, argv...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		n.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	n.all = append(n.all, p)
	return p
}

// stop ends a process in order and waits for it; it may have ended.
func (p *process) stop() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Errorf("%s does not end", p.cmd)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) && exit.ExitCode() > 0 {
		p.t.Errorf("%s: %v", p.cmd, p.err)
	}
}

// run runs a program in a node to its end.
func (n *network) run(node string, argv ...string) (string, error) {
	n.Helper()
	cmd := n.command(node, argv...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, &errs)
	}
	return string(out), err
}

func (n *network) must(node string, argv ...string) string {
	n.Helper()
	out, err := n.run(node, argv...)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// json runs mpbond in a node and decodes what it prints.
func (n *network) json(into any, node string, argv ...string) {
	n.Helper()
	if err := json.Unmarshal([]byte(n.must(node, append([]string{n.mpbond}, argv...)...)), into); err != nil {
		n.Fatal(err)
	}
}

// eventually asks again and again until f is content.
func (n *network) eventually(f func() error) {
	n.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			n.Fatalf("not within %v: %v", patience, err)
		}
	}
}

// paths are the primary's subflows that are up.
func (n *network) paths() (up []api.Path, err error) {
	var s api.Status
	out, err := n.run("primary", n.mpbond, "status", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		return nil, err
	}
	for _, b := range s.Bonds {
		for _, p := range b.Paths {
			if p.State == api.Up {
				up = append(up, p)
			}
		}
	}
	return up, nil
}

// await waits until just so many subflows are up.
func (n *network) await(want int) {
	n.Helper()
	n.eventually(func() error {
		up, err := n.paths()
		if err == nil && len(up) != want {
			err = fmt.Errorf("%d subflows are up: %+v", len(up), up)
		}
		return err
	})
}

var shownCode = regexp.MustCompile(`mpbond pair (\S+)`)

// code waits until a process has shown one.
func (n *network) code(p *process) (code string) {
	n.Helper()
	n.eventually(func() error {
		m := shownCode.FindStringSubmatch(p.log.String())
		if m == nil {
			return fmt.Errorf("%s shows no code:\n%s", p.node, &p.log)
		}
		code = m[1]
		return nil
	})
	return code
}

// secret is a code without the address: its device is to be found.
func secret(code string) string { s, _, _ := strings.Cut(code, "@"); return s }

// download has an app on the primary get n bytes, and checks them.
func (n *network) download(size int64) {
	n.Helper()
	out := n.must("primary", n.mpbond, "run", "--", "curl", "-sSf", "--max-time", "20", fmt.Sprintf("http://web/%d", size))
	want, _ := io.ReadAll(noise(size))
	if out != string(want) {
		n.Errorf("%d bytes came, or other ones", len(out))
	}
}

// carried is how many bytes a shaped link has delivered.
func (n *network) carried(link string) (sum int64) {
	n.Helper()
	s, err := n.l.Stats(false)
	if err != nil {
		n.Fatal(err)
	}
	for _, line := range s.Link(link).Lines {
		sum += int64(line.Count.Delivered.Bytes)
	}
	return sum
}

// readdress takes all addresses of a link from a node, and gives it another one.
func (n *network) readdress(node, link string) (next string) {
	n.Helper()
	old, err := n.l.Topology.Addr(node, link)
	if err != nil {
		n.Fatal(err)
	}
	b := old.As4()
	next = fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3]+20)
	n.must(node, "ip", "-4", "addr", "flush", "dev", link)
	n.must(node, "ip", "-6", "addr", "flush", "dev", link, "scope", "global")
	n.must(node, "ip", "addr", "add", next+"/24", "dev", link)
	return next
}
