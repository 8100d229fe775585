// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"golang.org/x/net/webdav"

	"mpbond/base/porttest"
	"mpbond/e2e/rig"
)

// TestPhotos enters the code on a helper's page in a browser and drops two files there. They must
// be complete at a WebDAV server before the page says that they arrived. A reload must keep the
// list, and the page must fit a phone. Photos that the helper does not have when it is killed must
// wait in the browser, and go on once the helper is back and the code is entered.
func TestPhotos(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, map[string]any{"window-size": "360,640"})
	w := &testbed{Network: rig.New(t, rig.Options{})}
	dir := t.TempDir()
	dav := httptest.NewServer(&webdav.Handler{FileSystem: webdav.Dir(dir), LockSystem: webdav.NewMemLS()})
	defer dav.Close()
	w.writeConfig("helper", "helper", "pair = "+strconv.Quote(porttest.FreeAddress(w))+
		"\n[onload]\nallowance = \"unlimited\"\nlisten = "+strconv.Quote(porttest.FreeAddress(w))+
		"\n[onload.page]\nlisten = "+strconv.Quote(porttest.FreeAddress(w))+"\nto = \""+dav.URL+"/photos/\"\n")
	h := w.NewClient("helper", "helper")
	start := func() (helper *rig.Process, at, code string) {
		helper = w.Start("helper", w.Mpbond, "helper", "--name", "phone")
		rig.Eventually(t, func() error {
			s, err := h.Status(t.Context(), false)
			if err != nil || s.Onload == nil || s.Onload.Page == nil || len(s.Onload.Page.URLs) != 1 {
				return fmt.Errorf("the helper has no page: %+v, %v", s.Onload, err)
			}
			at, code = s.Onload.Page.URLs[0], s.Onload.Page.Code
			return nil
		})
		return helper, at, code
	}
	helper, at, code := start()
	b.openURL(at)
	b.waitForText("body", "The code that the helper shows")
	b.tabTo("The code that the helper shows")
	b.runSteps(chromedp.KeyEvent("0000\r"))
	b.waitForText("[role=alert]", "wrong code")
	b.runSteps(chromedp.KeyEvent(strings.Repeat("\b", 4) + strings.ToLower(code) + "\r"))
	b.waitForText("#to", strings.TrimPrefix(dav.URL, "http://"))
	runAction(b, chromedp.Evaluate[bool](`(() => { const d = new DataTransfer();
		d.items.add(new File(["one"], "a.jpg"));
		d.items.add(new File([new Uint8Array(3e6).fill(7)], "b c.jpg"));
		document.getElementById("drop").dispatchEvent(
			new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true }));
		return true })()`))
	b.waitForText("#summary", "2 of 2 arrived")
	for name, want := range map[string][]byte{"a.jpg": []byte("one"), "b c.jpg": bytes.Repeat([]byte{7}, 3e6)} {
		if got, err := os.ReadFile(filepath.Join(dir, "photos", name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	b.openURL(at)
	b.waitForText("#summary", "2 of 2 arrived")
	b.pressByName("Remove: a.jpg")
	b.waitForText("#summary", "1 of 1 arrived")
	if wide := runAction(b, chromedp.Evaluate[bool]("document.documentElement.scrollWidth > innerWidth")); wide {
		t.Error("the page is wider than a phone")
	}
	for _, n := range b.listAccessible() {
		if n.name == "" && (n.role == "button" || n.role == "textbox" || n.role == "progressbar") {
			t.Errorf("a %s without a name", n.role)
		}
	}
	b.openURL(at + "#code=" + code) // the link in the QR code
	b.waitForText("#summary", "1 of 1 arrived")
	if now := runAction(b, chromedp.Location()); strings.Contains(now, code) {
		t.Errorf("the address is %q, want it without the code", now)
	}

	_ = helper.Cmd.Process.Signal(syscall.SIGSTOP)
	runAction(b, chromedp.Evaluate[bool](`(() => { const d = new DataTransfer();
		for (const name of ["d.jpg", "e.jpg", "f.jpg"]) d.items.add(new File([name], name));
		document.getElementById("drop").dispatchEvent(
			new DragEvent("drop", { dataTransfer: d, bubbles: true, cancelable: true }));
		return true })()`))
	b.waitForText("#files", "on its way to the helper")
	w.All = slices.DeleteFunc(w.All, func(p *rig.Process) bool { return p == helper })
	helper.End(syscall.SIGKILL)
	b.waitForText("#link", "3 not with the helper yet wait here")
	b.waitForText("#files", "waits in this browser until the helper is back")
	_, _, code = start()
	b.waitForText("#link", "the code is needed; 3 not with the helper yet wait here")
	b.runSteps(chromedp.KeyEvent(strings.ToLower(code) + "\r"))
	b.waitForText("#summary", "3 of 3 arrived")
	for _, name := range []string{"d.jpg", "e.jpg", "f.jpg"} {
		if got, err := os.ReadFile(filepath.Join(dir, "photos", name)); err != nil || string(got) != name {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	b.checkProblems()
}
