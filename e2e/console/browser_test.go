// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"mpbond/e2e/rig"
)

// browserNames are the programs that will do, the best one first.
var browserNames = []string{"chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome"}

// browser is a tab of a real browser.
type browser struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // of scripts, and of the Content-Security-Policy
}

// newBrowser starts one that ends with the test.
func newBrowser(t testing.TB, flags map[string]any) *browser {
	t.Helper()
	path := ""
	for _, name := range browserNames {
		if p, err := exec.LookPath(name); err == nil && path == "" {
			path = p
		}
	}
	if path == "" {
		t.Skip("no Chromium is installed: apt-get install chromium")
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.Headless, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("no-proxy-server", true), chromedp.UserDataDir(t.TempDir())}
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	for name, value := range flags {
		options = append(options, chromedp.Flag(name, value))
	}
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the end, so that the directory can be removed
		cancel()
	})
	b := &browser{TB: t, ctx: ctx}
	// the first one starts it: its context must not end
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Skipf("%s does not start here: %v", path, err)
	}
	err := chromedp.Listen(ctx, func(e any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Text)
			if x := e.ExceptionDetails.Exception; x != nil {
				b.problems = append(b.problems, x.Description)
			}
		case *log.EventEntryAdded:
			if text := e.Entry.Text; strings.Contains(text, "Content Security Policy") || strings.Contains(text, "Refused to") {
				b.problems = append(b.problems, text)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// runAction runs something that must not hang.
func runAction[T any](b *browser, a chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, rig.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

func (b *browser) runSteps(steps ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	runAction(b, chromedp.Steps(steps...))
}

// openURL goes to a URL. The console is one page: what is behind the # alone opens
// no new one.
func (b *browser) openURL(url string) {
	b.Helper()
	b.runSteps(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// checkProblems fails if scripts of the page have failed, or wanted what its policy
// forbids.
func (b *browser) checkProblems() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.Errorf("the page: %s", p)
	}
}

// quoteJS is a string of JavaScript.
func quoteJS(s string) string {
	j, _ := json.Marshal(s)
	return string(j)
}

// elementText is what an element says; "" if there is none.
func (b *browser) elementText(selector string) string {
	b.Helper()
	return runAction(b, chromedp.Evaluate[string](`document.querySelector(`+quoteJS(selector)+`)?.textContent ?? ""`))
}

// waitUntil waits until an expression of JavaScript is true.
func (b *browser) waitUntil(what, expression string) {
	b.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(rig.Patience)
	for {
		if runAction(b, chromedp.Evaluate[bool]("Boolean("+expression+")")) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			b.checkProblems()
			b.Fatalf("not within %v: %s. The page:\n%s", rig.Patience, what, b.elementText("body"))
		}
	}
}

// waitForText waits until an element has a text in it.
func (b *browser) waitForText(selector, want string) {
	b.Helper()
	b.waitUntil(selector+" says "+want, fmt.Sprintf("[...document.querySelectorAll(%s)].some((e) => e.textContent.includes(%s))", quoteJS(selector), quoteJS(want)))
}

// focusedName is the name of the element that has the focus, as a person hears it.
func (b *browser) focusedName() string {
	b.Helper()
	return runAction(b, chromedp.Evaluate[string](`(() => { const e = document.activeElement;
		return e.getAttribute("aria-label") ?? e.labels?.[0]?.firstChild?.textContent ?? e.textContent })()`))
}

// tabTo presses Tab until an element of that name has the focus.
func (b *browser) tabTo(name string) {
	b.Helper()
	var seen []string
	for range 100 {
		b.runSteps(chromedp.KeyEvent("\t"))
		now := strings.TrimSpace(b.focusedName())
		if now == name {
			return
		}
		seen = append(seen, now)
	}
	b.Fatalf("Tab does not lead to %q, but to %q", name, seen)
}

// pressByName goes to an element by Tab and presses Enter.
func (b *browser) pressByName(name string) {
	b.Helper()
	b.tabTo(name)
	b.runSteps(chromedp.KeyEvent("\r"))
}

// accessibleNode is an element of the accessibility tree.
type accessibleNode struct{ role, name string }

// listAccessible lists what a screen reader finds.
func (b *browser) listAccessible() (list []accessibleNode) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, rig.Patience)
	defer cancel()
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.Fatal(err)
	}
	word := func(v *accessibility.Value) (s string) {
		if v != nil {
			_ = json.Unmarshal(v.Value, &s) // of what is no string, ""
		}
		return s
	}
	for _, n := range tree.Nodes {
		if !n.Ignored {
			list = append(list, accessibleNode{word(n.Role), word(n.Name)})
		}
	}
	return list
}

// allowDownloads has files that the page saves be in a directory, which it returns.
func (b *browser) allowDownloads() string {
	b.Helper()
	dir := b.TempDir()
	ctx, cancel := context.WithTimeout(b.ctx, rig.Patience)
	defer cancel()
	if _, err := chromedp.CallBrowser(ctx, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{Behavior: cdpbrowser.SetDownloadBehaviorBehaviorAllow, DownloadPath: dir}); err != nil {
		b.Fatal(err)
	}
	return dir
}

// waitForFile waits for a file that the page saves; it has its name when it is whole.
func (b *browser) waitForFile(path string) (body []byte) {
	b.Helper()
	rig.Eventually(b, func() (err error) {
		if body, err = os.ReadFile(path); err == nil && len(body) == 0 {
			err = fmt.Errorf("%s is empty", path)
		}
		return err
	})
	return body
}
