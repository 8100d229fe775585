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
	unprepared state = iota // its first step is to be done
	sending                 // its items are on the board
	confirming              // all is sent; its last step is to be done
	done
	failed
)

// Limits of what is tried for a file.
const (
	maxTries    = 8 // requests that might have gone better
	maxRestarts = 3 // begun anew, since it changed or did not arrive right
)

// file is one upload.
type file struct {
	File
	index          int
	absPath        string // absolute path, for the journal
	url            string // where it goes
	size           unit.Bytes
	modTime        time.Time
	idempotencyKey string // names this file to a server that forgets a second copy

	state            state
	stepRunning      bool // a step is under way
	err              error
	proof            Proof
	earlier          bool
	maybeStored      bool             // an answer to all of it was lost: it may be there
	maybeDuplicate   bool             // and it was sent again
	permanent        bool             // failed, and nothing is kept of it
	lastFailed       *transfer.Worker // that failed
	retryTime        time.Time        // when its step is tried again
	stepAttempts     int              // steps since something went well
	tries            int
	restarts         int
	excluded         transfer.Excluded
	unconfirmedItems int // items that are not confirmed

	multipart multipartUpload // S3
}

// newFile looks at a file.
func newFile(f File, t Target, index int) (*file, error) {
	full, err := filepath.Abs(f.Path)
	if err != nil {
		return nil, err
	}
	o := &file{File: f, index: index, absPath: full, idempotencyKey: rand.Text(), excluded: transfer.Excluded{}}
	if o.url, err = targetURL(t, f.Name); err != nil {
		return nil, err
	}
	return o, o.readAttributes()
}

// readAttributes notes what the file is now.
func (f *file) readAttributes() error {
	st, err := userfile.Stat(f.Path)
	if err == nil && !st.Mode().IsRegular() {
		err = fault.New(fault.Usage, fmt.Errorf("%s is no plain file", f.Path), "")
	}
	if err != nil {
		return err
	}
	f.size, f.modTime = unit.Bytes(st.Size()), st.ModTime()
	return nil
}

// isOpen reports whether it is neither done nor failed.
func (f *file) isOpen() bool { return f.state != done && f.state != failed }

// sentInfo is what to say of a file that is there.
func (f *file) sentInfo() Sent {
	return Sent{f.Path, f.url, f.size, f.proof, f.earlier, f.maybeDuplicate}
}

// targetURL is where a file goes.
func targetURL(t Target, name string) (string, error) {
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
