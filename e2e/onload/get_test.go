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

// getRates are the rates of a download's links.
type getRates struct {
	links        string  // as in rig.Triangle: two helpers
	home, helper string  // of the home link and of a helper's own link
	sum          float64 // of the links to the Internet, in bit/s
}

var (
	longRates  = getRates{"24/36/120,36/120", "24Mbit/s", "36Mbit/s", 96e6}
	shortRates = getRates{"12/18/60,18/60", "12Mbit/s", "18Mbit/s", 48e6}
)

// getResult is the output of `mpbond get --onload --json`.
type getResult struct {
	Objects []struct {
		Bytes, Resumed int64
		SHA256         string
	}
	Bytes, Wasted int64
	Seconds       float64
	Devices       []deviceShare
}

// TestGetKilled checks that a download over three links is right although processes are killed. A
// helper is killed twice and must take part again each time. Then `mpbond get` itself is killed and
// must resume from its journal.
func TestGetKilled(t *testing.T) {
	rates, size := shortRates, int64(20*mb)
	if *long { // judges a rate, so nothing else may run
		rates, size = longRates, 1000*mb
	} else {
		t.Parallel()
	}
	n := newNetwork(t, rig.Triangle(t, rates.links))
	n.url = n.startNginx()
	n.startHelper("helper1")
	n.startHelper("helper2")
	n.checkHelperKilled(n.addObject("big", size), rates)
	n.checkGetKilled(n.addObject("small", 16*mb))
}

// object is a file on the web server, and the file that it is downloaded to.
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

// checkFetched checks the downloaded file and the reported digest.
func (o object) checkFetched(n *network, res getResult) {
	n.Helper()
	if sum := fileSum(o.file); sum != o.sum || res.Objects[0].SHA256 != o.sum {
		n.Errorf("wrong SHA-256: file %s, reported %s, want %s", sum, res.Objects[0].SHA256, o.sum)
	}
	if left, _ := filepath.Glob(o.file + ".*"); len(left) > 0 {
		n.Errorf("files left behind: %v", left)
	}
}

// checkHelperKilled kills a helper at a third and at two thirds of a download.
func (n *network) checkHelperKilled(o object, rates getRates) {
	r, size := n.startGet(o), o.size
	for k := 1; k <= 2; k++ {
		at := n.waitForProgress(r, float64(k)/3)
		if down, err := n.carriedBytes("helper1"); down == 0 || err != nil {
			n.Errorf("at %d of %d bytes helper1 has carried nothing: %v", at, size, err)
		}
		n.killProcess(n.helpers["helper1"])
		n.waitForProgress(r, float64(at+mb)/float64(size)) // continues without the helper
		if !*long {                                        // leave enough of a short download for the helper's return
			n.setRates("1Mbit/s", "1Mbit/s")
		}
		n.startHelper("helper1")
		n.waitUntil("helper1", "carries again", func() (bool, error) {
			down, err := n.carriedBytes("helper1")
			return down > mb/2, err
		})
		back, _ := r.progress()
		n.Logf("helper1 was killed at %d bytes and carried again at %d", at, back)
		n.setRates(rates.home, rates.helper)
	}
	var res getResult
	n.waitForResult(r, &res)
	all, wasted := int64(0), int64(0)
	for _, d := range res.Devices {
		n.Logf("%s: %d bytes, %d wasted", d.Device, d.Bytes, d.Wasted)
		if d.Bytes < size/10 {
			n.Errorf("%s carried only %d bytes", d.Device, d.Bytes)
		}
		all, wasted = all+d.Bytes, wasted+d.Wasted
	}
	o.checkFetched(n, res)
	if len(res.Devices) != 3 || all-wasted != size || res.Bytes != size || res.Wasted != wasted || wasted > size/20 {
		n.Errorf("%d bytes arrived, %d of them wasted: %+v", all, wasted, res)
	}
	bound := float64(size) * 8 / rates.sum
	n.Logf("%d bytes in %.1f s; the sum of the rates allows %.1f s: %.1f %%; %d wasted",
		size, res.Seconds, bound, 100*bound/res.Seconds, wasted)
	if *long && bound < .8*res.Seconds { // a single curl uses 92 %
		n.Errorf("used less than 80 %% of the sum of the rates")
	}
}

// setRates sets the rates of the home link and of helper2's link.
func (n *network) setRates(home, helper2 string) {
	n.Helper()
	for link, rate := range map[string]string{"ps": home, "hs2": helper2} {
		if err := n.Lab.Set(link, "", "rate="+rate); err != nil {
			n.Fatal(err)
		}
	}
}

// checkGetKilled kills `mpbond get` when its journal has a quarter of the file, and runs the same
// command again.
func (n *network) checkGetKilled(o object) {
	r, size := n.startGet(o), o.size
	n.waitUntil("the journal", "has a quarter", func() (bool, error) {
		return journalledBytes(o.file) >= size/4, nil
	})
	n.killProcess(r.Process)
	have := journalledBytes(o.file)
	if _, err := os.Stat(o.file); err == nil {
		n.Error("the file exists before the download is complete")
	}
	var res getResult
	n.waitForResult(n.startGet(o), &res)
	o.checkFetched(n, res)
	all := int64(0)
	for _, d := range res.Devices {
		all += d.Bytes
	}
	n.Logf("of %d bytes the journal had %d; %d more arrived, %d of them wasted", size, have, all, res.Wasted)
	if res.Objects[0].Resumed != have || all-res.Wasted != size-have || res.Bytes != size-have {
		n.Errorf("wrong counts of resumed bytes: %+v", res)
	}
}

// journalledBytes returns how many bytes of a file its journal says are present.
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
