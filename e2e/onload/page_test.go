// SPDX-License-Identifier: Apache-2.0

package onload

import (
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

// photoPage is a helper's page, as a browser beside it sees it.
type photoPage struct {
	*network
	at, token string
}

// onloadStatus is what the helper tells of its page.
func (p *photoPage) onloadStatus() (o api.OnloadStatus, err error) {
	s, err := p.Status("helper1", "helper")
	if err != nil || s.Onload == nil || s.Onload.Page == nil {
		return o, fmt.Errorf("%+v, %w", s.Onload, err)
	}
	return *s.Onload, nil
}

// enterCode starts the helper, and tells its page the code.
func (p *photoPage) enterCode() {
	p.Helper()
	p.startHelper("helper1")
	o, err := p.onloadStatus()
	if err != nil {
		p.Fatal(err)
	}
	p.at = fmt.Sprintf("http://%s:7607", p.linkAddr("helper1", "pipe1"))
	if urls := o.Page.URLs; len(urls) != 2 || urls[0] != p.at+"/" || !strings.HasPrefix(urls[1], "http://[") {
		p.Errorf("the page is shown at %q: browsers are not let in by the helper's own line", urls)
	}
	p.waitUntil("the page", "answers", func() (bool, error) { status, _ := p.request("GET", "/", ""); return status == "200", nil })
	status, text := p.request("POST", "/enter", fmt.Sprintf(`{"code":%q}`, o.Page.Code))
	var in struct{ Token string }
	if status != "200" || json.Unmarshal([]byte(text), &in) != nil {
		p.Fatal(status, text)
	}
	p.token = in.Token
}

// request asks the page for something; a body that begins with "@" is a file.
func (p *photoPage) request(method, path, body string) (status, text string) {
	p.Helper()
	out, _ := p.Run("primary", "curl", "-s", "-X", method, "-H", "Expect:", "-H", "Authorization: Bearer "+p.token, "-H", "Content-Type: application/octet-stream",
		"--data-binary", body, "-w", `\n%{http_code}`, p.at+path)
	at := strings.LastIndex(out, "\n")
	return out[at+1:], out[:max(0, at)]
}

// spooledNames are the names of what the helper has and the endpoint has not confirmed.
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

// TestPageLines: photos of a browser beside the helper go up over the helper's own line
// and the home line, two real interfaces, both. The helper is killed in the middle: what it
// had goes on without the browser, and what the endpoint has confirmed is there once.
func TestPageLines(t *testing.T) {
	house := rig.House(t, "4/6/40") // the home line's router is the primary
	house.Node["primary"].Forward, house.Node["primary"].NAT = true, []string{"ps"}
	n := newNetwork(t, house)
	to := n.startNginx() + "photos/"
	n.Must("helper1", "ip", "route", "add", "default", "via", n.linkAddr("primary", "pipe1"), "dev", "pipe1", "metric", "900")
	n.writeFile(filepath.Join(n.Dir, "helper1", "helper.toml"),
		fmt.Sprintf("[onload]\nallowance = \"unlimited\"\ninterface = \"hs1\"\n[onload.page]\nhome = \"pipe1\"\nto = %q\n", to))
	p := &photoPage{network: n}
	p.enterCode()
	const files, size = 16, 150_000
	names := map[string]string{}
	for i := range files {
		name := fmt.Sprintf("%02d.jpg", i)
		names[name] = n.writeNoise(filepath.Join(n.Dir, name), size+int64(i))
		if status, text := p.request("POST", "/files?name="+url.QueryEscape(name), "@"+filepath.Join(n.Dir, name)); status != "204" {
			t.Fatal(name, status, text)
		}
	}
	n.waitUntil("the page", "has sent a third", func() (bool, error) {
		o, err := p.onloadStatus()
		return err == nil && o.Page.Sent >= files/3, err
	})
	n.killProcess(n.helpers["helper1"])
	left := p.spooledNames()
	if len(left) == 0 || len(left) > files-files/3 {
		t.Fatalf("%d are left", len(left))
	}
	if got := fileSum(filepath.Join(n.www, "photos", "00.jpg")); got != names["00.jpg"] {
		t.Errorf("the first one is %s", got)
	}

	before := p.token
	p.enterCode()
	after := p.token
	p.token = before
	if status, _ := p.request("GET", "/events", ""); status != "401" {
		t.Errorf("the former run's token: %s", status)
	}
	p.token = after
	var o api.OnloadStatus
	n.waitUntil("the page", "has sent all", func() (bool, error) {
		var err error
		o, err = p.onloadStatus()
		return err == nil && o.Page.Waiting == 0, err
	})
	if o.Page.Sent != len(left) || o.Page.Failed != 0 || o.Page.SpoolBytes != 0 || len(p.spooledNames()) != 0 {
		t.Errorf("%d were left: %+v", len(left), *o.Page)
	}
	if text := n.Must("helper1", n.Mpbond, "status"); !strings.Contains(text, fmt.Sprintf("photos: %d sent, 0 waiting, 0 failed", len(left))) {
		t.Error(text)
	}

	there, twice := map[string]bool{}, 0
	list, _ := filepath.Glob(filepath.Join(n.www, "photos", "*"))
	for _, file := range list {
		name := filepath.Base(file)
		first, _, again := strings.Cut(strings.TrimSuffix(name, ".jpg"), " (")
		first += ".jpg"
		if sum := fileSum(file); sum != names[first] {
			t.Errorf("%s is %s instead of %s", name, sum, names[first])
		}
		there[first] = true
		if again {
			twice++
			if !left[first] {
				t.Errorf("%s was confirmed, and sent again", first)
			}
		}
	}
	if len(there) != files || twice > 0 {
		t.Errorf("%d of %d are there, %d twice", len(there), files, twice)
	}
	home, own := n.LinkBytes("ps"), n.LinkBytes("hs1")
	if t.Logf("%d bytes by the home line, %d by the helper's, %v counted; %d of %d were left when it was killed, %d are there twice", home, own, o.CarriedBytes, len(left), files, twice); min(home, own) < files*size/5 {
		t.Error("one of the lines hardly carried anything")
	}
	// What was counted in the last second before it was killed may be lost.
	rx, tx := n.Counters("helper1", "hs1") // also what the line has dropped
	if carried, all := int64(o.CarriedBytes), rx+tx; carried > all*101/100 || carried < all/4 {
		t.Errorf("%d bytes are counted, of %d", carried, all)
	}
}
