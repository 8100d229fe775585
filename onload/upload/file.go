// SPDX-License-Identifier: Apache-2.0

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

// state is the progress of a file.
type state uint8

const (
	unprepared state = iota // prepareFile has not succeeded yet
	sending                 // its items are on the board
	confirming              // all items are sent; confirmFile is due
	done
	failed
)

// Limits of the tries for a file.
const (
	maxTries    = 8 // failed requests
	maxRestarts = 3 // after changes or failed confirmations
)

// file is one upload.
type file struct {
	File
	index          int
	absPath        string // for the journal
	url            string // target
	size           unit.Bytes
	modTime        time.Time
	idempotencyKey string // lets a server recognise a second copy

	state            state
	stepRunning      bool // a step is under way
	err              error
	proof            Proof
	earlier          bool             // sent by an earlier run
	maybeStored      bool             // a response was lost: the server may have the file
	maybeDuplicate   bool             // and the file was sent again
	permanent        bool             // failed, and not resumable
	lastFailed       *transfer.Worker // device of the last failure
	retryTime        time.Time        // when the next step may start
	stepAttempts     int              // since the last success
	tries            int
	restarts         int
	excluded         transfer.Excluded
	unconfirmedItems int // items that are not confirmed

	multipart multipartUpload // S3
}

// newUploadFile returns the upload of a file. It reads size and modification time.
func newUploadFile(f File, t Target, index int) (*file, error) {
	full, err := filepath.Abs(f.Path)
	if err != nil {
		return nil, err
	}
	o := &file{File: f, index: index, absPath: full, idempotencyKey: rand.Text(), excluded: transfer.Excluded{}}
	if o.url, err = buildTargetURL(t, f.Name); err != nil {
		return nil, err
	}
	return o, o.readAttributes()
}

// readAttributes reads the size and modification time of the file.
func (f *file) readAttributes() error {
	st, err := userfile.Stat(f.Path)
	if err == nil && !st.Mode().IsRegular() {
		err = fault.New(fault.Usage, fmt.Errorf("%s is not a regular file", f.Path), "")
	}
	if err != nil {
		return err
	}
	f.size, f.modTime = unit.Bytes(st.Size()), st.ModTime()
	return nil
}

// isUnfinished reports whether the file is neither done nor failed.
func (f *file) isUnfinished() bool { return f.state != done && f.state != failed }

// buildSentEntry returns the result entry of a confirmed file.
func (f *file) buildSentEntry() Sent {
	return Sent{f.Path, f.url, f.size, f.proof, f.earlier, f.maybeDuplicate}
}

// buildTargetURL returns the URL to which a file is sent.
func buildTargetURL(t Target, name string) (string, error) {
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
				return "", fault.New(fault.Usage, fmt.Errorf("%q is not a valid file name for a server", name), "")
			}
		}
		u = u.JoinPath("/") // ensures a path
		u.Path += name
		u.RawPath = ""
	}
	if t.Method == S3 { // a signature covers the fully escaped path
		u.RawPath = strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(u.Path))
	}
	return u.String(), nil
}
