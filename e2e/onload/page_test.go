// SPDX-License-Identifier: Apache-2.0

package onload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// photoPage is a helper's photo page, as a browser near the helper uses it.
type photoPage struct {
	*network
	at, token string
}

// onloadStatus returns the status of onloading at the helper, which includes the page.
func (p *photoPage) onloadStatus() (o api.OnloadStatus, err error) {
	s, err := p.Status("helper1", "helper")
	if err != nil || s.Onload == nil || s.Onload.Page == nil {
		return o, fmt.Errorf("the helper has no page: %+v, %w", s.Onload, err)
	}
	return *s.Onload, nil
}

// enterCode starts the helper, enters the code on its page, and keeps the token.
func (p *photoPage) enterCode() {
	p.Helper()
	p.startHelper("helper1")
	o, err := p.onloadStatus()
	if err != nil {
		p.Fatal(err)
	}
	p.at = fmt.Sprintf("http://%s:7607", p.linkAddr("helper1", "pipe1"))
	if urls := o.Page.URLs; len(urls) != 2 || urls[0] != p.at+"/" || !strings.HasPrefix(urls[1], "http://[") {
		p.Errorf("the page has the URLs %q, want those of the pipe alone, not of the helper's own link", urls)
	}
	p.waitUntil("the page", "answers", func() (bool, error) {
		status, _ := p.request("GET", "/", "")
		return status == "200", nil
	})
	status, text := p.request("POST", "/enter", fmt.Sprintf(`{"code":%q}`, o.Page.Code))
	var in struct{ Token string }
	if status != "200" || json.Unmarshal([]byte(text), &in) != nil {
		p.Fatal(status, text)
	}
	p.token = in.Token
}

// request sends a request to the page and returns its status and body. A body that begins with "@"
// names a file to send.
func (p *photoPage) request(method, path, body string) (status, text string) {
	p.Helper()
	out, _ := p.Run("primary", "curl", "-s", "-X", method, "-H", "Expect:",
		"-H", "Authorization: Bearer "+p.token, "-H", "Content-Type: application/octet-stream",
		"--data-binary", body, "-w", `\n%{http_code}`, p.at+path)
	at := strings.LastIndex(out, "\n")
	return out[at+1:], out[:max(0, at)]
}

// spooledNames returns the names of the files that the helper has and the endpoint has not
// confirmed.
func (p *photoPage) spooledNames() map[string]bool {
	p.Helper()
	left := map[string]bool{}
	list, err := filepath.Glob(filepath.Join(p.Dir, "helper1", "page-helper", "*.json"))
	if err != nil {
		p.Fatal(err)
	}
	for _, file := range list {
		var i struct{ Name string }
		if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &i) == nil {
			left[i.Name] = true
		}
	}
	return left
}

// TestPageLines uploads photos from a browser near the helper. They must go over both the helper's
// own link and the home link, two real interfaces. The helper is killed half-way. It must then send
// what it had without the browser, and files that the endpoint confirmed must exist once.
func TestPageLines(t *testing.T) {
	t.Parallel()
	links := rig.Triangle(t, "4/6/40") // the primary is the home link's router
	links.Node["primary"].Forward, links.Node["primary"].NAT = true, []string{"ps"}
	n := newNetwork(t, links)
	to := n.startNginx() + "photos/"
	n.Must("helper1", "ip", "route", "add", "default",
		"via", n.linkAddr("primary", "pipe1"), "dev", "pipe1", "metric", "900")
	n.writeFile(filepath.Join(n.Dir, "helper1", "helper.toml"),
		fmt.Sprintf("[onload]\nallowance = \"unlimited\"\ninterface = \"hs1\"\n"+
			"[onload.page]\nhome = \"pipe1\"\nto = %q\n", to))
	p := &photoPage{network: n}
	p.enterCode()
	const files, size = 16, 150_000
	setRates := func(ps, hs1 string) {
		t.Helper()
		if err := cmp.Or(n.Lab.Set("ps", "", "rate="+ps), n.Lab.Set("hs1", "", "rate="+hs1)); err != nil {
			t.Fatal(err)
		}
	}
	setRates("50kbit/s", "50kbit/s") // until the helper has all files, however long that takes
	names := map[string]string{}
	for i := range files {
		name := fmt.Sprintf("%02d.jpg", i)
		names[name] = n.writeNoise(filepath.Join(n.Dir, name), size+int64(i))
		status, text := p.request("POST", "/files?name="+url.QueryEscape(name), "@"+filepath.Join(n.Dir, name))
		if status != "204" {
			t.Fatal(name, status, text)
		}
	}
	setRates("1500kbit/s", "2Mbit/s")
	n.waitUntil("the page", "has sent a third", func() (bool, error) {
		o, err := p.onloadStatus()
		return err == nil && o.Page.Sent >= files/3, err
	})
	n.killProcess(n.helpers["helper1"])
	setRates("3Mbit/s", "4Mbit/s")
	left := p.spooledNames()
	if len(left) == 0 || len(left) > files-files/3 {
		t.Fatalf("%d files are left to send", len(left))
	}
	for name, want := range names { // confirmed files are there already
		if got := fileSum(filepath.Join(n.www, "photos", name)); !left[name] && got != want {
			t.Errorf("%s has the wrong SHA-256 %s", name, got)
		}
	}

	before := p.token
	p.enterCode()
	after := p.token
	p.token = before
	if status, _ := p.request("GET", "/events", ""); status != "401" {
		t.Errorf("a token of the previous run: status %s, want 401", status)
	}
	p.token = after
	var o api.OnloadStatus
	n.waitUntil("the page", "has sent all", func() (bool, error) {
		var err error
		o, err = p.onloadStatus()
		return err == nil && o.Page.Waiting == 0, err
	})
	if o.Page.Sent != len(left) || o.Page.Failed != 0 || o.Page.SpoolBytes != 0 || len(p.spooledNames()) != 0 {
		t.Errorf("of %d files left to send: %+v", len(left), *o.Page)
	}
	sent := fmt.Sprintf("photos: %d sent, 0 waiting, 0 failed", len(left))
	if text := n.Must("helper1", n.Mpbond, "status"); !strings.Contains(text, sent) {
		t.Errorf("status does not say %q:\n%s", sent, text)
	}

	there, twice := map[string]bool{}, 0
	list, _ := filepath.Glob(filepath.Join(n.www, "photos", "*"))
	for _, file := range list {
		name := filepath.Base(file)
		first, _, again := strings.Cut(strings.TrimSuffix(name, ".jpg"), " (")
		first += ".jpg"
		if sum := fileSum(file); sum != names[first] {
			t.Errorf("%s has SHA-256 %s, want %s", name, sum, names[first])
		}
		there[first] = true
		if again {
			twice++
			if !left[first] {
				t.Errorf("%s was confirmed but sent again", first)
			}
		}
	}
	if len(there) != files || twice > 0 {
		t.Errorf("%d of %d files arrived, %d twice", len(there), files, twice)
	}
	home, own := n.LinkBytes("ps"), n.LinkBytes("hs1")
	t.Logf("%d bytes over the home link, %d over the helper's, %v counted;"+
		" %d of %d files were left at the kill, %d arrived twice",
		home, own, o.CarriedBytes, len(left), files, twice)
	if min(home, own) < files*size/5 {
		t.Error("one of the links carried almost nothing")
	}
	// The count of the last second before the kill may be lost.
	rx, tx := n.Counters("helper1", "hs1") // includes bytes that the link has dropped
	if carried, all := int64(o.CarriedBytes), rx+tx; carried > all*101/100 || carried < all/4 {
		t.Errorf("%d bytes are counted, the link carried %d", carried, all)
	}
}
