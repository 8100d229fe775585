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

// maxBroken bounds how often one that can only be fetched whole breaks off.
const maxBroken = 4

// phase is how far an object is.
type phase uint8

const (
	fetching   phase = iota
	confirming       // another device is asked what it is told of it
	verifying        // it is checked, and gets its name
	closed           // done or failed
)

// object is one download.
type object struct {
	Object
	index        int
	part         *part
	version      version
	versionKnown bool // is holds
	wholeOnly    bool // one device fetches all of it
	received     span.Set[unit.Bytes]

	resumed       unit.Bytes
	carriedBy     map[*transfer.Worker]unit.Bytes // of have
	seenBy        map[*transfer.Worker]bool       // who was told of this version
	otherVersions map[*transfer.Worker]version    // who sees another version, and which
	finalURL      map[*transfer.Worker]string     // where redirects led
	excluded      transfer.Excluded
	noRange       bool // that was why, at one of them
	restarts      int
	brokenTries   int // tries to fetch it whole

	runningJobs  int   // that run
	complete     *part // is whole, and will be checked when no job runs
	phase        phase
	err          error // it failed
	sha256sum    []byte
	mostReceived unit.Bytes // what a job has of the whole

	unchecked string // the only device that was told of it
}

// openPartFile takes up what an earlier try has left.
func (o *object) openPartFile() error {
	p, j, err := openPart(o.Object)
	if err != nil {
		return err
	}
	o.part = p
	if len(j.Have) > 0 {
		o.version, o.versionKnown, o.received, o.resumed = j.Version, true, j.Have, j.Have.Size()
	}
	return nil
}

// missingItems are what of it is to be fetched.
func (o *object) missingItems() (list []board.Item) {
	if !o.versionKnown || o.wholeOnly {
		return []board.Item{{Object: o.index, To: board.Unknown}}
	}
	for from, to := range o.received.Missing(0, o.version.Size) {
		list = append(list, board.Item{Object: o.index, From: from, To: to, Splittable: true})
	}
	return list
}

// acceptResponse returns where the body of an answer to a job goes, or why it cannot be used.
func (o *object) acceptResponse(j *job, a response) (*part, error) {
	switch {
	case o.versionKnown && !o.version.matches(a.version):
		j.seenVersion = a.version
		return nil, newRefusal(transfer.Restart, "over %s there is %v, instead of %v", j.Worker.Name, a.version, o.version)
	case o.versionKnown && !o.wholeOnly && !a.partial && j.wanted.from > 0:
		return nil, newRefusal(transfer.NoRange, "the server sends all instead of a part")
	case !a.endDetectable && o.SHA256 == nil && a.Repr.name == "":
		return nil, newRefusal(transfer.Exclude, "the server tells neither how long it is nor where it ends")
	}
	if !o.versionKnown {
		named := a.validator() != "" || o.SHA256 != nil || a.Repr.name != ""
		if a.partial && !named && a.to < a.Size {
			return nil, newRefusal(transfer.NoRange, "the server sends a part, and no name of the version that it is of")
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
		p.discard()
		return nil, err
	}
	return p, nil
}

// checkSpace tells whether there is some for as much, before it is fetched.
func (p *part) checkSpace(size unit.Bytes) error {
	need := size - unit.Bytes(userfile.DiskUsage(p.file))
	free, ok := userfile.FreeSpace(p.file)
	if !ok || unit.Bytes(free) >= need {
		return nil
	}
	err := fmt.Errorf("%s needs %s, and %s are free", p.name, need.Decimal(), unit.Bytes(free).Decimal())
	return transfer.NewLocalError(fault.New(fault.Limit, err, hintFreeSpace))
}

// resizeFile makes the part file as long as the object. From now on what an earlier try has
// left of something else is not there any more, and its journal must not say so.
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

// hasChanged reports whether what a device sees instead of an object is what there is by
// now: another device must see it too, and this one's own line first, if it works.
func (o *object) hasChanged(w, own *transfer.Worker) bool {
	if own != w && own.IsUp() && o.excluded[own] == nil {
		return false
	}
	for by, v := range o.otherVersions {
		if is := o.otherVersions[w]; by != w && (v == version{} || is == version{} || v.matches(is)) {
			return true
		}
	}
	return false
}

// resetData forgets all that was fetched.
func (o *object) resetData(whole bool) error {
	for w, n := range o.carriedBy {
		w.Wasted += n
	}
	o.version, o.versionKnown, o.wholeOnly, o.received, o.resumed, o.noRange, o.mostReceived = version{}, false, whole, nil, 0, false, 0
	o.clearDevices()
	if o.part == nil {
		return nil
	}
	p, err := o.part.recreate()
	if err == nil {
		o.part = p
	}
	return err
}

// clearDevices clears what is known of the devices.
func (o *object) clearDevices() {
	o.carriedBy, o.otherVersions, o.seenBy = map[*transfer.Worker]unit.Bytes{}, map[*transfer.Worker]version{}, map[*transfer.Worker]bool{}
	o.finalURL, o.excluded = map[*transfer.Worker]string{}, transfer.Excluded{}
}

// discardReceived forgets what a job has brought.
func (o *object) discardReceived(j *job) {
	n := o.received.Remove(j.Item.From, j.Item.From+j.Counted())
	j.Worker.Wasted += n
	o.carriedBy[j.Worker] -= n
	o.part.dirty = true
}

// countReceived counts the bytes that a job has brought since the last time.
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

// isResumable reports whether the next try can use what there is.
func (o *object) isResumable() bool {
	return o.versionKnown && !o.wholeOnly && len(o.received) > 0 && (o.version.validator() != "" || o.SHA256 != nil)
}

// closePart closes the part file, for the next try if that is worth it. What an older journal
// says is still true where no new one can be written.
func (o *object) closePart() {
	if o.part.leftover { // of another object, and still there
	} else if !o.isResumable() || (o.part.dirty || o.part.saving) && o.part.writeJournal(o.version, o.received) != nil && !o.part.hasJournal() {
		o.part.discard()
	}
	o.part.file.Close()
}

// verifyAndPublish compares what is there with what was wanted and promised, and gives the file
// its name. It does not run at once with others of the object.
func (o *object) verifyAndPublish(cfg *Config) error {
	p := o.complete
	st, err := p.file.Stat()
	if err != nil {
		return err
	}
	sum, promise := sha256.New(), o.version.Repr.newHash()
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
		err = fmt.Errorf("SHA-256 is %x instead of %x", o.sha256sum, o.SHA256)
		err = fault.New(fault.Integrity, err, "the file is another one than expected; nothing was written")
	case promise != nil && string(promise.Sum(nil)) != o.version.Repr.sum:
		err = errors.New("what came does not have the digest that the server gives (Repr-Digest)")
		err = fault.New(fault.Integrity, err, "try again; nothing was written")
	}
	if err != nil {
		p.discard()
		return err
	}
	if cfg.OnVerified != nil {
		cfg.OnVerified(Fetched{o.URL, o.File, unit.Bytes(st.Size()), o.resumed, hex.EncodeToString(o.sha256sum), o.unchecked})
	}
	return p.publish(cfg.Mode, o.KeepExisting)
}
