// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mdp/qrterminal/v3"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/link/pairing"
	"mpbond/link/tcp"
	"mpbond/onload/page"
	"mpbond/onload/upload"
)

// pageConfig is [onload.page] of helper.toml.
type pageConfig struct {
	// To is the URL to which photos are uploaded, as in `mpbond put --to`; a directory ends with
	// a slash. Empty switches the page off.
	To string `toml:"to"`
	// Method is how photos are uploaded: "put", "post" or "s3", with the keys from the
	// environment; empty is "put".
	Method string `toml:"method"`
	// Home is the interface of the home link, like "wlan0"; if it is empty photos use the
	// helper's Internet link only.
	Home string `toml:"home"`
	// Listen is the address of the page, "host:port"; empty is ":7607".
	Listen string `toml:"listen"`
	// Field is the form field of the file; empty is "file".
	Field string `toml:"field"`
	// Form are further form fields, each "NAME=VALUE".
	Form []string `toml:"form"`
	// Headers are sent with each request, each "NAME:VALUE".
	Headers []string `toml:"headers"`
	// Spool bounds the photos that wait on this device until they are sent; 0 is "2GB".
	Spool policy.Volume `toml:"spool"`
}

// defaultSpool is the default of pageConfig.Spool.
const defaultSpool = 2e9

// onloadPage is a helper's page for uploading photos. A nil page does nothing.
type onloadPage struct {
	*page.Page
	listener  *tcp.Listener
	localLine *page.Line
	code      string
}

// validatePage returns an error if the configuration is inconsistent.
func (c pageConfig) validatePage(of onloadConfig) error {
	bad := func(text string) error {
		return fault.New(fault.Config, errors.New("[onload.page]: "+text), "see docs/howto/onload-helper.md")
	}
	switch {
	case c.To == "" && !reflect.ValueOf(c).IsZero():
		return bad("set `to`, the URL for photos")
	case c.To == "":
		return nil
	case of.Allowance.String() == "":
		return bad("photos use the helper's link too: set allowance in [onload]")
	case c.Home != "" && of.Interface == "":
		return bad("with home, [onload] needs interface: by default both might be the same link")
	case c.Home != "" && c.Home == of.Interface:
		return bad("home and interface of [onload] must be different links")
	}
	t, err := c.uploadTarget()
	if err == nil {
		err = t.Check()
	}
	switch {
	case err != nil:
		return fault.New(fault.Config, fmt.Errorf("[onload.page]: %w", err), fault.HintOf(err))
	case t.Method != upload.Post && !t.IsCollection():
		return bad("`to` must be a directory, whose URL ends with a slash")
	}
	return nil
}

// uploadTarget returns the target of the photos.
func (c pageConfig) uploadTarget() (upload.Target, error) {
	return newUploadTarget(putOptions{
		to: c.To, method: cmp.Or(c.Method, upload.Put), field: cmp.Or(c.Field,
			"file"), form: c.Form, headers: c.Headers,
	})
}

// initOnloadPage opens the helper's page if it is configured.
func (o *onloadService) initOnloadPage(mark int) error {
	c := o.cfg.Page
	if c.To == "" {
		return nil
	}
	target, err := c.uploadTarget()
	if err != nil {
		return err
	}
	p := &onloadPage{code: pairing.Code{Secret: pairing.NewSecret()}.String()}
	line := tcp.Options{Interface: o.cfg.Interface, Mark: mark, KeepAlive: tcp.RadioKeepAlive,
		Ledger: o.h.CountShared(o.r.usage.LedgerFor(policy.ForOnload))}
	p.localLine = page.NewLine(cmp.Or(o.cfg.Interface, localLinkName), line, o.checkOnloadOpen)
	own := p.localLine.Device()
	own.Metered = func() bool { return !o.cfg.Allowance.Unlimited }
	devices := []upload.Device{own}
	if c.Home != "" {
		devices = slices.Insert(devices, 0, page.NewLine(c.Home,
			tcp.Options{Interface: c.Home, Mark: mark,
				Ledger: o.h.CountShared(o.r.usage.LedgerFor(policy.ForDirect))}, nil).Device())
	}
	host, _ := os.Hostname()
	dir, err := cli.InHome("page-" + o.r.name)
	if err != nil {
		return err
	}
	p.Page, err = page.New(page.Config{Target: target, Devices: devices, Dir: dir,
		SpoolLimit: unit.Bytes(cmp.Or(c.Spool, defaultSpool)), AccessCode: p.code,
		HostNames: []string{host}, Uplink: o.cfg.Interface, Notice: o.browserNotice, UserAgent: "mpbond/" + cli.Version,
		Log: slog.Default()})
	if err != nil {
		return err
	}
	at := cmp.Or(c.Listen, ":"+strconv.Itoa(page.Port))
	if p.listener, err = tcp.Listen(context.Background(), at,
		tcp.Options{Mark: mark, Ledger: o.h.CountShared(o.r.usage.LedgerFor(policy.ForPipe))}); err != nil {
		return cli.ExplainListenError(err, "`listen` in [onload.page]")
	}
	o.page = p
	return nil
}

// browserNotice returns a note for browsers, "" if there is nothing to note.
func (o *onloadService) browserNotice() string {
	err := o.checkOnloadOpen()
	switch {
	case err == nil:
		return ""
	case o.cfg.Page.Home != "":
		return fmt.Sprintf("The helper’s link is not available now, photos use the home link only: %v", err)
	}
	return fmt.Sprintf("The helper’s link is not available now: %v", err)
}

// serveOnloadPage serves the page until ctx ends.
func (p *onloadPage) serveOnloadPage(ctx context.Context) error {
	going, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); p.localLine.RunReviews(going) }()
	defer func() { stop(); <-done }()
	slog.Info("photo page started", "listen", p.listener.Addr())
	if err := p.Serve(going, p.listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// listPageURLs returns the addresses of the page for browsers.
func (p *onloadPage) listPageURLs() (list []string) {
	at, _ := p.listener.Addr().(*net.TCPAddr)
	if at == nil {
		return nil
	}
	if !at.IP.IsUnspecified() {
		return []string{"http://" + at.String() + "/"}
	}
	for _, a := range p.LocalAddresses() {
		list = append(list, "http://"+netip.AddrPortFrom(a, uint16(at.Port)).String()+"/")
	}
	return list
}

func (p *onloadPage) pageStatus() *api.OnloadPage {
	if p == nil {
		return nil
	}
	s := p.Status()
	return &api.OnloadPage{Listen: p.listener.Addr().String(), URLs: append([]string{}, p.listPageURLs()...),
		Code: p.code, Waiting: s.Waiting, Sent: s.Done, Failed: s.Failed, SpoolBytes: s.Bytes}
}

// printWithCode prints the page's address and code, on a terminal also as a QR code.
func (p *onloadPage) printWithCode(w io.Writer) {
	printOnloadPage(w, *p.pageStatus())
	if urls := p.listPageURLs(); len(urls) > 0 && cli.IsTerminal(w) {
		qrterminal.GenerateHalfBlock(urls[0]+"#code="+p.code, qrterminal.L, w)
	}
}

// printOnloadPage prints the page's address, its code and the number of photos.
func printOnloadPage(w io.Writer, p api.OnloadPage) {
	urls := cmp.Or(strings.Join(p.URLs, " "), p.Listen)
	fmt.Fprintf(w, "photo page, code %s: %s\n", text.Printable(p.Code), text.Printable(urls))
	fmt.Fprintf(w, "photos: %d sent, %d waiting, %d failed; %s stored\n", p.Sent, p.Waiting, p.Failed,
		p.SpoolBytes.Decimal())
}
