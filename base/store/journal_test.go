// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type row struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

// state is the content of a journal, as its user keeps it.
type state map[string]int

func (s state) take(line []byte) error {
	var r row
	if err := json.Unmarshal(line, &r); err != nil {
		return err
	}
	s[r.Key] = r.N
	return nil
}

func openTestJournal(t *testing.T, path string) (*Journal, state, error) {
	t.Helper()
	s := state{}
	j, damage, err := Open(path, 0, s.take)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, s, damage
}

func checkState(t *testing.T, got, want state) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "x.jsonl")
	j, s, damage := openTestJournal(t, path)
	checkState(t, s, state{})
	for n := range 3 {
		if err := j.Append(row{"a", n}, row{fmt.Sprint("b", n), n}); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 || damage != nil {
		t.Errorf("%v, %v, %v", st, err, damage)
	}
	if _, _, err := Open(path, 0, s.take); !fault.Is(err, fault.AlreadyRunning) {
		t.Errorf("a second one: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, s, _ = openTestJournal(t, path)
	checkState(t, s, state{"a": 2, "b0": 0, "b1": 1, "b2": 2})
	if err := j.Rewrite(row{"a", 7}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(path, 0, s.take); !fault.Is(err, fault.AlreadyRunning) {
		t.Errorf("a second one, after it was replaced: %v", err)
	}
	if err := j.Append(row{"c", 1}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	_, s, _ = openTestJournal(t, path)
	checkState(t, s, state{"a": 7, "c": 1})
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("files: %v", left)
	}
}

// TestLockIsAwaited checks that Open waits for a process that holds the file briefly, possibly
// replacing it, and then reads what that process wrote.
func TestLockIsAwaited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	for n := range 5 {
		j, s, _ := openTestJournal(t, path)
		if n > 0 {
			checkState(t, s, state{"a": n - 1})
		}
		opened := make(chan *Journal)
		s = state{}
		go func() {
			next, _, err := Open(path, time.Hour, s.take)
			if err != nil {
				t.Error(err)
			}
			opened <- next
		}()
		if err := j.Rewrite(row{"a", n}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		next := <-opened
		if next == nil {
			t.FailNow()
		}
		checkState(t, s, state{"a": n})
		next.Close()
	}
}

// TestCutAnywhere checks that a file truncated at any byte, as by a process killed while writing,
// yields every complete line without damage.
func TestCutAnywhere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	j, _, _ := openTestJournal(t, path)
	for n := range 4 {
		if err := j.Append(row{"a", n + 1}); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) + 1 {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		j, s, damage := openTestJournal(t, path)
		want := strings.Count(string(whole[:n]), "\n")
		if n < len(whole) && whole[n] == '\n' {
			want++ // except for its end
		}
		if damage != nil || s["a"] != want {
			t.Fatalf("cut at %d: %v, %v", n, s, damage)
		}
		if err := j.Append(row{"b", 1}); err != nil {
			t.Fatal(err)
		}
		j.Close()
		after := state{}
		j, damage, err = Open(path, 0, after.take)
		if err != nil || damage != nil || after["b"] != 1 || after["a"] != want {
			t.Fatalf("cut at %d: what was written then is lost: %v, %v, %v", n, after, damage, err)
		}
		j.Close()
	}
}

func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	const text = `{"key":"a","n":1}` + "\n\x00\x00\x00\n" + `{"key":"b","n":"x"}` + "\n" + `{"key":"c","n":3}` + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, s, damage := openTestJournal(t, path)
	checkState(t, s, state{"a": 1, "c": 3})
	if damage == nil || !strings.Contains(damage.Error(), "2 lines") || !strings.Contains(damage.Error(), path+".bad") {
		t.Errorf("%v", damage)
	}
	if kept, err := os.ReadFile(path + ".bad"); err != nil || string(kept) != text {
		t.Errorf("kept %q, %v", kept, err)
	}
}

// TestLong checks that a rewrite is due when the file has doubled, not when its valid content is
// large.
func TestLong(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	j, _, _ := openTestJournal(t, path)
	some := func(n unit.Bytes) (lines []any) {
		for each := unit.Bytes(1000); n > 0; n -= each {
			lines = append(lines, row{strings.Repeat("x", int(each)), 1})
		}
		return lines
	}
	step := func(what string, err error, want bool) {
		t.Helper()
		if err != nil || j.NeedsRewrite() != want {
			t.Errorf("%s: long is %v at %d, %v; want %v", what, j.NeedsRewrite(), j.size, err, want)
		}
	}
	step("a little", j.Append(some(minRewriteSize/2)...), false)
	step("more", j.Append(some(minRewriteSize/2)...), true)
	step("rewritten to much", j.Rewrite(some(2*minRewriteSize)...), false)
	step("a line", j.Append(row{"a", 1}), false)
	step("nearly as much again", j.Append(some(2*minRewriteSize-20*unit.KB)...), false)
	step("as much again", j.Append(some(200*unit.KB)...), true)
	step("rewritten to little", j.Rewrite(some(unit.KB)...), false)
	step("more than that", j.Append(some(10*unit.KB)...), false)
	// otherwise it would outgrow what Open reads
	j.rewrittenSize, j.size = int64(maxFile)/2+1, int64(maxFile-minRewriteSize)+1
	step("more than can be read soon", nil, true)
}

// TestFullDisk checks that a failed write can be repeated later, and that a partial line does not
// count.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no device here that is always full:", err)
	}
	defer full.Close()
	path := filepath.Join(t.TempDir(), "x.jsonl")
	j, _, _ := openTestJournal(t, path)
	if err := j.Append(row{"a", 1}); err != nil {
		t.Fatal(err)
	}
	disk := j.file
	j.file = full
	if err := j.Append(row{"a", 2}); !fault.Is(err, fault.Limit) || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	j.file = disk
	if _, err := disk.WriteString(`{"key":"a","n"`); err != nil { // the part that fits on a full disk
		t.Fatal(err)
	}
	j.truncateTo(j.size)
	if err := j.Append(row{"a", 3}); err != nil {
		t.Fatal(err)
	}
	j.Close()
	_, s, damage := openTestJournal(t, path)
	checkState(t, s, state{"a": 3})
	if damage != nil {
		t.Error(damage)
	}
}

func FuzzOpen(f *testing.F) {
	for _, seed := range []string{"", "\n", `{"key":"a","n":1}` + "\n", `{"key":"a`, "\x00\x00\n{}\n", "null\n[]\n",
		"\v"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, _, err := Open(path, 0, state{}.take)
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append(row{"z", 9}); err != nil {
			t.Fatal(err)
		}
		s := state{}
		j.Close()
		j, _, err = Open(path, 0, s.take)
		if err != nil || s["z"] != 9 {
			t.Fatalf("%v, %v", s, err)
		}
		j.Close()
	})
}
