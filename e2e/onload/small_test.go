// SPDX-License-Identifier: Apache-2.0

package onload

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/e2e/rig"
)

var aria2Rounds = flag.Int("beside", 0, "TestSmallFiles: how often it fetches by each program, also by aria2")

// TestSmallFiles checks that 100 files of 60 KB arrive intact over all links. With -beside it logs
// the times beside those of aria2 over the home link alone, without a bound.
func TestSmallFiles(t *testing.T) {
	programs, aria2 := []string{"get"}, ""
	if *aria2Rounds == 0 {
		t.Parallel()
	} else {
		var err error
		if aria2, err = exec.LookPath("aria2c"); err != nil {
			t.Skip("aria2 is not installed (Debian: aria2)")
		}
		programs = append(programs, "aria2 -j5", "aria2 -j16")
	}
	n := newNetwork(t, rig.Triangle(t, "8/10/120,5/120"))
	n.url = n.startNginx()
	n.startHelper("helper1")
	n.startHelper("helper2")
	const count, size = 100, 60_000
	var names, urls, sums []string
	list, all := filepath.Join(n.Dir, "list"), ""
	for i := range count {
		name := fmt.Sprintf("f%03d", i)
		names, sums = append(names, name), append(sums, n.writeNoise(filepath.Join(n.www, name), size))
		urls = append(urls, n.url+name)
		all += n.url + name + "\n"
	}
	n.writeFile(list, all)
	took := map[string][]time.Duration{}
	for range max(1, *aria2Rounds) {
		for _, program := range programs {
			dir := filepath.Join(n.Dir, "came")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			argv := append([]string{n.Mpbond, "get", "--onload", "--quiet", "--output", dir + "/"}, urls...)
			if at, isAria2 := strings.CutPrefix(program, "aria2 -j"); isAria2 {
				argv = []string{aria2, "-q", "-d", dir, "-i", list, "-j", at}
			}
			begin := time.Now()
			n.Must("primary", argv...)
			took[program] = append(took[program], time.Since(begin))
			for i, name := range names {
				if fileSum(filepath.Join(dir, name)) != sums[i] {
					t.Errorf("%s: %s has the wrong content", program, name)
				}
			}
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, program := range programs {
		slices.Sort(took[program])
		median := took[program][len(took[program])/2].Round(time.Millisecond)
		t.Logf("%-12s median %v of %v", program, median, took[program])
	}
}
