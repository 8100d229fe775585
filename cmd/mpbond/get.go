// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/internal/cli"
	"mpbond/onload/fetch"
)

// headerTimeout bounds the wait for the response header of a web server.
const headerTimeout = 60 * time.Second

type getOptions struct {
	socket, file, sha256 string
	asJSON, quiet        bool

	onload     bool
	interfaces []string
	scheduler  string
	secretOptions
}

// getResult is what `mpbond get --json` prints.
type getResult struct {
	URL     string        `json:"url"`
	File    string        `json:"file"`
	Bytes   unit.Bytes    `json:"bytes"`
	Seconds float64       `json:"seconds"`
	RateBps unit.Rate     `json:"rate_bps"`
	SHA256  string        `json:"sha256"`
	Devices []deviceShare `json:"devices"` // what each received meanwhile, for all streams of the bond
}

func getCommand() *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use: "get URL…", Short: "download files over all devices", Args: cobra.MinimumNArgs(1),
		Long: `Download a file through the running primary, over all devices, and show how much
each of them carries.

The file appears under its name only when it is complete and verified. Without
--output an existing file is never replaced. Use "-" for standard output.
If the primary or the server restarts meanwhile, the download resumes. The web
server must support ranges and identify the file by a strong ETag or a date;
otherwise the download starts over.

With --onload neither a server nor a running primary is needed: this device and
each helper fetch parts of a file, or several files, over their own Internet links
at once. Helpers take part if they run with --onload. Run the same command again to
resume an interrupted download. See docs/howto/onload.md.

Headers, cookies and passwords are sent to the hosts of the URLs, not to where these
redirect. Onloading helpers carry them only inside https://; http:// requests that
need them use this device's link alone.`,
		Example: `  mpbond get https://example.org/big.iso
  mpbond get -o image.iso --sha256 9f86d0… https://example.org/big.iso
  mpbond get --json -o - https://example.org/data >data
  mpbond get --cookie cookies.txt --header 'Accept-Language: de' https://example.org/account
  mpbond get --onload https://example.org/other.iso
  mpbond get --onload -o photos https://example.org/1.jpg https://example.org/2.jpg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.onload {
				g, err := newOnloadTask(o, args)
				if err != nil {
					return err
				}
				return g.onloadAndPrint(cmd)
			}
			if len(args) > 1 || len(o.interfaces) > 0 || o.scheduler != "" {
				return cli.UsageError("several URLs and --interface need --onload")
			}
			g, err := newGetTask(o, args[0])
			if err != nil {
				return err
			}
			res, err := g.runBondDownload(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if o.asJSON {
				out := cmd.OutOrStdout()
				if g.file == "-" {
					out = cmd.ErrOrStderr()
				}
				return cli.PrintJSON(out, res)
			}
			if !o.quiet {
				cmd.PrintErrln(res)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&o.file, "output", "o", "",
		"write to this `FILE`, with --onload also a directory (default: the last part of the URL)")
	cmd.Flags().StringVar(&o.sha256, "sha256", "", "fail unless the SHA-256 of the file is `HEX`")
	cmd.Flags().BoolVar(&o.onload, "onload", false,
		"fetch without a server, over the Internet links of helpers and of this device")
	o.addSecretFlags(cmd)
	cmd.Flags().StringSliceVar(&o.interfaces, "interface", nil,
		"with --onload: use the network interface `NAME` of this device; repeatable")
	cmd.Flags().StringVar(&o.scheduler, "scheduler", "", "with --onload: choose the item scheduler, for comparisons")
	_ = cmd.Flags().MarkHidden("scheduler") // none is better than the default: see docs/explanation/onload.md
	cmd.Flags().StringVar(&o.socket, "socket", "", "use the primary at this `PATH`")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the result as JSON (with -o - to standard error)")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only errors")
	cli.GroupFlags(cmd, "File", "output", "sha256")
	cli.GroupFlags(cmd, "Links", "socket", "onload", "interface")
	cli.GroupFlags(cmd, "Requests", "header", "cookie", "netrc", "netrc-file")
	cli.GroupFlags(cmd, "Output", "json", "quiet")
	return cmd
}

// String formats the result for people.
func (r getResult) String() string {
	s := fmt.Sprintf("%s: %s in %.2f s, %v", text.Printable(r.File), r.Bytes.Decimal(), r.Seconds, r.RateBps)
	width := 0
	for _, d := range r.Devices {
		width = max(width, len(d.Device))
	}
	for _, d := range r.Devices {
		s += fmt.Sprintf("\n  %-*s %5.1f %%  %v", width, text.Printable(d.Device), 100*d.Share, d.Bytes.Decimal())
	}
	return s
}

// getTask is one download through the primary.
type getTask struct {
	getOptions
	url        *url.URL
	wantSHA256 []byte // wanted SHA-256, or nil
	noReplace  bool   // an existing file must not be replaced
	secrets    *fetch.Secrets
}

func newGetTask(o getOptions, rawURL string) (*getTask, error) {
	g := &getTask{getOptions: o}
	var err error
	if g.url, err = url.Parse(rawURL); err != nil {
		return nil, fault.New(fault.Usage, err, "write the URL like https://example.org/file")
	}
	if g.url.Scheme != "http" && g.url.Scheme != "https" || g.url.Host == "" {
		return nil, fault.New(fault.Usage, fmt.Errorf("%q is not a web address", rawURL),
			"write the URL like https://example.org/file")
	}
	if g.secrets, err = o.secretOptions.loadSecrets(rawURL); err != nil {
		return nil, err
	}
	if o.sha256 != "" {
		if g.wantSHA256, err = hex.DecodeString(o.sha256); err != nil || len(g.wantSHA256) != sha256.Size {
			return nil, cli.UsageError("--sha256 needs %d hexadecimal digits", 2*sha256.Size)
		}
	}
	g.socket = cmp.Or(g.socket, api.SocketPath("primary"))
	return g, nil
}

// chooseOutputFile names the output file after the URL, in a directory, unless a name was given. A
// file named after the URL must not exist yet.
func (g *getTask) chooseOutputFile(dir string) error {
	if err := g.setOutputName(dir); err != nil {
		return err
	}
	if _, err := userfile.Lstat(g.file); g.noReplace && err == nil {
		return fault.New(fault.Exists, fmt.Errorf("%s already exists", g.file), "to replace it use --output "+g.file)
	}
	return nil
}

// setOutputName names the output file after the URL, in a directory, unless a name was given.
func (g *getTask) setOutputName(dir string) error {
	if g.file == "" {
		g.noReplace = true
		g.file = path.Base(g.url.Path)
		if slices.Contains([]string{".", "/", "..", "-"}, g.file) || strings.ContainsAny(g.file, "/\x00") {
			return fault.New(fault.Usage, fmt.Errorf("%s names no file", g.url.Redacted()), "give a name with --output")
		}
		g.file = filepath.Join(dir, g.file)
	}
	return nil
}

// runBondDownload downloads the file. Progress appears on stderr if that is a terminal.
func (g *getTask) runBondDownload(ctx context.Context, stdout, stderr io.Writer) (res getResult, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := client.New(g.socket)
	defer c.Close()
	status, err := queryPrimary(ctx, c)
	if err != nil {
		return res, err
	}
	if err := g.chooseOutputFile("."); err != nil {
		return res, err
	}
	begin := time.Now()
	d, err := g.openDownload(ctx, c, status)
	if err != nil {
		return res, addDownloadHint(err)
	}
	defer d.closeResponseBody()
	if d.target, err = cli.OpenTarget(g.file, g.noReplace, stdout); err != nil {
		return res, err
	}
	defer d.target.Abandon()

	screen := io.Discard
	if !g.quiet && !g.asJSON {
		screen = stderr
	}
	if d.notes = stderr; g.quiet {
		d.notes = io.Discard
	}
	d.progress = startProgress(ctx, progressConfig{c, status, unit.Bytes(d.size), screen})
	err = d.copyWithResume(ctx)
	took := time.Since(begin)
	devices := d.progress.finishProgress(err == nil)
	n := unit.Bytes(d.written)
	if err != nil {
		return res, addDownloadHint(fmt.Errorf("after %s: %w", n.Decimal(), err))
	}
	if err := g.verifyContent(d.written, d.size, d.digest); err != nil {
		return res, err
	}
	if err := d.target.Finish(); err != nil {
		return res, err
	}
	return getResult{g.url.Redacted(), g.file, n, took.Seconds(), unit.RateOf(n, took),
		hex.EncodeToString(d.digest.Sum(nil)), devices}, nil
}

// proxyDialAddress returns an address to connect to for the address on which a proxy listens.
func proxyDialAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}

// addDownloadHint gives an error of a download a kind and a hint if it has none.
func addDownloadHint(err error) error {
	var known *fault.Error
	var op *net.OpError
	switch {
	case errors.As(err, &known), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, err, "`mpbond status` shows which devices are connected")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Integrity, fmt.Errorf("the response is incomplete: %w", err), "try again")
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, fs.ErrPermission):
		return err
	case errors.As(err, &op):
		return fault.New(fault.Unreachable, err, "`mpbond status` shows which devices are connected")
	}
	return err
}

// verifyContent checks the size and the digest of the received file.
func (g *getTask) verifyContent(n, promised int64, digest hash.Hash) error {
	if promised >= 0 && n != promised {
		return fault.New(fault.Integrity, fmt.Errorf("received %d bytes of the %d promised", n, promised), "try again")
	}
	if got := digest.Sum(nil); g.wantSHA256 != nil && string(got) != string(g.wantSHA256) {
		return fault.New(fault.Integrity, fmt.Errorf("SHA-256 is %x instead of %x", got, g.wantSHA256),
			"this is not the expected file; nothing was written")
	}
	return nil
}
