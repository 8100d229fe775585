// SPDX-License-Identifier: Apache-2.0

package onload

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"mpbond/e2e/rig"
)

var long = flag.Bool("long", false, "TestGetKilled fetches 1 GB, as fast as the lines are: 3 minutes")

// lines are the rates of the home line and of two helpers with their pipes, in Mbit/s:
// ratesSum in all.
const (
	linkRates = "24/36/120,36/120"
	ratesSum  = 96e6
)

// getResult is what `mpbond get --onload --json` tells.
type getResult struct {
	Objects []struct {
		Bytes, Resumed int64
		SHA256         string
	}
	Bytes, Wasted int64
	Seconds       float64
	Devices       []deviceShare
}

// TestGetKilled: what comes over three lines is right, whoever is killed meanwhile: a
// helper twice, which carries again each time; and `mpbond get` itself, which goes on
// from its journal.
func TestGetKilled(t *testing.T) {
	n := newNetwork(t, rig.House(t, linkRates))
	n.url = n.startNginx()
	n.startHelper("helper1")
	n.startHelper("helper2")
	big := n.addObject("big", 40*mb)
	if *long {
		big = n.addObject("big", 1000*mb)
	}
	n.checkHelperKilled(big)
	n.checkGetKilled(n.addObject("small", 32*mb))
}

// object is one that nginx has, and the file that it is fetched to.
type object struct {
	name, file, sum string
	size            int64
}

func (n *network) addObject(name string, size int64) object {
	n.Helper()
	return object{name, filepath.Join(n.Dir, name), n.writeNoise(filepath.Join(n.www, name), size), size}
}

func (n *network) startGet(o object) *run {
	n.Helper()
	return n.startCommand("get", "--onload", "--json", "-o", o.file, n.url+o.name)
}

// checkFetched checks what came.
func (o object) checkFetched(n *network, res getResult) {
	n.Helper()
	if sum := fileSum(o.file); sum != o.sum || res.Objects[0].SHA256 != o.sum {
		n.Errorf("another file: %s, %s instead of %s", sum, res.Objects[0].SHA256, o.sum)
	}
	if left, _ := filepath.Glob(o.file + ".*"); len(left) > 0 {
		n.Errorf("left: %v", left)
	}
}

// checkHelperKilled kills a helper at a third and at two thirds of a download.
func (n *network) checkHelperKilled(o object) {
	r, size := n.startGet(o), o.size
	for k := 1; k <= 2; k++ {
		at := n.waitForProgress(r, float64(k)/3)
		if down, err := n.carriedBytes("helper1"); down == 0 || err != nil {
			n.Errorf("at %d of %d it has carried nothing: %v", at, size, err)
		}
		n.killProcess(n.helpers["helper1"])
		n.waitForProgress(r, float64(at+mb)/float64(size)) // without it
		if !*long {                                        // however long it takes to come back here, something is left for it
			n.setRates("1Mbit/s", "1Mbit/s")
		}
		n.startHelper("helper1")
		n.waitUntil("helper1", "carries again", func() (bool, error) { down, err := n.carriedBytes("helper1"); return down > mb/2, err })
		back, _ := r.progress()
		n.Logf("killed at %d, and carries again at %d", at, back)
		n.setRates("24Mbit/s", "36Mbit/s")
	}
	var res getResult
	n.waitForResult(r, &res)
	all, wasted := int64(0), int64(0)
	for _, d := range res.Devices {
		n.Logf("%s: %d bytes, %d wasted", d.Device, d.Bytes, d.Wasted)
		if d.Bytes < size/10 {
			n.Errorf("%s brought %d bytes", d.Device, d.Bytes)
		}
		all, wasted = all+d.Bytes, wasted+d.Wasted
	}
	o.checkFetched(n, res)
	if len(res.Devices) != 3 || all-wasted != size || res.Bytes != size || res.Wasted != wasted || wasted > size/20 {
		n.Errorf("%d came, of which %d for nothing: %+v", all, wasted, res)
	}
	bound := float64(size) * 8 / ratesSum
	n.Logf("%d bytes in %.1f s, of which the sum of the rates leaves no less than %.1f: %.1f %%; %d wasted", size, res.Seconds, bound, 100*bound/res.Seconds, wasted)
	if *long && bound < .8*res.Seconds { // one curl, alone, uses 92 %
		n.Errorf("under 80 %% of the lines' rates")
	}
}

// setRates sets those of the lines whose helper is not killed.
func (n *network) setRates(home, helper2 string) {
	n.Helper()
	for link, rate := range map[string]string{"ps": home, "hs2": helper2} {
		if err := n.Lab.Set(link, "", "rate="+rate); err != nil {
			n.Fatal(err)
		}
	}
}

// checkGetKilled kills `mpbond get` when its journal has a quarter, and gives the same command
// again.
func (n *network) checkGetKilled(o object) {
	r, size := n.startGet(o), o.size
	n.waitUntil("its journal", "has a quarter", func() (bool, error) { return journalledBytes(o.file) >= size/4, nil })
	n.killProcess(r.Process)
	have := journalledBytes(o.file)
	if _, err := os.Stat(o.file); err == nil {
		n.Error("the file is there already")
	}
	var res getResult
	n.waitForResult(n.startGet(o), &res)
	o.checkFetched(n, res)
	all := int64(0)
	for _, d := range res.Devices {
		all += d.Bytes
	}
	n.Logf("of %d bytes the journal had %d, and %d came then, %d of it for nothing", size, have, all, res.Wasted)
	if res.Objects[0].Resumed != have || all-res.Wasted != size-have || res.Bytes != size-have {
		n.Errorf("%+v", res)
	}
}

// journalledBytes is how much of a file its journal says is there.
func journalledBytes(file string) (sum int64) {
	var j struct{ Have []struct{ From, To int64 } }
	text, err := os.ReadFile(file + ".mpbond-part.json")
	if err != nil || json.Unmarshal(text, &j) != nil {
		return 0
	}
	for _, s := range j.Have {
		sum += s.To - s.From
	}
	return sum
}
