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

	"github.com/chromedp/cdproto/accessibility"
	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"mpbond/base/waittest"
	"mpbond/e2e/rig"
)

// browserNames lists the usable browser programs, the preferred one first.
var browserNames = []string{"chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome"}

// browser is a tab of a real browser.
type browser struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string // script exceptions and violations of the Content-Security-Policy
}

// newBrowser starts a browser that ends with the test.
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
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path),
		chromedp.Headless,
		chromedp.NoFirstRun,
		chromedp.NoDefaultBrowserCheck,
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.UserDataDir(t.TempDir()),
	}
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
		_ = chromedp.Cancel(ctx) // waits for the browser to exit, so that its directory can be removed
		cancel()
	})
	b := &browser{TB: t, ctx: ctx}
	// The first action starts the browser, so its context must not end.
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
			text := e.Entry.Text
			if strings.Contains(text, "Content Security Policy") || strings.Contains(text, "Refused to") {
				b.problems = append(b.problems, text)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// runAction runs a browser action, with rig.Patience as its time limit, and returns its result.
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

// openURL navigates to a URL. It leaves the current page first: the console is one page, so a
// change of the fragment alone would not load it again.
func (b *browser) openURL(url string) {
	b.Helper()
	b.runSteps(chromedp.Navigate("about:blank"), chromedp.Navigate(url))
}

// checkProblems fails the test for each script exception and each violation of the page's
// Content-Security-Policy.
func (b *browser) checkProblems() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.Errorf("problem on the page: %s", p)
	}
}

// quoteJS returns s as a JavaScript string literal.
func quoteJS(s string) string {
	j, _ := json.Marshal(s)
	return string(j)
}

// elementText returns the text of an element, or "" if there is none.
func (b *browser) elementText(selector string) string {
	b.Helper()
	return runAction(b, chromedp.Evaluate[string](`document.querySelector(`+quoteJS(selector)+`)?.textContent ?? ""`))
}

// waitUntil waits until a JavaScript expression is true. what names the condition in the failure.
func (b *browser) waitUntil(what, expression string) {
	b.Helper()
	waittest.UntilSuccess(b, func() error {
		if runAction(b, chromedp.Evaluate[bool]("Boolean("+expression+")")) {
			return nil
		}
		return &unmetCondition{b, what}
	})
}

// unmetCondition is a condition for which a browser waited in vain. Its text shows the page.
type unmetCondition struct {
	b    *browser
	what string
}

func (u *unmetCondition) Error() string {
	u.b.checkProblems()
	return fmt.Sprintf("%s. The page:\n%s", u.what, u.b.elementText("body"))
}

// waitForText waits until an element that matches selector contains want.
func (b *browser) waitForText(selector, want string) {
	b.Helper()
	b.waitUntil(selector+" says "+want, fmt.Sprintf(
		"[...document.querySelectorAll(%s)].some((e) => e.textContent.includes(%s))",
		quoteJS(selector), quoteJS(want)))
}

// focusedName returns the accessible name of the focused element.
func (b *browser) focusedName() string {
	b.Helper()
	return runAction(b, chromedp.Evaluate[string](`(() => { const e = document.activeElement;
		return e.getAttribute("aria-label") ?? e.labels?.[0]?.firstChild?.textContent ?? e.textContent })()`))
}

// tabTo presses Tab until the element with that name has the focus.
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
	b.Fatalf("Tab does not reach %q, only %q", name, seen)
}

// pressByName moves to an element by Tab and presses Enter.
func (b *browser) pressByName(name string) {
	b.Helper()
	b.tabTo(name)
	b.runSteps(chromedp.KeyEvent("\r"))
}

// accessibleNode is an element of the accessibility tree.
type accessibleNode struct{ role, name string }

// listAccessible returns the elements that a screen reader finds.
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
			_ = json.Unmarshal(v.Value, &s) // leaves "" if the value is no string
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

// allowDownloads lets the page save files, and returns the directory for them.
func (b *browser) allowDownloads() string {
	b.Helper()
	dir := b.TempDir()
	ctx, cancel := context.WithTimeout(b.ctx, rig.Patience)
	defer cancel()
	params := cdpbrowser.SetDownloadBehaviorParams{
		Behavior:     cdpbrowser.SetDownloadBehaviorBehaviorAllow,
		DownloadPath: dir,
	}
	if _, err := chromedp.CallBrowser(ctx, cdpbrowser.SetDownloadBehavior, params); err != nil {
		b.Fatal(err)
	}
	return dir
}

// waitForFile waits for a file that the page saves and returns its content. The browser gives the
// file its name once it is complete.
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
