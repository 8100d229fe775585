// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"strings"
	"testing"
)

// A page says once that its figures are old, before its tables, and no longer when they are new.
func TestMarkAge(t *testing.T) {
	ages := map[string]int{"abc1234": 84, "def5678": 50}
	count := func(version string) (int, bool) { n, ok := ages[version]; return n, ok }
	const page = "# Page\n\n" + DocumentBegin + "\n| x |\n\nmpbond def5678, seed 1\nmpbond abc1234 (x), seed 1\n" +
		DocumentEnd + "\n"
	marked := MarkAge(page, count)
	line := "**These figures are from an older version (abc1234)** and may be wrong now. " + ageMark + "\n"
	if marked != strings.Replace(page, DocumentBegin, line+DocumentBegin, 1) {
		t.Errorf("%s", marked)
	}
	if again := MarkAge(marked, count); again != marked {
		t.Errorf("marked twice: %s", again)
	}
	ages["abc1234"] = 50
	if got := MarkAge(marked, count); got != page {
		t.Errorf("new figures: %s", got)
	}
	for _, same := range []string{"no figures\n", marked[:20] + "mpbond 0000000, seed 1\n"} {
		if got := MarkAge(same, count); got != same {
			t.Errorf("%q became %q", same, got)
		}
	}
	ages["abc1234"] = 84
	const plain = "text\n\nmpbond abc1234, full form\n"
	if got := MarkAge(plain, count); got != "text\n\n"+line+"mpbond abc1234, full form\n" {
		t.Errorf("%s", got)
	}
}

// Reports say which figures are old.
func TestAges(t *testing.T) {
	all := []Evaluation{{Stamp: Stamp{Version: "old"}}, {Stamp: Stamp{Version: "new"}}, {Stamp: Stamp{Version: "dev"}}}
	AddAges(all, func(version string) (int, bool) {
		n, ok := map[string]int{"old": 51, "new": 50}[version]
		return n, ok
	})
	for i, want := range []string{"mpbond old (OLD: 51 commits have changed the core since), seed 0", "mpbond new, seed 0",
		"mpbond dev, seed 0"} {
		if got := all[i].Provenance(); !strings.HasPrefix(got, want) {
			t.Errorf("%s", got)
		}
	}
	for _, bad := range []string{"", "--all", "no such version", "00000000000000000000"} {
		if n, ok := CoreCommits(t.Context(), bad); ok {
			t.Errorf("%q: %d", bad, n)
		}
	}
}
