// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"mpbond/base/fault"
	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// maxRestarts bounds how often an object may change while it is fetched.
const maxRestarts = 3

// maxBroken bounds how often the connection may break while an object is fetched whole.
const maxBroken = 4

// phase is the progress of an object.
type phase uint8

const (
	fetching   phase = iota
	confirming       // another device is asked for its version
	verifying        // size and digests are checked
	closed           // done or failed
)

// object is one download.
type object struct {
	Object
	index        int
	part         *part
	version      version
	versionKnown bool // version is valid
	wholeOnly    bool // fetched with one request, without ranges
	received     span.Set[unit.Bytes]

	resumed       unit.Bytes
	carriedBy     map[*transfer.Worker]unit.Bytes // bytes of received
	seenBy        map[*transfer.Worker]bool       // devices that have seen this version
	otherVersions map[*transfer.Worker]version    // devices that see another version, and which
	finalURL      map[*transfer.Worker]string     // targets of redirects
	excluded      transfer.Excluded
	rangesFail    bool // a device was excluded since ranges fail
	restarts      int
	brokenTries   int // broken attempts to fetch it whole

	runningJobs  int
	complete     *part // has all bytes, and is verified when no job runs
	phase        phase
	err          error // of a failed object
	sha256sum    []byte
	mostReceived unit.Bytes // by any job, if fetched whole

	unchecked string // the only device that has seen it
}

// openPartFile resumes the part file of an earlier run, or creates one.
func (o *object) openPartFile() error {
	p, j, err := openOrCreatePart(o.Object)
	if err != nil {
		return err
	}
	o.part = p
	if len(j.Have) > 0 {
		o.version, o.versionKnown, o.received, o.resumed = j.Version, true, j.Have, j.Have.Size()
	}
	return nil
}

// missingItems returns the items that are still to be fetched.
func (o *object) missingItems() (list []board.Item) {
	if !o.versionKnown || o.wholeOnly {
		return []board.Item{{Object: o.index, To: board.Unknown}}
	}
	for from, to := range o.received.Missing(0, o.version.Size) {
		list = append(list, board.Item{Object: o.index, From: from, To: to, Splittable: true})
	}
	return list
}

// partForResponse returns the part file for the body of a response, or the reason why the response
// cannot be used.
func (o *object) partForResponse(j *job, a response) (*part, error) {
	switch {
	case o.versionKnown && !o.version.matchesVersion(a.version):
		j.seenVersion = a.version
		return nil, newFetchRefusal(transfer.Restart, "%s sees version %v instead of %v",
			j.Worker.Name, a.version, o.version)
	case o.versionKnown && !o.wholeOnly && !a.partial && j.wanted.from > 0:
		return nil, newFetchRefusal(transfer.NoRange, "the server sent the whole object instead of a range")
	case !a.endDetectable && o.SHA256 == nil && a.Repr.name == "":
		return nil, newFetchRefusal(transfer.Exclude, "the response has no length and no detectable end")
	}
	if !o.versionKnown {
		named := a.ifRangeValidator() != "" || o.SHA256 != nil || a.Repr.name != ""
		if a.partial && !named && a.to < a.Size {
			return nil, newFetchRefusal(transfer.NoRange, "the server sent a range without a strong validator")
		}
		o.version, o.versionKnown, o.wholeOnly = a.version, true, !a.partial || !named
	}
	o.seenBy[j.Worker] = true
	if o.version.Repr.name == "" {
		o.version.Repr = a.Repr
	}
	if !o.wholeOnly {
		return o.part, o.part.resizeFile(o.version.Size)
	}
	p, err := newTempPart(o.Object)
	if err != nil {
		return nil, transfer.NewLocalError(err)
	}
	if err := p.checkSpace(o.version.Size); err != nil {
		p.discardPartFile()
		return nil, err
	}
	return p, nil
}

// checkSpace returns an error if the disk is known to lack room for a file of the size.
func (p *part) checkSpace(size unit.Bytes) error {
	need := size - unit.Bytes(userfile.DiskUsage(p.file))
	free, ok := userfile.FreeSpace(p.file)
	if !ok || unit.Bytes(free) >= need {
		return nil
	}
	err := fmt.Errorf("%s needs %s, but only %s are free", p.name, need.Decimal(), unit.Bytes(free).Decimal())
	return transfer.NewLocalError(fault.New(fault.Limit, err, hintFreeSpace))
}

// resizeFile extends the part file to the size of the object. It first removes the journal of an
// earlier download with other content, which is overwritten.
func (p *part) resizeFile(size unit.Bytes) error {
	err := p.checkSpace(size)
	if err != nil {
		return err
	}
	if p.leftover {
		p.leftover, err = false, userfile.Remove(p.name+journalSuffix)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, p.file.Truncate(int64(size))); err != nil {
		return transfer.NewLocalError(err)
	}
	return nil
}

// hasChanged reports whether the object has changed at the server: another device must confirm the
// version that w sees. While the local device works, only it decides.
func (o *object) hasChanged(w, local *transfer.Worker) bool {
	if local != w && local.IsUp() && o.excluded[local] == nil {
		return false
	}
	for other, v := range o.otherVersions {
		if seen := o.otherVersions[w]; other != w && (v == version{} || seen == version{} || v.matchesVersion(seen)) {
			return true
		}
	}
	return false
}

// discardAllReceived discards all received bytes.
func (o *object) discardAllReceived(whole bool) error {
	for w, n := range o.carriedBy {
		w.Wasted += n
	}
	o.version, o.versionKnown, o.wholeOnly, o.received, o.resumed, o.rangesFail, o.mostReceived = version{},
		false, whole, nil, 0, false, 0
	o.clearDevices()
	if o.part == nil {
		return nil
	}
	p, err := o.part.recreatePartFile()
	if err == nil {
		o.part = p
	}
	return err
}

// clearDevices discards what is known about the devices.
func (o *object) clearDevices() {
	o.carriedBy, o.otherVersions, o.seenBy = map[*transfer.Worker]unit.Bytes{}, map[*transfer.Worker]version{},
		map[*transfer.Worker]bool{}
	o.finalURL, o.excluded = map[*transfer.Worker]string{}, transfer.Excluded{}
}

// discardReceived discards the bytes that a job has brought.
func (o *object) discardReceived(j *job) {
	n := o.received.Remove(j.Item.From, j.Item.From+j.Counted())
	j.Worker.Wasted += n
	o.carriedBy[j.Worker] -= n
	o.part.dirty = true
}

// countReceived records n more bytes of a job.
func (o *object) countReceived(j *job, n unit.Bytes) {
	if j.IsDropped() || j.part != o.part || o.phase == closed {
		j.Worker.Wasted += n
		o.mostReceived = max(o.mostReceived, j.Counted())
		return
	}
	grown := o.received.Add(j.Item.From, j.Item.From+j.Counted())
	j.Worker.Wasted += n - grown
	o.carriedBy[j.Worker] += grown
	o.part.dirty = o.part.dirty || grown > 0
}

// hasResumableData reports whether a later run can use the received bytes.
func (o *object) hasResumableData() bool {
	return o.versionKnown && !o.wholeOnly && len(o.received) > 0 && (o.version.ifRangeValidator() != "" || o.SHA256 != nil)
}

// closePartFile closes the part file and keeps it for a later run if it is resumable. If no new
// journal can be written, an older one stays valid.
func (o *object) closePartFile() {
	if o.part.leftover { // of another download, and not overwritten yet
	} else if !o.hasResumableData() || (o.part.dirty || o.part.saving) &&
		o.part.writeJournal(o.version, o.received) != nil && !o.part.hasJournal() {
		o.part.discardPartFile()
	}
	o.part.file.Close()
}

// verifyAndPublish compares the file with the expected size and digests and gives it its name. If
// they differ it removes the file. No other method of the object may run at the same time.
func (o *object) verifyAndPublish(cfg *Config) error {
	p := o.complete
	st, err := p.file.Stat()
	if err != nil {
		return err
	}
	sum, promise := sha256.New(), o.version.Repr.newDigestHash()
	to := io.Writer(sum)
	if promise != nil {
		to = io.MultiWriter(sum, promise)
	}
	if _, err := io.Copy(to, io.NewSectionReader(p.file, 0, st.Size())); err != nil {
		return err
	}
	o.sha256sum = sum.Sum(nil)
	switch {
	case o.version.Size != board.Unknown && unit.Bytes(st.Size()) != o.version.Size:
		err = fmt.Errorf("received %d bytes of the %d promised", st.Size(), o.version.Size)
		err = fault.New(fault.Integrity, err, "try again")
	case o.SHA256 != nil && !bytes.Equal(o.sha256sum, o.SHA256):
		err = fmt.Errorf("the SHA-256 is %x instead of %x", o.sha256sum, o.SHA256)
		err = fault.New(fault.Integrity, err, "the file differs from the expected one; nothing was written")
	case promise != nil && string(promise.Sum(nil)) != o.version.Repr.sum:
		err = errors.New("the file does not match the digest of the server (Repr-Digest)")
		err = fault.New(fault.Integrity, err, "try again; nothing was written")
	}
	if err != nil {
		p.discardPartFile()
		return err
	}
	if cfg.OnVerified != nil {
		cfg.OnVerified(Fetched{o.URL, o.File, unit.Bytes(st.Size()), o.resumed,
			hex.EncodeToString(o.sha256sum), o.unchecked})
	}
	return p.publishPartFile(cfg.Mode, o.KeepExisting)
}
