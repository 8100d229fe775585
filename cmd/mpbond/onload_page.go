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

// usualSpool bounds the spool if nothing else is said.
const usualSpool = 2e9

// onloadPage is a helper's page. Nil is none.
type onloadPage struct {
	*page.Page
	l    *tcp.Listener
	own  *page.Line
	code string
}

// check tells what cannot be.
func (c pageConfig) check(of onloadConfig) error {
	bad := func(text string) error {
		return fault.New(fault.Config, errors.New("[onload.page]: "+text), "see docs/onload.md")
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
	t, err := c.target()
	if err == nil {
		err = t.Check()
	}
	switch {
	case err != nil:
		return fault.New(fault.Config, fmt.Errorf("[onload.page]: %w", err), fault.HintOf(err))
	case t.Method != upload.Post && !t.Place():
		return bad("photos go to a place, whose URL ends with a slash")
	}
	return nil
}

// target is where photos go.
func (c pageConfig) target() (upload.Target, error) {
	return newTarget(putOptions{to: c.To, method: cmp.Or(c.Method, upload.Put), field: cmp.Or(c.Field, "file"), form: c.Form, headers: c.Headers})
}

// usePage has the helper serve its page, if its owner wants that.
func (o *onloading) usePage(mark int) error {
	c := o.cfg.Page
	if c.To == "" {
		return nil
	}
	target, err := c.target()
	if err != nil {
		return err
	}
	p := &onloadPage{code: pairing.Code{Secret: pairing.NewSecret()}.String()}
	line := tcp.Options{Interface: o.cfg.Interface, Mark: mark, KeepAlive: tcp.RadioKeepAlive, Ledger: o.h.CountLent(o.r.usage.Ledger(policy.ForOnload))}
	p.own = page.NewLine(cmp.Or(o.cfg.Interface, ownLine), line, o.open)
	own := p.own.Device()
	own.Metered = func() bool { return !o.cfg.Allowance.Unlimited }
	devices := []upload.Device{own}
	if c.Home != "" {
		devices = slices.Insert(devices, 0, page.NewLine(c.Home, tcp.Options{Interface: c.Home, Mark: mark, Ledger: o.h.CountLent(o.r.usage.Ledger(policy.ForDirect))}, nil).Device())
	}
	host, _ := os.Hostname()
	dir, err := cli.InHome("page-" + o.r.name)
	if err != nil {
		return err
	}
	p.Page, err = page.New(page.Config{Target: target, Devices: devices, Dir: dir, Room: unit.Bytes(cmp.Or(c.Spool, usualSpool)), Code: p.code,
		Names: []string{host}, Away: o.cfg.Interface, Note: o.pageNote, UserAgent: "mpbond/" + cli.Version, Log: slog.Default()})
	if err != nil {
		return err
	}
	at := cmp.Or(c.Listen, ":"+strconv.Itoa(page.Port))
	if p.l, err = tcp.Listen(context.Background(), at, tcp.Options{Mark: mark, Ledger: o.h.CountLent(o.r.usage.Ledger(policy.ForPipe))}); err != nil {
		return cli.PortHint(err, "`listen` in [onload.page]")
	}
	o.page = p
	return nil
}

// pageNote is what browsers should know.
func (o *onloading) pageNote() string {
	err := o.open()
	switch {
	case err == nil:
		return ""
	case o.cfg.Page.Home != "":
		return fmt.Sprintf("The helper’s own line carries nothing now, photos go over the home line alone: %v", err)
	}
	return fmt.Sprintf("The helper’s line carries nothing now: %v", err)
}

// run serves the page until ctx ends.
func (p *onloadPage) run(ctx context.Context) error {
	going, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); p.own.Keep(going) }()
	defer func() { stop(); <-done }()
	slog.Info("photos are taken by a page", "at", p.l.Addr())
	if err := p.Serve(going, p.l); ctx.Err() == nil {
		return err
	}
	return nil
}

// urls are where browsers find it.
func (p *onloadPage) urls() (list []string) {
	at, _ := p.l.Addr().(*net.TCPAddr)
	if at == nil {
		return nil
	}
	if !at.IP.IsUnspecified() {
		return []string{"http://" + at.String() + "/"}
	}
	for _, a := range p.Addresses() {
		list = append(list, "http://"+netip.AddrPortFrom(a, uint16(at.Port)).String()+"/")
	}
	return list
}

func (p *onloadPage) status() *api.OnloadPage {
	if p == nil {
		return nil
	}
	s := p.Status()
	return &api.OnloadPage{Listen: p.l.Addr().String(), URLs: append([]string{}, p.urls()...), Code: p.code, Waiting: s.Waiting, Sent: s.Done, Failed: s.Failed, SpoolBytes: s.Bytes}
}

// show tells people of it; with a picture of it on a terminal, which brings the code.
func (p *onloadPage) show(w io.Writer) {
	printPage(w, *p.status())
	if urls := p.urls(); len(urls) > 0 && cli.IsTerminal(w) {
		qrterminal.GenerateHalfBlock(urls[0]+"#code="+p.code, qrterminal.L, w)
	}
}

// printPage tells people of it.
func printPage(w io.Writer, p api.OnloadPage) {
	fmt.Fprintf(w, "page for photos, with the code %s: %s\n", text.Printable(p.Code), text.Printable(cmp.Or(strings.Join(p.URLs, " "), p.Listen)))
	fmt.Fprintf(w, "photos: %d arrived, %d on the way, %d failed; %s are kept\n", p.Sent, p.Waiting, p.Failed, p.SpoolBytes.Decimal())
}
