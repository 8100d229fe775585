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

// mostRestarts bounds how often an object may change while it is fetched.
const mostRestarts = 3

// mostBroken bounds how often one that can only be fetched whole breaks off.
const mostBroken = 4

// phase is how far an object is.
type phase uint8

const (
	fetching  phase = iota
	asking          // another device is asked what it is told of it
	verifying       // it is checked, and gets its name
	closed          // done or failed
)

// object is one download.
type object struct {
	Object
	index int
	part  *part
	is    version
	known bool // is holds
	whole bool // one device fetches all of it
	have  span.Set[unit.Bytes]

	resumed  unit.Bytes
	carried  map[*transfer.Worker]unit.Bytes // of have
	seen     map[*transfer.Worker]bool       // who was told of this version
	differ   map[*transfer.Worker]version    // who sees another version, and which
	final    map[*transfer.Worker]string     // where redirects led
	bars     transfer.Excluded
	noRange  bool // that was why, at one of them
	restarts int
	broken   int // tries to fetch it whole

	jobs  int   // that run
	right *part // is whole, and will be checked when no job runs
	phase phase
	err   error // it failed
	sum   []byte
	most  unit.Bytes // what a job has of the whole

	unchecked string // the only device that was told of it
}

// open takes up what an earlier try has left.
func (o *object) open() error {
	p, j, err := openPart(o.Object)
	if err != nil {
		return err
	}
	o.part = p
	if len(j.Have) > 0 {
		o.is, o.known, o.have, o.resumed = j.Version, true, j.Have, j.Have.Size()
	}
	return nil
}

// items are what of it is to be fetched.
func (o *object) items() (list []board.Item) {
	if !o.known || o.whole {
		return []board.Item{{Object: o.index, To: board.Unknown}}
	}
	for from, to := range o.have.Missing(0, o.is.Size) {
		list = append(list, board.Item{Object: o.index, From: from, To: to, Split: true})
	}
	return list
}

// meet returns where the body of an answer to a job goes, or why it cannot be used.
func (o *object) meet(j *job, a answer) (*part, error) {
	switch {
	case o.known && !o.is.agrees(a.version):
		j.seen = a.version
		return nil, refuse(transfer.Restart, "over %s there is %v, instead of %v", j.Worker.Name, a.version, o.is)
	case o.known && !o.whole && !a.part && j.want.from > 0:
		return nil, refuse(transfer.NoRange, "the server sends all instead of a part")
	case !a.proven && o.SHA256 == nil && a.Repr.name == "":
		return nil, refuse(transfer.Exclude, "the server tells neither how long it is nor where it ends")
	}
	if !o.known {
		named := a.validator() != "" || o.SHA256 != nil || a.Repr.name != ""
		if a.part && !named && a.to < a.Size {
			return nil, refuse(transfer.NoRange, "the server sends a part, and no name of the version that it is of")
		}
		o.is, o.known, o.whole = a.version, true, !a.part || !named
	}
	o.seen[j.Worker] = true
	if o.is.Repr.name == "" {
		o.is.Repr = a.Repr
	}
	if !o.whole {
		return o.part, o.part.grow(o.is.Size)
	}
	p, err := tempPart(o.Object)
	if err != nil {
		return nil, transfer.Local(err)
	}
	if err := p.room(o.is.Size); err != nil {
		p.discard()
		return nil, err
	}
	return p, nil
}

// room tells whether there is some for as much, before it is fetched.
func (p *part) room(size unit.Bytes) error {
	need := size - unit.Bytes(userfile.Taken(p.f))
	free, ok := userfile.Free(p.f)
	if !ok || unit.Bytes(free) >= need {
		return nil
	}
	err := fmt.Errorf("%s needs %s, and %s are free", p.name, need.Decimal(), unit.Bytes(free).Decimal())
	return transfer.Local(fault.New(fault.Limit, err, makeRoom))
}

// grow makes the part file as long as the object. From now on what an earlier try has
// left of something else is not there any more, and its journal must not say so.
func (p *part) grow(size unit.Bytes) error {
	err := p.room(size)
	if err != nil {
		return err
	}
	if p.old {
		p.old, err = false, userfile.Remove(p.name+journalSuffix)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, p.f.Truncate(int64(size))); err != nil {
		return transfer.Local(err)
	}
	return nil
}

// hasChanged reports whether what a device sees instead of an object is what there is by
// now: another device must see it too, and this one's own line first, if it works.
func (o *object) hasChanged(w, own *transfer.Worker) bool {
	if own != w && own.IsUp() && o.bars[own] == nil {
		return false
	}
	for by, v := range o.differ {
		if is := o.differ[w]; by != w && (v == version{} || is == version{} || v.agrees(is)) {
			return true
		}
	}
	return false
}

// anew forgets all that was fetched.
func (o *object) anew(whole bool) error {
	for w, n := range o.carried {
		w.Wasted += n
	}
	o.is, o.known, o.whole, o.have, o.resumed, o.noRange, o.most = version{}, false, whole, nil, 0, false, 0
	o.forget()
	if o.part == nil {
		return nil
	}
	p, err := o.part.anew()
	if err == nil {
		o.part = p
	}
	return err
}

// forget clears what is known of the devices.
func (o *object) forget() {
	o.carried, o.differ, o.seen = map[*transfer.Worker]unit.Bytes{}, map[*transfer.Worker]version{}, map[*transfer.Worker]bool{}
	o.final, o.bars = map[*transfer.Worker]string{}, transfer.Excluded{}
}

// lose forgets what a job has brought.
func (o *object) lose(j *job) {
	n := o.have.Remove(j.Item.From, j.Item.From+j.Counted())
	j.Worker.Wasted += n
	o.carried[j.Worker] -= n
	o.part.dirty = true
}

// take counts the bytes that a job has brought since the last time.
func (o *object) take(j *job, n unit.Bytes) {
	if j.IsDropped() || j.part != o.part || o.phase == closed {
		j.Worker.Wasted += n
		o.most = max(o.most, j.Counted())
		return
	}
	grown := o.have.Add(j.Item.From, j.Item.From+j.Counted())
	j.Worker.Wasted += n - grown
	o.carried[j.Worker] += grown
	o.part.dirty = o.part.dirty || grown > 0
}

// isResumable reports whether the next try can use what there is.
func (o *object) isResumable() bool {
	return o.known && !o.whole && len(o.have) > 0 && (o.is.validator() != "" || o.SHA256 != nil)
}

// leave closes the part file, for the next try if that is worth it. What an older journal
// says is still true where no new one can be written.
func (o *object) leave() {
	if o.part.old { // of another object, and still there
	} else if !o.isResumable() || (o.part.dirty || o.part.saving) && o.part.save(o.is, o.have) != nil && !o.part.kept() {
		o.part.discard()
	}
	o.part.f.Close()
}

// check compares what is there with what was wanted and promised, and gives the file
// its name. It does not run at once with others of the object.
func (o *object) check(cfg *Config) error {
	p := o.right
	st, err := p.f.Stat()
	if err != nil {
		return err
	}
	sum, promise := sha256.New(), o.is.Repr.start()
	to := io.Writer(sum)
	if promise != nil {
		to = io.MultiWriter(sum, promise)
	}
	if _, err := io.Copy(to, io.NewSectionReader(p.f, 0, st.Size())); err != nil {
		return err
	}
	o.sum = sum.Sum(nil)
	switch {
	case o.is.Size != board.Unknown && unit.Bytes(st.Size()) != o.is.Size:
		err = fmt.Errorf("received %d bytes of the %d promised", st.Size(), o.is.Size)
		err = fault.New(fault.Integrity, err, "try again")
	case o.SHA256 != nil && !bytes.Equal(o.sum, o.SHA256):
		err = fmt.Errorf("SHA-256 is %x instead of %x", o.sum, o.SHA256)
		err = fault.New(fault.Integrity, err, "the file is another one than expected; nothing was written")
	case promise != nil && string(promise.Sum(nil)) != o.is.Repr.sum:
		err = errors.New("what came does not have the digest that the server gives (Repr-Digest)")
		err = fault.New(fault.Integrity, err, "try again; nothing was written")
	}
	if err != nil {
		p.discard()
		return err
	}
	if cfg.Whole != nil {
		cfg.Whole(Got{o.URL, o.File, unit.Bytes(st.Size()), o.resumed, hex.EncodeToString(o.sum), o.unchecked})
	}
	return p.finish(cfg.Mode, o.Keep)
}
