// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"mpbond/core/trace"
)

var digestsFlag = flag.String("digests", "",
	"a file of event digests: TestDigests writes it if it is missing, and compares with it otherwise")

// fewDigests is how many transfers TestDigests runs without -digests.
const fewDigests = 100

// TestDigests guards changes of structure: the events of both ends, with all their fields
// and times, must stay the same for each seed. Write the digests before a change and compare
// after it:
//
//	go test ./core/bond -run '^TestDigests$' -transfers 10000 -digests FILE
//
// Without -digests it checks that a transfer that is run again has the same events, and
// that one with another seed has others.
func TestDigests(t *testing.T) {
	if *digestsFlag == "" {
		all := map[string]uint64{}
		for seed, digest := range digests(fewDigests) {
			if other, ok := all[digest]; ok {
				t.Errorf("seeds %d and %d have the same events", seed, other)
			}
			all[digest] = uint64(seed)
		}
		for seed, digest := range digests(fewDigests) {
			if again, ok := all[digest]; !ok || again != uint64(seed) {
				t.Errorf("seed %d: other events when it is run again", seed)
			}
		}
		return
	}
	got := digests(*transfersFlag)
	want, err := readDigests(*digestsFlag)
	if errors.Is(err, fs.ErrNotExist) {
		if err := writeDigests(*digestsFlag, got); err != nil {
			t.Fatal(err)
		}
		t.Logf("digests of %d transfers written to %s", len(got), *digestsFlag)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	compared, different := min(len(got), len(want)), 0
	for seed := range compared {
		if got[seed] == want[seed] {
			continue
		}
		if different++; different <= mostExplained {
			t.Errorf("seed %d: other events than in %s", seed, *digestsFlag)
		}
	}
	t.Logf("%d transfers compared, %d different", compared, different)
}

// digests returns a digest of the events of each transfer with a seed below n.
func digests(n uint64) []string {
	list := make([]string, n)
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			var l simulation
			for {
				seed := next.Add(1) - 1
				if seed >= n {
					return
				}
				list[seed] = digestOf(&l, seed)
			}
		})
	}
	wg.Wait()
	return list
}

// digestOf runs one transfer and returns the SHA-256 of its events as JSON, and how long
// it took.
func digestOf(l *simulation, seed uint64) string {
	hash := sha256.New()
	enc := json.NewEncoder(hash)
	out := l.run(newScenario(seed), nil, func(n *simNet) {
		for i, b := range n.ends {
			b.trace.sink = func(e trace.Event) {
				_ = enc.Encode(struct {
					End int
					Now int64
					trace.Event
				}{i, n.now.UnixNano(), e}) // a hash takes all
			}
		}
	})
	if out.failed != nil {
		*l = simulation{}
		return fmt.Sprintf("failed after %d events", out.events)
	}
	return fmt.Sprintf("%x %v", hash.Sum(nil), out.took)
}

func writeDigests(name string, list []string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, digest := range list {
		fmt.Fprintln(w, digest)
	}
	return errors.Join(w.Flush(), f.Close())
}

func readDigests(name string) (list []string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		list = append(list, lines.Text())
	}
	return list, lines.Err()
}
