// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"mpbond/base/unit"
)

// pagePort is the port of a helper's page, mpbond's default.
const pagePort = 7607

// pageScheme is mpbond without a client. The first helper's page accepts files from a browser
// beside it, played by curl. The helper sends them over its own link and the home line, whose
// router is the primary. The primary must forward and be a NAT router (Node.NAT).
type pageScheme struct {
	pageURL, code string
	savedConfig   []byte // the helper's configuration without a page
}

// pageClient uses the page as a browser does: it enters the code, sends files one after the other,
// and polls until all have arrived. Its time begins with the first file.
const pageClient = `set -e
at=$1 code=$2; shift 2
token=$(curl -sSf -H 'Content-Type: application/octet-stream' -d "{\"Code\":\"$code\"}" "$at/enter" |
	sed 's/.*"token":"\([^"]*\)".*/\1/')
begin=$(date +%s%N)
for f; do
	curl -sSf -H Expect: -H "Authorization: Bearer $token" -H 'Content-Type: application/octet-stream' \
		--data-binary "@$f" "$at/files?name=${f##*/}"
done
while :; do
	list=$(curl -sN -m 0.2 -H "Authorization: Bearer $token" "$at/events" || :)
	case $list in *'"state":"failed"'*) echo "$list" >&2; exit 1;; esac
	left=$(printf %s "$list" | tail -n 2 | grep -o '"state":"[a-z]*"' | grep -vc done || :)
	done=$(printf %s "$list" | tail -n 2 | grep -o '"state":"done"' | wc -l)
	[ "$left" = 0 ] && [ "$done" -ge $# ] && break
done
echo "{\"seconds\": $((($(date +%s%N) - begin) / 1000000))e-3}"
`

func (p *pageScheme) Start(ctx context.Context, b *Bench) error {
	if err := b.StartWeb(ctx); err != nil {
		return err
	}
	mpbond, err := findProgram("mpbond")
	if err != nil {
		return err
	}
	if err := b.setupOnloadTrust(ctx, mpbond, 1); err != nil {
		return err
	}
	t := b.Lab.Topology
	if len(t.Helpers()) == 0 {
		return fmt.Errorf("page: the topology has no helper")
	}
	h := t.Helpers()[0]
	hs, pipe := t.linkBetween(h, "server"), t.linkBetween("primary", h)
	router, err := t.Addr("primary", pipe)
	if err != nil {
		return err
	}
	here, err := t.Addr(h, pipe)
	if err != nil {
		return err
	}
	if _, err := b.Run(ctx, h, "ip", "route", "replace", "default", "via", router.String(), "dev", pipe, "metric",
		"900"); err != nil {
		return err
	}
	dir := b.onloadHomes.nodeHomeDir(h)
	spools, err := filepath.Glob(filepath.Join(dir, "page-*"))
	if err != nil {
		return err
	}
	for _, spool := range spools { // left by a failed transfer
		if err := os.RemoveAll(spool); err != nil {
			return err
		}
	}
	config := filepath.Join(dir, "helper.toml")
	if p.savedConfig, err = os.ReadFile(config); err != nil {
		return err
	}
	text := fmt.Sprintf("[onload]\nallowance = \"unlimited\"\ninterface = %q\n[onload.page]\nhome = %q\nto = %q\n", hs,
		pipe, b.itemOrDirURL(Transfer{Upload: true}, -1))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	if err := b.Spawn(ctx, h, pagePort, []string{b.onloadHomes.nodeHomeEnv(h)}, mpbond, "helper", "--name",
		h); err != nil {
		return err
	}
	out, err := b.onloadHomes.runMPBondInNode(ctx, h, "status", "--json")
	if err != nil {
		return err
	}
	if p.code, err = findPageCode(out); err != nil {
		return err
	}
	p.pageURL = "http://" + here.String() + ":" + strconv.Itoa(pagePort)
	return nil
}

// findPageCode finds the page's code in the status of a helper.
func findPageCode(status string) (string, error) {
	d := json.NewDecoder(bytes.NewBufferString(status))
	for key := false; ; {
		t, err := d.Token()
		if err != nil {
			return "", fmt.Errorf("no page code in the helper's status: %s", status)
		}
		if s, is := t.(string); is && key && s != "" {
			return s, nil
		}
		key = t == json.Token("code")
	}
}

func (p *pageScheme) Client(b *Bench, t Transfer) []string {
	argv := []string{"sh", "-c", pageClient, "page", p.pageURL, p.code}
	for i := range t.Items {
		argv = append(argv, filepath.Join(b.Dir, itemsDir, itemFileName(i)))
	}
	return argv
}

func (*pageScheme) Capabilities() capabilities { return capabilities{items: true, ownReport: true} }

// Verify fails unless data went by the helper's own link and by the home line.
func (p *pageScheme) Verify(_ context.Context, b *Bench, r *Result) error {
	t := b.Lab.Topology
	for _, link := range []string{t.linkBetween("primary", "server"), t.linkBetween(t.Helpers()[0], "server")} {
		if r.Links[link] < 64*unit.KB {
			return fmt.Errorf("page: only %v went over %s", r.Links[link], link)
		}
	}
	return nil
}

func (p *pageScheme) Stop(ctx context.Context, b *Bench) error {
	h := b.Lab.Topology.Helpers()[0]
	if p.savedConfig == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(b.onloadHomes.nodeHomeDir(h), "helper.toml"), p.savedConfig, 0o600); err != nil {
		return err
	}
	_, err := b.Run(ctx, h, "ip", "route", "del", "default", "metric", "900")
	return err
}
