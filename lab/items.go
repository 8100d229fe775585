package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// Places of transfers of several items, below the bench's directory.
const (
	itemsDir    = "www/items" // what is fetched, and sent
	sentDir     = "www/up"    // what the web node got
	receivedDir = "got"       // what a client wrote that writes files
	accessLog   = "access.log"
)

// itemsNginxConf is what the web server does besides where there are items: it tells its
// requests, and takes files by PUT.
const itemsNginxConf = `  log_format item '$remote_addr $request_method $status';
  access_log %[1]s/` + accessLog + ` item;
  client_max_body_size 0;
  dav_methods PUT DELETE MKCOL;
`

// totalBytes are those of a transfer, of all streams or items.
func (p RunSpec) totalBytes() (n unit.Bytes) {
	for _, size := range p.Items {
		n += size
	}
	if len(p.Items) > 0 {
		return n
	}
	return p.Size * unit.Bytes(max(1, p.Streams))
}

// checkItems says what is wrong with them, if anything.
func (p RunSpec) checkItems() error {
	if len(p.Items) == 0 {
		return nil
	}
	if p.Size != 0 || p.Streams > 1 || p.Length != 0 || p.Video != nil || p.Unchecked {
		return fmt.Errorf("several items are one transfer, to its end and checked")
	}
	for i, size := range p.Items {
		if size <= 0 {
			return fmt.Errorf("item %d has %d bytes", i, size)
		}
	}
	return nil
}

func itemName(i int) string { return fmt.Sprintf("item%03d", i) }

// makeItem makes the i-th item, of which no other one has the content.
func (b *Bench) makeItem(i int, size unit.Bytes) (path string, sum [32]byte, err error) {
	return b.makeContent(filepath.Join(b.Dir, itemsDir, itemName(i)), uint64(i)+1, size)
}

// curlItemArgs are curl's arguments for items: URLs are fetched, or files sent, in their order over one
// connection, as a browser of HTTP/1.1 or a player would, who goes on when one is complete.
func (b *Bench) curlItemArgs(args []string, t Transfer) []string {
	for i := range t.Items {
		if t.Upload {
			args = append(args, "-T", filepath.Join(b.Dir, itemsDir, itemName(i)), b.itemURL(t, i))
		} else {
			args = append(args, b.itemURL(t, i))
		}
	}
	if t.Upload {
		args = append(args, "-H", "Expect:")
	}
	return args
}

// itemURL is where an item is, or goes to; with i < 0 the place for all of them.
func (b *Bench) itemURL(t Transfer, i int) string {
	dir, name := filepath.Base(itemsDir), ""
	if t.Upload {
		dir = filepath.Base(sentDir)
	}
	if i >= 0 {
		name = itemName(i)
	}
	return b.webURL() + "/" + dir + "/" + name
}

// clearItemDirs removes what transfers before have left where files are written.
func (b *Bench) clearItemDirs() error {
	for _, dir := range []string{sentDir, receivedDir} {
		dir = filepath.Join(b.Dir, dir)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	err := os.Remove(filepath.Join(b.Dir, accessLog))
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

// evaluateItems takes in what curl says of several items, and decides whether all are
// right.
func (r *Result) evaluateItems(b *Bench, t Transfer, got Received, report string) error {
	lines := strings.SplitAfter(report, "\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, "curl-report ") {
			continue
		}
		said, err := parseCurlReport(line)
		if err != nil {
			return err
		}
		if said.code < 200 || said.code > 299 {
			return fmt.Errorf("the web server answered %d to the request for item %d", said.code, len(r.Items))
		}
		if len(r.Items) == 0 {
			r.FirstByte = said.first
		}
		r.Seconds += said.total
		r.Items = append(r.Items, r.Seconds)
	}
	if len(r.Items) != len(t.Items) {
		return fmt.Errorf("curl tells of %d items of %d: %s", len(r.Items), len(t.Items), strings.TrimSpace(report))
	}
	if t.Upload {
		_, err := b.checkItemFiles(t, sentDir)
		r.SHA = err == nil
		return err
	}
	r.LongestGap = got.Gap
	all := sha256.New()
	for i, size := range t.Items {
		path, _, err := b.makeItem(i, size)
		if err != nil {
			return err
		}
		if err := copyFile(all, path, -1); err != nil {
			return err
		}
	}
	if r.SHA = got.SHA == hex.EncodeToString(all.Sum(nil)); !r.SHA {
		return fmt.Errorf("the items arrived with %d bytes and the wrong SHA-256", got.Bytes)
	}
	return nil
}

// checkItemFiles compares the items in a directory with what they should be, and tells
// when each got its name there.
func (b *Bench) checkItemFiles(t Transfer, dir string) (named []time.Time, err error) {
	for i, size := range t.Items {
		_, want, err := b.makeItem(i, size)
		if err != nil {
			return nil, err
		}
		hash, path := sha256.New(), filepath.Join(b.Dir, dir, itemName(i))
		if err := copyFile(hash, path, -1); err != nil {
			return nil, err
		}
		if [32]byte(hash.Sum(nil)) != want {
			return nil, fmt.Errorf("item %d arrived with the wrong SHA-256", i)
		}
		at, err := renameTime(path)
		if err != nil {
			return nil, err
		}
		named = append(named, at)
	}
	return named, nil
}

// copyFile adds the first n bytes of a file, or all if n is negative.
func copyFile(to io.Writer, path string, n int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if n < 0 {
		_, err = io.Copy(to, f)
	} else {
		_, err = io.CopyN(to, f, n)
	}
	return err
}

// countRequests fills in the requests that the web server has answered, by the device
// whose line they came by.
func (r *Result) countRequests(b *Bench) error {
	log, err := os.ReadFile(filepath.Join(b.Dir, accessLog))
	if err != nil {
		return err
	}
	t, by := b.Lab.Topology, map[string]string{}
	for _, node := range append([]string{"primary", "server"}, t.Helpers()...) {
		for _, link := range t.Links() {
			if addr, err := t.Addr(node, link); err == nil {
				by[addr.String()] = node
			}
		}
	}
	r.Requests = map[string]int{}
	for line := range strings.Lines(string(log)) {
		addr, _, _ := strings.Cut(line, " ")
		r.Requests[by[addr]]++
	}
	return nil
}

// ItemsDone is when the first n items of a transfer were complete, in seconds from its
// start; false if the client did not tell.
func (r Result) ItemsDone(n int) (seconds float64, told bool) {
	for i, at := range r.Items {
		if i < n {
			seconds = max(seconds, at)
		}
	}
	return seconds, n > 0 && n <= len(r.Items)
}

// parseHelpersOption reads "helpers=N".
func parseHelpersOption(text string) (n int, is bool, err error) {
	number, is := strings.CutPrefix(text, "helpers=")
	if !is {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(number); err != nil || n < 1 {
		return 0, true, fmt.Errorf("%q: write helpers=N, of which N is at least 1", text)
	}
	return n, true, nil
}

// firstHelpers are the first n of the helpers, or all if n is 0.
func (t *Topology) firstHelpers(n int) []string {
	all := t.Helpers()
	if n > 0 && n < len(all) {
		return all[:n]
	}
	return all
}

// schemeParticipants are the helpers that take part in a scheme, and whether the direct path
// does.
func schemeParticipants(t *Topology, scheme string) (helpers []string, direct bool) {
	base, variant, _ := strings.Cut(scheme, ":")
	if base == "single" && variant != "" {
		return []string{variant}, false
	}
	if base == "single" || base == "relay" || scheme == "mptcp:own" {
		return nil, true
	}
	for o := range strings.SplitSeq(variant, ":") {
		if o == "direct" {
			return nil, true
		}
		if n, is, err := parseHelpersOption(o); is && err == nil {
			return t.firstHelpers(n), true
		}
	}
	return t.Helpers(), true
}
