// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/unit"
)

// onloadPort is the port at which helpers accept connections, mpbond's default.
const onloadPort = 7604

// onloadScheme is mpbond without a server: helpers onload, and the client is `mpbond get --onload`
// or `mpbond put`. It begins without connections and has found its helpers when its time begins.
type onloadScheme struct {
	schemeDefaults
	scheduler  string // empty: the product's default
	maxHelpers int    // 0: all helpers take part
}

// parseOnloadScheme parses the options after "onload:", separated by colons.
func parseOnloadScheme(variant string) (*onloadScheme, error) {
	o := &onloadScheme{}
	for text := range strings.SplitSeq(variant, ":") {
		n, is, err := parseHelpersOption(text)
		switch {
		case is && err == nil:
			o.maxHelpers = n
		case is:
			return nil, fmt.Errorf("scheme onload:%s: %w", variant, err)
		case o.scheduler == "" && text != "":
			o.scheduler = text // mpbond rejects an unknown one
		case variant != "":
			return nil, fmt.Errorf("scheme onload:%s: %q: write onload[:SCHEDULER][:helpers=N]", variant, text)
		}
	}
	return o, nil
}

// isOnloadScheme reports whether a scheme is onload.
func isOnloadScheme(scheme string) bool {
	base, _, _ := strings.Cut(scheme, ":")
	return base == "onload"
}

// Start makes the first helpers accept connections.
func (o *onloadScheme) Start(ctx context.Context, b *Bench) error {
	if err := b.StartWeb(ctx); err != nil {
		return err
	}
	mpbond, err := findProgram("mpbond")
	if err != nil {
		return err
	}
	if err := b.setupOnloadTrust(ctx, mpbond, o.maxHelpers); err != nil {
		return err
	}
	for _, h := range b.Lab.Topology.firstHelpers(o.maxHelpers) {
		argv := []string{mpbond, "helper", "--onload=unlimited", "--name", h}
		if b.LogDir != "" {
			argv = append(argv, "--trace", filepath.Join(b.LogDir, h+"-trace.jsonl"))
		}
		if err := b.Spawn(ctx, h, onloadPort, []string{b.onloadHomes.nodeHomeEnv(h)}, argv...); err != nil {
			return err
		}
	}
	return nil
}

func (o *onloadScheme) Client(b *Bench, t Transfer) []string {
	mpbond, _ := findProgram("mpbond") // Start has found it
	argv := []string{"env", b.onloadHomes.nodeHomeEnv("primary"), mpbond}
	if t.Upload {
		argv = append(argv, "put", "--to", b.itemOrDirURL(t, -1))
	} else {
		argv = append(argv, "get", "--onload", "--output", filepath.Join(b.Dir, receivedDir))
	}
	argv = append(argv, "--json")
	if o.scheduler != "" {
		argv = append(argv, "--scheduler", o.scheduler)
	}
	for i := range t.Items {
		if t.Upload {
			argv = append(argv, filepath.Join(b.Dir, itemsDir, itemFileName(i)))
		} else {
			argv = append(argv, b.itemOrDirURL(t, i))
		}
	}
	return argv
}

// onloadReport is the output of `mpbond get --onload --json` and `mpbond put --json`.
type onloadReport struct {
	Wasted  unit.Bytes `json:"wasted"`
	Seconds float64    `json:"seconds"`
	Devices []struct {
		Device string     `json:"device"`
		Bytes  unit.Bytes `json:"bytes"`
		Wasted unit.Bytes `json:"wasted"`
	} `json:"devices"`
}

// evaluateOnload takes the client's report into the result and checks all files: those that the
// client wrote, or that the web node received.
func (r *Result) evaluateOnload(b *Bench, t Transfer, out []byte) error {
	var said onloadReport
	if err := json.Unmarshal(out, &said); err != nil {
		return fmt.Errorf("report of the client: %w: %s", err, bytes.TrimSpace(out))
	}
	r.Seconds, r.Duplicate, r.Notes = said.Seconds, said.Wasted, map[string]any{"devices": said.Devices}
	dir := receivedDir
	if t.Upload {
		dir = sentDir
	}
	named, err := b.checkItemFiles(t, dir)
	if err != nil {
		return err
	}
	r.SHA = true
	end := slices.MaxFunc(named, time.Time.Compare) // its time ends then
	for _, at := range named {
		r.Items = append(r.Items, max(0, said.Seconds-end.Sub(at).Seconds()))
	}
	return nil
}

// renameTime returns when a file got its name. No byte is written to it after that.
func renameTime(path string) (time.Time, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", path, err)
	}
	return time.Unix(st.Ctim.Unix()), nil
}

// Verify fails unless the participating helpers were found, data arrived through one of them, and
// none through the others.
func (o *onloadScheme) Verify(_ context.Context, b *Bench, r *Result) error {
	all := b.Lab.Topology.Helpers()
	some := b.Lab.Topology.firstHelpers(o.maxHelpers)
	text, _ := json.Marshal(r.Notes["devices"])
	var carried unit.Bytes
	for _, h := range some {
		if !bytes.Contains(text, []byte(`"`+h+`"`)) {
			return fmt.Errorf("onload: %s was not found: %s", h, text)
		}
		carried += r.Devices[h]
	}
	const greeting = 8 * unit.KB // bytes of a helper that is found and carries nothing
	if len(some) > 0 && carried < greeting {
		return fmt.Errorf("onload: only %v arrived through helpers", carried)
	}
	for _, h := range all[len(some):] {
		if r.Devices[h] > greeting {
			return fmt.Errorf("onload: %v arrived through %s, which takes no part", r.Devices[h], h)
		}
	}
	r.PeakRSS = b.peakRSSByNode()
	return nil
}

func (*onloadScheme) Capabilities() capabilities { return capabilities{items: true, ownReport: true} }

// setupOnloadTrust makes the devices' keys, once for a bench. The primary and the first n helpers,
// or all if n is 0, trust each other.
func (b *Bench) setupOnloadTrust(ctx context.Context, mpbond string, n int) error {
	t := b.Lab.Topology
	if b.onloadHomes == nil {
		h, err := b.makeDeviceHomes(ctx, mpbond, filepath.Join(b.Dir, "onload"), append([]string{"primary"}, t.Helpers()...))
		if err != nil {
			return err
		}
		web, err := t.Addr("web", "")
		if err != nil {
			return err
		}
		for _, name := range t.Helpers() {
			if err := h.addTrustedPeer(ctx, name, "primary", "primary"); err != nil {
				return err
			}
			allow := fmt.Sprintf("[onload]\nallow = [\"%s/32\"]\n", web) // a private address needs this
			if err := os.WriteFile(filepath.Join(h.nodeHomeDir(name), "helper.toml"), []byte(allow), 0o600); err != nil {
				return err
			}
		}
		b.onloadHomes = h
	}
	h := b.onloadHomes
	// The state of a failed upload would spare the next one a part of it.
	kept, err := filepath.Glob(filepath.Join(h.nodeHomeDir("primary"), "put-*.jsonl"))
	if err != nil {
		return err
	}
	for _, name := range append(kept, filepath.Join(h.nodeHomeDir("primary"), "trust.toml")) {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	for _, name := range t.firstHelpers(n) {
		addr, err := t.Addr(name, t.linkBetween("primary", name))
		if err != nil {
			return err
		}
		if err := h.addTrustedPeer(ctx, "primary", name, "helper", "--addr",
			fmt.Sprintf("%s:%d", addr, onloadPort)); err != nil {
			return err
		}
	}
	return nil
}
