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

// slowLinkRates are those of uploads: what is killed shall be in the middle.
const slowLinkRates = "6/9/40,9/40"

// received is a form that forms took, as its log has it.
type received struct{ Name, SHA256, Key string }

// formServer is a web server that keeps each form that it is sent, and notes it before it
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
		if log, err = os.OpenFile(filepath.Join(f.dir, "received"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
			_, err = log.Write(append(line, '\n')) // in one piece, whoever else writes
			log.Close()
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// receivedForms are the forms that a server has taken, by the name of their file.
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

// putResult is what `mpbond put --json` tells.
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

// upload is files that are sent to a server, and what was heard of them.
type upload struct {
	*network
	args []string          // of `mpbond put`
	sums map[string]string // of the files, by name
	// confirmed are those that a journal said are confirmed when `mpbond put` was killed, and how
	// often the server had taken each then.
	confirmed map[string]int
	// serverHas is what the server has of a file by now, as SHA-256, and how often it took it.
	serverHas func(name string) (sums []string, times int)
}

// newUpload makes files of some sizes, the smallest first.
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

// confirmedFiles are the files that the journal says are confirmed.
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
			if json.Unmarshal(line, &e) == nil && e.Done != "" { // the last one may be half written
				done[filepath.Base(e.Path)] = true
			}
		}
	}
	return done
}

// runAndKill kills `mpbond put` when a part of the files is confirmed, and looks whether the
// server has these.
func (u *upload) runAndKill(part float64) {
	u.Helper()
	r := u.startCommand(u.args...)
	u.waitUntil("the journal", fmt.Sprint("has ", part), func() (bool, error) {
		select {
		case <-r.Done:
			u.Fatalf("it has ended before: %v\n%s", r.Err, &r.Log)
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
	u.Logf("killed when %d of %d were confirmed; %d were before", len(u.confirmed), len(u.sums), before)
	if len(u.confirmed) == len(u.sums) {
		u.Error("nothing was left to be sent")
	}
}

// runToEnd has the last run end, and checks what it tells and what the server has.
func (u *upload) runToEnd() (res putResult, again []string) {
	u.Helper()
	u.waitForResult(u.startCommand(u.args...), &res)
	if len(res.Files) != len(u.sums) || len(res.Failed) > 0 {
		u.Errorf("%d of %d are there, %+v failed", len(res.Files), len(u.sums), res.Failed)
	}
	for _, f := range res.Files {
		name := filepath.Base(f.File)
		got, times := u.serverHas(name)
		u.checkContent(name, got)
		was, known := u.confirmed[name]
		if f.Earlier != known || known && times != was {
			u.Errorf("%s: the journal had it: %v; confirmed by an earlier run: %v; taken %d times, %d by then", name, known, f.Earlier, times, was)
		}
		if times > 1 {
			again = append(again, name)
		}
		if len(got) > 1 && !f.Twice {
			u.Errorf("%s is there %d times, which is not told", name, len(got))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(u.Dir, "primary", "put-*")); len(left) > 0 {
		u.Errorf("left: %v", left)
	}
	return res, again
}

// checkContent checks what the server has of a file.
func (u *upload) checkContent(name string, got []string) {
	u.Helper()
	if len(got) == 0 || strings.Join(got, "") != strings.Repeat(u.sums[name], len(got)) {
		u.Errorf("%s is said to be there: the server has %q instead of %s", name, got, u.sums[name])
	}
}

// maxResent is how many may be sent again after each kill: of each of three devices the
// file under way, and those that wait for the answer to HEAD.
const maxResent = 3 * (1 + 2)

// TestPutKilled: `mpbond put` is killed twice in the middle, and the third run ends it: by
// then the server has each file once, and right, and at each time what was said to be
// there.
func TestPutKilled(t *testing.T) {
	n := newNetwork(t, rig.House(t, slowLinkRates))
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
		t.Errorf("the server has %q", names)
	}
	if t.Logf("sent twice, since nobody was there for the answer: %q", again); len(again) > 2*maxResent {
		t.Error("more than were under way")
	}
	for _, f := range res.Files {
		if f.Proof != "size" {
			t.Errorf("%+v", f)
		}
	}
}

// TestPostKilled: the same with forms. One whose answer was lost may be there twice: that
// is told, and both have the same key.
func TestPostKilled(t *testing.T) {
	n := newNetwork(t, rig.House(t, slowLinkRates))
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
	if t.Logf("taken twice: %q", again); len(again) > 2*maxResent || len(all) != len(u.sums) {
		t.Errorf("%d files, %d of them twice", len(all), len(again))
	}
}
