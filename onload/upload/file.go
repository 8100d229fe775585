package upload

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/base/userfile"
	"mpbond/onload/transfer"
)

// state is how far a file is.
type state uint8

const (
	fresh     state = iota // its first step is to be done
	sending                // its items are on the board
	finishing              // all is sent; its last step is to be done
	done
	failed
)

// Limits of what is tried for a file.
const (
	mostTries    = 8 // requests that might have gone better
	mostRestarts = 3 // begun anew, since it changed or did not arrive right
)

// file is one upload.
type file struct {
	File
	index   int
	full    string // absolute path, for the journal
	url     string // where it goes
	size    unit.Bytes
	changed time.Time
	key     string // names this file to a server that forgets a second copy

	state    state
	step     bool // a step is under way
	err      error
	proof    Proof
	earlier  bool
	lost     bool             // an answer to all of it was lost: it may be there
	twice    bool             // and it was sent again
	over     bool             // failed, and nothing is kept of it
	last     *transfer.Worker // that failed
	until    time.Time        // when its step is tried again
	asked    int              // steps since something went well
	tries    int
	restarts int
	bars     transfer.Excluded
	left     int // items that are not confirmed

	parts partsOf // S3
}

// newFile looks at a file.
func newFile(f File, t Target, index int) (*file, error) {
	full, err := filepath.Abs(f.Path)
	if err != nil {
		return nil, err
	}
	o := &file{File: f, index: index, full: full, key: rand.Text(), bars: transfer.Excluded{}}
	if o.url, err = address(t, f.Name); err != nil {
		return nil, err
	}
	return o, o.look()
}

// look notes what the file is now.
func (f *file) look() error {
	st, err := userfile.Stat(f.Path)
	if err == nil && !st.Mode().IsRegular() {
		err = fault.New(fault.Usage, fmt.Errorf("%s is no plain file", f.Path), "")
	}
	if err != nil {
		return err
	}
	f.size, f.changed = unit.Bytes(st.Size()), st.ModTime()
	return nil
}

// isOpen reports whether it is neither done nor failed.
func (f *file) isOpen() bool { return f.state != done && f.state != failed }

// sent is what to say of a file that is there.
func (f *file) sent() Sent { return Sent{f.Path, f.url, f.size, f.proof, f.earlier, f.twice} }

// address is where a file goes.
func address(t Target, name string) (string, error) {
	u, err := url.Parse(t.URL)
	if err != nil {
		return "", err
	}
	u.User = nil
	if t.Method == Post {
		return u.String(), nil
	}
	if u.Path == "" || strings.HasSuffix(u.Path, "/") {
		for part := range strings.SplitSeq(name, "/") {
			if part == "" || part == "." || part == ".." {
				return "", fault.New(fault.Usage, fmt.Errorf("%q is no name for a file at a server", name), "")
			}
		}
		u = u.JoinPath("/") // has a path
		u.Path += name
		u.RawPath = ""
	}
	if t.Method == S3 { // a signature is of the path with all escaped that may be
		u.RawPath = strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(u.Path))
	}
	return u.String(), nil
}
