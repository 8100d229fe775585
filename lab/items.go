// SPDX-License-Identifier: Apache-2.0

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

// Directories and files of transfers of several items, below the bench's directory.
const (
	itemsDir    = "www/items" // files to fetch or send
	sentDir     = "www/up"    // files that the web node received
	receivedDir = "got"       // files that a client wrote
	accessLog   = "access.log"
)

// itemsNginxConf makes the web server log requests and accept files by PUT.
const itemsNginxConf = `  log_format item '$remote_addr $request_method $status';
  access_log %[1]s/` + accessLog + ` item;
  client_max_body_size 0;
  dav_methods PUT DELETE MKCOL;
`

// totalBytes returns the bytes of a transfer, of all its streams, objects or items.
func (p RunSpec) totalBytes() (n unit.Bytes) {
	if p.App != nil {
		return p.appBytes()
	}
	for _, size := range p.Items {
		n += size
	}
	if len(p.Items) > 0 {
		return n
	}
	return p.Size * unit.Bytes(max(1, p.Streams, p.Objects))
}

// checkItems returns what is wrong with the items, if anything.
func (p RunSpec) checkItems() error {
	if len(p.Items) == 0 {
		return nil
	}
	if p.Size != 0 || p.Streams > 1 || p.Length != 0 || p.Video != nil || p.Unchecked {
		return fmt.Errorf("several items exclude a size, streams, a length, a video and unchecked transfers")
	}
	for i, size := range p.Items {
		if size <= 0 {
			return fmt.Errorf("item %d: %d bytes is not a valid size", i, size)
		}
	}
	return nil
}

func itemFileName(i int) string { return fmt.Sprintf("item%03d", i) }

// makeItemFile makes the i-th item. Each item has different content.
func (b *Bench) makeItemFile(i int, size unit.Bytes) (path string, sum [32]byte, err error) {
	return b.makeContent(filepath.Join(b.Dir, itemsDir, itemFileName(i)), uint64(i)+1, size)
}

// curlItemArgs appends curl's arguments for items. curl fetches or sends them in order over one
// connection, as a browser with HTTP/1.1 or a player would.
func (b *Bench) curlItemArgs(args []string, t Transfer) []string {
	for i := range t.Items {
		if t.Upload {
			args = append(args, "-T", filepath.Join(b.Dir, itemsDir, itemFileName(i)), b.itemOrDirURL(t, i))
		} else {
			args = append(args, b.itemOrDirURL(t, i))
		}
	}
	if t.Upload {
		args = append(args, "-H", "Expect:")
	}
	return args
}

// itemOrDirURL returns the URL of an item, for i < 0 that of its directory.
func (b *Bench) itemOrDirURL(t Transfer, i int) string {
	dir, name := filepath.Base(itemsDir), ""
	if t.Upload {
		dir = filepath.Base(sentDir)
	}
	if i >= 0 {
		name = itemFileName(i)
	}
	return b.webNodeURL() + "/" + dir + "/" + name
}

// clearItemDirs removes the files that earlier transfers wrote.
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

// evaluateItems takes curl's report of several items into the result and checks that all items are
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
		return fmt.Errorf("curl reported %d of %d items: %s", len(r.Items), len(t.Items), strings.TrimSpace(report))
	}
	if t.Upload {
		_, err := b.checkItemFiles(t, sentDir)
		r.SHA = err == nil
		return err
	}
	r.LongestGap = got.Gap
	all := sha256.New()
	for i, size := range t.Items {
		path, _, err := b.makeItemFile(i, size)
		if err != nil {
			return err
		}
		if err := copyFilePrefix(all, path, -1); err != nil {
			return err
		}
	}
	if r.SHA = got.SHA == hex.EncodeToString(all.Sum(nil)); !r.SHA {
		return fmt.Errorf("the items arrived with the wrong SHA-256 (%d bytes)", got.Bytes)
	}
	return nil
}

// checkItemFiles compares the items in a directory with their expected content. It returns when
// each file got its name.
func (b *Bench) checkItemFiles(t Transfer, dir string) (named []time.Time, err error) {
	for i, size := range t.Items {
		_, want, err := b.makeItemFile(i, size)
		if err != nil {
			return nil, err
		}
		hash, path := sha256.New(), filepath.Join(b.Dir, dir, itemFileName(i))
		if err := copyFilePrefix(hash, path, -1); err != nil {
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

// copyFilePrefix copies the first n bytes of a file to a writer, or all if n is negative.
func copyFilePrefix(to io.Writer, path string, n int64) error {
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

// countRequests counts the requests that the web server answered, by the device whose link they
// came from.
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

// ItemsDone returns when the first n items were complete, in seconds from the start. ok is false if
// the client did not report it.
func (r Result) ItemsDone(n int) (seconds float64, ok bool) {
	for i, at := range r.Items {
		if i < n {
			seconds = max(seconds, at)
		}
	}
	return seconds, n > 0 && n <= len(r.Items)
}

// parseHelpersOption parses "helpers=N".
func parseHelpersOption(text string) (n int, is bool, err error) {
	number, is := strings.CutPrefix(text, "helpers=")
	if !is {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(number); err != nil || n < 1 {
		return 0, true, fmt.Errorf("%q: write helpers=N with N of at least 1", text)
	}
	return n, true, nil
}

// firstHelpers returns the first n helpers, or all if n is 0.
func (t *Topology) firstHelpers(n int) []string {
	all := t.Helpers()
	if n > 0 && n < len(all) {
		return all[:n]
	}
	return all
}

// schemeParticipants returns the helpers that take part in a scheme, and whether the direct path
// does.
func schemeParticipants(t *Topology, scheme string) (helpers []string, direct bool) {
	base, variant, _ := strings.Cut(scheme, ":")
	if base == "single" && variant != "" && !strings.HasPrefix(variant, "if=") {
		return []string{variant}, false
	}
	if base == "single" || base == "relay" || base == "mptcp" && strings.HasPrefix(variant, "own") {
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
