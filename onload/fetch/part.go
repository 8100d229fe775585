// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/base/userfile"
)

// Suffixes of incomplete files and their journals.
const (
	partSuffix    = ".mpbond-part"
	journalSuffix = ".mpbond-part.json"
	maxJournal    = 1 << 20
)

// journal records the ranges of an object that are safely in its part file.
type journal struct {
	URL     string               `json:"url"`
	Version version              `json:"version"`
	Have    span.Set[unit.Bytes] `json:"have"`
}

// part is the file in which an object is collected. Jobs write to file.
type part struct {
	file     *os.File
	name     string // name of the finished file
	url      string
	temp     bool // removed with the job: cannot be resumed
	leftover bool // left by an earlier run with other content

	// last write of the journal
	savedAt time.Time
	saving  bool
	dirty   bool // more has been received than the journal says

	mu     sync.Mutex // held while the journal is written
	sealed bool       // no more journal writes: renamed or removed
}

// openOrCreatePart opens the part file of an earlier run if its journal belongs to the URL, or
// creates one. It fails if another process has the file open.
func openOrCreatePart(o Object) (p *part, j journal, err error) {
	p = &part{name: o.File, url: o.URL}
	for locked := false; !locked; {
		if locked, err = p.lockPartFile(); err != nil {
			return nil, j, err
		}
	}
	p.removeTempFiles()
	st, err := p.file.Stat()
	if err == nil {
		j, err = p.readJournal()
	}
	if err != nil {
		p.file.Close()
		return nil, j, err
	}
	if j.URL != o.URL || unit.Bytes(st.Size()) != j.Version.Size || j.Version.ifRangeValidator() == "" && o.SHA256 == nil {
		p.leftover, j = st.Size() > 0, journal{}
	}
	if st.Size() == 0 { // a new file
		userfile.Remove(p.name + journalSuffix)
	}
	return p, j, nil
}

// lockPartFile opens or creates the part file and locks it. It reports false if another process
// renamed the file meanwhile.
func (p *part) lockPartFile() (bool, error) {
	f, err := userfile.OpenFile(p.name+partSuffix, os.O_RDWR|os.O_CREATE|userfile.NoFollow, 0o600)
	if err != nil {
		return false, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular() || !userfile.IsOwn(st):
		err = fault.New(fault.Permission, fmt.Errorf("%s belongs to another user", f.Name()),
			"remove it, or choose another file with --output")
	case userfile.TryLock(f) != nil:
		err = fault.New(fault.AlreadyRunning, fmt.Errorf("%s is being fetched by another process", p.name), "")
	default:
		if now, err := userfile.Lstat(f.Name()); err == nil && os.SameFile(st, now) {
			p.file = f
			return true, nil
		}
	}
	f.Close()
	return false, err
}

// tempPattern returns the name pattern of temporary files.
func tempPattern(name string) string { return "." + filepath.Base(name) + ".mpbond-*" }

// removeTempFiles removes temporary files of a process that was killed. The file must be locked:
// all users of temporary files hold the lock.
func (p *part) removeTempFiles() {
	list, _ := userfile.ReadDir(filepath.Dir(p.name))
	for _, e := range list {
		number, ok := strings.CutPrefix(e.Name(), strings.TrimSuffix(tempPattern(p.name), "*"))
		if ok && strings.Trim(number, "0123456789") == "" && e.Type().IsRegular() {
			userfile.Remove(filepath.Join(filepath.Dir(p.name), e.Name()))
		}
	}
}

// readJournal reads the journal. An invalid journal counts as none.
func (p *part) readJournal() (j journal, err error) {
	f, err := userfile.OpenFile(p.name+journalSuffix, os.O_RDONLY|userfile.NoFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return j, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxJournal))
	if err != nil {
		return j, err
	}
	if json.Unmarshal(data, &j) != nil || j.Version.Size < 0 {
		return journal{}, nil
	}
	var have span.Set[unit.Bytes] // sorted, and within the object
	for _, s := range j.Have {
		if s.From < 0 || s.To > j.Version.Size {
			return journal{}, nil
		}
		have.Add(s.From, s.To)
	}
	j.Have = have
	return j, nil
}

// newTempPart creates a temporary file for an object that is fetched whole.
func newTempPart(o Object) (*part, error) {
	f, err := userfile.CreateTemp(filepath.Dir(o.File), tempPattern(o.File))
	if err != nil {
		return nil, err
	}
	return &part{file: f, name: o.File, temp: true}, nil
}

// writeJournal writes the journal. It first syncs the file: after a power cut the journal must not
// claim missing bytes.
func (p *part) writeJournal(v version, have span.Set[unit.Bytes]) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sealed {
		return nil
	}
	if err := p.file.Sync(); err != nil {
		return err
	}
	data, err := json.Marshal(journal{p.url, v, have})
	if err != nil {
		return err
	}
	next, err := userfile.CreateTemp(filepath.Dir(p.name), tempPattern(p.name))
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err = errors.Join(err, next.Sync(), next.Close()); err == nil {
		err = userfile.Rename(next.Name(), p.name+journalSuffix)
	}
	if err != nil {
		userfile.Remove(next.Name())
	}
	return err
}

// hasJournal reports whether the part has a journal.
func (p *part) hasJournal() bool {
	_, err := userfile.Lstat(p.name + journalSuffix)
	return err == nil && !p.temp
}

// recreatePartFile removes the part file and its journal and creates a new part file, since jobs
// may still write to the old one.
func (p *part) recreatePartFile() (*part, error) {
	p.discardPartFile()
	f, err := userfile.OpenFile(p.name+partSuffix, os.O_RDWR|os.O_CREATE|os.O_EXCL|userfile.NoFollow, 0o600)
	if err != nil {
		return nil, err
	}
	return &part{file: f, name: p.name, url: p.url}, userfile.TryLock(f)
}

// sealJournal prevents further writes of the journal.
func (p *part) sealJournal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
}

// discardPartFile removes the part file and its journal.
func (p *part) discardPartFile() {
	p.sealJournal()
	p.file.Close()
	userfile.Remove(p.file.Name())
	if !p.temp {
		userfile.Remove(p.name + journalSuffix)
	}
}

// publishPartFile gives the complete file its name.
func (p *part) publishPartFile(mode fs.FileMode, keep bool) error {
	p.sealJournal()
	if err := errors.Join(p.file.Chmod(mode), p.file.Sync()); err != nil {
		return err
	}
	var err error
	if keep {
		if err = userfile.Link(p.file.Name(), p.name); errors.Is(err, fs.ErrExist) {
			return fault.New(fault.Exists, fmt.Errorf("%s was created meanwhile", p.name),
				"to replace it, name it with --output")
		}
		if err == nil {
			err = userfile.Remove(p.file.Name())
		}
	} else {
		err = userfile.Rename(p.file.Name(), p.name)
	}
	if err == nil && !p.temp {
		if err = userfile.Remove(p.name + journalSuffix); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, p.file.Close())
}
