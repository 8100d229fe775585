// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/store"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
	"mpbond/onload/upload"
)

type putOptions struct {
	to, method, field, scheduler string
	form, headers, interfaces    []string
	keep, asJSON, quiet          bool
}

// putResult is what `mpbond put --json` prints.
type putResult struct {
	Files   []upload.Sent   `json:"files"`
	Failed  []upload.Failed `json:"failed"`
	Bytes   unit.Bytes      `json:"bytes"`  // of the files sent by this run
	Wasted  unit.Bytes      `json:"wasted"` // sent in vain
	Seconds float64         `json:"seconds"`
	RateBps unit.Rate       `json:"rate_bps"`
	Devices []onloadShare   `json:"devices"`
}

func putCommand() *cobra.Command {
	var o putOptions
	cmd := &cobra.Command{
		Use: "put FILE… --to URL", Short: "upload files over all devices, without a server",
		Args: cobra.MinimumNArgs(1),
		Long: `Upload files, or all files in directories, to a web server. Each device sends whole
files, several devices at once: this device and helpers that run with --onload. It
needs neither a bonding server nor a running primary. See docs/howto/onload.md.

A file is complete when the web server has confirmed it. Run the same command again to
resume an interrupted upload: confirmed files are skipped. Methods:

  put   HTTP PUT, as in WebDAV; creates missing collections
  post  one form for each file, as browsers send them
  s3    S3, with AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and
        AWS_REGION from the environment; large files in parts over several devices

A URL that ends with a slash is a directory, in which files keep their names.`,
		Example: `  mpbond put --to https://dav.example.org/photos/ *.jpg
  mpbond put --method post --field photo --form album=summer --to https://example.org/upload *.jpg
  mpbond put --method s3 --to https://s3.eu-central-1.amazonaws.com/bucket/2026/ photos`,
		RunE: func(cmd *cobra.Command, args []string) error {
			p := &putTask{putOptions: o}
			if err := p.readArguments(args); err != nil {
				return err
			}
			return p.uploadAndPrint(cmd)
		},
	}
	cmd.Flags().StringVar(&o.to, "to", "", "upload to this `URL`; it may contain a user name and a password")
	cmd.Flags().StringVar(&o.method, "method", upload.Put,
		"upload with this `METHOD`: "+strings.Join(upload.Methods, ", "))
	cmd.Flags().StringVar(&o.field, "field", "file", "post: send the file in the form field `NAME`")
	cmd.Flags().StringArrayVar(&o.form, "form", nil, "post: send another form field, `NAME=VALUE`; repeatable")
	cmd.Flags().StringArrayVar(&o.headers, "header", nil, "send the header `NAME:VALUE` with each request; repeatable")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "put, s3: do not replace existing files")
	cmd.Flags().StringArrayVar(&o.interfaces, "interface", nil,
		"use the network interface `NAME` of this device; repeatable")
	cmd.Flags().StringVar(&o.scheduler, "scheduler", "",
		"distribute files with the scheduler `NAME`: "+strings.Join(board.Names(), ", "))
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the result as JSON")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only errors")
	cli.GroupFlags(cmd, "Target", "to", "method", "header", "field", "form", "keep")
	cli.GroupFlags(cmd, "Links", "interface", "scheduler")
	cli.GroupFlags(cmd, "Output", "json", "quiet")
	cli.CompleteWith(cmd, "method", upload.Methods...)
	cli.CompleteWith(cmd, "scheduler", board.Names()...)
	if err := cmd.MarkFlagRequired("to"); err != nil {
		panic(err)
	}
	return cmd
}

// putTask is one run of put: uploads of several files.
type putTask struct {
	putOptions
	files   []upload.File
	skipped []string // links, pipes and devices in directories
	target  upload.Target
	find    func(context.Context) ([]fetch.Device, error) // the helpers; nil: findHelpers
}

// newUploadTarget returns the target that the options name.
func newUploadTarget(p putOptions) (t upload.Target, err error) {
	if !slices.Contains(upload.Methods, p.method) {
		return t, cli.UsageError("there is no method %q: choose one of %s",
			text.Printable(p.method), strings.Join(upload.Methods, ", "))
	}
	t = upload.Target{
		Method: p.method, URL: p.to, KeepExisting: p.keep, Field: p.field,
		Region:  cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"), "us-east-1"),
		Key:     os.Getenv("AWS_ACCESS_KEY_ID"),
		Secret:  os.Getenv("AWS_SECRET_ACCESS_KEY"),
		Session: os.Getenv("AWS_SESSION_TOKEN"),
	}
	if t.Header, err = fetch.ParseHeaders(p.headers); err != nil {
		return t, cli.UsageError("%v", err)
	}
	for _, f := range p.form {
		name, value, ok := strings.Cut(f, "=")
		if !ok || name == "" {
			return t, cli.UsageError("write a form field as NAME=VALUE")
		}
		t.Fields = append(t.Fields, upload.Field{Name: name, Value: value})
	}
	return t, nil
}

// readArguments takes the target and the files from the command line.
func (p *putTask) readArguments(args []string) (err error) {
	if p.target, err = newUploadTarget(p.putOptions); err != nil {
		return err
	}
	if p.method != upload.Post && len(p.form) > 0 {
		return cli.UsageError("--form needs --method post")
	}
	if p.keep && p.method == upload.Post {
		return cli.UsageError("--keep works with put and s3 only: the web server decides about forms")
	}
	for _, a := range args {
		if err := p.addUploadFiles(a); err != nil {
			return err
		}
	}
	if len(p.files) == 0 {
		return fault.New(fault.NotFound, errors.New("there is no file to upload"),
			"from directories only plain files are uploaded, not links")
	}
	return nil
}

// addUploadFiles adds a file, or all plain files in a directory, under the directory's name.
func (p *putTask) addUploadFiles(arg string) error {
	st, err := userfile.Stat(arg)
	if err != nil {
		return fault.New(fault.NotFound, err, "nothing was uploaded: name existing files and directories")
	}
	if !st.IsDir() {
		p.files = append(p.files, upload.File{Path: arg, Name: filepath.Base(arg)})
		return nil
	}
	full, err := filepath.Abs(arg)
	if err != nil {
		return err
	}
	return filepath.WalkDir(arg, func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.Type().IsRegular() && !d.IsDir() {
			p.skipped = append(p.skipped, at)
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		below, err := filepath.Rel(arg, at)
		p.files = append(p.files, upload.File{Path: at, Name: path.Join(filepath.Base(full), filepath.ToSlash(below))})
		return err
	})
}

// openPutJournal opens the journal of uploads to the target, and returns its content and path.
func (p *putTask) openPutJournal() (j *store.Journal, known *upload.KnownUploads, where string, err error) {
	if where, err = cli.InHome("put-" + p.target.ID() + ".jsonl"); err != nil {
		return nil, nil, "", err
	}
	known = upload.NewKnownUploads()
	j, damage, err := store.Open(where, time.Second, known.LoadEntry)
	if fault.Is(err, fault.AlreadyRunning) {
		err = fault.New(fault.AlreadyRunning, errors.New("another mpbond is uploading to the same URL"),
			"wait until it is done")
	}
	if damage != nil {
		slog.Warn("journal of confirmed uploads incomplete", "err", damage)
	}
	return j, known, where, err
}

// runOnloadUpload uploads the files. Progress appears on stderr if that is a terminal.
func (p *putTask) runOnloadUpload(ctx context.Context, stderr io.Writer) (res putResult, err error) {
	scheduler, err := board.New(cmp.Or(p.scheduler, board.Default))
	if err != nil {
		return res, err
	}
	notes, screen := io.Writer(&lockedWriter{w: stderr}), stderr
	if p.quiet {
		notes = io.Discard
	}
	if p.quiet || p.asJSON {
		screen = io.Discard
	}
	use, err := openOnloadTally()
	if err != nil {
		return res, err
	}
	defer use.closeOnloadTally()
	devices, err := openLocalLinks(p.interfaces, use.LedgerFor(policy.ForDirect))
	if err != nil {
		return res, err
	}
	if n := len(p.skipped); n > 0 {
		more := ""
		if n > 3 {
			more = fmt.Sprintf(" and %d more", n-3)
		}
		fmt.Fprintf(notes, "skipped, not plain files: %s%s\n",
			text.Printable(strings.Join(p.skipped[:min(n, 3)], ", ")), more)
	}
	journal, known, where, err := p.openPutJournal()
	if err != nil {
		return res, err
	}
	bars := newOnloadBars(screen, notes)
	if what := p.target.Exposed(); what != "" {
		fmt.Fprintln(bars.writerAbove(notes), exposureWarning(what))
	}
	search := startHelperSearch(ctx, use.helperFinder(p.find), len(devices) == 1, bars.writerAbove(notes))
	r, err := upload.Send(ctx, upload.Config{
		Devices: devices, NewDevices: search.found, Target: p.target, Files: p.files, Scheduler: scheduler,
		Journal: journal, Known: known, UserAgent: "mpbond/" + cli.Version, OnProgress: bars.drawProgress,
		Log: slog.Default(),
	})
	search.stopSearch()
	bars.finishOnloadBars(err == nil)
	if known.IsEmpty() {
		_ = userfile.Remove(where) // while it is locked
	}
	_ = journal.Close() // at worst a file is sent again
	if errors.Is(err, context.Canceled) {
		err = fault.New(fault.Other, errors.New("interrupted"),
			"run the same command again to resume: confirmed files are skipped")
	}
	return newPutResult(r), err
}

func newPutResult(r upload.Result) putResult {
	out := putResult{
		Files: append([]upload.Sent{}, r.Files...), Failed: append([]upload.Failed{}, r.Failed...),
		Seconds: r.Duration.Seconds(),
	}
	for _, f := range r.Files {
		if !f.Earlier {
			out.Bytes += f.Bytes
		}
	}
	out.Devices, out.Wasted = computeShares(r.Devices)
	out.RateBps = unit.RateOf(out.Bytes, r.Duration)
	return out
}

// String formats the result for people.
func (r putResult) String() string {
	s := fmt.Sprintf("%s: %s in %.2f s, %v", formatCount(len(r.Files), "file"), r.Bytes.Decimal(), r.Seconds, r.RateBps)
	earlier, answers, twice := 0, 0, []string{}
	for _, f := range r.Files {
		if f.Earlier {
			earlier++
		}
		if f.Proof == upload.ByResponse {
			answers++
		}
		if f.MaybeDuplicate {
			twice = append(twice, text.Printable(f.File))
		}
	}
	if earlier > 0 {
		s += fmt.Sprintf("\n  %d of them were confirmed by an earlier run", earlier)
	}
	if answers > 0 {
		s += fmt.Sprintf("\n  %d of them confirmed by the response only: the web server cannot list its files", answers)
	}
	for _, f := range twice {
		s += fmt.Sprintf("\n  %s: possibly stored twice, since a response was lost", f)
	}
	for _, f := range r.Failed {
		if f.MaybeStored {
			s += fmt.Sprintf("\n  %s: failed, but possibly stored", text.Printable(f.File))
		}
	}
	return s + formatShares(r.Devices)
}

// uploadAndPrint uploads and prints the result, even if some files failed.
func (p *putTask) uploadAndPrint(cmd *cobra.Command) error {
	res, err := p.runOnloadUpload(cmd.Context(), cmd.ErrOrStderr())
	switch {
	case len(res.Files)+len(res.Failed) == 0 && err != nil:
	case p.asJSON:
		err = errors.Join(err, cli.PrintJSON(cmd.OutOrStdout(), res))
	case !p.quiet:
		cmd.PrintErrln(res)
	}
	return err
}
