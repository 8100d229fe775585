// SPDX-License-Identifier: Apache-2.0

// Package rig runs the real program for end-to-end tests: one process for each role, in the nodes
// of a lab or all on this machine. It also waits for what they do.
//
//	rig.go      the test binary as a program, and helpers for all tests
//	plain.go    a web server without lengths, and a relay
//	network.go  nodes and their processes
//	memory.go   a limit of memory
//	samples.go  IQ samples of a mobile cell
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

	"mpbond/base/waittest"
	"mpbond/lab"
)

// Patience bounds waits for events. A wait that takes longer has failed.
const Patience = time.Minute

// Race reports whether these tests run with the race detector.
var Race bool

// filesDir holds all files of this process. It is short because a Unix socket's path is limited to
// 108 bytes.
var filesDir string

// Main is the TestMain of a package and ends the process. Without the race detector, a lab starts
// the running binary, here that of the tests, as daemon and guard. Tests start it as a web server
// (see serveNoise and servePlain) or as a program of their package: other receives the arguments
// after "lab".
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
		err = os.Setenv("XDG_RUNTIME_DIR", filesDir) // labs keep their files there
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("os/exec.(*Cmd).Wait"), // the lab's daemon, for a moment
		goleak.Cleanup(func(code int) { os.RemoveAll(filesDir); os.Exit(code) }))
}

// runProgram runs a program of the test binary. Unknown ones go to other.
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

// serveNoise answers a GET of /N with N bytes of noise, and of /zeros/N with N zeros, which cost no
// CPU time. It answers an upload with Sum of its body.
func serveNoise(rw http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		got, err := Sum(r.Body)
		if err == nil {
			_, _ = io.WriteString(rw, got)
		}
		return
	}
	if r.URL.Path == "/idle" { // sends 1000 bytes and then nothing
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
	if r.URL.Query().Has("paced") { // 10 KB every 40 ms: 2 Mbit/s
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

// Noise returns n pseudo-random bytes, the same at each call.
func Noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{7}), n) }

// Sum reads to the end and returns "LENGTH:SHA-256".
func Sum(r io.Reader) (string, error) {
	h := sha256.New()
	n, err := io.Copy(h, r)
	return fmt.Sprintf("%d:%x", n, h.Sum(nil)), err
}

// Eventually calls f until it returns nil.
func Eventually(t testing.TB, f func() error) {
	t.Helper()
	waittest.UntilSuccess(t, f)
}

// Journal stores what is written to it. It is safe for concurrent use.
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

// String returns all that has been written.
func (j *Journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// Logger returns a logger that writes to the journal at debug level.
func (j *Journal) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// The directories below filesDir for programs with and without the race detector.
const plainDir, racedDir = "plain", "raced"

// Beside builds another program of this module, cellwatch or mpbond-lab, into the directory of the
// program mpbond, where mpbond-lab looks for it. It returns its path.
func Beside(tb testing.TB, mpbond, name string) string {
	tb.Helper()
	path, err := buildProgram(name, filepath.Base(filepath.Dir(mpbond)))
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// builds has a function for each path of a program, which builds it once.
var builds sync.Map

// buildProgram builds a program into the directory in, unless it is there, and returns its path.
func buildProgram(name, in string) (string, error) {
	path := filepath.Join(filesDir, in, name)
	build, _ := builds.LoadOrStore(path, sync.OnceValue(func() error {
		args := []string{"build", "-o", path}
		if in == racedDir {
			args = append(args, "-race")
		}
		out, err := exec.Command("go", append(args, "mpbond/cmd/"+name)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("go build: %w\n%s", err, out)
		}
		return err
	}))
	return path, build.(func() error)()
}
