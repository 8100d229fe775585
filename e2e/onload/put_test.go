// SPDX-License-Identifier: Apache-2.0

package onload

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/e2e/rig"
)

// slowLinkRates are slow enough that kills hit the middle of an upload.
const slowLinkRates = "6/9/40,9/40"

// received is a form that formServer accepted, as a line of its log.
type received struct{ Name, SHA256, Key string }

// formServer is a web server that hashes each form that it receives, and logs it before it
// answers.
type formServer struct{ dir string }

func (f formServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	file, h, err := r.FormFile("photo")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer file.Close()
	sum := sha256.New()
	if _, err = io.Copy(sum, file); err == nil {
		line, _ := json.Marshal(received{h.Filename, fmt.Sprintf("%x", sum.Sum(nil)), r.Header.Get("Idempotency-Key")})
		var log *os.File
		const flags = os.O_CREATE | os.O_APPEND | os.O_WRONLY
		if log, err = os.OpenFile(filepath.Join(f.dir, "received"), flags, 0o600); err == nil {
			_, err = log.Write(append(line, '\n')) // one write, so that concurrent lines do not mix
			log.Close()
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// receivedForms returns the forms that a server has logged, by file name.
func receivedForms(n *network, dir string) map[string][]received {
	n.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "received"))
	if err != nil {
		n.Fatal(err)
	}
	all := map[string][]received{}
	for line := range bytes.Lines(text) {
		var r received
		if err := json.Unmarshal(line, &r); err != nil {
			n.Fatal(err)
		}
		all[r.Name] = append(all[r.Name], r)
	}
	return all
}

// putResult is the output of `mpbond put --json`.
type putResult struct {
	Files []struct {
		File    string
		Proof   string
		Earlier bool
		Twice   bool `json:"maybe_duplicate"`
	}
	Failed        []struct{ File, Error string }
	Bytes, Wasted int64
	Devices       []deviceShare
}

// upload is a set of files to send to a server, and what earlier runs confirmed.
type upload struct {
	*network
	args []string          // arguments for mpbond
	sums map[string]string // SHA-256 of the files, by name
	// confirmed has the files that the journal listed as confirmed when `mpbond put` was killed,
	// and how often the server had received each at that time.
	confirmed map[string]int
	// serverHas returns the SHA-256 of the server's copies of a file, and how often it received
	// the file.
	serverHas func(name string) (sums []string, times int)
}

// newUpload creates files of increasing size.
func newUpload(n *network, files int, args ...string) *upload {
	n.Helper()
	u := &upload{network: n, sums: map[string]string{}, confirmed: map[string]int{}}
	dir := filepath.Join(n.Dir, "photos")
	u.args = append([]string{"put", "--json"}, args...)
	for i := range files {
		name := fmt.Sprintf("%02d.jpg", i)
		u.sums[name] = n.writeNoise(filepath.Join(dir, name), int64(i*mb/20))
		u.args = append(u.args, filepath.Join(dir, name))
	}
	return u
}

// confirmedFiles returns the files that the journal lists as confirmed.
func (u *upload) confirmedFiles() map[string]bool {
	u.Helper()
	done := map[string]bool{}
	logs, err := filepath.Glob(filepath.Join(u.Dir, "primary", "put-*.jsonl"))
	if err != nil {
		u.Fatal(err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			u.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var e struct{ Path, Done string }
			if json.Unmarshal(line, &e) == nil && e.Done != "" { // the last line may be incomplete
				done[filepath.Base(e.Path)] = true
			}
		}
	}
	return done
}

// runAndKill runs `mpbond put`, kills it when a part of the files is confirmed, and checks that the
// server has the confirmed ones.
func (u *upload) runAndKill(part float64) {
	u.Helper()
	r := u.startCommand(u.args...)
	u.waitUntil("the journal", fmt.Sprint("has ", part), func() (bool, error) {
		select {
		case <-r.Done:
			u.Fatalf("mpbond put ended early: %v\n%s", r.Err, &r.Log)
		default:
		}
		return float64(len(u.confirmedFiles())) >= part*float64(len(u.sums)), nil
	})
	u.killProcess(r.Process)
	before := len(u.confirmed)
	for name := range u.confirmedFiles() {
		got, times := u.serverHas(name)
		u.checkContent(name, got)
		if _, known := u.confirmed[name]; !known {
			u.confirmed[name] = times
		}
	}
	u.Logf("killed when %d of %d files were confirmed, %d of them before this run",
		len(u.confirmed), len(u.sums), before)
	if len(u.confirmed) == len(u.sums) {
		u.Error("no file was left to send")
	}
}

// runToEnd runs `mpbond put` to the end and checks its result and the server's files. It returns
// the files that the server received more than once.
func (u *upload) runToEnd() (res putResult, again []string) {
	u.Helper()
	u.waitForResult(u.startCommand(u.args...), &res)
	if len(res.Files) != len(u.sums) || len(res.Failed) > 0 {
		u.Errorf("%d of %d files are confirmed, %+v failed", len(res.Files), len(u.sums), res.Failed)
	}
	for _, f := range res.Files {
		name := filepath.Base(f.File)
		got, times := u.serverHas(name)
		u.checkContent(name, got)
		was, known := u.confirmed[name]
		if f.Earlier != known || known && times != was {
			u.Errorf("%s: in the journal: %v; confirmed by an earlier run: %v; received %d times, %d at the kill",
				name, known, f.Earlier, times, was)
		}
		if times > 1 {
			again = append(again, name)
		}
		if len(got) > 1 && !f.Twice {
			u.Errorf("%s exists %d times, but is not reported as a possible duplicate", name, len(got))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(u.Dir, "primary", "put-*")); len(left) > 0 {
		u.Errorf("journals left behind: %v", left)
	}
	return res, again
}

// checkContent checks the server's copies of a file.
func (u *upload) checkContent(name string, got []string) {
	u.Helper()
	if len(got) == 0 || strings.Join(got, "") != strings.Repeat(u.sums[name], len(got)) {
		u.Errorf("%s is confirmed, but the server has %q, want %s", name, got, u.sums[name])
	}
}

// maxResent is the most files that may be sent again after a kill: for each of three devices, the
// file under way and those that wait for the answer to HEAD.
const maxResent = 3 * (1 + 2)

// TestPutKilled kills `mpbond put` twice half-way; a third run completes the upload. At each kill
// the server must have every confirmed file. At the end it must have each file once, and intact.
func TestPutKilled(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rig.Triangle(t, slowLinkRates))
	url := n.startNginx() + "photos/"
	n.startHelper("helper1")
	n.startHelper("helper2")
	u := newUpload(n, 16, "--to", url)
	u.serverHas = func(name string) (sums []string, times int) {
		file := filepath.Join(n.www, "photos", name)
		if _, err := os.Stat(file); err == nil {
			sums = []string{fileSum(file)}
		}
		return sums, n.countAnswers("PUT", "201", "204")["/photos/"+name]
	}
	u.runAndKill(.25)
	u.runAndKill(.6)
	res, again := u.runToEnd()
	names, _ := filepath.Glob(filepath.Join(n.www, "photos", "*"))
	if len(names) != len(u.sums) {
		t.Errorf("the server has %q, want each file once", names)
	}
	t.Logf("sent twice because the answer was lost: %q", again)
	if len(again) > 2*maxResent {
		t.Error("more files were sent twice than were under way")
	}
	for _, f := range res.Files {
		if f.Proof != "size" {
			t.Errorf("proof of a file, want size: %+v", f)
		}
	}
}

// TestPostKilled is the same test with forms. A form whose answer was lost may exist twice. That
// must be reported, and both copies must have the same idempotency key.
func TestPostKilled(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rig.Triangle(t, slowLinkRates))
	dir := filepath.Join(n.Dir, "forms")
	n.writeFile(filepath.Join(dir, "received"), "")
	url := n.startWebServer(os.Args[0], "lab", "forms", dir)
	n.startHelper("helper1")
	n.startHelper("helper2")
	u := newUpload(n, 16, "--method", "post", "--field", "photo", "--to", url)
	u.serverHas = func(name string) (sums []string, times int) {
		for _, r := range receivedForms(n, dir)[name] {
			sums = append(sums, r.SHA256)
		}
		return sums, len(sums)
	}
	u.runAndKill(.25)
	u.runAndKill(.6)
	_, again := u.runToEnd()
	all := receivedForms(n, dir)
	for _, name := range again {
		for _, r := range all[name] {
			if r.Key == "" || r.Key != all[name][0].Key {
				t.Errorf("%s: %+v", name, all[name])
			}
		}
	}
	t.Logf("received twice: %q", again)
	if len(again) > 2*maxResent || len(all) != len(u.sums) {
		t.Errorf("the server received %d files, %d of them twice", len(all), len(again))
	}
}
