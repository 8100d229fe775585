// SPDX-License-Identifier: Apache-2.0

package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"mpbond/control/fleet"
)

// followers are a watch and a list of the counts below "d" in a store. Another store writes them.
type followers struct {
	*testing.T
	writer *Store
	reader *Store
	watch  *watch
}

func newFollowers(t *testing.T) *followers {
	dir := t.TempDir()
	f := &followers{T: t, writer: open(t, dir), reader: open(t, dir)}
	f.watch = newWatch(f.reader, fleet.UsageCounts)
	return f
}

// put writes a count.
func (f *followers) put(key string) {
	f.Helper()
	if _, err := f.writer.Put(f.Context(), fleet.UsageCounts, key, []byte("1")); err != nil {
		f.Fatal(err)
	}
}

// path returns the path of a file beside the counts.
func (f *followers) path(name string) string {
	return filepath.Join(f.writer.bucketDir(fleet.UsageCounts), name)
}

// edit changes a file by hand.
func (f *followers) edit(name string, edit func(text string) string) {
	f.Helper()
	text, err := os.ReadFile(f.path(name))
	if err == nil {
		err = os.WriteFile(f.path(name), []byte(edit(string(text))), 0o600)
	}
	if err != nil {
		f.Fatal(err)
	}
}

// expect checks which records the watch reports, with "-" before those that are gone, and which the list has.
func (f *followers) expect(changes []string, listed ...string) {
	f.Helper()
	list, err := f.watch.pollChanges()
	if err != nil {
		f.Fatal(err)
	}
	var got []string
	for _, c := range list {
		if c.IsGone {
			c.Key = "-" + c.Key
		}
		got = append(got, c.Key)
	}
	if slices.Sort(got); !slices.Equal(got, changes) {
		f.Errorf("the watch reports %q instead of %q", got, changes)
	}
	records, err := f.reader.ListUnder(f.Context(), fleet.UsageCounts, []string{"d"})
	if err != nil {
		f.Fatal(err)
	}
	got = nil
	for _, r := range records {
		got = append(got, r.Key)
		if now, err := f.writer.Get(f.Context(), fleet.UsageCounts, r.Key); err != nil || now.Revision != r.Revision {
			f.Errorf("%s is listed with revision %d, and has %d: %v", r.Key, r.Revision, now.Revision, err)
		}
	}
	if slices.Sort(got); !slices.Equal(got, listed) {
		f.Errorf("the list has %q instead of %q", got, listed)
	}
}

// scan has the next calls look at all files.
func (f *followers) scan() {
	f.watch.follower.scanned = time.Time{}
	f.reader.indexes[fleet.UsageCounts].follower.scanned = time.Time{}
}

// TestOnlyChangesAreRead checks that after a change only that record is read: files that appear or go without a line in
// the file of changes are noticed when all files are looked at.
func TestOnlyChangesAreRead(t *testing.T) {
	f := newFollowers(t)
	f.put("d.1")
	f.put("d.2")
	f.expect([]string{"d.1", "d.2"}, "d.1", "d.2")
	if err := os.Link(f.path("d.1"), f.path("d.hand")); err != nil {
		t.Fatal(err)
	}
	f.put("d.3")
	f.put("d.2")
	f.expect([]string{"d.2", "d.3"}, "d.1", "d.2", "d.3")
	f.scan()
	f.expect([]string{"d.hand"}, "d.1", "d.2", "d.3", "d.hand")
	if err := os.Remove(f.path("d.hand")); err != nil {
		t.Fatal(err)
	}
	f.scan()
	f.expect([]string{"-d.hand"}, "d.1", "d.2", "d.3")
	f.expect(nil, "d.1", "d.2", "d.3")
	r, err := f.writer.Get(t.Context(), fleet.UsageCounts, "d.1")
	if err == nil {
		err = f.writer.Delete(t.Context(), fleet.UsageCounts, r.Key, r.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.expect([]string{"-d.1"}, "d.2", "d.3")
	f.reader.now = func() time.Time { return time.Now().Add(fleet.UsageLife + time.Hour) }
	f.expect([]string{"-d.2", "-d.3"})
}

// TestLinesAreMissing checks that changes are found whose lines in the file of changes are missing or damaged.
func TestLinesAreMissing(t *testing.T) {
	for name, damage := range map[string]func(text string) string{
		"emptied":       func(string) string { return "" },
		"last is gone":  func(text string) string { return text[:len(text)-len("4 d.44\n")] },
		"first is gone": func(text string) string { return text[len("1 d.1\n2 d.2\n3 d.3\n"):] },
		"torn":          func(text string) string { return text[:len(text)-2] },
		"two in one":    func(text string) string { return text[:len(text)-len("3\n4 d.44\n")] + "4 d.44\n" },
		"zeros":         func(text string) string { return text[:len(text)-3] + "\x00\x00\x00" },
		"another key":   func(text string) string { return text[:len(text)-len("d.44\n")] + "../x\n" },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFollowers(t)
			f.put("d.1")
			f.put("d.2")
			f.expect([]string{"d.1", "d.2"}, "d.1", "d.2")
			f.put("d.3")
			f.put("d.44")
			f.edit(changesFile, damage)
			f.expect([]string{"d.3", "d.44"}, "d.1", "d.2", "d.3", "d.44")
			f.put("d.5")
			f.expect([]string{"d.5"}, "d.1", "d.2", "d.3", "d.44", "d.5")
		})
	}
	t.Run("older revision", func(t *testing.T) { // of a backup
		f := newFollowers(t)
		f.put("d.1")
		f.put("d.2")
		f.expect([]string{"d.1", "d.2"}, "d.1", "d.2")
		f.edit(revisionFile, func(string) string { return "1" })
		if err := os.Remove(f.path("d.2")); err != nil {
			t.Fatal(err)
		}
		f.expect([]string{"-d.2"}, "d.1")
	})
}

// TestChangesAreBounded checks that the file of changes does not grow without end, and that nobody misses a change when
// it is emptied.
func TestChangesAreBounded(t *testing.T) {
	f := newFollowers(t)
	f.put("d.1")
	f.expect([]string{"d.1"}, "d.1")
	f.edit(changesFile, func(text string) string {
		for len(text) <= maxChangesFile {
			text = fmt.Sprintf("0 %0100d\n", 0) + text
		}
		return text
	})
	f.put("d.2")
	if st, err := os.Stat(f.path(changesFile)); err != nil || st.Size() != int64(len("2 d.2\n")) {
		t.Errorf("the file of changes was not emptied: %v", err)
	}
	f.put("d.3")
	f.expect([]string{"d.2", "d.3"}, "d.1", "d.2", "d.3")
}
