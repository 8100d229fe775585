package fetch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/onload/board"
)

// mostRestarts bounds how often an object may change while it is fetched.
const mostRestarts = 3

// mostBroken bounds how often one that can only be fetched whole breaks off.
const mostBroken = 4

// object is one download.
type object struct {
	Object
	index int
	part  *part
	is    version
	known bool // is holds
	whole bool // one device fetches all of it
	have  board.Spans

	resumed  unit.Bytes
	carried  map[*device]unit.Bytes // of have
	seen     map[*device]bool       // who was told of this version
	differ   map[*device]version    // who sees another version, and which
	final    map[*device]string     // where redirects led
	bars     map[*device]error      // who cannot have it, and why
	noRange  bool                   // that was why, at one of them
	restarts int
	broken   int // tries to fetch it whole

	jobs      int   // that run
	right     *part // is whole, and will be checked when no job runs
	checking  bool  // is being checked
	verifying bool  // and gets its name
	closed    bool  // done or failed
	err       error
	sum       []byte

	saved  time.Time
	saving bool
	dirty  bool
	most   unit.Bytes // what a job has of the whole

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
	for _, s := range o.have.Missing(o.is.Size) {
		list = append(list, board.Item{Object: o.index, From: s.From, To: s.To, Split: true})
	}
	return list
}

// meet takes in an answer: where its body goes, or why it cannot be used.
func (o *object) meet(d *device, w wanted, a answer) (*part, *refusal) {
	switch {
	case o.known && !o.is.agrees(a.version):
		no := refuse(other, "over %s there is %v, instead of %v", d.Name, a.version, o.is)
		no.seen = a.version
		return nil, no
	case o.known && !o.whole && !a.part && w.from > 0:
		return nil, refuse(noRange, "the server sends all instead of a part")
	case !a.proven && o.SHA256 == nil && a.Repr.name == "":
		return nil, refuse(barred, "the server tells neither how long it is nor where it ends")
	}
	if !o.known {
		named := a.validator() != "" || o.SHA256 != nil || a.Repr.name != ""
		if a.part && !named && a.to < a.Size {
			return nil, refuse(noRange, "the server sends a part, and no name of the version that it is of")
		}
		o.is, o.known, o.whole = a.version, true, !a.part || !named
	}
	o.seen[d] = true
	if o.is.Repr.name == "" {
		o.is.Repr = a.Repr
	}
	if !o.whole {
		return o.part, o.part.grow(o.is.Size)
	}
	p, err := tempPart(o.Object)
	if err != nil {
		return nil, &refusal{verdict: barred, err: diskError{err}}
	}
	if no := p.room(o.is.Size); no != nil {
		p.discard()
		return nil, no
	}
	return p, nil
}

// room tells whether there is some for as much, before it is fetched.
func (p *part) room(size unit.Bytes) *refusal {
	need := size - unit.Bytes(userfile.Taken(p.f))
	free, ok := userfile.Free(p.f)
	if !ok || unit.Bytes(free) >= need {
		return nil
	}
	err := fmt.Errorf("%s needs %s, and %s are free", p.name, need.Decimal(), unit.Bytes(free).Decimal())
	return &refusal{verdict: barred, err: diskError{fault.New(fault.Limit, err, makeRoom)}}
}

// grow makes the part file as long as the object. From now on what an earlier try has
// left of something else is not there any more, and its journal must not say so.
func (p *part) grow(size unit.Bytes) *refusal {
	if no := p.room(size); no != nil {
		return no
	}
	var err error
	if p.old {
		p.old, err = false, userfile.Remove(p.name+journalSuffix)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err = errors.Join(err, p.f.Truncate(int64(size))); err != nil {
		return &refusal{verdict: barred, err: diskError{err}}
	}
	return nil
}

// anew forgets all that was fetched.
func (o *object) anew(whole bool) error {
	for d, n := range o.carried {
		d.wasted += n
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
	o.carried, o.differ, o.seen = map[*device]unit.Bytes{}, map[*device]version{}, map[*device]bool{}
	o.final, o.bars = map[*device]string{}, map[*device]error{}
}

// lose forgets what a job has brought.
func (o *object) lose(j *job) {
	before := o.have.Size()
	o.have = o.have.Remove(j.Item.From, j.Item.From+j.counted)
	n := before - o.have.Size()
	j.device.wasted += n
	o.carried[j.device] -= n
	o.dirty = true
}

// take counts the bytes that a job has brought since the last time.
func (o *object) take(j *job, n unit.Bytes) {
	j.device.bytes += n
	if j.dropped || j.part != o.part || o.closed {
		j.device.wasted += n
		o.most = max(o.most, j.counted)
		return
	}
	before := o.have.Size()
	o.have = o.have.Add(j.Item.From, j.Item.From+j.counted)
	grown := o.have.Size() - before
	j.device.wasted += n - grown
	o.carried[j.device] += grown
	o.dirty = o.dirty || grown > 0
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
