// SPDX-License-Identifier: Apache-2.0

// Package rig is for tests of the whole, and outside the data path: it runs the real
// program, a process for each role, in the nodes of a lab or all on this machine, and
// waits for what they do.
//
//	rig.go      the tests' own binary, and what all tests need
//	plain.go    a web server without lengths, and a relay
//	network.go  nodes and their processes
package rig

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/lab"
)

// Patience bounds every wait: what takes so long has failed.
const Patience = time.Minute

// Race tells that these tests have the race detector.
var Race bool

// filesDir has all files of this process: short, as a socket's path has 108 bytes at most.
var filesDir string

// Main is the TestMain of a package, and ends the process. A lab starts the binary
// that it runs in, here that of the tests, as daemon and guard; tests start it as a
// web server (see serve and servePlain), or as a program of their package: other is given what
// follows "lab".
func Main(m *testing.M, other func(args []string) error) {
	if len(os.Args) > 2 && os.Args[1] == "lab" {
		if err := runProgram(os.Args[2:], other); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	var err error
	if filesDir, err = os.MkdirTemp("", "e2e"); err == nil {
		err = os.Setenv("XDG_RUNTIME_DIR", filesDir) // where labs are
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("os/exec.(*Cmd).Wait"), // of the lab's daemon, for a moment
		goleak.Cleanup(func(code int) { os.RemoveAll(filesDir); os.Exit(code) }))
}

func runProgram(args []string, other func([]string) error) error {
	switch args[0] {
	case "daemon":
		return lab.RunDaemon(os.Stdin, os.Stdout)
	case "guard":
		return lab.RunGuard(os.Stdin, args[1])
	case "web":
		return http.ListenAndServe(args[1], http.HandlerFunc(serveNoise))
	case "plain":
		return servePlain(args[1])
	case "relay":
		return relayPlainly(args[1], args[2])
	}
	if other == nil {
		return fmt.Errorf("unknown program %q", args)
	}
	return other(args)
}

// serveNoise sends as many bytes of noise as the path says, or of zeros, which cost
// nothing, if it begins with zeros/, and answers uploads with what Sum makes of
// them.
func serveNoise(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		got, err := Sum(r.Body)
		if err == nil {
			_, _ = io.WriteString(rw, got)
		}
		return
	}
	if r.URL.Path == "/idle" { // says a little, and then nothing
		_, _ = io.Copy(rw, Noise(1000))
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
		return
	}
	path, cheap := strings.CutPrefix(r.URL.Path[1:], "zeros/")
	n, err := strconv.ParseInt(path, 10, 64)
	if err != nil {
		http.NotFound(rw, r)
		return
	}
	rw.Header().Set("Content-Length", path)
	if r.URL.Query().Has("paced") { // 10 KB each 40 ms: 2 Mbit/s
		for tick := time.NewTicker(40 * time.Millisecond); n > 0; n -= 10_000 {
			<-tick.C
			if _, err := rw.Write(make([]byte, min(n, 10_000))); err != nil {
				return
			}
			_ = http.NewResponseController(rw).Flush()
		}
		return
	}
	if !cheap {
		_, _ = io.Copy(rw, Noise(n))
		return
	}
	for b := make([]byte, 1_000_000); n > 0; n -= int64(len(b)) {
		if _, err := rw.Write(b[:min(n, int64(len(b)))]); err != nil {
			return
		}
	}
}

// Noise is n bytes that are always the same.
func Noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }

// Sum reads to the end: "LENGTH:SHA-256".
func Sum(r io.Reader) (string, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return fmt.Sprintf("%d:%x", n, h.Sum(nil)), err
}

// Eventually asks again and again until f is content.
func Eventually(t testing.TB, f func() error) {
	t.Helper()
	for end := time.Now().Add(Patience); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %v", Patience, err)
		}
	}
}

// Journal keeps what is written to it, by several goroutines too.
type Journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (j *Journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// String is all so far.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Logger writes to it.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

var plainBinary, racedBinary = sync.OnceValues(func() (string, error) { return buildProgram("mpbond", "plain") }),
	sync.OnceValues(func() (string, error) { return buildProgram("mpbond", "raced", "-race") })

// Beside builds another program of this module, cellwatch or mpbond-lab, into the directory
// of the program mpbond, where mpbond-lab looks for it, and returns its path.
func Beside(tb testing.TB, mpbond, name string) string {
	tb.Helper()
	var flags []string
	if filepath.Base(filepath.Dir(mpbond)) == "raced" {
		flags = []string{"-race"}
	}
	path, err := buildProgram(name, filepath.Base(filepath.Dir(mpbond)), flags...)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// buildProgram builds the program name into a directory of dir.
func buildProgram(name, in string, flags ...string) (string, error) {
	path := filepath.Join(filesDir, in, name)
	out, err := exec.Command("go", append(append([]string{"build", "-o", path}, flags...),
		"mpbond/cmd/"+name)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, err
}
