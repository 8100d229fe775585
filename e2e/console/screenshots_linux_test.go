// SPDX-License-Identifier: Apache-2.0

package console

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"

	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/e2e/terminal"
	"mpbond/pbe/lte"
)

var update = flag.Bool("update", false, "write the pictures in docs/images, from transfers of a minute")

const (
	imagesDir  = "../../docs/images"
	maxPNGSize = 150_000
	maxSVGSize = 40_000
)

// gallery takes pictures of real programs for the documents.
type gallery struct {
	*rig.Network
	b     *browser // nil if no console is shown
	dir   string   // of the pictures
	taken map[string]bool
}

// TestScreenshots takes all pictures of docs/images with -update, as `make screenshots` does.
func TestScreenshots(t *testing.T) {
	if !*update {
		t.Skip("this takes the pictures in docs/images, which lasts minutes: run `make screenshots`")
	}
	dir, taken := t.TempDir(), map[string]bool{}
	if *update {
		dir = imagesDir
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	all := true
	for _, part := range []struct {
		name string
		f    func(*gallery)
	}{{"bond", showBond}, {"lab", showLab}, {"cell", showCell}} {
		ran := false
		t.Run(part.name, func(t *testing.T) {
			part.f(&gallery{Network: &rig.Network{TB: t}, dir: dir, taken: taken})
			ran = true
		})
		all = all && ran
	}
	if all {
		compareWithDocuments(t, taken)
	}
}

// showBond shows a bond in an emulated network, in which a laptop downloads over its own link and
// over those of a phone and a tablet.
func showBond(g *gallery) {
	g.b = newBrowser(g, nil)
	topology := rig.Triangle(g, "8/12/20,6/20")
	topology.Link["hs1"].Schedule = []string{"at 9s: rate 7Mbit/s", "at 17s: rate 12Mbit/s"}
	topology.Link["hs1"].Loop = "25s"
	g.Network = rig.New(g.TB, rig.Options{Lab: topology})
	g.pairDevices()
	g.showDownload()
	g.showTraffic()
}

// full returns a size for pictures in documents, or a smaller one for a test of this code.
func full[T any](inDocuments, inTest T) T {
	if *update {
		return inDocuments
	}
	return inTest
}

// save saves a picture.
func (g *gallery) save(name string, data []byte, most int) {
	g.Helper()
	if len(data) > most {
		g.Errorf("%s has %d bytes, over %d", name, len(data), most)
	}
	g.taken[name] = true
	if err := os.WriteFile(filepath.Join(g.dir, name), data, 0o644); err != nil {
		g.Fatal(err)
	}
}

// savePage saves what the browser shows.
func (g *gallery) savePage(name string, width, height int64, scale float64) {
	g.Helper()
	g.b.runSteps(chromedp.EmulateViewport(width, height, chromedp.EmulateScale(scale)))
	// The page draws pictures for their new width with the next values.
	g.b.runSteps(chromedp.Evaluate[chromedp.Void]("performance.clearResourceTimings()"))
	g.b.waitUntil("the page is drawn",
		`performance.getEntriesByType("resource").filter((e) => e.name.includes("/v2/plots/")).length > 2`)
	if wide := runAction(g.b, chromedp.Evaluate[bool]("document.documentElement.scrollWidth > innerWidth")); wide {
		g.Errorf("%s: the page is wider than the window", name)
	}
	g.save(name+".png", runAction(g.b, chromedp.CaptureScreenshot()), maxPNGSize)
}

// saveScreen saves what a terminal shows.
func (g *gallery) saveScreen(name, title string, screen *terminal.Screen) {
	g.Helper()
	g.save(name+".svg", screen.SVG(title), maxSVGSize)
}

// start runs a program of a node in a terminal, below what the screen shows already. It may use the
// directory of the node for files.
func (g *gallery) start(node string, screen *terminal.Screen, argv ...string) *terminal.Terminal {
	g.Helper()
	home := filepath.Join(g.Dir, node)
	term, err := terminal.Start(g.Command(node, append([]string{"sh", "-c", `cd "$0" && exec "$@"`, home}, argv...)...),
		screen)
	if err != nil {
		g.Skipf("no terminals can be made here: %v", err)
	}
	g.Cleanup(func() {
		_ = term.Signal(os.Kill)
		_ = term.Wait()
	})
	return term
}

// typeCommand shows a command of mpbond on a node as a person types it, and its output.
func (g *gallery) typeCommand(node, device string, screen *terminal.Screen, args ...string) {
	g.Helper()
	screen.Prompt(device+"$ ", "mpbond "+strings.Join(args, " "))
	if err := g.start(node, screen, append([]string{g.Mpbond}, args...)...).Wait(); err != nil {
		g.Fatalf("mpbond %s: %v\n%s", strings.Join(args, " "), err, screen.Text())
	}
}

// waitForScreen waits until a terminal shows a text that matches.
func (g *gallery) waitForScreen(term *terminal.Terminal, pattern string) *terminal.Screen {
	g.Helper()
	want := regexp.MustCompile(pattern)
	var screen *terminal.Screen
	rig.Eventually(g, func() error {
		if screen = term.Screen(); !want.MatchString(screen.Text()) {
			return fmt.Errorf("the terminal does not show %q:\n%s", pattern, screen.Text())
		}
		return nil
	})
	return screen
}

// pairDevices starts all roles and pairs them, as the tutorial does.
func (g *gallery) pairDevices() {
	g.Helper()
	for file, text := range map[string]string{
		"primary/primary.toml": "name = \"laptop\"\napi = \"127.0.0.1:7680\"\ntransparent = 0\n",
		"helper1/facts.toml": "battery_percent = 76\ncharging = false\ntemperature_c = 30.5\nlink = \"cellular\"\n" +
			"signal_percent = 80\n",
		"helper2/facts.toml": "battery_percent = 58\ncharging = true\ntemperature_c = 28\nlink = \"cellular\"\n" +
			"signal_percent = 55\n",
	} {
		path := filepath.Join(g.Dir, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			g.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			g.Fatal(err)
		}
	}
	// A server's name is that of its host.
	server := g.Start("server", "unshare", "--uts", "sh", "-c", `echo vps >/proc/sys/kernel/hostname && exec "$@"`, "sh",
		g.Mpbond, "server", "--public", "server", "--allow", "10.77.0.0/16")
	codes := []string{server.AwaitCode()}
	for i, name := range []string{"phone", "tablet"} {
		node := fmt.Sprintf("helper%d", i+1)
		code, _, _ := strings.Cut(g.Start(node, g.Mpbond, "helper", "--name", name).AwaitCode(), "@")
		address, err := g.Lab.Topology.Addr(node, fmt.Sprintf("pipe%d", i+1))
		if err != nil {
			g.Fatal(err)
		}
		codes = append(codes, code+"@"+address.String())
	}
	g.Must("primary", g.Mpbond, "keygen") // so that pair does not log that it creates the key
	screen := terminal.NewScreen(110, 30)
	g.typeCommand("primary", "laptop", screen, append([]string{"pair"}, codes...)...)
	g.Start("primary", g.Mpbond, "primary")
	g.Await(3)
	g.typeCommand("primary", "laptop", screen, "devices")
	g.saveScreen("devices", "laptop: pair devices, then list them", screen)
}

// showDownload shows mpbond get.
func (g *gallery) showDownload() {
	g.Helper()
	g.Start("web", os.Args[0], "lab", "image", ":8080", strconv.Itoa(full(40_000_000, 3_000_000)))
	if err := g.Lab.Start(); err != nil {
		g.Fatal(err)
	}
	screen := terminal.NewScreen(100, 30)
	g.typeCommand("primary", "laptop", screen, "get", "http://web:8080/debian.iso")
	g.saveScreen("get", "laptop: download over three links", screen)
}

// showTraffic shows the console and the terminal while two apps download.
func (g *gallery) showTraffic() {
	g.Helper()
	if err := g.Lab.Start(); err != nil {
		g.Fatal(err)
	}
	url := g.forwardConsole()
	app := g.Start("primary", "curl", "-sSo", "/dev/null", "-x", "socks5h://127.0.0.1:1080", "http://web/zeros/1000000000")
	video := g.Start("primary", "curl", "-sSo", "/dev/null", "-x", "socks5h://127.0.0.1:1080",
		"http://web/zeros/1000000000?paced")
	g.runFullScreen("mpbond top", "primary", func(top *terminal.Terminal) {
		g.awaitReceived(full[int64](190_000_000, 5_000_000))
		g.saveScreen("top", "laptop: mpbond top", g.waitForScreen(top, `Mbit/s(.|\n)*curl`))
	})
	screen := terminal.NewScreen(120, 40)
	g.typeCommand("primary", "laptop", screen, "status", "--why")
	g.saveScreen("status", "laptop: which device carries what, and why", screen)

	b := g.b
	b.openURL(url)
	b.waitForText(".whoami", "laptop · primary")
	for _, link := range []string{"helper phone", "helper tablet", "server"} {
		b.waitUntil(link+" is thick",
			fmt.Sprintf(`[...document.querySelectorAll("#topology g")].some((g) => g.dataset.key?.startsWith(%s) && `+
				`g.querySelector(".link")?.getAttribute("stroke-width") > 3)`, quoteJS("primary laptop>"+link)))
	}
	b.waitUntil("the plot has a line", `document.querySelector(".plot .line").getTotalLength() > 0`)
	g.savePage("console-overview", 1280, 800, 1)
	g.savePage("console-overview-phone", 390, 844, 2)
	b.runSteps(chromedp.ResetViewport())
	b.pressByName("Traffic")
	b.waitForText("main td", "curl")
	b.waitUntil("the plot has a line", `document.querySelector(".plot .line").getTotalLength() > 0`)
	g.savePage("console-traffic", 1280, 960, 1)
	g.savePage("console-traffic-phone", 390, 844, 2)
	b.checkProblems()
	for _, p := range []*rig.Process{app, video} {
		p.End(syscall.SIGKILL)
	}
	// What is on its way must not disturb what comes next.
	if err := g.Lab.WaitDrained(g.Context()); err != nil {
		g.Fatal(err)
	}
}

// runFullScreen runs a full-screen program while f runs, and ends it with the key q.
func (g *gallery) runFullScreen(command, node string, f func(*terminal.Terminal)) {
	g.Helper()
	argv := strings.Fields(command)
	argv[0] = filepath.Join(filepath.Dir(g.Mpbond), argv[0])
	term := g.start(node, terminal.NewScreen(110, 24), argv...)
	f(term)
	if err := term.Type("q"); err != nil {
		g.Fatal(err)
	}
	if err := term.Wait(); err != nil {
		g.Errorf("%s: %v", command, err)
	}
}

// awaitReceived waits until the primary has received that many bytes over its subflows.
func (g *gallery) awaitReceived(want int64) {
	g.Helper()
	rig.Eventually(g, func() error {
		up, err := g.Up()
		if err != nil {
			g.Fatal(err)
		}
		got := unit.Bytes(0)
		for _, p := range up {
			got += p.RxBytes
		}
		if got < unit.Bytes(want) {
			return fmt.Errorf("%v of %d bytes", got, want)
		}
		return nil
	})
}

// forwardConsole makes the console of the primary reachable from this process, and returns its
// address with the token.
func (g *gallery) forwardConsole() string {
	g.Helper()
	socket := filepath.Join(g.Dir, "console.sock")
	g.Start("primary", os.Args[0], "lab", "forward", socket, "127.0.0.1:7680")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		g.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		forward(l, "unix", socket)
	}()
	g.Cleanup(func() { l.Close(); <-ended })
	rig.Eventually(g, func() error { _, err := os.Stat(socket); return err })
	var at struct{ URL string }
	rig.Eventually(g, func() error { return g.JSON(&at, "primary", "console", "--json") })
	_, token, _ := strings.Cut(at.URL, "#")
	return "http://" + l.Addr().String() + "/#" + token
}

// showLab shows what mpbond-lab prints.
func showLab(g *gallery) {
	g.Network = rig.New(g.TB, rig.Options{})
	program := rig.Beside(g, g.Mpbond, "mpbond-lab")
	run, demo := "run --links 8/10/5 --get 2MB --reps 5", "demo"
	if !*update { // other tests run both as they are
		run, demo = "run --links 8/10/5 --get 200KB --scheme single", "demo --size 200KB"
	}
	for _, c := range []struct{ name, title, command string }{
		{"lab-run", "mpbond-lab run", run}, {"demo", "mpbond-lab demo", demo},
	} {
		screen := terminal.NewScreen(100, 40)
		screen.Prompt("$ ", "mpbond-lab "+c.command)
		term, err := terminal.Start(exec.Command(program, strings.Fields(c.command)...), screen)
		if err != nil {
			g.Fatal(err)
		}
		if err := term.Wait(); err != nil {
			g.Errorf("mpbond-lab %s: %v\n%s", c.command, err, screen.Text())
		}
		g.saveScreen(c.name, c.title, screen)
	}
}

// showCell shows the live view of cellwatch at the end of a recording.
func showCell(g *gallery) {
	g.Network = rig.New(g.TB, rig.Options{})
	program := rig.Beside(g, g.Mpbond, "cellwatch")
	cmd := exec.Command(program, "watch", "walk.sc16", "--rnti", "0x4601")
	cmd.Dir = g.TempDir()
	rig.WriteSamples(g, filepath.Join(cmd.Dir, "walk.sc16"), lte.Cell{ID: 301, PRB: 25, Ports: 2, PHICHSixths: 6},
		7_680_000, full(1500, 300))
	term, err := terminal.Start(cmd, terminal.NewScreen(100, 34))
	if err != nil {
		g.Fatal(err)
	}
	g.saveScreen("cellwatch", "cellwatch watch walk.sc16", g.waitForScreen(term, `the input has ended`))
	if err := term.Type("q"); err != nil {
		g.Fatal(err)
	}
	if err := term.Wait(); err != nil {
		g.Errorf("cellwatch: %v", err)
	}
}

// compareWithDocuments checks that docs/images has exactly the pictures that were taken, within
// their sizes.
func compareWithDocuments(t *testing.T, taken map[string]bool) {
	files, err := os.ReadDir(imagesDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !taken[f.Name()] {
			t.Errorf("nothing takes the picture docs/images/%s", f.Name())
		}
		delete(taken, f.Name())
	}
	for name := range taken {
		t.Errorf("docs/images/%s is missing: run make screenshots", name)
	}
}
