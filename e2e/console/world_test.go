// Package console tests the web console: the real program on loopback, one process
// for each role, and a real browser without a screen.
package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
)

// patience bounds every wait: what takes so long hangs.
const patience = time.Minute

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

// build makes the program, once for all tests, in built.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "mpbond")
	out, err := exec.Command("go", "build", "-o", path, "mpbond/cmd/mpbond").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, err
})

var built string

func TestMain(m *testing.M) {
	var err error
	if built, err = os.MkdirTemp("", "mpbond"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// world is the real program on loopback: each device has a directory of its own
// for keys and sockets.
type world struct {
	testing.TB
	mpbond, dir string
	proxy       string // of the primary
	origin      *httptest.Server
}

// process is a role that runs.
type process struct {
	*world
	name string
	cmd  *exec.Cmd
	log  journal
	done chan struct{}
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "con") // short: a socket's path has 108 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &world{TB: t, dir: dir}
	if w.mpbond, err = build(); err != nil {
		t.Fatal(err)
	}
	w.origin = httptest.NewServer(http.HandlerFunc(endless))
	t.Cleanup(w.origin.Close)
	return w
}

// endless sends bytes until nobody wants them, some MB a second.
func endless(w http.ResponseWriter, r *http.Request) {
	piece := make([]byte, 20_000)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := w.Write(piece); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// freePort is one that nobody has, for now.
func (w *world) freePort() string {
	w.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// config writes a device's configuration file.
func (w *world) config(device, role, text string) {
	w.Helper()
	home := filepath.Join(w.dir, device)
	if err := os.MkdirAll(home, 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, role+".toml"), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *world) command(device string, args ...string) *exec.Cmd {
	cmd := exec.Command(w.mpbond, args...)
	cmd.Env = append(os.Environ(), "MPBOND_HOME="+filepath.Join(w.dir, device))
	return cmd
}

// start starts a role of a device, which ends with the test.
func (w *world) start(device string, args ...string) *process {
	w.Helper()
	p := &process{world: w, name: device, cmd: w.command(device, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	if err := p.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() { _ = p.cmd.Wait(); close(p.done) }()
	w.Cleanup(func() {
		p.stop()
		if w.Failed() {
			w.Logf("-- %s:\n%s", p.name, &p.log)
		}
	})
	return p
}

// stop ends a role in order, if it has not ended.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.Errorf("%s does not end", p.name)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// eventually asks again until f is content.
func (w *world) eventually(f func() error) {
	w.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
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
			w.Fatalf("not within %v: %v", patience, err)
		}
	}
}

// json runs a command of a device until it works, and reads what it prints.
func (w *world) json(into any, device string, args ...string) {
	w.Helper()
	w.eventually(func() error {
		var errs bytes.Buffer
		cmd := w.command(device, append(args, "--json")...)
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, &errs)
		}
		return json.Unmarshal(out, into)
	})
}

// console is the address of a device's console, with the token.
func (w *world) console(device string) string {
	w.Helper()
	var at struct{ URL string }
	w.json(&at, device, "console")
	return at.URL
}

// house starts a server and a helper, and a primary that knows the server only.
// Each byte goes over each subflow, so that all carry something.
func (w *world) house() (helper *process) {
	w.Helper()
	w.start("server", "server", "--listen", w.freePort(), "--allow", "127.0.0.0/8", "--api", "127.0.0.1:0")
	w.config("helper", "helper", "pair = "+strconv.Quote(w.freePort())+"\n")
	helper = w.start("helper", "helper", "--name", "phone", "--api", "127.0.0.1:0")
	w.proxy = w.freePort()
	w.config("primary", "primary", "transparent = 0\nproxy = "+strconv.Quote(w.proxy)+"\npipe = "+strconv.Quote(w.freePort())+"\n")
	// Loopback costs nobody anything and is not counted: this is of before.
	used := fmt.Sprintf("{\"day\":%q,\"link\":\"wlan0\",\"purpose\":\"direct\",\"down\":123456789,\"up\":44}\n", time.Now().Format(time.DateOnly))
	if err := os.WriteFile(filepath.Join(w.dir, "primary", "usage-primary.jsonl"), []byte(used), 0o600); err != nil {
		w.Fatal(err)
	}
	var code api.Invitation
	w.json(&code, "server", "accept", "--wait=false")
	if out, err := w.command("primary", "pair", "--name", "laptop", code.Code).CombinedOutput(); err != nil {
		w.Fatalf("pair: %v: %s", err, out)
	}
	w.start("primary", "primary", "--name", "laptop", "--api", "127.0.0.1:0", "--redundant", "port:"+w.origin.URL[len("http://127.0.0.1:"):])
	return helper
}

// app is one that uses the primary's proxy, each connection once.
func (w *world) app() *http.Client {
	w.Helper()
	proxy, err := url.Parse("http://" + w.proxy)
	if err != nil {
		w.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return proxy, nil }, DisableKeepAlives: true}}
}

// fetch is the status of an app's request.
func (w *world) fetch(from string) int {
	w.Helper()
	answer, err := w.app().Get(from)
	if err != nil {
		w.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// download has an app receive from the origin until the test ends.
func (w *world) download() {
	w.Helper()
	answer, err := w.app().Get(w.origin.URL)
	if err != nil {
		w.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, answer.Body); close(ended) }()
	w.Cleanup(func() { answer.Body.Close(); <-ended })
}
