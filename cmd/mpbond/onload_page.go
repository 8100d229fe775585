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
	// To is the URL that photos go to, as `mpbond put --to` has it; a place ends with a
	// slash. Without it there is no page.
	To string `toml:"to"`
	// Method is how they go there: "put", "post" or "s3", with the keys of the
	// environment; empty is "put".
	Method string `toml:"method"`
	// Home is the interface of the home line, like "wlan0"; empty is that photos go over
	// the helper's own line alone.
	Home string `toml:"home"`
	// Listen is where the page is, "host:port"; empty is ":7607".
	Listen string `toml:"listen"`
	// Field is what the file is called in a form; empty is "file".
	Field string `toml:"field"`
	// Form are other fields of a form, each "NAME=VALUE".
	Form []string `toml:"form"`
	// Headers go with each request, each "NAME:VALUE".
	Headers []string `toml:"headers"`
	// Spool bounds what is kept until it is sent; 0 is "2GB".
	Spool policy.Volume `toml:"spool"`
}

// defaultSpool bounds the spool if nothing else is said.
const defaultSpool = 2e9

// onloadPage is a helper's page. Nil is none.
type onloadPage struct {
	*page.Page
	listener  *tcp.Listener
	localLine *page.Line
	code      string
}

// validate tells what cannot be.
func (c pageConfig) validate(of onloadConfig) error {
	bad := func(text string) error {
		return fault.New(fault.Config, errors.New("[onload.page]: "+text), "see docs/howto/onload.md")
	}
	switch {
	case c.To == "" && !reflect.ValueOf(c).IsZero():
		return bad("there is no page without `to`, the URL that photos go to")
	case c.To == "":
		return nil
	case of.Allowance.String() == "":
		return bad("photos go over the helper's line too: set allowance in [onload]")
	case c.Home != "" && of.Interface == "":
		return bad("with home, [onload] needs interface: by the routes both might be the same line")
	case c.Home != "" && c.Home == of.Interface:
		return bad("home is the helper's own line: they are to be two")
	}
	t, err := c.uploadTarget()
	if err == nil {
		err = t.Check()
	}
	switch {
	case err != nil:
		return fault.New(fault.Config, fmt.Errorf("[onload.page]: %w", err), fault.HintOf(err))
	case t.Method != upload.Post && !t.IsCollection():
		return bad("photos go to a place, whose URL ends with a slash")
	}
	return nil
}

// uploadTarget is where photos go.
func (c pageConfig) uploadTarget() (upload.Target, error) {
	return newTarget(putOptions{to: c.To, method: cmp.Or(c.Method, upload.Put), field: cmp.Or(c.Field, "file"), form: c.Form, headers: c.Headers})
}

// initPage has the helper serve its page, if its owner wants that.
func (o *onloadService) initPage(mark int) error {
	c := o.cfg.Page
	if c.To == "" {
		return nil
	}
	target, err := c.uploadTarget()
	if err != nil {
		return err
	}
	p := &onloadPage{code: pairing.Code{Secret: pairing.NewSecret()}.String()}
	line := tcp.Options{Interface: o.cfg.Interface, Mark: mark, KeepAlive: tcp.RadioKeepAlive, Ledger: o.h.CountShared(o.r.usage.LedgerFor(policy.ForOnload))}
	p.localLine = page.NewLine(cmp.Or(o.cfg.Interface, localLinkName), line, o.checkOpen)
	own := p.localLine.Device()
	own.Metered = func() bool { return !o.cfg.Allowance.Unlimited }
	devices := []upload.Device{own}
	if c.Home != "" {
		devices = slices.Insert(devices, 0, page.NewLine(c.Home, tcp.Options{Interface: c.Home, Mark: mark, Ledger: o.h.CountShared(o.r.usage.LedgerFor(policy.ForDirect))}, nil).Device())
	}
	host, _ := os.Hostname()
	dir, err := cli.InHome("page-" + o.r.name)
	if err != nil {
		return err
	}
	p.Page, err = page.New(page.Config{Target: target, Devices: devices, Dir: dir, SpoolLimit: unit.Bytes(cmp.Or(c.Spool, defaultSpool)), AccessCode: p.code,
		HostNames: []string{host}, Uplink: o.cfg.Interface, Notice: o.pageNote, UserAgent: "mpbond/" + cli.Version, Log: slog.Default()})
	if err != nil {
		return err
	}
	at := cmp.Or(c.Listen, ":"+strconv.Itoa(page.Port))
	if p.listener, err = tcp.Listen(context.Background(), at, tcp.Options{Mark: mark, Ledger: o.h.CountShared(o.r.usage.LedgerFor(policy.ForPipe))}); err != nil {
		return cli.ExplainListenError(err, "`listen` in [onload.page]")
	}
	o.page = p
	return nil
}

// pageNote is what browsers should know.
func (o *onloadService) pageNote() string {
	err := o.checkOpen()
	switch {
	case err == nil:
		return ""
	case o.cfg.Page.Home != "":
		return fmt.Sprintf("The helper’s own line carries nothing now, photos go over the home line alone: %v", err)
	}
	return fmt.Sprintf("The helper’s line carries nothing now: %v", err)
}

// servePage serves the page until ctx ends.
func (p *onloadPage) servePage(ctx context.Context) error {
	going, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); p.localLine.RunReviews(going) }()
	defer func() { stop(); <-done }()
	slog.Info("photos are taken by a page", "at", p.listener.Addr())
	if err := p.Serve(going, p.listener); ctx.Err() == nil {
		return err
	}
	return nil
}

// pageURLs are where browsers find it.
func (p *onloadPage) pageURLs() (list []string) {
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
	return &api.OnloadPage{Listen: p.listener.Addr().String(), URLs: append([]string{}, p.pageURLs()...), Code: p.code, Waiting: s.Waiting, Sent: s.Done, Failed: s.Failed, SpoolBytes: s.Bytes}
}

// printWithCode tells people of it; with a picture of it on a terminal, which brings the code.
func (p *onloadPage) printWithCode(w io.Writer) {
	printPage(w, *p.pageStatus())
	if urls := p.pageURLs(); len(urls) > 0 && cli.IsTerminal(w) {
		qrterminal.GenerateHalfBlock(urls[0]+"#code="+p.code, qrterminal.L, w)
	}
}

// printPage tells people of it.
func printPage(w io.Writer, p api.OnloadPage) {
	fmt.Fprintf(w, "page for photos, with the code %s: %s\n", text.Printable(p.Code), text.Printable(cmp.Or(strings.Join(p.URLs, " "), p.Listen)))
	fmt.Fprintf(w, "photos: %d arrived, %d on the way, %d failed; %s are kept\n", p.Sent, p.Waiting, p.Failed, p.SpoolBytes.Decimal())
}
